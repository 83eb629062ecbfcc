"""Reading the body of an assistant's turn in a whole conversation, and finding where it ends."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from antiphon.errors import GrammarUnavailable
from antiphon.reading.call_parts import Call
from antiphon.reading.compiled import Compiled, alternation
from antiphon.reading.exact import content_before, exact_calls, is_in_doubt
from antiphon.reading.foreign import calls_in
from antiphon.reading.grammar import RoleForm
from antiphon.reading.machine import Machine
from antiphon.reading.messages import call_dict, conversation_message
from antiphon.reading.printed import can_be_printed, keeps_text
from antiphon.reading.scan import WHITE
from antiphon.reading.turn_forms import TurnForm

_MAX_EXTENSIONS = 32
"""How many ends of a turn are tried where an earlier one would cut a call in two."""


class AnswerReader:
    """Reads assistants' bodies.

    Args:
        compiled: The grammar, compiled for text or for a tokenizer.
    """

    def __init__(self, compiled: Compiled) -> None:
        grammar = compiled.grammar
        convert = compiled.convert
        self.grammar = grammar
        # Ends of turns are found by the turn's form, not by the machine.
        endless = replace(
            grammar,
            roles=(),
            end_tokens=(),
            calls=tuple(replace(form, ends=()) for form in grammar.calls),
        )
        self.compiled = Compiled(endless, convert, compiled.symbols)
        wordless = replace(endless, calls=(), content=None)
        self.without_calls = Compiled(wordless, convert, compiled.symbols)
        self.marks_calls = grammar.content is not None and grammar.content.with_calls
        self.unread = tuple(convert(text) for text in grammar.unread)
        reasoning = grammar.reasoning
        empty = tuple(map(convert, reasoning.empty)) if reasoning else ()
        self.empty = tuple(sorted(empty, key=len, reverse=True))
        self.empty_cut = reasoning is not None and reasoning.empty_cut
        opened = convert(reasoning.opener) if reasoning else ""
        self.open_prompts = {"", *empty, opened, opened.rstrip(WHITE)}
        if reasoning is not None and reasoning.opened == "always" and not empty:
            # Every prompt opens the block: what has none is an empty answer.
            self.open_prompts.discard("")
        interrupting = [*self.compiled.triggers, *self.compiled.sections]
        self.interrupting = re.compile(alternation(interrupting)) if any(interrupting) else None
        self.think_open, self.think_close = compiled.think_open.core, compiled.think_close.core
        self.block = (opened, convert(reasoning.closer) if reasoning else "")
        self.thinks = tuple(core for core in (self.think_open, self.think_close) if core)

    def read(
        self,
        text: str,
        form: TurnForm,
        start: int,
        *,
        has_tools: bool = False,
        has_thought: bool = False,
    ) -> tuple[dict[str, Any] | None, int, bool]:
        """Read the answer whose body begins at ``start``.

        Args:
            text: The rendering.
            form: The form of the turn.
            start: Where the body begins.
            has_tools: Whether the rendering announces tools.
            has_thought: No reasoning block stands there: what looks like one is content.

        Returns:
            The message, or None where the body is a prompt for one; where the turn ends; whether
            the text ends there without a closer.
        """
        close = form.ending(text, start)
        has_thought = has_thought or form.has_thought or form.form.thoughtless
        message, is_open = self._ended(text, start, close, has_thought, has_tools)
        if is_open and close.start() < len(text):
            longer = self._with_whole_call(
                text, form, start, close, message, has_thought, has_tools
            )
            if longer is not None:
                message, close = longer
                is_open = False
        body = text[start : close.start()]
        unclosed = not close.group() and close.start() >= len(text)
        has_prompts = bool(self.grammar.generation_prompts)
        if unclosed and body in self.open_prompts and (form.closer or not has_prompts):
            return None, close.end(), True
        if (unclosed and form.closer and not message.get("tool_calls")) or is_open:
            message["is_complete"] = False
        self._shield(message, form.form)
        if "unparsed_calls" not in message and isinstance(message["content"], str):
            foreign = calls_in(
                message["content"],
                self.grammar,
                is_exact=self.compiled.is_exact,
                is_complete=not unclosed,
            )
            if foreign:
                message["unparsed_calls"] = [call_dict(call) for call in foreign]
        return message, close.end(), unclosed

    def thinks_at(self, text: str, start: int) -> bool:
        """Whether a body begins with a reasoning block."""
        return text.startswith(self.think_open, start)

    def is_blank_at(self, text: str, start: int) -> bool:
        """Whether a body begins with an empty reasoning block, as templates print it."""
        return text.startswith(self.empty, start)

    def _with_whole_call(
        self,
        text: str,
        form: TurnForm,
        start: int,
        close: re.Match[str],
        message: dict[str, Any],
        has_thought: bool,
        has_tools: bool,
    ) -> tuple[dict[str, Any], re.Match[str]] | None:
        """Look for a later end of an answer that ends inside a call: the end's text may be a part
        of the arguments.

        Returns:
            The message and its end where the call is whole with more text; None where it is not:
            then the first end is the end.
        """
        calls = len(message.get("tool_calls", ()))
        for _ in range(_MAX_EXTENSIONS):
            close = form.ending(text, max(close.end(), close.start() + 1))
            if close.start() >= len(text):
                return None
            message, is_open = self._ended(text, start, close, has_thought, has_tools)
            if not is_open:
                is_whole = len(message.get("tool_calls", ())) > calls
                return (message, close) if is_whole and "unparsed_calls" not in message else None
        return None

    def _ended(
        self, text: str, start: int, close: re.Match[str], has_thought: bool, has_tools: bool
    ) -> tuple[dict[str, Any], bool]:
        """Read an assistant's body that ends at ``close``; True if it ends inside a call."""
        body = text[start : close.start()]
        is_cut = not (close.group() or close.start() < len(text))
        is_thought = has_thought or self._is_unthought(body, close)
        message, calls = self._message(body, is_thought, is_cut=is_cut)
        if not calls and self.marks_calls:
            message, _ = self._message(body, is_thought, self.without_calls, is_cut=is_cut)
        is_open = any(call.status == "incomplete" for call in calls)
        if is_cut:
            return message, is_open
        if "tool_calls" in message:
            content = message["content"] or ""
            good = [call for call in calls if call.status == "ok"]
            whole = self.compiled.plain(body)
            if not can_be_printed(self.grammar, content, good, whole, has_tools):
                message = self._wordless(body, is_thought, calls)
        if self._is_in_doubt(calls, body):
            exact = self._exact(body, close, has_thought, has_tools)
            if exact is not None:
                return exact, False
        return message, is_open

    def _is_in_doubt(self, calls: list[Call], body: str) -> bool:
        """Whether an answer's calls may be others than those that were read, or there may be some."""
        if calls:
            return is_in_doubt(self.grammar, calls, self.compiled.plain(body))
        return self.interrupting is not None and self.interrupting.search(body) is not None

    def _exact(
        self, body: str, close: re.Match[str], has_thought: bool, has_tools: bool
    ) -> dict[str, Any] | None:
        """Read a body whose end is calls just as the template prints them; None where it is not."""
        found = exact_calls(self.compiled, body) if self.grammar.content is None else None
        if found is None:
            return None
        said, calls = found
        has_thought = has_thought or self._is_unthought(said, close)
        message, _ = self._message(said, has_thought, self.without_calls)
        form = calls[0].form
        content = None if form is None else content_before(form.form, message["content"] or "")
        whole = self.compiled.plain(body)
        if content is None or not can_be_printed(self.grammar, content, calls, whole, has_tools):
            return None
        message["content"] = content or self.grammar.empty_content
        message["tool_calls"] = [
            call_dict(call, exact=True, as_text=keeps_text(self.grammar, call)) for call in calls
        ]
        return message

    def _is_unthought(self, body: str, close: re.Match[str]) -> bool:
        """Whether a turn begins with an opener or a closer of reasoning that is its content.

        So is an opener that nothing closes, where the turn has ended: one that was cut off there is
        reasoning, one that ended there has nothing else to say. And so is a closer that nothing
        opens, unless templates print it for want of reasoning.
        """
        if len(self.thinks) < 2:
            return False
        head = body.lstrip(WHITE)
        if not head.startswith(self.thinks):
            return False
        if head.startswith(self.think_close):
            return not body.startswith(self.empty)
        return close.end() > close.start() and self.think_close not in body

    def _wordless(self, body: str, has_thought: bool, calls: list[Call]) -> dict[str, Any]:
        """Read a body of which the calls are content."""
        message, _ = self._message(body, has_thought, self.without_calls)
        message["unparsed_calls"] = [call_dict(call) for call in calls]
        return message

    def _message(
        self,
        body: str,
        has_thought: bool,
        compiled: Compiled | None = None,
        *,
        is_cut: bool = False,
    ) -> tuple[dict[str, Any], list[Call]]:
        """Read an assistant's body; returns the message and all calls in it.

        Args:
            body: The body.
            has_thought: The header held an empty reasoning block: no other one follows.
            compiled: The grammar; `compiled` without it.
            is_cut: The text ends with the body: white space may be missing.

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
            head = body.rstrip(WHITE) if is_cut else body
            is_torn = (is_cut or self.empty_cut) and head == empty.rstrip(WHITE)
            if not has_thought and (body.startswith(empty) or is_torn):
                body, has_thought = body[len(empty) :], True
                break
        grammar = self.grammar
        compiled = compiled or self.compiled
        if not compiled.calls or (
            not compiled.bare
            and (self.interrupting is None or self.interrupting.search(body) is None)
        ):
            quick = self._quick(body, has_thought)
            if quick is not None:
                return self._with_empty_reasoning(quick, body, has_thought), []
        block = None if has_thought else self._printed_block(body)
        if block is not None:
            thought, rest = block
            machine = self._run(compiled, rest, after_thought=True)
            message = conversation_message(machine, grammar, has_thought=True)
            if thought:
                message["reasoning_content"] = self.compiled.plain(thought)
            return self._with_empty_reasoning(message, body, has_thought), machine.calls
        reasoning = grammar.reasoning
        kept, rest = "", body
        if reasoning is not None and not reasoning.separate and not has_thought:
            kept, rest = self._kept_reasoning(body)
        machine = self._run(compiled, rest, after_thought=has_thought or bool(kept))
        if self._is_block(machine, rest) and not self._is_printed(machine, body, is_cut):
            kept, rest = self._kept_reasoning(body)
            machine = self._run(compiled, rest, after_thought=True)
        kept = self.compiled.plain(kept)
        message = conversation_message(machine, grammar, kept, has_thought=has_thought)
        return self._with_empty_reasoning(message, body, has_thought), machine.calls

    @staticmethod
    def _run(compiled: Compiled, text: str, *, after_thought: bool) -> Machine:
        machine = Machine(compiled, after_thought=after_thought, shows=False, quotes=False)
        machine.close(text)
        return machine

    def _is_block(self, machine: Machine, text: str) -> bool:
        """Whether a machine took the head of a text for a block of reasoning, be it an empty one."""
        begins = bool(self.think_open) and self.thinks_at(text.lstrip(WHITE), 0)
        is_empty = begins and any(piece.kind == "format" for piece in machine.pieces[:1])
        return is_empty or bool(machine.reasoning)

    def _is_printed(self, machine: Machine, body: str, is_cut: bool) -> bool:
        """Whether a block is as the template prints the field: with all the white space of the
        format, and no more of it where it is stripped. Any other one stood in the content.
        """
        reasoning = self.grammar.reasoning
        if reasoning is None or self.compiled.think_close.core not in body:
            return True
        thought = "".join(machine.reasoning)
        if thought != thought.strip(reasoning.trimmed):
            return False
        block = reasoning.opener + thought + reasoning.closer
        if (thought.strip(WHITE) or is_cut) and not machine.content:
            block = block.rstrip(WHITE)
        return self.compiled.plain(body).startswith(block)

    def _with_empty_reasoning(
        self, message: dict[str, Any], body: str, has_thought: bool
    ) -> dict[str, Any]:
        """Say that the field of the reasoning is there and empty, where a message without it
        would be printed in another way.
        """
        reasoning = self.grammar.reasoning
        if reasoning is None or not reasoning.separate or "reasoning_content" in message:
            return message
        closer = reasoning.closer.strip(WHITE)
        content = message["content"]
        is_inside = isinstance(content, str) and bool(closer) and closer in content
        # An empty block that is not the one that templates print for want of reasoning.
        block = "" if has_thought else reasoning.opener + reasoning.closer
        if (is_inside and reasoning.looks_inside) or (
            block.strip(WHITE) and self.compiled.plain(body).startswith(block)
        ):
            message["reasoning_content"] = ""
        return message

    def _shield(self, message: dict[str, Any], form: RoleForm) -> None:
        """Put back before a content what the template must have taken away: it would take more if
        it found the content alone.
        """
        reasoning, content = self.grammar.reasoning, message["content"]
        if reasoning is None or not isinstance(content, str):
            return
        if form.cut_behind and form.cut_behind in content and not message.get("tool_calls"):
            message["content"] = form.cut_behind + content
        elif form.trims in ("left", "both") and content != content.lstrip():
            thought = message.pop("reasoning_content", "")
            message["content"] = f"{reasoning.opener}{thought}{reasoning.closer}{content}"

    def _quick(self, body: str, has_thought: bool) -> dict[str, Any] | None:
        """A body without calls, read without the machine; None where only that can tell."""
        compiled = self.compiled
        reasoning = self.grammar.reasoning
        plain = compiled.plain
        if reasoning is None or not reasoning.separate or has_thought:
            return {"role": "assistant", "content": plain(body)}
        if not body.lstrip(WHITE).startswith(self.thinks):
            return {"role": "assistant", "content": plain(body)}
        block = self._printed_block(body)
        if block is None:
            return None
        thought, rest = map(plain, block)
        message = {"role": "assistant", "content": rest}
        if thought:
            message["reasoning_content"] = thought
        return message

    def _printed_block(self, body: str) -> tuple[str, str] | None:
        """Split off a block that is just as the template prints the field: what it holds, be it a
        closer's marker, and the rest; None where there is no such block.
        """
        reasoning = self.grammar.reasoning
        if reasoning is None or not reasoning.separate or self.compiled.content_open.parts:
            return None
        begin, end = self.block
        stop = body.find(end, len(begin)) if end and body.startswith(begin) else -1
        thought = body[len(begin) : stop]
        if stop < 0 or thought != thought.strip(reasoning.trimmed):
            return None
        return thought, body[stop + len(end) :]

    def _kept_reasoning(self, body: str) -> tuple[str, str]:
        """Split off a leading block that belongs to the content."""
        opener, closer = self.compiled.think_open, self.compiled.think_close
        if not body.lstrip(WHITE).startswith(opener.core):
            return "", body
        found = body.find(closer.core)
        if found < 0:
            return body, ""
        end = found + len(closer.core)
        return body[:end], body[end:]
