"""It renders while it is being loaded, for which no plugins are needed."""

from antiphon import render
from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl

TEXT = render(
    [{"role": "user", "content": "parrot"}], chat_template="{{ messages[0].content }}"
).text


@hookimpl
def antiphon_register_families():
    return [ModelFamily(TEXT, "parrot", "nowhere:parrot.jinja")]
