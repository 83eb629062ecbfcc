"""Its hook never comes to an end."""

import itertools

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families():
    for number in itertools.count():
        yield ModelFamily(f"bird{number}", "bird", "nowhere:bird.jinja")
