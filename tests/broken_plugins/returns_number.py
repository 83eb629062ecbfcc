"""A hook that returns no list."""

from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families():
    return 5
