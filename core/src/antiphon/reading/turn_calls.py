"""Reading the calls of a turn: one that is open, one that turns out to be none, what stands between."""

from __future__ import annotations

import re
from dataclasses import dataclass

from antiphon.reading.bare import may_begin, read_bare
from antiphon.reading.call_shown import show_more
from antiphon.reading.calls import Call, Found, Progress, name_of, read_call, step
from antiphon.reading.compiled import Compiled, CompiledCall
from antiphon.reading.events import Tools
from antiphon.reading.scan import Invalid, skip_white
from antiphon.reading.turn import Turn


@dataclass
class _Open:
    """A call that is being read: the forms it may have, where they begin, what they know, why the
    first of them did not fit, and for which of them the text ended too soon.
    """

    start: int
    pos: int
    forms: list[CompiledCall]
    progress: Progress
    refusal: tuple[str, str | None, CompiledCall] | None = None
    cut: tuple[CompiledCall, str | None] | None = None


class CallStates(Turn):
    """The states of a turn that is inside calls, or between them.

    Each reads on from the current position: True says that it got somewhere, False that it needs
    more text.
    """

    def __init__(
        self, compiled: Compiled, tools: Tools = None, shows: bool = True, keeps: bool = True
    ) -> None:
        super().__init__(compiled, tools, shows, keeps)
        self._open: _Open | None = None
        self._broken: tuple[int, CompiledCall, str | None, str] | None = None
        self._in_block: CompiledCall | None = None
        self._tail = ""
        """White space of the last marker that may still follow."""
        self._block_open = False

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
                    if self._shows:
                        self._show(opened)
                    return False
                # The text is cut off for this form; for another one it may be whole.
                opened.cut = opened.cut or (form, opened.progress.label())
            except Invalid as error:
                if opened.refusal is None:
                    opened.refusal = str(error), opened.progress.label(), form
            if opened.progress.name is not None or opened.progress.calls:
                break  # A call in this form has begun, and may have been shown.
            opened.forms.pop(0)
            opened.progress = Progress(tools=self._tools)
        start = self._take_kept(opened)
        if opened.cut is not None:
            self._cut_off(start, *opened.cut)
            return self._state != "call"
        assert opened.refusal is not None  # there was a form, and it did not fit
        problem, label, first = opened.refusal
        self._open = None
        self._broken = (start, first, label, problem)
        self._pos = start
        self._state = "broken"
        return True

    def _take_kept(self, opened: _Open) -> int:
        """Keep the whole calls before one that is broken or cut off; return where that begins."""
        progress = opened.progress
        if not progress.kept:
            return opened.start
        self._take(opened, Found(progress.calls[: progress.kept], progress.kept_end))
        return progress.kept_end

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
        place = self._text, opened.start, found.end
        drafts = opened.progress.drafts
        if drafts:
            show_more(opened.forms[0], self._text, opened.progress, self._tools)
        self._open = None
        self._pos = found.end
        shows_raw = self._keeps or self._shows
        for number, call in enumerate(found.calls):
            call.place = call.place or place
            if shows_raw:
                call.keep_raw()
            self._add(call, drafts[number] if number < len(drafts) else None)
        self._piece("call", self._text[opened.start : found.end])
        self._in_block = found.calls[-1].form
        self._state = "between"

    def _show(self, opened: _Open) -> None:
        """Show as much of growing calls as is certain."""
        show_more(opened.forms[0], self._text, opened.progress, self._tools)
        for number, draft in enumerate(opened.progress.drafts, len(self.calls)):
            self._show_draft(number, draft)

    def _cut_off(self, start: int, form: CompiledCall, name: str | None) -> None:
        """The text ends inside a call. Where it holds an end token, the turn ended there.

        Args:
            start: Where the call begins.
            form: The first of its forms that fitted so far.
            name: The tool's name, if that was read.
        """
        text = self._text
        stop = self._compiled.stop
        found = stop.search(text, start) if stop is not None else None
        end = found.start() if found else len(text)
        raw = self._compiled.plain(text[start:end])
        name = name_of(form, name, raw)
        self._in_block = form
        self._open = None
        problem = "the call is cut off"
        self._add(Call(name=name, status="incomplete", problem=problem, raw=raw, form=form))
        self._keep("call", raw)
        self._pos = end
        self._state = "between"
        if found:
            self._finish(found.end())

    def _broken_call(self, final: bool) -> bool:
        """A marker without a call: its text up to the closer, the next opener or the end."""
        assert self._broken is not None
        start, form, name, problem = self._broken
        text = self._text
        skip = self._past_openers(form, text, start)
        found = form.stop.search(text, skip) if form.stop is not None else None
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
        self._keep("call", raw)
        self._pos = end
        self._in_block = form
        self._state = "between"
        return True

    @staticmethod
    def _past_openers(form: CompiledCall, text: str, start: int) -> int:
        """Return where the openers end that stand at a position, as far as they go."""
        end = start
        for part in (*form.block_opener.parts, *form.opener.parts):
            at = skip_white(text, end)
            if text.startswith(part, at):
                end = at + len(part)
        return end

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
        for part in form.block_closer.parts:
            if text.startswith(part, at):
                self._step_over(at + len(part))
                self._block_open = False
                return True
            if not final and part.startswith(text[at:]):
                return False
        for part in form.closer.parts[-1:]:
            # Models close a call twice, or leave out the first of its closers.
            if text.startswith(part, at):
                self._step_over(at + len(part))
                return True
            if not final and part.startswith(text[at:]):
                return False
        # Where templates print an end token between calls, a model's turn ends with it.
        separator = form.separator if form.separator not in self._compiled.stops else ""
        if separator and text.startswith(separator, at):
            end = at + len(separator)
            following = self._another(form, end, final)
            if following is None:
                return False
            if following:
                self._step_over(end)
                return True
        elif separator and not final and separator.startswith(text[at:]):
            return False
        for opener in form.triggers:
            if text.startswith(opener, at):
                self._step_over(at)
                forms = self._compiled.triggers[opener]
                if self._block_open and form in forms:
                    # In a block all calls are of one form.
                    forms = [form, *(other for other in forms if other is not form)]
                self._begin(forms, at)
                return True
            if not final and opener.startswith(text[at:]):
                return False
        if (
            self._block_open
            and not form.opener.parts
            and _CALL_START[form.form.style].match(text, at)
        ):
            # Calls without an opener of their own follow each other in one block.
            self._step_over(at)
            self._begin([form], at)
            return True
        self._block_open = False
        # Content may stand behind calls: white space at the end of what closes them is not its own.
        self._tail = (form.block_closer if form.block_closer.parts else form.closer).tail
        self._state = "tail" if self._tail else "content"
        return True

    def _step_over(self, end: int) -> None:
        """Take the text up to a position for a part of the format."""
        self._drop_gap()
        self._piece("format", self._text[self._pos : end])
        self._pos = end

    def _another(self, form: CompiledCall, pos: int, final: bool) -> bool | None:
        """Whether another call stands behind a separator; None for more text."""
        rest = self._text[skip_white(self._text, pos) :]
        if not rest and not final:
            return None
        if self._block_open and not form.opener.parts:
            return _CALL_START[form.form.style].match(rest) is not None
        if any(rest.startswith(opener) for opener in form.triggers):
            return True
        if not final and any(opener.startswith(rest) for opener in form.triggers):
            return None
        return False

    def _bare(self, final: bool) -> bool:
        """Content that may be nothing but calls without markers: known only at its end."""
        compiled = self._compiled
        text = self._text
        start = skip_white(text, self._pos)
        read = read_bare(compiled, text, start, final) if may_begin(text, start) else ([], start)
        if read is None:
            return False
        calls, end = read
        if not calls:
            self._state = "content"
            return True
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
