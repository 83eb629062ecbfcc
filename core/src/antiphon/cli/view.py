"""``antiphon view``: look at rollouts, tokenised data and chats, in the terminal or as a page."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from antiphon.cli import inputs
from antiphon.errors import InvalidData

if TYPE_CHECKING:
    from antiphon.viewing.rows import Row


@click.command()
@click.argument("file")
@click.option(
    "--tokenizer",
    "--model",
    "tokenizer",
    help="A hub name or a folder; by default what FILE names.",
)
@inputs.template_options
@click.option("--row", type=click.IntRange(min=0), help="Only this row; the first is 0.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="So many rows at most; by default 10, and 1000 with --html.",
)
@click.option("--min-reward", type=float, help="Only rows with at least this reward.")
@click.option("--max-reward", type=float, help="Only rows with at most this reward.")
@click.option("--tokens", is_flag=True, help="One line for each token.")
@click.option("--log-probs", is_flag=True, help="The log-prob behind each sampled token.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write one HTML page here."
)
def view(
    file: str,
    tokenizer: str | None,
    family: str | None,
    template: str | None,
    settings: tuple[str, ...],
    row: int | None,
    limit: int | None,
    min_reward: float | None,
    max_reward: float | None,
    tokens: bool,
    log_probs: bool,
    html: Path | None,
) -> None:
    """Show the rows of FILE: trajectories of `rollout`, data of `tokenize`, or chats.

    What the template writes is dim, each message has its colour, and what is trained is marked. FILE
    may be an unfinished rollout (OUTPUT.part.jsonl), a folder of shards, or - for chats on standard
    input.
    """
    from antiphon.viewing.rows import Options, read_rows

    options = Options(
        _tokenizer(file, tokenizer),
        family,
        None if template is None else inputs.read_template(template),
        inputs.template_variables(settings),
    )
    rows: Iterator[Row] = read_rows(file, options)
    if row is not None:
        rows = itertools.islice(rows, row, row + 1)
    if min_reward is not None or max_reward is not None:
        rows = (each for each in rows if _rewarded(each, min_reward, max_reward))
    most = limit or (10 if html is None else 1000)
    chosen = itertools.islice(rows, most)
    shown = _write(html, file, chosen) if html else _print(chosen, tokens, log_probs)
    if not shown:
        raise InvalidData(_nothing(file, row, min_reward, max_reward))
    if next(rows, None) is not None:
        shown_alone = "row is" if most == 1 else f"{most} rows are"
        click.echo(f"Only the first {shown_alone} shown; --limit shows more.", err=True)


#: The name under which the table of commands may look for it too.
command = view


def _tokenizer(file: str, named: str | None) -> Any:
    """Return the tokenizer that is asked for, or else the one that the file names, if it is there."""
    from antiphon.errors import AntiphonError
    from antiphon.fingerprints import tokenizer_fingerprint
    from antiphon.viewing.rows import made_with

    name, fingerprint = made_with(file)
    try:
        found = inputs.load_tokenizer(named or name)
    except AntiphonError as error:
        if named is not None:
            raise
        click.echo(f"{error} Without it, tokens have no text; name one with --tokenizer.", err=True)
        return None
    if found is None or fingerprint in (None, tokenizer_fingerprint(found)):
        return found
    where = f"The tokenizer {named or name!r} is not the one that {file} was made with"
    if named is not None:
        click.echo(f"{where}, so texts may be wrong.", err=True)
        return found
    click.echo(f"{where}; name that one with --tokenizer to see tokens as text.", err=True)
    return None


def _rewarded(row: Row, least: float | None, most: float | None) -> bool:
    if row.reward is None:
        return False
    return (least is None or row.reward >= least) and (most is None or row.reward <= most)


def _print(rows: Iterable[Row], tokens: bool, log_probs: bool) -> int:
    from rich.console import Console

    from antiphon.viewing.terminal import show

    console = Console(highlight=False, markup=False, emoji=False)
    shown = 0
    for each in rows:
        show(each, console, tokens=tokens, log_probs=log_probs)
        shown += 1
    return shown


def _write(path: Path, file: str, rows: Iterable[Row]) -> int:
    from antiphon.viewing.page import html_page

    chosen = list(rows)
    if chosen:
        title = f"{'standard input' if file == '-' else Path(file).name}"
        path.write_text(html_page(title, chosen), encoding="utf-8")
        click.echo(f"{len(chosen)} rows are in {path}; open it in a browser.")
    return len(chosen)


def _nothing(file: str, row: int | None, least: float | None, most: float | None) -> str:
    if row is not None and least is None and most is None:
        return f"{file} has no row {row}; the first is 0."
    if least is not None or most is not None:
        return f"No row of {file} has such a reward."
    return f"{file} holds no rows."
