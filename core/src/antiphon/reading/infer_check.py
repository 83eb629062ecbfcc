"""Checking an inferred grammar: conversations with calls must come back as they went in."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from antiphon.reading.grammar import Grammar
from antiphon.reading.infer_plain import as_printed
from antiphon.reading.probing import Message, Prober
from antiphon.reading.reader import parse

CALL_TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "find_places",
            "description": "Finds places.",
            "parameters": {
                "type": "object",
                "properties": {
                    "near": {"type": "string"},
                    "limit": {"type": "integer"},
                    "open_now": {"type": "boolean"},
                    "filters": {"type": "object"},
                },
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "Tells the time.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]
_ASKED = {"role": "user", "content": "What is near?"}


def _call(number: int, ids: tuple[str, str], name: str, arguments: dict[str, Any]) -> Message:
    label = f"functions.{name}:{number}" if ids[0].startswith("functions.") else ids[number]
    return {
        "id": label,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def call_probes(content: str | None, ids: tuple[str, str]) -> list[list[Message]]:
    """Return conversations with calls of every kind."""
    near = _call(0, ids, "find_places", {"near": 'the "old" <mill> & {pond}\nin Ås'})
    many = _call(
        0,
        ids,
        "find_places",
        {
            "near": "x",
            "limit": 3,
            "open_now": False,
            "filters": {"tags": ["a"], "deep": {"n": 1.5}},
        },
    )
    empty = _call(1, ids, "now", {})
    first = _call(0, ids, "now", {})
    result = {"role": "tool", "content": "two\nplaces", "name": "find_places"}
    result["tool_call_id"] = near["id"]
    plain = {"role": "tool", "content": '{"n": 2}', "name": "find_places"}
    plain["tool_call_id"] = near["id"]
    later = {"role": "tool", "content": "12", "name": "now", "tool_call_id": empty["id"]}

    def calls(*made: Message, text: str | None = content) -> Message:
        return {"role": "assistant", "content": text, "tool_calls": list(made)}

    end = {"role": "assistant", "content": "Two: a mill and a pond."}
    return [
        [_ASKED, calls(near)],
        [_ASKED, calls(many)],
        [_ASKED, calls(first)],
        [_ASKED, calls(near, text="Let me look.")],
        [_ASKED, calls(many, empty)],
        [_ASKED, calls(near), result],
        [_ASKED, calls(near), plain, end],
        [_ASKED, calls(near, empty), result, later, end, {"role": "user", "content": "Thanks!"}],
        [_ASKED, calls(near), result, calls(first, text="And now?"), result, end],
        [{"role": "system", "content": "Be kind."}, _ASKED, calls(near), result, end],
    ]


def calls_problem(
    grammar: Grammar, prober: Prober, content: str | None, ids: tuple[str, str]
) -> str:
    """Read conversations with calls back; returns what differs, or ""."""
    for messages in call_probes(content, ids):
        for tools in (CALL_TOOLS, None):
            for prompt in (False, True):
                text = prober.render(messages, tools=tools, prompt=prompt)
                if text is None:
                    continue
                found = parse(text, family=grammar, tools=CALL_TOOLS)
                problem = differs_in_calls(found, messages, text)
                if problem and prober.render(found, tools=tools, prompt=prompt) == text:
                    # The same text: what the template left out can't come back.
                    given = without_dropped(found, as_printed(found, messages))
                    problem = differs_in_calls(found, given, text)
                    if problem and same_story(found, messages):
                        problem = ""
                if problem:
                    return problem
    return ""


def same_story(found: list[Message], given: list[Message]) -> bool:
    """Whether everything was said by the same side, however it is cut into messages.

    For templates that print an answer's text behind the results of its calls, or join answers.
    """
    for roles in (("user", "system"), ("assistant",), ("tool",)):
        told = [
            "".join(
                "".join((message.get("content") or "").split())
                for message in messages
                if message["role"] in roles
            )
            for messages in (found, given)
        ]
        if told[0] != told[1]:
            return False
    flat = [
        [call for message in messages for call in plain_calls(message)]
        for messages in (found, given)
    ]
    return flat[0] == flat[1]


def without_dropped(found: list[Message], given: list[Message]) -> list[Message]:
    """Return messages without the calls that a template left out: the last ones, or all."""
    made = []
    for one, two in zip(found, given, strict=False):
        calls, wanted = plain_calls(one), plain_calls(two)
        if calls != wanted and calls == wanted[: len(calls)]:
            two = {**two, "tool_calls": two["tool_calls"][: len(calls)]}
        if one.get("reasoning_content") and one["reasoning_content"] == two.get("content"):
            # What is said beside a call is thinking in some formats.
            two = {**two, "content": one.get("content")}
        made.append(two)
    return made + given[len(found) :]


def plain_calls(message: Message) -> list[tuple[str, Any]]:
    """Return names and arguments of a message's calls, the arguments decoded."""
    made = []
    for call in message.get("tool_calls") or ():
        arguments = call["function"]["arguments"]
        if isinstance(arguments, str):
            with contextlib.suppress(ValueError):
                arguments = json.loads(arguments)
        made.append((call["function"]["name"], arguments))
    return made


def differs_in_calls(found: list[Message], given: list[Message], text: str) -> str:
    """Say how conversations with calls differ; what the template did not print need not come
    back.
    """
    if [message["role"] for message in found] != [message["role"] for message in given]:
        return f"the roles come back as {', '.join(message['role'] for message in found)}"
    for number, (one, two) in enumerate(zip(found, given, strict=True)):
        if plain_calls(one) != plain_calls(two):
            return f"the calls of message {number} differ"
        wanted = (two.get("content") or "").strip()
        if (one.get("content") or "").strip() != wanted and wanted in text:
            return f"the content of message {number} differs"
    return ""
