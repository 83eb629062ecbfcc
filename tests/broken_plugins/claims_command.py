"""Claims a command of antiphon itself."""

from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_commands(app):
    app.add("plugins", "json:loads", "Mine.")
