"""Calls without an opening marker (Llama 3's JSON, Llama 4's lists).

A turn whose whole content is such calls is a call; that is known only at its end.
"""

from __future__ import annotations

import re

from antiphon.reading.calls import Call, Progress, name_of, read_call
from antiphon.reading.compiled import Compiled, CompiledCall
from antiphon.reading.scan import Invalid, skip_white

_JSON = r'\{\s*(?:"|\Z)|\[\s*(?:\{\s*(?:"|\Z)|\Z)'
_LIST = r"\[\s*(?:[^\W\d]|\Z)"
_START = re.compile(f"{_JSON}|{_LIST}")
_STARTS = {"json": re.compile(_JSON), "pythonic": re.compile(_LIST)}
"""How calls without a marker begin, as far as the text goes."""

_CUT = {
    "json": re.compile(
        r'\[?\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"[^"]*"\s*,\s*'
        r'"(?:parameters|arguments)"'
    ),
    "pythonic": re.compile(r"\[\s*[^\W\d][\w.]*\(\s*(?:[^\W\d]\w*\s*=|\Z)"),
}
"""Beginnings of a call that leave no doubt."""

_PYTHON_NAME = re.compile(r"\[\s*([^\W\d][\w.]*)\(")

Bare = tuple[list[Call], int]
"""Calls and where the last of them ends; no calls where there is anything else."""


def may_begin(text: str, pos: int) -> bool:
    """Whether what stands at a position may go on to be a call without a marker."""
    return pos < len(text) and _START.match(text, pos) is not None


def read_bare(compiled: Compiled, text: str, pos: int, final: bool) -> Bare | None:
    """Read calls without markers up to the end of the turn.

    Returns:
        See `Bare`; None where more text is needed to tell.
    """
    start = skip_white(text, pos)
    waiting = False
    for form in compiled.bare:
        if not _STARTS[form.form.style].match(text, start):
            continue
        try:
            found = _read_run(compiled, form, text, start, final)
        except Invalid:
            continue
        if found is None:
            waiting = True
        elif found[0]:
            return found
    return None if waiting else ([], start)


def _read_run(
    compiled: Compiled, form: CompiledCall, text: str, start: int, final: bool
) -> Bare | None:
    """Read calls of one form that follow each other; None for more text.

    Raises:
        Invalid: The text does not go on as such a call.
    """
    calls: list[Call] = []
    pos = start
    while True:
        found = read_call(form, text, pos, final, Progress())
        if found is None:
            if not final:
                return None
            cut, end = _cut_off(compiled, form, text, skip_white(text, pos))
            return (calls + cut, end) if cut else ([], start)
        raw = compiled.plain(text[skip_white(text, pos) : found.end])
        for call in found.calls:
            call.raw = raw
        calls += found.calls
        pos = skip_white(text, found.end)
        if pos >= len(text):
            return (calls, found.end) if final else None
        if compiled.stop is not None and compiled.stop.match(text, pos):
            return calls, found.end
        closer = compiled.content_close.core
        if closer and text.startswith(closer, pos):
            return calls, found.end
        if closer and not final and closer.startswith(text[pos:]):
            return None
        if text[pos] in ";,":
            pos += 1
        elif text[pos] not in "{[":
            if any(stop.startswith(text[pos:]) for stop in compiled.stops):
                return (calls, found.end) if final else None
            return [], start


def _cut_off(compiled: Compiled, form: CompiledCall, text: str, start: int) -> Bare:
    """A call that is cut off after its name: flagged, not shown as an answer."""
    found = compiled.stop.search(text, start) if compiled.stop is not None else None
    end = found.start() if found else len(text)
    if not _CUT[form.form.style].match(text, start, end):
        return [], start
    raw = compiled.plain(text[start:end])
    head = _PYTHON_NAME.match(raw)
    name = head.group(1) if head else name_of(form, None, raw)
    return [Call(name, status="incomplete", problem="the call is cut off", raw=raw, form=form)], end
