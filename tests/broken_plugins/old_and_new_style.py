"""It serves an older core too: the hook is there under its old name and under the new one."""

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families():
    return [ModelFamily("thrush", "bird", "antiphon:templates/chatml.jinja")]


@hookimpl(optional=True)
def antiphon_register_dialects():
    raise AssertionError("the old name is not asked where the new one is there")
