"""The machine that reads one assistant turn, in one piece or in any number of them.

It is the only place that knows what may follow what in a turn: reasoning, content, calls, the end.
Everything else (one-shot reading, streams, whole conversations) drives it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from antiphon.reading.bare import may_begin, read_bare
from antiphon.reading.calls import (
    Call,
    Found,
    Progress,
    arguments_text,
    name_of,
    read_call,
    step,
)
from antiphon.reading.compiled import Compiled, CompiledCall
from antiphon.reading.events import Event, Piece, PieceKind, Tools
from antiphon.reading.scan import WHITE, Invalid, skip_white


@dataclass
class _Open:
    """A call that is being read: the forms it may have, where they begin, what they know, and why
    the first of them did not fit.
    """

    start: int
    pos: int
    forms: list[CompiledCall]
    progress: Progress
    shown: bool = False
    refusal: tuple[str, str | None, CompiledCall] | None = None


class Machine:
    """Reads one assistant turn.

    Args:
        compiled: The grammar.
        inside: Whether the turn begins inside the reasoning.
        after_thought: Whether the reasoning is over before the turn begins.
        tools: The parameter schema of each tool, where the tools are known.

    Attributes:
        reasoning: Parts of the reasoning.
        content: Parts of the content.
        calls: The calls.
        pieces: What each part of the text was.
        ended_by: The end token that ended the turn; None while there is none.
        in_reasoning: Whether the text so far ends inside an unclosed reasoning block.
        open_call: Whether the text so far ends inside a call.
    """

    def __init__(
        self,
        compiled: Compiled,
        *,
        inside: bool = False,
        after_thought: bool = False,
        tools: Tools = None,
    ) -> None:
        self._compiled = compiled
        self._tools = tools
        self._trial: tuple[Machine, int] | None = None
        self._text = ""
        self._pos = 0
        self._state = "start"
        self._tail = ""
        self._gap = ""
        self._after_call = False
        self._open: _Open | None = None
        self._broken: tuple[int, CompiledCall, str | None, str] | None = None
        self._events: list[Event] = []
        self._in_block: CompiledCall | None = None
        self._block_open = False
        self._bare_allowed = bool(compiled.bare)
        self.reasoning: list[str] = []
        self.content: list[str] = []
        self.calls: list[Call] = []
        self.pieces: list[Piece] = []
        self.ended_by: str | None = None
        if inside:
            self._state = "reasoning"
        elif after_thought:
            self._state = "content"

    @property
    def in_reasoning(self) -> bool:
        """Whether the text ends inside the reasoning."""
        return self._state == "reasoning"

    @property
    def open_call(self) -> bool:
        """Whether the text ends inside a call."""
        return self._state in ("call", "broken")

    # Driving

    def feed(self, text: str) -> list[Event]:
        """Read more text and return what it shows."""
        if self._state == "done":
            self._piece("after", text)
            return []
        self._append(text)
        self._run(final=False)
        return self._taken()

    def close(self, text: str = "") -> list[Event]:
        """Read the last of the text and settle what was left open."""
        if self._state == "done":
            self._piece("after", text)
            return []
        self._append(text)
        self._run(final=True)
        return self._taken()

    def end(self, token: str, after: str = "") -> list[Event]:
        """End a turn that was closed, by a token that is certain."""
        self._text, self._pos = token + after, 0
        if self.ended_by is None:
            self._finish(len(token))
        else:
            self._piece("after", self._text)
        self._state = "done"
        return self._taken()

    def _append(self, text: str) -> None:
        if self._open is None and self._broken is None:
            # What was read is done with; positions are kept only while a call is open.
            self._text = self._text[self._pos :] + text
            self._pos = 0
        else:
            self._text += text

    def forget(self) -> None:
        """Drop what was read so far, but not where it led: it was the prompt's.

        A call that the prompt began is kept whole.
        """
        if self._open is None and self._state not in ("start", "broken"):
            # What was held back for a marker belongs to the prompt as well.
            self._pos = len(self._text)
        self.reasoning.clear()
        self.content.clear()
        self.calls.clear()
        self.pieces.clear()
        self._events.clear()
        self._gap = ""

    def _taken(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    # What is shown and kept

    def _piece(self, kind: PieceKind, text: str) -> None:
        if text:
            self.pieces.append(Piece(kind, self._compiled.plain(text)))

    def _say(self, kind: Literal["reasoning", "content"], text: str) -> None:
        if not text:
            return
        text = self._compiled.plain(text)
        (self.reasoning if kind == "reasoning" else self.content).append(text)
        self.pieces.append(Piece(kind, text))
        self._events.append(Event(kind, text))

    def _say_content(self, text: str) -> None:
        """Content; white space after a call counts only if more than white space follows."""
        if not text:
            return
        if self._after_call:
            if not text.strip(WHITE):
                self._gap += text
                return
            text, self._gap, self._after_call = self._gap + text, "", False
        self._say("content", text)

    def _drop_gap(self) -> None:
        if self._gap:
            self._piece("format", self._gap)
            self._gap = ""

    # The states

    def _run(self, final: bool) -> None:
        states = {
            "start": self._start,
            "reasoning": self._reasoning,
            "tail": self._skip_tail,
            "content": self._content,
            "bare": self._bare,
            "call": self._call,
            "broken": self._broken_call,
            "between": self._between,
        }
        while self._state != "done" and states[self._state](final):
            pass
        if final and self._state != "done":
            self._drop_gap()

    def _start(self, final: bool) -> bool:
        """Before anything: an opener of the reasoning, a closer without one, markers of content."""
        compiled = self._compiled
        text = self._text
        at = skip_white(text, self._pos)
        if at >= len(text) and not final:
            return False
        if compiled.header is not None and text.startswith(compiled.header[0], at):
            return self._headed(at, final)
        for mark, state in (
            (compiled.think_open, "reasoning"),
            (compiled.think_close, "content"),
            (compiled.content_open, "content"),
        ):
            if not mark.parts:
                continue
            end = step(text, self._pos, mark.parts[0], final)
            for part in mark.parts[1:]:
                if end is not None and end >= 0:
                    end = step(text, end, part, final)
            if end is None:
                return False
            if end >= 0:
                self._piece("format", text[self._pos : end])
                self._pos = end
                self._tail = mark.tail
                self._state = "tail" if state == "content" else "reasoning"
                return True
        self._state = "content"
        return True

    def _headed(self, at: int, final: bool) -> bool:
        """A part of the answer with a header of its own: reasoning, a call, or content."""
        compiled, text = self._compiled, self._text
        assert compiled.header is not None
        found = text.find(compiled.header[1], at)
        if found < 0 and not final:
            return False
        end = found + len(compiled.header[1]) if found >= 0 else len(text)
        header = text[at:end]
        calls = [header.find(trigger) for trigger in compiled.triggers if trigger in header]
        if calls:
            start = at + min(calls)
            self._piece("format", text[self._pos : start])
            self._pos = start
            self._state = "content"
            return True
        self._piece("format", text[self._pos : end])
        self._pos = end
        thinks = header == "".join(compiled.think_open.parts)
        self._tail = (compiled.think_open if thinks else compiled.content_open).tail
        self._state = "reasoning" if thinks else "tail"
        return True

    def _skip(self, final: bool) -> bool:
        """Skip the white space that the last marker has at its end; False while more may come."""
        while self._tail:
            if self._pos >= len(self._text):
                return final
            if self._text[self._pos] != self._tail[0]:
                self._tail = ""
                break
            self._piece("format", self._tail[0])
            self._pos += 1
            self._tail = self._tail[1:]
        return True

    def _skip_tail(self, final: bool) -> bool:
        if not self._skip(final):
            return False
        self._state = "content"
        return True

    def _reasoning(self, final: bool) -> bool:
        if not self._skip(final):
            return False
        compiled = self._compiled
        text, pos = self._text, self._pos
        found = compiled.think_end.search(text, pos) if compiled.think_end else None
        if found is None:
            end = len(text)
            if not final:
                end = compiled.held(text, pos, compiled.think_prefixes)
                lead = compiled.think_close.lead or compiled.max_lead
                while end > pos and text[end - 1] in WHITE and len(text) - end < 64 and lead:
                    end -= 1
            self._say("reasoning", text[pos:end])
            self._pos = end
            return False
        end = found.start()
        if found.group() in compiled.stops:
            self._say("reasoning", text[pos:end])
            self._pos = end
            self._finish(found.end())
            return False
        lead = compiled.think_close.lead
        if found.group() in compiled.triggers and found.group() != compiled.think_close.core:
            if not self._trial_call(end, final):
                return False
            if self._trial is None:
                # It was no call: its marker is a part of the reasoning.
                self._say("reasoning", text[pos : found.end()])
                self._pos = found.end()
                return True
            self._trial = None
            lead = compiled.triggers[found.group()][0].lead
        lead_start = end
        for char in reversed(lead):
            if lead_start > pos and text[lead_start - 1] == char:
                lead_start -= 1
            else:
                break
        close_end: int | None = found.end()
        if found.group() == compiled.think_close.core:
            for part in compiled.think_close.parts[1:]:
                assert close_end is not None
                close_end = step(text, close_end, part, final)
                if close_end is None:
                    return False
                if close_end < 0:
                    close_end = found.end()
                    break
        self._say("reasoning", text[pos:lead_start])
        if found.group() in compiled.triggers and found.group() != compiled.think_close.core:
            self._piece("format", text[lead_start:end])
            self._pos = end
            self._tail, self._state = "", "content"
            return True
        assert close_end is not None
        self._piece("format", text[lead_start:close_end])
        self._pos = close_end
        self._tail = compiled.think_close.tail
        self._state = "start" if found.group() in compiled.continued else "after_think"
        if self._state == "after_think":
            self._state = "tail" if not compiled.content_open.parts else "start"
        return True

    def _trial_call(self, start: int, final: bool) -> bool:
        """Try whether calls that begin inside the reasoning are calls; False for more text.

        Some models call without closing their reasoning; others think about calls. They are calls
        if they are whole and nothing but calls follows up to the end of the turn.
        """
        text = self._text
        if self._trial is None:
            # The text before `start` is dropped from now on, so that positions stay.
            self._say("reasoning", "")
            self._trial = Machine(self._compiled, tools=self._tools), 0
            self._trial[0]._state = "content"
        machine, fed = self._trial
        more = text[start + fed :]
        machine.close(more) if final else machine.feed(more)
        self._trial = machine, fed + len(more)
        bad = any(call.status != "ok" for call in machine.calls)
        if bad or machine.content or (final and not machine.calls):
            self._trial = None
            return True
        return final or machine.ended_by is not None

    def _content(self, final: bool) -> bool:
        compiled = self._compiled
        text, pos = self._text, self._pos
        if self._bare_allowed:
            at = skip_white(text, pos)
            if at >= len(text) and not final:
                return False
            self._bare_allowed = False
            if may_begin(text, at):
                self._state = "bare"
                return True
        found = compiled.marker.search(text, pos) if compiled.marker else None
        if found is None:
            end = len(text)
            if not final:
                end = compiled.held(text, pos, compiled.prefixes)
                if compiled.max_lead or self.calls:
                    limit = max(pos, end - compiled.max_lead)
                    while end > limit and text[end - 1] in WHITE:
                        end -= 1
            self._say_content(text[pos:end])
            self._pos = end
            return False
        marker, start = found.group(), found.start()
        if not final and self._may_be_longer(marker, start):
            self._say_content(text[pos:start])
            self._pos = start
            return False
        if marker in compiled.stops:
            self._say_content(text[pos:start])
            self._pos = start
            self._finish(found.end())
            return False
        forms = compiled.triggers.get(marker)
        if forms is None:
            self._say_content(text[pos:start])
            self._drop_gap()
            self._piece("format", text[start : found.end()])
            self._pos = found.end()
            self._state = "start"
            # Calls without markers may stand behind the content's closer (Llama 4).
            self._bare_allowed = bool(compiled.bare) and not self.calls
            return True
        lead = forms[0].lead
        start_lead = start
        for char in reversed(lead):
            if start_lead > pos and text[start_lead - 1] == char:
                start_lead -= 1
            else:
                break
        self._say_content(text[pos:start_lead])
        self._drop_gap()
        self._piece("format", text[start_lead:start])
        self._pos = start
        self._begin(forms, start)
        return True

    def _may_be_longer(self, marker: str, start: int) -> bool:
        """Whether a longer marker that begins with this one may still be on its way."""
        rest = self._text[start:]
        return len(rest) < self._compiled.longest + 1 and rest in self._compiled.prefixes

    def _finish(self, end: int) -> None:
        """The turn ends with the token at the current position."""
        self._drop_gap()
        text = self._text
        self.ended_by = self._compiled.plain(text[self._pos : end])
        self._piece("end", text[self._pos : end])
        self._piece("after", text[end:])
        self._events.append(Event("end", self.ended_by))
        self._pos = len(text)
        self._state = "done"

    # Calls

    def _begin(self, forms: list[CompiledCall], start: int) -> None:
        self._open = _Open(start, start, list(forms), Progress(tools=self._tools))
        self._state = "call"

    def _call(self, final: bool) -> bool:
        """Read the open call with the first of its forms that fits."""
        opened = self._open
        assert opened is not None
        text = self._text
        while opened.forms:
            form = opened.forms[0]
            try:
                entered = self._enter(form, text, opened.start, final)
                if entered is not None:
                    found = read_call(form, text, entered, final, opened.progress)
                    if found is not None:
                        self._take(opened, found)
                        return True
                if not final:
                    self._show(opened)
                    return False
                self._cut_off(opened)
                return self._state != "call"
            except Invalid as error:
                if opened.refusal is None:
                    opened.refusal = str(error), opened.progress.name, form
                opened.forms.pop(0)
                opened.progress = Progress(tools=self._tools)
        assert opened.refusal is not None  # there was a form, and it did not fit
        problem, label, first = opened.refusal
        self._open = None
        self._broken = (opened.start, first, label, problem)
        self._pos = opened.start
        self._state = "broken"
        return True

    def _enter(self, form: CompiledCall, text: str, start: int, final: bool) -> int | None:
        """Step over the openers at `start`; None for more text."""
        pos: int | None = start
        blocks = form.block_opener
        if blocks.parts and text.startswith(blocks.core, start):
            self._block_open = True
            for part in blocks.parts:
                pos = step(text, pos, part, final) if pos is not None and pos >= 0 else pos
            if pos is None:
                return None
            if pos < 0:
                raise Invalid("the opening marker of the calls is not whole")
        assert pos is not None
        parts = form.opener.parts
        if pos == start and parts and parts[-1] in form.triggers[1:]:
            # The opener may begin with its last line.
            parts = parts[-1:] if text.startswith(parts[-1], pos) else parts
        for part in parts:
            following = step(text, pos, part, final)
            if following is None:
                return None
            if following < 0:
                if final and skip_white(text, pos) >= len(text):
                    return None
                raise Invalid("no call follows the opening marker")
            pos = following
        return pos

    def _take(self, opened: _Open, found: Found) -> None:
        text = self._text
        raw = self._compiled.plain(text[opened.start : found.end])
        self._open = None
        self._pos = found.end
        for number, call in enumerate(found.calls):
            call.raw = raw
            self._add(call, shown=opened.shown and number == 0, progress=opened.progress)
        self.pieces.append(Piece("call", raw))
        self._in_block = found.calls[-1].form
        self._state = "between"

    def _add(self, call: Call, *, shown: bool = False, progress: Progress | None = None) -> None:
        plain = self._compiled.plain
        index = len(self.calls)
        if call.status == "ok":
            if not shown:
                self._events.append(Event("call", call.name or "", index))
            whole = arguments_text(call)
            rest = whole
            if shown and progress is not None:
                rest = plain(whole)[progress.emitted :]
            if rest:
                self._events.append(Event("arguments", plain(rest), index))
        self.calls.append(call)
        self._after_call = True
        self._events.append(Event("call_end", "", index, call))

    def _show(self, opened: _Open) -> None:
        """Show as much of a growing call's arguments as is certain."""
        progress = opened.progress
        if progress.name is None or progress.value is None:
            return
        index = len(self.calls)
        if not opened.shown:
            opened.shown = True
            self._events.append(Event("call", self._compiled.plain(progress.name), index))
        progress.value.advance(self._text)
        size = progress.value.pos
        if size > progress.shown:
            text = self._compiled.plain(self._text[progress.shown : size])
            self._events.append(Event("arguments", text, index))
            progress.emitted += len(text)
            progress.shown = size

    def _cut_off(self, opened: _Open) -> None:
        """The text ends inside a call. Where it holds an end token, the turn ended there."""
        text = self._text
        stop = self._compiled.stop
        found = stop.search(text, opened.start) if stop is not None else None
        end = found.start() if found else len(text)
        raw = self._compiled.plain(text[opened.start : end])
        name = name_of(opened.forms[0], opened.progress.name, raw)
        self._in_block = opened.forms[0]
        self._open = None
        self._add(Call(name=name, status="incomplete", problem="the call is cut off", raw=raw))
        self._piece("call", text[opened.start : end])
        self._pos = end
        self._state = "between"
        if found:
            self._finish(found.end())

    def _broken_call(self, final: bool) -> bool:
        """A marker without a call: its text up to the closer, the next opener or the end."""
        assert self._broken is not None
        start, form, name, problem = self._broken
        text = self._text
        skip = max((len(item) for item in form.triggers if text.startswith(item, start)), default=0)
        if form.block_opener.parts and text.startswith(form.block_opener.core, start):
            at = skip_white(text, start + skip)
            if form.opener.core and text.startswith(form.opener.core, at):
                skip = at + len(form.opener.core) - start
        found = form.stop.search(text, start + skip) if form.stop is not None else None
        if found is None and not final:
            return False
        closers = {*form.closer.parts[-1:], *form.block_closer.parts[-1:]}
        end = len(text)
        if found is not None:
            end = found.end() if found.group() in closers else found.start()
        self._broken = None
        raw = self._compiled.plain(text[start:end])
        name = name_of(form, name, raw)
        self._add(Call(name=name, status="malformed", problem=problem, raw=raw, form=form))
        self._piece("call", text[start:end])
        self._pos = end
        self._in_block = form
        self._state = "between"
        return True

    def _between(self, final: bool) -> bool:
        """After a call: the next one, the block's closer (once or more), or content."""
        form = self._in_block
        assert form is not None
        text = self._text
        at = skip_white(text, self._pos)
        if at >= len(text):
            if final:
                self._state = "content"
                return True
            return False
        for part in (*form.block_closer.parts, form.separator):
            if not part:
                continue
            if text.startswith(part, at):
                end = at + len(part)
                if part == form.separator and not self._another(form, end):
                    following = skip_white(text, end)
                    if following >= len(text) and not final:
                        return False
                    continue
                self._drop_gap()
                self._piece("format", text[self._pos : end])
                self._pos = end
                self._block_open = self._block_open and part == form.separator
                return True
            if not final and part.startswith(text[at:]):
                return False
        for opener in form.triggers:
            if text.startswith(opener, at):
                self._drop_gap()
                self._piece("format", text[self._pos : at])
                self._pos = at
                self._begin(self._compiled.triggers[opener], at)
                return True
            if not final and opener.startswith(text[at:]):
                return False
        if (
            self._block_open
            and not form.opener.parts
            and _CALL_START[form.form.style].match(text, at)
        ):
            # Calls without an opener of their own follow each other in one block.
            self._drop_gap()
            self._piece("format", text[self._pos : at])
            self._pos = at
            self._begin([form], at)
            return True
        self._block_open = False
        self._state = "content"
        return True

    def _another(self, form: CompiledCall, pos: int) -> bool:
        at = skip_white(self._text, pos)
        rest = self._text[at:]
        if self._block_open and not form.opener.parts:
            return _CALL_START[form.form.style].match(rest) is not None
        return any(rest.startswith(opener) for opener in form.triggers)

    def _bare(self, final: bool) -> bool:
        """Content that may be nothing but calls without markers: known only at its end."""
        compiled = self._compiled
        text = self._text
        read = read_bare(compiled, text, self._pos, final)
        if read is None:
            return False
        calls, end = read
        if not calls:
            self._state = "content"
            return True
        start = skip_white(text, self._pos)
        self._piece("format", text[self._pos : start])
        for call in calls:
            self._add(call)
        self._piece("call", text[start:end])
        self._pos = end
        self._in_block = calls[-1].form
        stop = compiled.stop.match(text, skip_white(text, end)) if compiled.stop else None
        self._state = "content"
        if stop:
            self._piece("format", text[end : stop.start()])
            self._pos = stop.start()
        return True


_CALL_START = {
    "json": re.compile(r"\{"),
    "pythonic": re.compile(r"[^\W\d]"),
    "named": re.compile(r"(?!)"),
    "params": re.compile(r"(?!)"),
}
"""How a call without an opener begins inside a block."""
