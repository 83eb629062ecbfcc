"""The machine that reads one assistant turn, in one piece or in any number of them.

With the states of calls (`antiphon.reading.turn_calls`) it is the only place that knows what may
follow what in a turn: reasoning, content, calls, the end. Everything else (one-shot reading,
streams, whole conversations) drives it.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.reading.bare import may_begin
from antiphon.reading.calls import step
from antiphon.reading.compiled import Compiled
from antiphon.reading.events import Event, Tools
from antiphon.reading.scan import WHITE, skip_white
from antiphon.reading.turn_calls import CallStates


class Machine(CallStates):
    """Reads one assistant turn.

    Args:
        compiled: The grammar.
        inside: Whether the turn begins inside the reasoning.
        after_thought: Whether the reasoning is over before the turn begins.
        tools: The parameter schema of each tool, where the tools are known.
        shows: Whether what is read makes events.
        keeps: Whether what each part of the text was is kept.
        lead: White space before the turn that is the format's, as much of it as stands there.
        quotes: Whether a marker right behind an opening backtick is content.

    Attributes:
        reasoning: Parts of the reasoning.
        content: Parts of the content.
        calls: The calls.
        lead: White space before the first call that is the format's.
        pieces: What each part of the text was.
        ended_by: The end token that ended the turn; None while there is none.
    """

    def __init__(
        self,
        compiled: Compiled,
        *,
        inside: bool = False,
        after_thought: bool = False,
        tools: Tools = None,
        shows: bool = True,
        keeps: bool = True,
        lead: str = "",
        quotes: bool = True,
    ) -> None:
        super().__init__(compiled, tools, shows, keeps)
        self._trial: tuple[Machine, int] | None = None
        self.lead = ""
        self._quotes = quotes
        self._tail = lead
        self._bare_allowed = bool(compiled.bare)
        self._may_reopen = inside
        if inside:
            self._state = "reasoning"
        elif after_thought:
            self._state = "content"
        elif lead:
            self._state = "lead"

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

        Text that may still become a marker is kept to go on with, and a call that the prompt began
        is kept whole; the pieces hold nothing of either.
        """
        self._borrowed = len(self._compiled.plain(self._gap + self._text[self._pos :]))
        if self._open is not None:
            self._open.progress.show_again()
        self._may_reopen = self._state == "reasoning" and not "".join(self.reasoning).strip(WHITE)
        self.reasoning.clear()
        self.content.clear()
        self.calls.clear()
        self._pieces.clear()
        self._events.clear()

    # The states

    def _run(self, final: bool) -> None:
        while self._state != "done" and _STATES[self._state](self, final):
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
            if end is None and not final:
                return False
            if end is not None and end >= 0:
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
        if not self._tail:
            return True
        text, start = self._text, self._pos
        pos, size = start, len(text)
        while self._tail and pos < size and text[pos] == self._tail[0]:
            pos += 1
            self._tail = self._tail[1:]
        self._piece("format", text[start:pos])
        self._pos = pos
        if self._tail and pos >= size:
            return final
        self._tail = ""
        return True

    def _skip_lead(self, final: bool) -> bool:
        if not self._skip(final):
            return False
        self._state = "start"
        return True

    def _skip_tail(self, final: bool) -> bool:
        if not self._skip(final):
            return False
        self._state = "content"
        return True

    def _opened_again(self, final: bool) -> bool:
        """Step over an opener of the reasoning that a prompt has opened; False while it may still
        come.
        """
        mark = self._compiled.think_open
        end: int | None = self._pos
        for part in mark.parts:
            if end is not None and end >= 0:
                end = step(self._text, end, part, final)
        if end is None and not final:
            return False
        self._may_reopen = False
        if mark.parts and end is not None and end >= 0:
            self._piece("format", self._text[self._pos : end])
            self._pos, self._tail = end, mark.tail
        return True

    def _reasoning(self, final: bool) -> bool:
        if self._may_reopen and not self._opened_again(final):
            return False
        if not self._skip(final):
            return False
        compiled = self._compiled
        text, pos = self._text, self._pos
        found = compiled.think_end.search(text, pos) if compiled.think_end else None
        if found is None:
            end = len(text)
            if not final:
                end = compiled.held(text, pos, compiled.think_prefixes)
                room = max(len(compiled.think_close.lead), compiled.max_lead)
                end = _before_white(text, max(pos, end - room), end)
            self._say("reasoning", text[pos:end])
            self._pos = end
            return False
        end, mark = found.start(), found.group()
        if mark in compiled.stops:
            self._say("reasoning", text[pos:end])
            self._pos = end
            self._finish(found.end())
            return False
        lead = compiled.think_close.lead
        is_call = mark in compiled.triggers and mark != compiled.think_close.core
        if is_call:
            if not self._trial_call(end, final):
                return False
            if self._trial is None:
                # It was no call: its marker is a part of the reasoning.
                self._say("reasoning", text[pos : found.end()])
                self._pos = found.end()
                return True
            self._trial = None
            lead = compiled.triggers[mark][0].lead
        lead_start = end
        for char in reversed(lead):
            if lead_start > pos and text[lead_start - 1] == char:
                lead_start -= 1
            else:
                break
        close_end: int | None = found.end()
        if mark == compiled.think_close.core:
            for part in compiled.think_close.parts[1:]:
                assert close_end is not None
                close_end = step(text, close_end, part, final)
                if close_end is None and not final:
                    return False
                if close_end is None or close_end < 0:
                    close_end = found.end()
                    break
        self._say("reasoning", text[pos:lead_start])
        if is_call:
            self.lead = text[lead_start:end]
            self._piece("format", self.lead)
            self._pos = end
            self._tail, self._state = "", "content"
            return True
        assert close_end is not None
        self._piece("format", text[lead_start:close_end])
        self._pos = close_end
        self._tail = compiled.think_close.tail
        self._state = "start" if mark in compiled.continued else "after_think"
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
            self._trial = Machine(self._compiled, tools=self._tools, shows=False, keeps=False), 0
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
                end = _before_white(text, max(pos, end - compiled.max_lead), end)
            self._say_content(text[pos:end])
            self._pos = end
            return False
        marker, start = found.group(), found.start()
        if not final and self._may_be_longer(start):
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
        if self._quotes and self._is_quoted(text[pos:start]):
            self._say_content(text[pos : found.end()])
            self._pos = found.end()
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
        if not self.calls:
            self.lead = text[start_lead:start]
        self._piece("format", text[start_lead:start])
        self._pos = start
        self._begin(forms, start)
        return True

    def _is_quoted(self, text: str) -> bool:
        """Whether the content so far, and some more of it, end with a backtick that opens a quotation:
        then the answer tells of a marker.
        """
        ends = text[-1] == "`" if text else self._after_tick
        return ends and self._ticks_behind(text) % 2 == 1

    def _may_be_longer(self, start: int) -> bool:
        """Whether a longer marker that begins with the one at ``start`` may still be on its way."""
        rest = self._text[start:]
        return len(rest) < self._compiled.longest + 1 and rest in self._compiled.prefixes


def _before_white(text: str, start: int, end: int) -> int:
    """Return where the white space at the end of a part of a text begins."""
    while end > start and text[end - 1] in WHITE:
        end -= 1
    return end


_STATES: dict[str, Callable[[Machine, bool], bool]] = {
    "lead": Machine._skip_lead,
    "start": Machine._start,
    "reasoning": Machine._reasoning,
    "tail": Machine._skip_tail,
    "content": Machine._content,
    "bare": Machine._bare,
    "call": Machine._call,
    "broken": Machine._broken_call,
    "between": Machine._between,
}
"""Each reads on from the current position: True says that it got somewhere, False that it needs more
text."""
