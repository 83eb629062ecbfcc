"""A hook with an argument that its specification does not have."""

from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families(config):
    return []
