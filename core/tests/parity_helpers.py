"""What tests of families share that hold our templates to the official ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from antiphon.testing.odd_conversations import Conversation
from antiphon.testing.parity import Compared, official_templates, same_on
from antiphon.testing.results import CheckSkipped

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Wetter <heute> & 'morgen' \"hier\"",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def official(family: Any) -> Iterator[str]:
    """Yield a family's official templates, or skip the test with the reason why there are none."""
    try:
        yield from official_templates(family)
    except CheckSkipped as error:
        pytest.skip(str(error))


def compare(family: Any, conversations: Iterable[Conversation]) -> list[Compared]:
    """Hold a family's template to each official one on these conversations."""
    given = list(conversations)
    return [same_on(family, template, given) for template in official(family)]


def call(name: str, arguments: Any) -> dict[str, Any]:
    """Return a call in the OpenAI form."""
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a conversation that begins with a user's question."""
    return [{"role": "user", "content": "ask"}, *messages]


#: Messages, tools and variables that any template is asked about.
PLAIN_CASES: dict[str, tuple[list[dict[str, Any]], Any, dict[str, Any]]] = {
    "no messages": ([], None, {"add_generation_prompt": True}),
    "system only": ([{"role": "system", "content": " s "}], None, {"add_generation_prompt": True}),
    "empty list of tools": (asks(), [], {}),
    "content None": (asks({"role": "assistant", "content": None}), None, {}),
    "no content": (asks({"role": "assistant"}), None, {}),
    "no role": (asks({"content": "x"}), None, {}),
    "a system message at a second place": (
        asks({"role": "system", "content": "x"}, {"role": "user", "content": "y"}),
        None,
        {},
    ),
}
