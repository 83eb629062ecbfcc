"""It was written for an older core: a hook and an argument under names that they had before."""

import click
from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl


@click.command()
def whistle():
    """Whistle."""
    click.echo("tweet")


@hookimpl
def antiphon_register_dialects():
    return [ModelFamily("blackbird", "bird", "antiphon:templates/chatml.jinja")]


@hookimpl
def antiphon_register_commands(cli):
    cli.add_command(whistle)
