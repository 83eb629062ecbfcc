"""Conversations of known words with calls, and what a template prints of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from antiphon.reading.grammar import Grammar
from antiphon.reading.infer_turns import MARKER, Turns, whole_markers
from antiphon.reading.probing import TOOLS, Message, Prober, common_prefix, word
from antiphon.reading.scan import WHITE

NAME, OTHER = "kalwq", "lomwq"
ARGUMENTS: dict[str, Any] = {"aqx": "Valwq one", "nqx": 7391, "bqx": True}
OTHER_ARGUMENTS: dict[str, Any] = {"aqx": "Wexwq two", "nqx": 8402, "bqx": True}
IDS = ("call00001", "call00002")
NAMED_IDS = (f"functions.{NAME}:0", f"functions.{OTHER}:1")


@dataclass
class Shown:
    """One way in which a template takes a call and prints it.

    Attributes:
        prober: The template, with the form of arguments that it takes.
        content: The content of a message that only calls.
        ids: The ids of the calls.
        tools: The tools given.
    """

    prober: Prober
    content: str | None
    ids: tuple[str, str]
    tools: list[Any] | None

    def call(self, number: int = 0) -> Message:
        """Return the n-th call."""
        name = (NAME, OTHER)[number]
        arguments = (ARGUMENTS, OTHER_ARGUMENTS)[number]
        return {
            "id": self.ids[number],
            "type": "function",
            "function": {"name": name, "arguments": dict(arguments)},
        }

    def answer(self, count: int = 1, content: str | None = None) -> Message:
        """Return an assistant's message with calls."""
        return {
            "role": "assistant",
            "content": self.content if content is None else content,
            "tool_calls": [self.call(number) for number in range(count)],
        }

    def result(self, number: int, content: str) -> Message:
        """Return the n-th call's result."""
        return {
            "role": "tool",
            "content": content,
            "name": (NAME, OTHER)[number],
            "tool_call_id": self.ids[number],
        }

    def render(self, *messages: Message, prompt: bool = False) -> str | None:
        """Render a question and these messages; returns what stands after the question's word."""
        question = word("u", 0)
        text = self.prober.render(
            [{"role": "user", "content": question}, *messages], tools=self.tools, prompt=prompt
        )
        if text is None or text.count(question) != 1:
            return None
        return text.partition(question)[2]


class Unreadable(Exception):
    """Why calls can't be read."""


def find_way(prober: Prober) -> Shown | None:
    """Find a form of arguments, content and ids with which the template prints a call."""
    for ids in (IDS, NAMED_IDS):
        for as_text in (False, True):
            for content in ("", None):
                for tools in (TOOLS[0], None):
                    shown = Shown(replace(prober, as_text=as_text), content, ids, tools)
                    tail = shown.render(shown.answer())
                    if tail is not None and NAME in tail and "Valwq" in tail:
                        return shown
    return None


class Headers:
    """What stands before the bodies of answers with calls.

    Attributes:
        short: A header that only answers with calls have; None while none was seen.
    """

    def __init__(self, grammar: Grammar, turns: Turns) -> None:
        self._grammar = grammar
        self._closer = turns.closers.get("u", "")
        self.short: str | None = None

    def before(self, tail: str) -> str:
        """Return what stands before the answer's body."""
        closer = self._closer
        if not tail.startswith(closer):
            raise Unreadable("the turn before a call is not closed as others are")
        rest = tail[len(closer) :]
        openers = self.openers()
        fitting = [opener for opener in openers if rest.startswith(opener)]
        if not fitting:
            # An answer with calls may have a shorter header: gpt-oss names the tool in it.
            shared = max((common_prefix([rest, item]) for item in openers), key=len, default="")
            shared = whole_markers(shared, [rest, *openers])
            if not MARKER.search(shared) and not (
                not shared.strip(WHITE) and MARKER.search(closer)
            ):
                raise Unreadable("an answer with calls begins unlike others")
            self.short = shared
            fitting = [shared]
        return closer + max(fitting, key=len)

    def openers(self) -> list[str]:
        """Return the literals that open an answer after a question."""
        found = [
            form.opener
            for form in self._grammar.forms("assistant")
            if isinstance(form.opener, str) and (form.after is None or "user" in form.after)
        ]
        if self.short is not None and self.short not in found:
            found.append(self.short)
        return sorted(set(found), key=len, reverse=True)
