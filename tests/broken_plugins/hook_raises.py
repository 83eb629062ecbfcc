"""A hook that raises half-way through its families."""

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families():
    yield ModelFamily("half-made", "half-made", "nowhere:template.jinja")
    raise KeyError("the other half")
