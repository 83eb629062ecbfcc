"""Checking an inferred grammar: conversations without calls must come back as they went in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from antiphon.errors import GrammarUnavailable
from antiphon.reading.grammar import Grammar
from antiphon.reading.probing import TOOLS, Message, Prober
from antiphon.reading.reader import parse, read_conversation


def _said(*contents: Any, first: str = "user") -> list[Message]:
    """Return a conversation in which question and answer take turns."""
    roles = ("user", "assistant") if first == "user" else ("assistant", "user")
    return [
        {"role": roles[number % 2], "content": content} for number, content in enumerate(contents)
    ]


_SYSTEM: Message = {"role": "system", "content": "Be brief.\nBe kind."}
_THOUGHT = "<think>\nA mill; a pond.\n</think>\n\n"

PLAIN: tuple[list[Message], ...] = (
    _said("Where is it?"),
    _said("Where is it?\n\n- here: or\n- there", "It is **there**.\n\nAnd {here} too."),
    _said("one", "two\n\nthree", "four", "five", "six", "seven"),
    [_SYSTEM, *_said("one", "two", "three")],
)
"""Conversations that are read with and without tools."""

FURTHER: tuple[list[Message], ...] = (
    [_SYSTEM, *_said("one")],
    [_SYSTEM, *_said("one", "two")],
    [{"role": "system", "content": ""}, *_said("one", "", "three", "four")],
    [
        {"role": "system", "content": "  Be brief.\n"},
        *_said("\nWhere is it?  ", "  Here.", "\tAnd that?", "\nThere.\n"),
    ],
    _said("one", f"{_THOUGHT}two"),
    _said("one", f"{_THOUGHT}two", "three", f"{_THOUGHT}four"),
    _said("one", f"{_THOUGHT}two", "three"),
    [
        {**message, "reasoning_content": "A mill; a pond."}
        if message["role"] == "assistant"
        else message
        for message in _said("one", "two", "three", "four")
    ],
    [*_said("one"), *_said("two", "three")],
    [*_said("one", "two"), _SYSTEM, *_said("three", "four")],
    _said("one", "two", "three", first="assistant"),
    _said("<b>one</b> & {{ two }}", "{% raw %} \\ <i>three</i>"),
    _said(
        [{"type": "text", "text": "Where is it?"}, {"type": "text", "text": "And that?"}],
        [{"type": "text", "text": "It is there."}],
    ),
)
"""Conversations that are read without tools."""

_WAYS: tuple[dict[str, Any], ...] = ({}, {"enable_thinking": False}, {"enable_thinking": True})


def plain_problem(grammar: Grammar, prober: Prober) -> str:
    """Read plain conversations back; returns what differs, or ""."""
    for messages, options in _probes():
        for given in (prober, replace(prober, as_parts=False)) if prober.as_parts else (prober,):
            text = given.render(messages, **options)
            if text is None:
                continue
            try:
                found = parse(text, family=grammar)
            except GrammarUnavailable:
                continue
            wanted = [_in_text(message, text) for message in messages]
            read = [_in_text(message, text) for message in found]
            problem = differs(read, wanted)
            if problem and differs(read, as_printed(read, wanted)):
                again = {text_ for text_ in _again(prober, found, options)}
                if text not in again:
                    return problem
    return ""


def tells_prompts(grammar: Grammar, prober: Prober) -> bool:
    """Whether reading tells renderings that ask for an answer from those that don't."""
    for messages in PLAIN:
        texts = [prober.render(messages, prompt=prompt) for prompt in (False, True)]
        if None in texts or texts[0] == texts[1]:
            continue
        for prompt, text in zip((False, True), texts, strict=True):
            if text is None:
                continue
            try:
                if read_conversation(text, family=grammar).prompted != prompt:
                    return False
            except GrammarUnavailable:
                continue
    return True


def _probes() -> Iterator[tuple[list[Message], dict[str, Any]]]:
    for prompt in (False, True):
        for messages in PLAIN:
            for tools in (None, *TOOLS):
                yield messages, {"tools": tools, "prompt": prompt}
        for messages in FURTHER:
            yield messages, {"prompt": prompt}
    for options in _WAYS[1:]:
        yield PLAIN[0], {"prompt": True, **options}


def _again(prober: Prober, found: list[Message], options: dict[str, Any]) -> Iterator[str | None]:
    """Yield what was read, rendered again; an answer without a text is a prompt, or is not."""
    for prompt in (bool(options.get("prompt")), True):
        for as_parts in (prober.as_parts, not prober.as_parts):
            yield replace(prober, as_parts=as_parts).render(found, **{**options, "prompt": prompt})


def _in_text(message: Message, text: str) -> Message:
    """Return a message with its content as a template printed it: what is not in the text was left
    out, and parts stand there one after the other or as Python writes a list.
    """
    content = message.get("content") or ""
    if isinstance(content, list):
        if str(content) in text:
            content = str(content)
        else:
            shown = [part.get("text", "") for part in content]
            content = "".join(part for part in shown if part.strip() in text)
        content = "".join(content.split())
    elif content.strip() not in text:
        content = ""
    return {**message, "content": content}


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
        elif message["role"] == "system" and content.strip():
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


def differs(found: list[dict[str, Any]], given: list[Message]) -> str:
    """Say how two lists of messages differ; "" if they do not. White space at the ends is free."""
    if [message["role"] for message in found] != [message["role"] for message in given]:
        roles = ", ".join(message["role"] for message in found)
        return f"the roles come back as {roles}"
    for number, (one, two) in enumerate(zip(found, given, strict=True)):
        if squeezed(one) != squeezed(two):
            return f"the content of message {number} differs"
    return ""


def squeezed(message: Message) -> str:
    """Return a content without white space."""
    return "".join((message.get("content") or "").split())
