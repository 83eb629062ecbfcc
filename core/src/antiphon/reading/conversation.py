"""Splitting a whole rendering into messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from antiphon.errors import GrammarUnavailable
from antiphon.reading.call_parts import Call
from antiphon.reading.compiled import Compiled, Mark, alternation
from antiphon.reading.grammar import Grammar, ToolsForm
from antiphon.reading.literals import python_value
from antiphon.reading.machine import Machine
from antiphon.reading.scan import WHITE, Invalid, decode_json, decode_json_at, skip_white
from antiphon.reading.turn_forms import SHORT, TurnForm, head, slot_expression, starts_of

_MAX_EXTENSIONS = 32
"""How many ends of a turn are tried where an earlier one would cut a call in two."""


@dataclass
class Conversation:
    """What a rendering says.

    Attributes:
        messages: The messages, in the OpenAI form.
        has_tools: Whether the rendering announces tools.
        arguments: Template arguments that could be read off (a date).
        prompted: Whether it ends with a generation prompt.
    """

    messages: list[dict[str, Any]]
    has_tools: bool = False
    arguments: dict[str, str] = field(default_factory=dict)
    prompted: bool = False


class Splitter:
    """A grammar's turns as expressions.

    Args:
        compiled: The grammar, compiled for text or for a tokenizer.
    """

    def __init__(self, compiled: Compiled) -> None:
        grammar = compiled.grammar
        self.compiled = compiled
        self.grammar = grammar
        # Ends of turns are found here, not by the machine.
        bare = replace(
            grammar, end_tokens=(), calls=tuple(replace(form, ends=()) for form in grammar.calls)
        )
        self.body = Compiled(bare, compiled.convert, compiled.symbols)
        self.bos = compiled.convert(grammar.bos)
        self.prefix = compiled.convert(grammar.prefix)
        self.forms = [TurnForm(form, compiled) for form in grammar.roles]
        self.tools = grammar.tools
        self.prompts = tuple(compiled.convert(text) for text in grammar.generation_prompts)
        roles = dict.fromkeys(["", *(form.role for form in self.forms)])
        self.following = {role: self._followers(role) for role in roles}
        for form in self.forms:
            form.close = self._close(form)
            thought = compiled.think_close.core
            form.has_thought = bool(thought) and thought in head(form.opener)
            form.has_twin = any(
                other is not form and (other.begins, other.size) == (form.begins, form.size)
                for other in self.forms
            )
        reasoning = grammar.reasoning
        empty = tuple(map(compiled.convert, reasoning.empty)) if reasoning else ()
        opened = compiled.convert(reasoning.opener) if reasoning else ""
        self.unread = tuple(compiled.convert(text) for text in grammar.unread)
        self.open_prompts = {"", *empty, opened, opened.rstrip(WHITE)}
        if reasoning is not None and reasoning.opened == "always" and not empty:
            # Every prompt opens the block: what has none is an empty answer.
            self.open_prompts.discard("")
        self.empty = tuple(sorted(empty, key=len, reverse=True))
        interrupting = [*self.body.triggers, *self.body.sections]
        self.interrupting = re.compile(alternation(interrupting)) if any(interrupting) else None
        self.thinks = tuple(
            core for core in (compiled.think_open.core, compiled.think_close.core) if core
        )
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

    def _close(self, form: TurnForm) -> re.Pattern[str]:
        """Return the expression for the end of a form's body.

        A closer counts only where the opener of a turn that may follow, or the end of the text,
        comes after it: so the same characters inside a body do no harm.
        """
        role = form.role
        begins = [follower.begins for follower in self.following.get(role, [])]
        is_open = any(not begin for begin in begins)
        following = alternation(begins)
        after = rf"(?={following}|\Z)" if following and not is_open else ""
        if not following:
            after = r"(?=\Z)" if not is_open else ""
        closer = slot_expression(form.closer, form.close_fields)
        options: list[str] = []
        if form.grouped:
            again = re.escape(form.separator + head(form.opener))
            rest = re.escape(form.group_closer)
            stripped = re.escape(form.group_closer.rstrip(WHITE))
            inner = [rf"{rest}{after}", rf"{stripped}\Z", r"\Z"]
            if form.separator + head(form.opener):
                inner.insert(0, again)
            options.append(rf"{closer}(?={'|'.join(inner)})")
        elif closer:
            options.append(closer + after)
            if isinstance(form.closer, str):
                bare = form.closer.rstrip(WHITE)
                if bare != form.closer and bare:
                    options.append(re.escape(bare) + r"\Z")
                if role == "assistant":
                    options += self._other_ends(form.closer, after)
        finals = [re.escape(self.compiled.convert(final)) for final in form.form.finals]
        options = [rf"{closer}{final}\Z" for final in finals if closer or final] + options
        options += [rf"{final}\Z" for final in finals if len(final.strip()) > SHORT]
        for other in map(re.escape, map(self.compiled.convert, form.form.other_closers)):
            options += [rf"{other}{final}\Z" for final in finals]
            options.append(other + after)
        if not closer or (role == "assistant" and not isinstance(form.closer, str)):
            if following:
                options.append(f"(?={following})")
        elif role == "assistant" and following:
            # Templates leave the end token out here and there (DeepSeek after calls): the next
            # turn's opener ends the body too, if nothing shorter than a whole marker says so.
            solid = [begin for begin in begins if len(begin) > 6 and not begin[0].isspace()]
            if solid:
                options.append(f"(?={alternation(solid)})")
        instead = [follower for follower in self.following.get(role, []) if follower.form.unclosed]
        options += [f"(?={re.escape(follower.begins)})" for follower in instead if follower.begins]
        options.append(r"\Z")
        convert = self.compiled.convert
        ends = [head(form.closer), head(form.closer).rstrip(WHITE)]
        if role == "assistant" and isinstance(form.closer, str):
            ends += [token for token in map(convert, self.grammar.end_tokens) if token]
            ends += begins if closer else []
        if not closer or not isinstance(form.closer, str):
            ends += begins
        ends += [convert(text) for text in (*form.form.finals, *form.form.other_closers)]
        ends += [follower.begins for follower in instead]
        if form.grouped and not head(form.closer):
            ends += [form.separator + head(form.opener), form.group_closer]
        form.starts = starts_of(ends)
        return re.compile("|".join(options))

    def _other_ends(self, closer: str, after: str) -> list[str]:
        """Return expressions for the other end tokens in the place of the usual one."""
        convert = self.compiled.convert
        tokens = [convert(token) for token in self.grammar.end_tokens]
        usual = next((token for token in tokens if token in closer), None)
        if usual is None:
            return []
        # Where nothing certain follows, another token is an end only at the end.
        after = after or r"\s*\Z"
        return [
            re.escape(closer.replace(usual, token)) + after for token in tokens if token != usual
        ]

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
        while pos < size:
            opened = self._open_at(text, pos, role)
            if opened is None:
                self._leftover(conversation, text[pos:])
                break
            form, match = opened
            pos, role = self._turn(conversation, text, form, match)
        return conversation

    def _open_at(self, text: str, pos: int, role: str) -> tuple[TurnForm, re.Match[str]] | None:
        """Return the form that opens at a position: the longest opener that fits.

        Where forms have the same opener, the one whose closer comes first.
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
            elif match.end() != best[1].end():
                continue
            close = form.ending(text, match.end())
            is_closed = close.group() or close.start() < len(text)
            closed = close.start() if is_closed else len(text) + 1
            if place < 0 or closed < place:
                best, place = (form, match), closed
        return best

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
                end, last = self._assistant(conversation, text, form, match.end())
                if form.form.value == "python" and conversation.messages:
                    message = conversation.messages[-1]
                    message["content"] = parts_or_text(message["content"])
            else:
                close = form.ending(text, match.end())
                fields |= self._fields(form.close_fields, close)
                body = text[match.end() : close.start()]
                end, last = close.end(), close.end() >= len(text) and not close.group()
                self._plain_message(conversation, form, role, body, fields)
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
        if self.tools:
            body, present = self._without_tools(conversation, role, body)
        for preamble in form.form.preambles:
            groups: list[str] = []
            converted = self.compiled.convert_literals(preamble)
            found = re.compile(slot_expression(converted, groups)).match(body)
            if found is not None:
                conversation.arguments |= self._fields(groups, found)
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
        elif form.form.value == "json":
            try:
                value = decode_json(content)
                content = value if isinstance(value, str | list | dict) else content
            except Invalid:
                pass
        conversation.messages.append({"role": role, "content": content, **fields})

    def _without_tools(self, conversation: Conversation, role: str, body: str) -> tuple[str, bool]:
        """Take the announcement of tools out; False if no message was there beside it."""
        convert = self.compiled.convert
        for form in self.tools:
            if form.role != role:
                continue
            opener, closer = convert(form.opener), convert(form.closer)
            if form.place == "after":
                if not body.endswith(closer):
                    continue
                start = body.find(opener)
                if start < 0 or start + len(opener) > len(body) - len(closer):
                    continue
                conversation.has_tools = True
                if form.own_turn or start == 0:
                    return "", False
                separator = convert(form.separator)
                if body.endswith(separator, 0, start):
                    start -= len(separator)
                return body[:start], True
            if not body.startswith(opener):
                continue
            end = self._tools_end(form, body, len(opener), closer)
            if end < 0:
                continue
            conversation.has_tools = True
            separator = convert(form.separator)
            if form.own_turn or end >= len(body):
                return "", False
            if separator and body.startswith(separator, end):
                end += len(separator)
            return body[end:], True
        return body, True

    @staticmethod
    def _tools_end(form: ToolsForm, body: str, pos: int, closer: str) -> int:
        """Return where an announcement that stands before a message ends, or -1."""
        at = pos
        while True:
            value = decode_json_at(body, skip_white(body, at))
            if value is None:
                break
            at = value[1]
            if body.startswith(form.between, at):
                at += len(form.between)
        if at > pos and body.startswith(closer, at):
            return at + len(closer)
        if at > pos and closer and body.endswith(form.between, pos, at):
            back = at - len(form.between)
            if body.startswith(closer, back):
                return back + len(closer)
        found = body.find(closer, pos) if closer else (at if at > pos else -1)
        return found + len(closer) if found >= 0 else -1

    # Assistants

    def _assistant(
        self, conversation: Conversation, text: str, form: TurnForm, start: int
    ) -> tuple[int, bool]:
        first = close = form.ending(text, start)
        for _ in range(_MAX_EXTENSIONS):
            body = text[start : close.start()]
            message, is_open = self._ended(body, form.has_thought, close)
            if close is not first and not is_open and "unparsed_calls" in message:
                # It is no call with more text either: the first end was the end.
                close = first
                message, is_open = self._ended(text[start : close.start()], form.has_thought, close)
                break
            if not is_open or close.start() >= len(text):
                break
            further = form.ending(text, max(close.end(), close.start() + 1))
            if further.start() >= len(text):
                close = first
                message, is_open = self._ended(text[start : close.start()], form.has_thought, close)
                break
            close = further
        body = text[start : close.start()]
        unclosed = not close.group() and close.start() >= len(text)
        if unclosed and body in self.open_prompts and (form.closer or not self.prompts):
            conversation.prompted = True
            return close.end(), True
        if (unclosed and form.closer and not message.get("tool_calls")) or is_open:
            message["is_complete"] = False
        conversation.messages.append(message)
        return close.end(), unclosed

    def _ended(
        self, body: str, has_thought: bool, close: re.Match[str]
    ) -> tuple[dict[str, Any], bool]:
        """Read an assistant's body that ends at ``close``."""
        return self._message(body, has_thought or self._is_unthought(body, close))

    def _is_unthought(self, body: str, close: re.Match[str]) -> bool:
        """Whether an ended turn begins with an opener of reasoning that nothing closes: then it is its content.

        A turn that was cut off there is reasoning; one that ended there has nothing else to say.
        """
        opener, closer = self.body.think_open, self.body.think_close
        return bool(
            close.end() > close.start()
            and opener.core
            and closer.core
            and body.lstrip(WHITE).startswith(opener.core)
            and closer.core not in body
        )

    def _message(self, body: str, has_thought: bool) -> tuple[dict[str, Any], bool]:
        """Read an assistant's body; True if it ends inside a call.

        Args:
            body: The body.
            has_thought: The header held an empty reasoning block: no other one follows.

        Raises:
            GrammarUnavailable: It has calls that the grammar is known not to read.
        """
        for marker in self.unread:
            if marker in body:
                raise GrammarUnavailable(
                    f"The grammar {self.grammar.name!r} can't read this template's calls "
                    f"({self.compiled.plain(marker)!r}); declare a grammar for it."
                )
        for empty in self.empty:
            if not has_thought and body.startswith(empty):
                body, has_thought = body[len(empty) :], True
                break
        grammar = self.grammar
        if not self.body.bare and (
            self.interrupting is None or self.interrupting.search(body) is None
        ):
            quick = self._quick(body, has_thought)
            if quick is not None:
                return self._with_empty_reasoning(quick), False
        reasoning = grammar.reasoning
        kept = ""
        compiled = self.body
        if reasoning is not None and not reasoning.separate and not has_thought:
            kept, body = self._kept_reasoning(body)
        machine = Machine(compiled, after_thought=has_thought)
        machine.close(body)
        if machine.reasoning and reasoning is not None and reasoning.trimmed:
            thought = "".join(machine.reasoning)
            if thought != thought.strip(WHITE):
                kept, rest = self._kept_reasoning(body)
                machine = Machine(compiled, after_thought=True)
                machine.close(rest)
        is_open = any(call.status == "incomplete" for call in machine.calls)
        message = conversation_message(machine, grammar, kept)
        return self._with_empty_reasoning(message), is_open

    def _with_empty_reasoning(self, message: dict[str, Any]) -> dict[str, Any]:
        """Say that there was no reasoning where the content holds its closer.

        Templates that take the reasoning from a field look for it in the content where the field is
        missing; so the content is left as it is.
        """
        reasoning = self.grammar.reasoning
        if reasoning is not None and reasoning.separate and "reasoning_content" not in message:
            closer = reasoning.closer.strip(WHITE)
            content = message["content"]
            if closer and isinstance(content, str) and closer in content:
                message["reasoning_content"] = ""
        return message

    def _quick(self, body: str, has_thought: bool) -> dict[str, Any] | None:
        """A body without calls, read without the machine; None where only that can tell."""
        compiled = self.body
        reasoning = self.grammar.reasoning
        plain = compiled.plain
        if reasoning is None or not reasoning.separate or has_thought:
            return {"role": "assistant", "content": plain(body)}
        opener, closer = compiled.think_open, compiled.think_close
        if not body.lstrip(WHITE).startswith(self.thinks):
            return {"role": "assistant", "content": plain(body)}
        if len(opener.parts) != 1 or len(closer.parts) != 1 or compiled.content_open.parts:
            return None
        begin = opener.core + opener.tail
        end = closer.lead + closer.core + closer.tail
        if not body.startswith(begin):
            return None
        found = body.find(closer.core, len(begin))
        stop = found - len(closer.lead)
        if found < 0 or stop < len(begin) or not body.startswith(end, stop):
            return None
        message = {"role": "assistant", "content": plain(body[stop + len(end) :])}
        if reasoning.trimmed and (body[len(begin) : stop].strip(WHITE) != body[len(begin) : stop]):
            return None
        if stop > len(begin):
            message["reasoning_content"] = plain(body[len(begin) : stop])
        return message

    def _kept_reasoning(self, body: str) -> tuple[str, str]:
        """Split off a leading block that belongs to the content."""
        opener, closer = self.body.think_open, self.body.think_close
        if not body.lstrip(WHITE).startswith(opener.core):
            return "", body
        found = body.find(closer.core)
        if found < 0:
            return body, ""
        end = found + len(closer.core)
        return body[:end], body[end:]


