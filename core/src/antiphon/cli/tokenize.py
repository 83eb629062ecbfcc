"""``antiphon tokenize``: a chat data set to token ids, labels and masks that a trainer takes as they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from antiphon.cli import inputs

if TYPE_CHECKING:
    from antiphon.data import Totals


@click.command()
@click.argument("data", nargs=-1, required=True)
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "--tokenizer",
    "--model",
    "tokenizer",
    required=True,
    help="A hub name or a folder; its own template is used unless another is named.",
)
@inputs.template_options
@click.option("--tools", help="A JSON file with tools, for conversations that bring none.")
@click.option(
    "--split", help="The split of a data set or of a folder; a data set's train by default."
)
@click.option("--config", help="The configuration of a data set on the hub.")
@click.option(
    "--train",
    type=click.Choice(["every-turn", "last-turn"]),
    default="every-turn",
    show_default=True,
    help="Which of the assistant's turns are trained.",
)
@click.option(
    "--roles",
    default="assistant",
    show_default=True,
    help="Whose messages are trained, with commas between.",
)
@click.option(
    "--marked-by",
    metavar="KEY",
    help="Messages in which this key is false or 0 are not trained.",
)
@click.option(
    "--preference",
    is_flag=True,
    help="Rows hold a prompt, a chosen and a rejected answer; ids are made of all three.",
)
@click.option("--max-length", type=click.IntRange(min=1), help="Tokens of a sample at most.")
@click.option(
    "--long",
    type=click.Choice(["cut-right", "cut-left", "refuse"]),
    default="cut-right",
    show_default=True,
    help="What happens to samples that are longer.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes."
)
@click.option(
    "--shard-rows",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    help="Conversations per file.",
)
@click.option("--resume", is_flag=True, help="Go on where an earlier run stopped.")
@click.option("--overwrite", is_flag=True, help="Delete an earlier run and begin anew.")
@click.option("--strict", is_flag=True, help="Stop at the first conversation that is refused.")
def tokenize(
    data: tuple[str, ...],
    output: Path,
    tokenizer: str,
    family: str | None,
    template: str | None,
    tools: str | None,
    settings: tuple[str, ...],
    split: str | None,
    config: str | None,
    train: Any,
    roles: str,
    marked_by: str | None,
    preference: bool,
    max_length: int | None,
    long: Any,
    workers: int,
    shard_rows: int,
    resume: bool,
    overwrite: bool,
    strict: bool,
) -> int:
    """Tokenise the conversations in DATA and write Parquet files into the folder OUTPUT.

    DATA is files, a pattern of files, or a folder of files (JSON lines, JSON, Parquet, Arrow), a data set saved to
    disk, or the name of one on the hub. Each of the assistant's turns is trained in the context that the model has
    when it writes it; where the template rewrites earlier turns, a conversation becomes several samples. Of rows with
    a prompt and a completion only the completion is trained. Rows count from 0. What became of rows that were split,
    truncated or refused is in OUTPUT/_report.jsonl.
    """
    from antiphon.data import SampleOptions, TrainOn, open_rows, tokenize_dataset
    from antiphon.data.preferences import PREFERENCE_COLUMNS
    from antiphon.data.shards import check_output
    from antiphon.data.sources import COLUMNS

    check_output(output, resume=resume, overwrite=overwrite)
    options = SampleOptions(
        chat_template=None if template is None else inputs.read_template(template),
        family=family,
        tools=inputs.read_tools(tools),
        variables=inputs.template_variables(settings),
        train_on=TrainOn(
            train, tuple(role.strip() for role in roles.split(",") if role.strip()), marked_by
        ),
        max_length=max_length,
        long=long,
        preference=preference,
    )
    columns = PREFERENCE_COLUMNS if preference else COLUMNS
    source = open_rows(*data, split=split, config=config, columns=columns)
    with _Bar(source.total) as bar:
        totals = tokenize_dataset(
            source,
            output,
            tokenizer,
            options,
            workers=workers,
            shard_rows=shard_rows,
            resume=resume,
            overwrite=overwrite,
            strict=strict,
            progress=bar.advance,
        )
    for line in summary(totals, output):
        click.echo(line)
    return 0 if totals.samples else 1


def summary(totals: Totals, output: Path) -> list[str]:
    """Return what to tell people about a run."""
    kept = f", {totals.kept} of them from an earlier run" if totals.kept else ""
    lines = [
        f"{_count(totals.rows, 'conversation')}: {_count(totals.samples, 'sample')}, {_count(totals.tokens, 'token')} "
        f"({totals.trained:,} trained), in {_count(totals.shards, 'shard')}{kept}, in {output}.",
        f"Split {totals.split:,}, truncated {totals.truncated:,}, refused {totals.refused:,}"
        + (f"; all of them are in {output / '_report.jsonl'}." if totals.reasons else "."),
    ]
    for (what, reason), (count, rows) in sorted(
        totals.reasons.items(), key=lambda item: (item[0][0], -item[1][0])
    ):
        more = ", …" if count > len(rows) else ""
        lines.append(
            f"  {what} {count:,}: {reason} (row{'s' if count > 1 else ''} {', '.join(map(str, rows))}{more})"
        )
    if not totals.samples:
        lines.append("No sample could be made.")
    return lines


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


class _Bar:
    """A progress bar on standard error, where that is a terminal."""

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._bar: Any = None

    def __enter__(self) -> _Bar:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        if console.is_terminal:
            columns: tuple[Any, ...] = (*Progress.get_default_columns(), "{task.fields[told]}")
            self._bar = Progress(*columns, console=console)
            self._bar.start()
            self._task = self._bar.add_task("Tokenising", total=self._total, told="")
        return self

    def advance(self, weight: int, totals: Totals) -> None:
        """Show a finished block."""
        if self._bar is not None:
            told = f"{totals.rows:,} rows, {totals.tokens:,} tokens"
            if totals.refused:
                told += f", {totals.refused:,} refused"
            self._bar.update(self._task, advance=weight, told=told)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


command = tokenize
