"""Its hook ends the process, as if all were well."""

import os

from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_envs():
    os._exit(0)