def conversation_message(machine: Machine, grammar: Grammar, kept: str = "") -> dict[str, Any]:
    """Make the message of an assistant's turn in a whole conversation.

    What looked like a call and was none is content here, since only so it comes back when rendered;
    ``unparsed_calls`` says so.
    """
    as_text = grammar.arguments == "string"
    good = [call for call in machine.calls if call.status == "ok"]
    is_whole = len(good) == len(machine.calls)
    if (
        good
        and not is_whole
        and machine.calls[: -len(good)] != [call for call in machine.calls if call.status != "ok"]
    ):
        # Templates print content before calls: what stands behind a call can't be content unless
        # the call is.
        good = []
    calls = [call_dict(call, exact=True, as_text=as_text) for call in good]
    if is_whole:
        content: str | None = kept + "".join(machine.content)
    else:
        content = kept + _content_with_broken(machine, bool(good), grammar)
    if calls and not content:
        content = grammar.empty_content
    message: dict[str, Any] = {"role": "assistant", "content": content}
    reasoning = "".join(machine.reasoning)
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    broken = [call_dict(call) for call in machine.calls if not (good and call.status == "ok")]
    if broken and not is_whole:
        message["unparsed_calls"] = broken
    return message


def _content_with_broken(machine: Machine, has_calls: bool, grammar: Grammar) -> str:
    """Join content and broken calls, with what stands between them and closes their block.

    Args:
        machine: The machine that read them.
        has_calls: Whether the good calls are calls; else they are content as well.
        grammar: The grammar.
    """
    texts: list[str] = []
    between = ""
    whole = {call.raw for call in machine.calls if has_calls and call.status == "ok"}
    is_last = False
    started = not machine.reasoning
    for piece in machine.pieces:
        if piece.kind == "reasoning":
            between, started = "", False
        elif piece.kind == "format":
            between += piece.text if started else ""
            started = True
        elif piece.kind == "call" and piece.text in whole:
            between, is_last = "", False
        elif piece.kind in ("content", "call"):
            texts.append(between + piece.text)
            between, started = "", True
            is_last = piece.kind == "call"
    closer = grammar.content.closer.strip(WHITE) if grammar.content else ""
    if is_last and not (closer and closer in between):
        texts.append(between)
    return "".join(texts)


