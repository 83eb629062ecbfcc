"""A factory that does not name an object."""

from antiphon.families import EnvSpec
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_envs():
    return [EnvSpec("mine", "my_module.my_function")]
