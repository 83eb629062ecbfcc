"""Checking an inferred grammar: further conversations must come back as they went in."""

from __future__ import annotations

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
                problem = differs(parse(text, family=grammar), messages)
                if problem:
                    raise GrammarUnavailable(
                        f"The grammar inferred for {grammar.name!r} does not read the template's "
                        f"own rendering back ({problem}); declare a grammar for it."
                    )


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
