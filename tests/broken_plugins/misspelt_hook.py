"""A hook whose name is misspelt."""

from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_familys():
    return []
