"""Splitting a whole rendering into messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from antiphon.engine.markers import MARKER
from antiphon.errors import GrammarUnavailable
from antiphon.reading.announcements import without_announcement
from antiphon.reading.answers import AnswerReader
from antiphon.reading.compiled import Compiled
from antiphon.reading.messages import parts_or_text, with_all_breaks
from antiphon.reading.scan import WHITE, Invalid, decode_json
from antiphon.reading.turn_ends import set_ending
from antiphon.reading.turn_forms import TurnForm, head, slot_expression


class Place(NamedTuple):
    """Where a turn's body stands in a rendering.

    Attributes:
        role: The turn's role; "" for text that no turn claims.
        start: Where the body begins.
        end: Where it ends; an answer's with its closer, which a model may write in its own way.
        message: The number of the message that was read from it; -1 where none was.
    """

    role: str
    start: int
    end: int
    message: int = -1


@dataclass
class Conversation:
    """What a rendering says.

    Attributes:
        messages: The messages, in the OpenAI form.
        has_tools: Whether the rendering announces tools.
        arguments: Template arguments that could be read off (a date).
        prompted: Whether it ends with a generation prompt.
        places: Where the turns stand, those without a message of their own among them.
    """

    messages: list[dict[str, Any]]
    has_tools: bool = False
    arguments: dict[str, str] = field(default_factory=dict)
    prompted: bool = False
    places: list[Place] = field(default_factory=list)


class Splitter:
    """A grammar's turns as expressions.

    Args:
        compiled: The grammar, compiled for text or for a tokenizer.
    """

    def __init__(self, compiled: Compiled) -> None:
        grammar = compiled.grammar
        self.compiled = compiled
        self.grammar = grammar
        self.answers = AnswerReader(compiled)
        self.bos = compiled.convert(grammar.bos)
        self.prefix = compiled.convert(grammar.prefix)
        self.forms = [TurnForm(form, compiled) for form in grammar.roles]
        self.prompts = tuple(compiled.convert(text) for text in grammar.generation_prompts)
        roles = dict.fromkeys(["", *(form.role for form in self.forms)])
        self.following = {role: self._followers(role) for role in roles}
        for form in self.forms:
            set_ending(form, self.following.get(form.role, []), compiled)
            thought = compiled.think_close.core
            form.has_thought = bool(thought) and thought in head(form.opener)
            form.has_twin = any(_is_rival(other, form) for other in self.forms)
        reasoning = grammar.reasoning
        self.forgets = reasoning is not None and reasoning.separate and not reasoning.earlier
        self.answer_openers = tuple(dict.fromkeys(self._answer_openers()))

    def _answer_openers(self) -> Iterator[str]:
        """Yield what stands right before an assistant's body: the opener, or where that is empty
        the end of the turn before.
        """
        for form in self.forms:
            if form.role != "assistant" or not isinstance(form.opener, str) or form.form.begins:
                continue
            opener = form.group_opener + form.opener
            if opener.strip(WHITE):
                yield opener
                continue
            for before in self.forms:
                if form.form.after is None or before.role not in form.form.after:
                    continue
                if isinstance(before.closer, str):
                    ending = before.closer + before.group_closer
                    if ending.strip(WHITE):
                        yield ending + opener

    def _followers(self, role: str) -> list[TurnForm]:
        """Return the forms that may stand after a role, longest opener first."""
        forms = [form for form in self.forms if form.form.after is None or role in form.form.after]
        return sorted(forms, key=lambda form: (len(form.begins), form.size), reverse=True)

    # Reading

    def read(self, text: str) -> Conversation:
        """Read a rendering; never raises."""
        conversation = Conversation([])
        pos = 0
        if self.bos and text.startswith(self.bos):
            pos = len(self.bos)
        if self.prefix and text.startswith(self.prefix, pos):
            pos += len(self.prefix)
        size = len(text)
        for prompt in self.prompts:
            if prompt and text.endswith(prompt) and size - len(prompt) >= pos:
                size -= len(prompt)
                text = text[:size]
                conversation.prompted = True
                break
        role = ""
        here: set[str] = (
            set()
        )  # the roles that were last at this position: a turn may have no width
        thoughts: list[tuple[int, TurnForm, int]] = []
        while pos < size:
            opened = None if role in here else self._open_at(text, pos, role)
            if opened is None:
                if self._is_torn_header(text[pos:], role):
                    break
                if text[pos:].strip(WHITE):
                    conversation.places.append(Place("", pos, size, len(conversation.messages)))
                self._leftover(conversation, text[pos:])
                break
            form, match = opened
            count = len(conversation.messages)
            start, last = pos, role
            pos, role = self._turn(conversation, text, form, match)
            here = {*here, last} if pos == start else set()
            if self.forgets and len(conversation.messages) == count + 1:
                if role == "user":
                    self._forget(conversation, text, thoughts)
                    thoughts = []
                elif role == "assistant" and self.answers.thinks_at(text, match.end()):
                    thoughts.append((count, form, match.end()))
        reasoning = self.grammar.reasoning
        for number, _, start in thoughts if reasoning and reasoning.empty_last else ():
            if number < len(conversation.messages) - 1 and self.answers.is_blank_at(text, start):
                conversation.messages[number]["reasoning_content"] = "\n"
        return conversation

    def _forget(
        self, conversation: Conversation, text: str, thoughts: list[tuple[int, TurnForm, int]]
    ) -> None:
        """Read answers again whose reasoning the template does not print: a question follows.

        Args:
            conversation: What was read so far.
            text: The rendering.
            thoughts: Of each such answer the message, the turn's form and where its body begins.
        """
        for number, form, start in thoughts:
            if self.answers.is_blank_at(text, start):
                continue  # a prompt with thinking off leaves one, and it says nothing
            message, _, _ = self.answers.read(
                text, form, start, has_tools=conversation.has_tools, has_thought=True
            )
            if message is not None:
                conversation.messages[number] = {**message, "reasoning_content": ""}

    def _open_at(self, text: str, pos: int, role: str) -> tuple[TurnForm, re.Match[str]] | None:
        """Return the form that opens at a position: the longest opener that fits.

        Where forms have the same opener, the one whose closer comes first; and what begins as a
        tool's result without ending as one is a message that begins so.
        """
        best: tuple[TurnForm, re.Match[str]] | None = None
        place = -1
        for form in self.following.get(role, self.following[""]):
            if not text.startswith(form.begins, pos):
                continue
            match = form.open.match(text, pos)
            if match is None:
                continue
            if best is None:
                if not form.has_twin:
                    return form, match
                best = form, match
            elif match.end() != best[1].end() and (place <= len(text) or not form.begins.strip()):
                continue
            close = form.ending(text, match.end())
            is_closed = close.group() or close.start() < len(text)
            closed = close.start() if is_closed else len(text) + 1
            if place < 0 or closed < place:
                best, place = (form, match), closed
        return best

    def _is_torn_header(self, text: str, role: str) -> bool:
        """Whether a text that no turn claims is the beginning of a header: its first marker at the least."""
        start = MARKER.match(self.compiled.plain(text))
        if start is None:
            return False
        for form in self.following.get(role, self.following[""]):
            opener = form.opener if isinstance(form.opener, str) else form.begins
            torn = len(text) < len(opener) and opener.startswith(text)
            # What stands in a slot runs to the text behind it, which has not come yet.
            named = (
                not isinstance(form.opener, str) and "\n" not in text and text.startswith(opener)
            )
            if MARKER.match(self.compiled.plain(opener)) and (torn or named):
                return True
        return False

    def _leftover(self, conversation: Conversation, text: str) -> None:
        """Text that no turn claims: white space is nobody's, anything else is kept as an answer."""
        if text.strip(WHITE):
            content = self.compiled.plain(text)
            conversation.messages.append(
                {"role": "assistant", "content": content, "is_complete": False}
            )

    def _turn(
        self, conversation: Conversation, text: str, form: TurnForm, match: re.Match[str]
    ) -> tuple[int, str]:
        """Read a turn, or a run of messages that share one; return its end and its role."""
        while True:
            fields = self._fields(form.fields, match)
            role = fields.pop("role", form.role)
            if fields.pop("tools", None) is not None:
                conversation.has_tools = True
            if role == "assistant":
                message, end, last = self.answers.read(
                    text, form, match.end(), has_tools=conversation.has_tools
                )
                if message is None:
                    conversation.prompted = True
                else:
                    if form.form.value == "python":
                        message["content"] = parts_or_text(message["content"])
                    elif form.form.value == "halved":
                        message["content"] = with_all_breaks(message["content"])
                    conversation.messages.append(message)
                number = -1 if message is None else len(conversation.messages) - 1
                conversation.places.append(Place(role, match.end(), end, number))
            else:
                close = form.ending(text, match.end())
                fields |= self._fields(form.close_fields, close)
                body = text[match.end() : close.start()]
                number = len(conversation.messages)
                end, last = close.end(), close.end() >= len(text) and not close.group()
                self._plain_message(conversation, form, role, body, fields)
                number = number if len(conversation.messages) > number else -1
                conversation.places.append(Place(role, match.end(), close.start(), number))
            if form.grouped and not last:
                again = form.again.match(text, end)
                if again is not None and (again.end() > end):
                    match = again
                    continue
                stripped = form.group_closer.rstrip(WHITE)
                if form.group_closer and text.startswith(form.group_closer, end):
                    end += len(form.group_closer)
                elif stripped and text.startswith(stripped, end):
                    end += len(stripped)
            return end, form.role

    def _fields(self, names: list[str], match: re.Match[str]) -> dict[str, str]:
        if not names:
            return {}
        plain = self.compiled.plain
        found = zip(names, match.groups(), strict=False)
        return {name: plain(value) for name, value in found if name and value is not None}

    def _plain_message(
        self,
        conversation: Conversation,
        form: TurnForm,
        role: str,
        body: str,
        fields: dict[str, str],
    ) -> None:
        plain = self.compiled.plain
        present = True
        rest = without_announcement(self.grammar.tools, role, body, self.compiled.convert)
        if rest is not None:
            conversation.has_tools = True
            body, present = rest
        for preamble in form.form.preambles:
            groups: list[str] = []
            converted = self.compiled.convert_literals(preamble)
            found = re.compile(slot_expression(converted, groups)).match(body)
            if found is not None:
                told = self._fields(groups, found)
                if told.pop("tools", None) is not None:
                    conversation.has_tools = True
                conversation.arguments |= told
                body = body[found.end() :]
                break
        content: Any = plain(body)
        if not present or (form.form.drop_empty and not content) or content in form.form.default:
            return
        if form.form.strict and content[:1] in tuple(WHITE):
            raise GrammarUnavailable(
                f"The grammar {self.grammar.name!r} can't tell where the system text ends that "
                f"stands at the head of a {role} message; declare a grammar for it."
            )
        if form.form.value == "python":
            content = parts_or_text(content)
        elif form.form.value == "halved":
            content = with_all_breaks(content)
        elif form.form.value == "json":
            try:
                value = decode_json(content)
                content = value if isinstance(value, str | list | dict) else content
            except Invalid:
                pass
        conversation.messages.append({"role": role, "content": content, **fields})


def _is_rival(other: TurnForm, form: TurnForm) -> bool:
    """Whether another form may stand where this one opens, as only their closers tell."""
    if other is form:
        return False
    if (other.begins, other.opener) == (form.begins, form.opener):
        return True
    begins = other.begins
    return form.role == "tool" and bool(begins.strip(WHITE)) and form.begins.startswith(begins)


def splitter_of(compiled: Compiled) -> Splitter:
    """Return a compiled grammar's splitter, made on first use."""
    splitter = compiled.conversation
    if not isinstance(splitter, Splitter):
        splitter = compiled.conversation = Splitter(compiled)
    return splitter
