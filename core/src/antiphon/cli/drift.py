"""``antiphon drift``: where encoding stored conversations again would give other ids, and why."""

from __future__ import annotations

from typing import Any

import click

from antiphon.cli import inputs


@click.command()
@click.argument("file")
@click.option(
    "--tokenizer",
    "--model",
    "tokenizer",
    required=True,
    help="A hub name or a folder: the tokenizer that the stored ids are of.",
)
@inputs.template_options
@click.option(
    "--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Differences shown."
)
@click.option(
    "--json", "as_json", is_flag=True, help="One line of JSON per row, with ids and texts."
)
def drift(
    file: str,
    tokenizer: str,
    family: str | None,
    template: str | None,
    settings: tuple[str, ...],
    limit: int,
    as_json: bool,
) -> int:
    """Compare the ids stored in FILE with those that its conversations give when they are encoded again.

    A row of FILE (JSON lines, JSON, Parquet, Arrow) has "input_ids" and beside them "messages" or "text"; messages
    may carry "token_ids" of their own. The exit code is 1 where anything differs.
    """
    from antiphon import drift as report
    from antiphon.data.sources import open_rows, rows_of
    from antiphon.errors import AntiphonError, InvalidData

    options = {
        "family": family,
        "chat_template": None if template is None else inputs.read_template(template),
        **inputs.template_variables(settings),
    }
    source = open_rows(file, columns=None)
    loaded = inputs.load_tokenizer(tokenizer)
    drifts = []
    for block in source.blocks(256):
        for number, row in rows_of(block):
            try:
                if isinstance(row, AntiphonError):
                    raise row
                each = report.drift_of(row, loaded, row_number=number, **options)
            except AntiphonError as error:
                each = report.Drift(number, problem=" ".join(str(error).split()))
            if as_json:
                inputs.print_json(report.as_data(each))
            drifts.append(each)
    if not drifts:
        raise InvalidData(f"{file} holds no rows, so there is nothing to compare.")
    differing = sum(1 for each in drifts if each.differences)
    problems = [each for each in drifts if each.problem]
    if not as_json:
        for line in _table(report, drifts, limit):
            click.echo(line)
        click.echo(
            f"{len(drifts)} rows, {sum(each.tokens for each in drifts):,} tokens: {differing} would drift, "
            f"{len(problems)} could not be compared."
        )
    return 1 if differing or problems else 0


def _table(report: Any, drifts: list[Any], limit: int) -> list[str]:
    lines: list[str] = []
    found = [(each.row, difference) for each in drifts for difference in each.differences]
    if found and limit:
        lines.append(
            f"{'row':>6} {'token':>6} {'message':>7}  {'why':18}  {'stored':32}  encoded again"
        )
        for row, one in found[:limit]:
            message = "" if one.message is None else "-" if one.message < 0 else str(one.message)
            lines.append(
                f"{row:>6} {one.position:>6} {message:>7}  {one.why:18}  {report.shown(one.was):32}  "
                f"{report.shown(one.now)}"
            )
        if len(found) > limit:
            lines.append(
                f"… and {len(found) - limit} more; --limit shows them, --json all of them."
            )
        lines.append("")
        for why, count, rows, examples in report.summary(drifts):
            where = ", ".join(map(str, examples)) + (", …" if rows > len(examples) else "")
            lines.append(f"{count:>6} {why}: {report.REASONS[why]} (rows {where})")
    for each in drifts:
        if each.problem:
            lines.append(f"row {each.row}: {each.problem}")
    return lines


command = drift
