"""Its command hook raises."""

from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_commands(app):
    raise ValueError("no terminal")
