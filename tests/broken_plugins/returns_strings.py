"""A hook that returns names in place of descriptors."""

from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families():
    return ["gemma3"]
