"""Two families of one name in one plugin."""

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families():
    family = ModelFamily("twice", "twice", "nowhere:template.jinja")
    return [family, family]
