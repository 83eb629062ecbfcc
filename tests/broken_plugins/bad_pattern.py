"""A name pattern that is no regular expression."""

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families():
    return [ModelFamily("mine", "mine", "nowhere:template.jinja", name_patterns=("(qwen",))]