def parts_or_text(content: Any) -> Any:
    """Return a list of parts where a content is one as Python writes it, else the content."""
    if not isinstance(content, str) or not content.startswith("[{'") or content[-2:] != "}]":
        return content
    try:
        read = python_value(content, 0)
    except Invalid:
        return content
    if read is None or not isinstance(read[0], list) or repr(read[0]) != content:
        return content
    are_parts = all(isinstance(part, dict) and "type" in part for part in read[0])
    return read[0] if are_parts else content


def call_dict(call: Call, *, exact: bool = False, as_text: bool = False) -> dict[str, Any]:
    """Return a call in the OpenAI form.

    Args:
        call: The call.
        exact: Keep arguments that stood there as a string a string.
        as_text: Give the arguments as their JSON text where there is one.
    """
    arguments = call.arguments
    if as_text and call.text is not None:
        arguments = call.text
    elif isinstance(arguments, str) and not exact:
        try:
            value = decode_json(arguments)
            arguments = value if isinstance(value, dict) else arguments
        except Invalid:
            pass
    made: dict[str, Any] = {} if call.id is None else {"id": call.id}
    made |= {
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
        "status": call.status,
    }
    if exact and call.untyped:
        made["_call"] = call
    if call.status != "ok":
        made["raw"] = call.raw
        made["problem"] = call.problem
    return made


__all__ = ["Conversation", "Mark", "Splitter", "call_dict", "conversation_message"]
