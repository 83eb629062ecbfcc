"""Claims core's own family, and brings one of its own beside it."""

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families():
    return [
        ModelFamily("chatml", "chatml", "nowhere:template.jinja"),
        ModelFamily("parrot", "parrot", "nowhere:parrot.jinja", name_patterns=("^parrot-",)),
    ]
