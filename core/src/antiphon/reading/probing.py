"""Rendering known words with a template, to see what it puts around them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from antiphon.errors import RenderError
from antiphon.reading.grammar import Literals, Slot
from antiphon.reading.turn_forms import shared_start

Message = dict[str, Any]

WORDS = {"s": "Syswq", "u": "Usrwq", "a": "Astwq", "t": "Tolwq", "x": "Othwq"}
ROLES = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


TOOLS: tuple[list[dict[str, Any]], ...] = (
    [
        {
            "type": "function",
            "function": {
                "name": "fnqwx",
                "description": "Says fnqwx.",
                "parameters": {
                    "type": "object",
                    "properties": {"aqx": {"type": "string", "description": "Of fnqwx."}},
                    "required": ["aqx"],
                },
            },
        }
    ],
    [
        {
            "type": "function",
            "function": {
                "description": "Gives gnqwy.",
                "name": "gnqwy",
                "parameters": {
                    "type": "object",
                    "properties": {"bqy": {"type": "integer", "description": "For it"}},
                    "required": [],
                },
            },
        },
        {
            "type": "function",
            "function": {
                "parameters": {"type": "object", "properties": {}},
                "name": "hnqwz",
                "description": "Hides hnqwz",
            },
        },
    ],
)
"""Two lists of tools that have little in common: what stands in both renderings is the
template's."""


@dataclass
class Prober:
    """A template and everything it is rendered with.

    Attributes:
        template: The template's source.
        variables: Template variables such as ``bos_token``.
        as_text: Give call arguments as JSON text, as some templates demand.
        as_parts: Give contents as lists of parts, as some templates demand.
    """

    template: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    as_text: bool = False
    as_parts: bool = False

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Any] | None = None,
        prompt: bool = False,
        **variables: Any,
    ) -> str | None:
        """Return the rendering; None where the template refuses."""
        from antiphon.engine.rendering import render
        from antiphon.plugins.events import unobserved

        try:
            with unobserved():
                return render(
                    self._given(messages),
                    chat_template=self.template,
                    tools=tools,
                    add_generation_prompt=prompt,
                    **{**self.variables, **variables},
                ).text
        except RenderError:
            return None

    def _given(self, messages: Sequence[Message]) -> list[Message]:
        given = list(messages)
        if self.as_text:
            given = [with_text_arguments(message) for message in given]
        if self.as_parts:
            given = [with_parts(message) for message in given]
        return given


def with_parts(message: Message) -> Message:
    """Return a message whose content is a list with one part."""
    content = message.get("content")
    if not isinstance(content, str) or not content:
        return message
    return {**message, "content": [{"type": "text", "text": content}]}


def with_text_arguments(message: Message) -> Message:
    """Return a message whose calls have their arguments as JSON text."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    made = []
    for call in calls:
        arguments = call["function"]["arguments"]
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        made.append({**call, "function": {**call["function"], "arguments": arguments}})
    return {**message, "tool_calls": made}


def word(role: str, number: int) -> str:
    """Return a word that stands for the text of the n-th message."""
    return f"{WORDS[role]}{number}x"


def conversation(sequence: str) -> list[Message]:
    """Return messages with one word each, for a sequence such as ``"sua"``."""
    return [
        {"role": ROLES[role], "content": word(role, number)} for number, role in enumerate(sequence)
    ]


def cut(text: str, words: Iterable[str]) -> list[str] | None:
    """Return what stands before, between and after words; None if one is not there just once."""
    parts = []
    rest = text
    for item in words:
        if text.count(item) != 1:
            return None
        before, found, rest = rest.partition(item)
        if not found:
            return None
        parts.append(before)
    parts.append(rest)
    return parts


def common_prefix(texts: Sequence[str]) -> str:
    """Return the longest common beginning."""
    return shared_start(list(texts))


def common_suffix(texts: Sequence[str]) -> str:
    """Return the longest common end."""
    return common_prefix([text[::-1] for text in texts])[::-1]


def around_tools(one: str, two: str) -> Literals:
    """Return what is common to two texts as literals, with a slot for the tools where they
    differ.
    """
    if one == two:
        return one
    before = common_prefix([one, two])
    after = common_suffix([one[len(before) :], two[len(before) :]])
    parts: tuple[str | Slot, ...] = (before, Slot("tools"), after)
    return tuple(part for part in parts if part)


def with_dates(literals: Literals) -> Literals:
    """Replace today's date, which a template printed, by a slot: it will be another one
    tomorrow.
    """
    parts = (literals,) if isinstance(literals, str) else literals
    made: list[str | Slot] = []
    for part in parts:
        made.extend(_split_dates(part) if isinstance(part, str) else [part])
    if all(isinstance(part, str) for part in made):
        return literals
    return tuple(made)


_DATES = (
    "%d %b %Y",
    "%d %B %Y",
    "%B %d, %Y",
    "%b %d, %Y",
    "%Y-%m-%d",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%A, %B %d, %Y",
    "%Y/%m/%d",
    "%d.%m.%Y",
    "%Y%m%d",
)


def _split_dates(text: str) -> list[str | Slot]:
    today = datetime.datetime.now()
    days = [today, today + datetime.timedelta(days=1), today - datetime.timedelta(days=1)]
    for form in _DATES:
        for day in days:
            shown = day.strftime(form)
            for spelling in (shown, shown.lstrip("0"), shown.replace(" 0", " ")):
                if spelling in text:
                    before, _, after = text.partition(spelling)
                    return [part for part in (before, Slot("date"), *_split_dates(after)) if part]
    return [text]
