"""``antiphon plugins``: what is installed, what it brings, and what is wrong with it."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from pathlib import Path
from typing import Any

import click

from antiphon.errors import InvalidParameter, PluginError
from antiphon.plugins import PluginHost, PluginRecord, get_host
from antiphon.plugins.host import DISABLE
from antiphon.plugins.tracing import TRACE

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def plugins() -> None:
    """List plugins, show what they bring, and find out what is wrong."""


@plugins.command("list")
@_as_json
def list_plugins(as_json: bool) -> None:
    """List the installed plugins and what became of each."""
    records = get_host(quiet=True).records
    if as_json:
        _print_json([_plain(record) for record in records])
        return
    rows: list[tuple[str, ...]] = [("PLUGIN", "DISTRIBUTION", "VERSION", "STATUS", "PROVIDES")]
    rows += [
        (record.name, record.distribution, record.version, record.status, _provided(record))
        for record in records
    ]
    _print_table(rows)
    faulty = [record for record in records if not record.ok]
    if faulty:
        names = ", ".join(record.name for record in faulty)
        click.echo(f"\nNot usable: {names}. `antiphon plugins doctor` says why.", err=True)


@plugins.command()
@click.argument("name")
@_as_json
def show(name: str, as_json: bool) -> None:
    """Show one plugin, or the plugin that brings NAME (a family, a backend, an environment)."""
    records = [
        record
        for record in get_host(quiet=True).records
        if name in (record.name, record.distribution)
        or name in (provided.partition(":")[2] for provided in record.provides)
    ]
    if not records:
        known = ", ".join(record.name for record in get_host(quiet=True).records)
        raise PluginError(
            f"No plugin is named {name!r} and none brings something of that name; there are"
            f" {known}."
        )
    if as_json:
        _print_json([_plain(record) for record in records])
        return
    for record in records:
        click.echo(f"{record.name}: {record.distribution} {record.version}")
        click.echo(f"  module         {record.module}")
        click.echo(f"  core range     {record.requires_core or 'any'}")
        click.echo(f"  status         {record.status}")
        for provided in record.provides:
            click.echo(f"  provides       {provided.replace(':', ' ', 1)}")
        if record.error:
            click.echo(f"  error          {record.error}")


@plugins.command()
@click.argument("model")
@_as_json
@click.pass_context
def which(ctx: click.Context, model: str, as_json: bool) -> None:
    """Say which family MODEL (a hub name or a folder) has, and why."""
    from antiphon.detection import detect_family

    detection = detect_family(model)
    if as_json:
        _print_json(dataclasses.asdict(detection))
    else:
        click.echo(detection.explain())
    if detection.family is None:
        ctx.exit(1)


@plugins.command()
@_as_json
@click.option("--trace", is_flag=True, help="Print each call of a plugin on standard error.")
@click.option("--limit", default=30.0, show_default=True, help="Seconds that loading may take.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, trace: bool, limit: float) -> None:
    """Say what is wrong with the installed plugins and what to do; exit code 1 if anything is.

    They are loaded in another process first, since some may end the one that loads them.
    With ANTIPHON_TRACE_PLUGINS=1 any program prints what --trace prints here.
    """
    from antiphon.cli import plugin_commands
    from antiphon.plugins.inspection import lacking, problems_of
    from antiphon.plugins.rehearsal import fatal

    deadly = fatal(limit)
    if deadly or trace:
        left_out = ",".join([os.environ.get(DISABLE, ""), *deadly])
        traced = {TRACE: "1"} if trace else {}
        host = PluginHost(environ={**os.environ, DISABLE: left_out, **traced})
    else:
        host = get_host(quiet=True)
    faulty = [record for record in host.records if not record.ok]
    faults = [*deadly.values()]
    faults += [sentence for record in host.records for sentence in record.changed]
    faults += [fault for app in plugin_commands(host) for fault in app.faults]
    registered = host.registered()
    faults += [f"{who.who}: {text}" for who, *what in registered for text in problems_of(*what)]
    notes = [f"{who.who}: {text}" for who, *what in registered for text in lacking(*what)]
    if as_json:
        _print_json(
            {
                "fingerprint": host.fingerprint(),
                "plugins": [_plain(record) for record in host.records],
                "faults": faults,
                "notes": notes,
            }
        )
    else:
        for record in host.records:
            mark = "ok  " if record.ok else "FAIL"
            click.echo(
                f"{mark} {record.name} ({record.distribution} {record.version}): {record.status}"
            )
            if record.error:
                click.echo(f"     {record.error}")
            for sentence in record.deprecated:
                click.echo(f"     {sentence}")
            if record.traceback:
                click.echo(
                    "".join(f"     | {line}\n" for line in record.traceback.splitlines()), nl=False
                )
        for fault in faults:
            click.echo(f"FAIL {fault}")
        for note in notes:
            click.echo(f"note {note}")
        count = len(faulty) + len(faults)
        told = "Nothing is wrong" if not count else f"{count} thing{'s' * (count > 1)} to put right"
        click.echo(f"{told}; fingerprint {host.fingerprint()}.")
    if faulty or faults:
        ctx.exit(1)


@plugins.command()
@click.argument("kind")
@click.argument("name")
@click.option("--folder", type=click.Path(path_type=Path), help="Default: antiphon-NAME.")
@click.option("--template", help="A file with a family's chat template: what it shows is written.")
@click.option("--tokenizer", help="For --template: a hub name or a folder with its special tokens.")
@_as_json
def new(
    kind: str,
    name: str,
    folder: Path | None,
    template: str | None,
    tokenizer: str | None,
    as_json: bool,
) -> None:
    """Write a distribution that brings a new KIND (family, backend, env) called NAME."""
    from antiphon import scaffold
    from antiphon.cli import inputs

    if kind not in scaffold.kinds():
        raise InvalidParameter(
            f"There is no kind {kind!r} of plugin to write; there are {', '.join(scaffold.kinds())}."
        )
    folder = folder or Path(scaffold.distribution_of(name))
    problem = ""
    if template is None:
        scaffold.write_distribution(kind, name, folder)
    elif kind != "family":
        raise InvalidParameter(f"--template is for a family; {kind} takes none.")
    else:
        source, loaded = inputs.read_template(template), inputs.load_tokenizer(tokenizer)
        problem = scaffold.write_family(name, folder, source, loaded)
    written = sorted(path for path in folder.rglob("*") if path.is_file())
    if as_json:
        _print_json([str(path) for path in written])
        return
    if problem:
        click.echo(f"No grammar could be inferred, so none is declared: {problem}.", err=True)
    click.echo(f"{folder} is written ({len(written)} files). Go on with:\n")
    click.echo(f"    cd {shlex.quote(str(folder))}")
    click.echo("    pip install -e . pytest hypothesis")
    click.echo(f"    antiphon plugins show {name}")
    click.echo("    pytest tests")


def _plain(record: PluginRecord) -> dict[str, Any]:
    return dataclasses.asdict(record)


def _provided(record: PluginRecord) -> str:
    """Return what a plugin brings: names where they are few, counts where they are many."""
    by_kind: dict[str, list[str]] = {}
    for provided in record.provides:
        kind, _, name = provided.partition(":")
        by_kind.setdefault(kind, []).append(name)
    told = []
    for kind, names in by_kind.items():
        plural = {"family": "families"}.get(kind, kind + "s")
        told.append(f"{len(names)} {plural}" if len(names) > 3 else f"{kind} {', '.join(names)}")
    return "; ".join(told)


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
