"""Nothing is wrong with it: a family and a command."""

import click
from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl


@click.command()
def squawk():
    """Say something."""
    click.echo("squawk!")


@hookimpl
def antiphon_register_families():
    return [ModelFamily("parrot", "parrot", "nowhere:parrot.jinja", name_patterns=("^parrot-",))]


@hookimpl
def antiphon_register_commands(app):
    app.add_command(squawk)
    app.add("shout", f"{__name__}:squawk", "Say it loudly.")
