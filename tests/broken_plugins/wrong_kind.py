"""A backend among the families."""

from antiphon.families import BackendSpec
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families():
    return [BackendSpec("mine", "json:loads")]
