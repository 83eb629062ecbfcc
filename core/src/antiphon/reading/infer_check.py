"""Checking an inferred grammar: further conversations must come back as they went in."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from antiphon.errors import GrammarUnavailable
from antiphon.reading.grammar import Grammar
from antiphon.reading.probing import TOOLS, Message, Prober
from antiphon.reading.reader import parse

PLAIN: tuple[list[Message], ...] = (
    [{"role": "user", "content": "Where is it?"}],
    [
        {"role": "user", "content": "Where is it?\n\n- here: or\n- there"},
        {"role": "assistant", "content": "It is **there**.\n\nAnd {here} too."},
    ],
    [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two\n\nthree"},
        {"role": "user", "content": "four"},
        {"role": "assistant", "content": "five"},
        {"role": "user", "content": "six"},
        {"role": "assistant", "content": "seven"},
    ],
    [
        {"role": "system", "content": "Be brief.\nBe kind."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ],
)


def check_plain(grammar: Grammar, prober: Prober) -> None:
    """Read plain conversations back.

    Raises:
        GrammarUnavailable: One of them differs.
    """
    for messages in PLAIN:
        for tools in (None, TOOLS[0], TOOLS[1]):
            for prompt in (False, True):
                text = prober.render(messages, tools=tools, prompt=prompt)
                if text is None or not _shown(text, messages):
                    continue
                found = parse(text, family=grammar)
                problem = differs(found, messages)
                if problem and (
                    differs(found, as_printed(found, messages))
                    or prober.render(found, tools=tools, prompt=prompt) != text
                ):
                    raise GrammarUnavailable(
                        f"The grammar inferred for {grammar.name!r} does not read the template's "
                        f"own rendering back ({problem}); declare a grammar for it."
                    )


def as_printed(found: list[Message], given: list[Message]) -> list[Message]:
    """Return messages as a template has them that joins some of them.

    Templates make a system text the beginning of the user's, and neighbours of one role one
    message, with nothing between that tells them apart. Such a rendering is the same as that of
    somebody who says both, so either reading is true to it. `found` is what was read from a
    rendering that it renders to as well.
    """
    made: list[Message] = []
    system = ""
    for message in given:
        now = found[len(made)] if len(made) < len(found) else {}
        last = found[len(made) - 1] if made else {}
        content, text = message.get("content") or "", now.get("content") or ""
        if now.get("role") == message["role"]:
            if system and text.startswith(system) and text.endswith(content.strip()):
                content, system = text, ""
            made.append({**message, "content": content})
        elif message["role"] == "system":
            if now.get("role") == "user" and text.strip() == content.strip():
                made.append({**message, "role": "user"})
            else:
                system = content.strip()
        elif made and last.get("role") == message["role"] and not message.get("tool_calls"):
            joined = last.get("content") or ""
            if not joined.endswith(content.strip()):
                return given
            made[-1] = {**made[-1], "content": joined}
        else:
            return given
    return made


def _shown(text: str, messages: list[Message]) -> bool:
    return all(str(message["content"]).strip() in text for message in messages)


def differs(found: list[dict[str, Any]], given: list[Message]) -> str:
    """Say how two lists of messages differ; "" if they do not. White space at the ends is free."""
    if [message["role"] for message in found] != [message["role"] for message in given]:
        roles = ", ".join(message["role"] for message in found)
        return f"the roles come back as {roles}"
    for number, (one, two) in enumerate(zip(found, given, strict=True)):
        if (one.get("content") or "").strip() != (two.get("content") or "").strip():
            return f"the content of message {number} differs"
    return ""


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
