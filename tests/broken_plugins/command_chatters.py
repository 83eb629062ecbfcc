"""It prints and draws a random number where it is asked for commands."""

import random

from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_commands(app):
    print("squawk!")
    random.random()
    app.add("shout", "nowhere:shout", "Say it loudly.")
