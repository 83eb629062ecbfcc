"""Its descriptor raises when it is looked at."""

from antiphon.families import BackendSpec
from antiphon.plugins import hookimpl


class Odd(BackendSpec):
    def __getattribute__(self, name):
        if name == "factory":
            raise ZeroDivisionError("no factory today")
        return super().__getattribute__(name)


@hookimpl
def antiphon_register_backends():
    return [Odd("odd", "nowhere:backend")]
