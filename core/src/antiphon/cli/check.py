"""``antiphon check``: whether a family does what Antiphon asks of it, on a tokenizer of its models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from antiphon.cli import inputs


@click.command()
@click.argument("name", metavar="FAMILY|MODEL|FOLDER")
@click.option("--tokenizer", help="A hub name or a folder, for FAMILY; else a stand-in is made.")
@click.option(
    "--template",
    "templates",
    multiple=True,
    help="A file with an official template that FAMILY must equal, or that MODEL has in place of its own.",
)
@click.option("--only", multiple=True, help="Run this check alone (may be given several times).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--markdown", is_flag=True, help="Print a table for a README.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write digests of what FAMILY prints into this file, for its descriptor.",
)
@click.pass_context
def check(
    ctx: click.Context,
    name: str,
    tokenizer: str | None,
    templates: tuple[str, ...],
    only: tuple[str, ...],
    as_json: bool,
    markdown: bool,
    keep: Path | None,
) -> None:
    """Run the conformance checks and print how they went; exit code 1 if one fails.

    A FAMILY is a dialect's name, such as qwen3. For a MODEL on the hub or in a FOLDER the dialect is
    detected; where none is known, its own template is checked with the grammar that this shows.
    """
    from antiphon.errors import ModelNotFound
    from antiphon.registry import families
    from antiphon.testing import check_family, check_model

    if keep is not None:
        _keep(name, keep)
        return
    chosen = only or None
    if name in {family.name for family in families()}:
        sources = tuple(inputs.read_template(path) for path in templates)
        report = check_family(
            name, inputs.load_tokenizer(tokenizer), templates=sources, only=chosen
        )
    else:
        try:
            loaded = inputs.load_tokenizer(name)
        except ModelNotFound as error:
            raise ModelNotFound(f"{name!r} is no family, and {_lower(str(error))}") from error
        if templates:
            loaded.chat_template = inputs.read_template(templates[-1])
        report = check_model(loaded, name=name, only=chosen)
    if as_json:
        click.echo(report.to_json())
    elif markdown:
        click.echo(report.to_markdown())
    else:
        click.echo(str(report))
        for line in _facts(report.facts):
            click.echo(line)
    if not report.ok:
        ctx.exit(1)


#: The name under which the table of commands may look for it too.
command = check


def _keep(name: str, file: Path) -> None:
    from antiphon.testing import FamilySubject
    from antiphon.testing.kept import keep

    count = keep(FamilySubject(name), file)
    click.echo(
        f"{file} holds what {name} prints of {count} conversations; name it in the descriptor:"
        f' renderings="your_package:{file.name}".'
    )


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _facts(facts: dict[str, Any]) -> list[str]:
    """Return what was found out, as lines for people."""
    can = facts.get("capabilities")
    lines = []
    if isinstance(can, dict):
        prints = [name.replace("_", " ") for name, does in can.items() if does]
        lines.append(f"  prints: {', '.join(prints) or 'nothing but plain messages'}")
    inferred = facts.get("inferred")
    if isinstance(inferred, str):
        lines.append(f"  no grammar is declared, and none could be inferred: {inferred}")
    elif inferred is not None:
        lines.append("  no grammar is declared; the template shows this one:")
        text = json.dumps(inferred, indent=2, ensure_ascii=False)
        lines += [f"    {line}" for line in text.splitlines()]
    return lines
