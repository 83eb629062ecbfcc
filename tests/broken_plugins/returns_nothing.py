"""A hook whose author forgot to return what it made."""

from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families():
    families = []
    families.append("forgotten")
