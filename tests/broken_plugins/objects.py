"""Its entry points may name these: an object with hooks, one without, one that can't be looked at."""

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl


class Hooks:
    @hookimpl
    def antiphon_register_families(self):
        return [ModelFamily("finch", "bird", "nowhere:finch.jinja")]


class Shy:
    @property
    def antiphon_register_families(self):
        raise OSError("not now")

    @property
    def __dict__(self):
        raise OSError("not now")


good = Hooks()
number = 5
shy = Shy()
