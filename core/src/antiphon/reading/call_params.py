"""Calls that spell their arguments one after the other (XML, GLM, DSML)."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from antiphon.reading.call_parts import (
    MORE,
    NO_ARGUMENTS,
    Call,
    Found,
    Growing,
    Progress,
    checked_name,
    close,
    name_end,
    step,
)
from antiphon.reading.compiled import CompiledCall, Mark, held
from antiphon.reading.literals import decode_python
from antiphon.reading.scan import (
    WHITE,
    Invalid,
    Nested,
    decode_json,
    skip_white,
    without_start_of,
)

_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_STRING_FLAGS = ("true", "string", "str")


def read_params(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    param = call.param
    assert param is not None  # a form of this style has one
    if progress.pos < 0:
        read = name_end(call, text, pos, final)
        if read is None:
            return MORE
        name, at = read
        for part in call.name_closer.parts:
            if part.endswith(">") and text.startswith(part[:-1] + "/>", at):
                # <invoke name="f"/>: a call without arguments may close itself.
                return Found([Call(checked_name(call, name), {}, form=call)], at + len(part) + 1)
            end = step(text, at, part, final)
            if end is None:
                return MORE
            if end < 0:
                raise Invalid(NO_ARGUMENTS)
            at = end
        progress.name = checked_name(call, name)
        progress.pos = at
    while True:
        at = progress.pos
        end = _closed(call, text, at, final)
        if end is None:
            return MORE
        if end >= 0:
            made = Call(
                progress.name,
                progress.params,
                untyped=progress.untyped(),
                id=progress.id,
                form=call,
            )
            return Found([made], end)
        opened = _opened(param.opener, text, at, final)
        if opened is None:
            return MORE
        if opened < 0:
            if skip_white(text, at) >= len(text):
                return MORE
            if not _read_object(call, text, at, progress):
                return MORE
        elif not _read_param(call, text, opened, final, progress):
            return MORE


def _closed(call: CompiledCall, text: str, pos: int, final: bool) -> int | None:
    """Step over the call's closer, as `step`; models write the last part of it alone."""
    if not call.closer.parts:
        opened = _opened(call.param.opener, text, pos, final) if call.param else -1
        return None if opened is None else pos if opened < 0 else -1
    end = close(call.closer, text, pos, final)
    if end is None or end >= 0 or len(call.closer.parts) == 1:
        return end
    return step(text, pos, call.closer.parts[-1], final)


def _read_object(call: CompiledCall, text: str, pos: int, progress: Progress) -> bool:
    """Read all arguments as one JSON object, as models write them in place of parameters; False
    for more text.

    Raises:
        Invalid: No such object stands there.
    """
    start = skip_white(text, pos)
    if text[start] != "{" or progress.params:
        raise Invalid("neither an argument nor the end of the call follows")
    nested = progress.nested = progress.nested or Nested(start)
    if not nested.advance(text):
        return False
    for key, value in decode_json(call.plain(text[start : nested.end])).items():
        progress.add(key, value, False)
    progress.pos = nested.end
    return True


def _opened(mark: Mark, text: str, pos: int, final: bool) -> int | None:
    end: int | None = pos
    for part in mark.parts:
        assert end is not None
        end = step(text, end, part, final)
        if end is None or end < 0:
            return end
    return end


def _read_param(call: CompiledCall, text: str, pos: int, final: bool, progress: Progress) -> bool:
    """Read one parameter whose opener ends at `pos` into `progress`; False for more text."""
    param, form = call.param, call.form.param
    assert param is not None
    assert form is not None
    key_end = text.find(param.key_closer.core, pos)
    # A closer that is still coming is no part of the name.
    certain = key_end if key_end >= 0 else without_start_of(param.key_closer.core, text)
    bare_key = text[pos:certain].strip(WHITE)
    if "\n" in bare_key or param.closer.core in bare_key:
        raise Invalid("an argument's name is not whole")
    if key_end < 0:
        return False
    key = call.plain(bare_key)
    at = key_end + len(param.key_closer.core)
    for part in param.key_closer.parts[1:]:
        end = step(text, at, part, final)
        if end is None:
            return False
        if end < 0:
            raise Invalid(f"the argument {key!r} has no value")
        at = end
    flag = ""
    if param.flag_closer.parts:
        flag_end = text.find(param.flag_closer.core, at)
        if flag_end < 0:
            return False
        flag = text[at:flag_end].strip(WHITE)
        at = flag_end + len(param.flag_closer.core)
        tail = param.flag_closer.tail
    else:
        tail = param.key_closer.tail
    start = _skip_tail(text, at, tail)
    if form.cdata:
        if not final and _CDATA.startswith(text[start:]):
            return False
        if text.startswith(_CDATA, start):
            at = text.find(_CDATA_END, start)
            if at < 0:
                return False
            at += len(_CDATA_END)
    if not final:
        is_text = flag.lower() in _STRING_FLAGS
        begin = max(at, progress.certain)
        progress.certain, may_end = certain_end(call, text, at, begin)
        grows = is_text or not (flag or form.quoted or text.startswith(_CDATA, start))
        if grows and progress.certain > start:
            progress.growing = Growing(key, start, progress.certain, is_text)
        if not may_end:
            return False
    found = _value_end(call, text, at, final, progress.keys(), key)
    if found is None:
        return False
    value_end, end = found
    start = min(start, value_end)
    value_end = _trim_lead(text, start, value_end, param.closer.lead)
    raw = call.plain(text[start:value_end])
    if form.cdata and raw.startswith(_CDATA) and raw.endswith(_CDATA_END):
        raw = raw[len(_CDATA) : -len(_CDATA_END)]
    value: Any = raw
    is_bare = False
    if form.quoted:
        with contextlib.suppress(Invalid):
            value = python_or_json(raw)
    elif not param.flag_closer.parts:
        is_bare = True
    elif flag.lower() not in _STRING_FLAGS:
        try:
            value = decode_json(raw)
        except Invalid:
            is_bare = True
    progress.add(key, value, is_bare)
    progress.pos = end
    return True


def _skip_tail(text: str, pos: int, tail: str) -> int:
    """Step over the white space that a literal has at its end, as much of it as stands there."""
    for char in tail:
        if pos < len(text) and text[pos] == char:
            pos += 1
        elif char == "\n" and text.startswith("\r\n", pos):
            pos += 2
        else:
            break
    return pos


def _trim_lead(text: str, start: int, end: int, lead: str) -> int:
    """Step back over the white space that a literal has at its beginning, as much as stands
    there.
    """
    for char in reversed(lead):
        if end > start and text[end - 1] == char:
            end -= 2 if char == "\n" and text[start : end - 1].endswith("\r") else 1
        else:
            break
    return end


def _value_end(
    call: CompiledCall, text: str, pos: int, final: bool, keys: tuple[str, ...] | None, key: str
) -> tuple[int, int] | None:
    """Find where a value ends and where what follows it begins; None for more text.

    That is the first closer after which another argument or the end of the call follows: a value
    may hold the closer's text; it may hold a whole call too, so as many calls must begin in it as
    end there, if any closer can be found for which that is so. Models leave closers out; the next
    argument (that the tool has, where it is known), or the whole end of the call, then ends the
    value too.
    """
    param = call.param
    assert param is not None
    closer = param.closer.core
    followers = [*param.opener.parts[:1], *call.closer.parts[:1]]
    ends: tuple[int, int] | None = None
    torn: tuple[int, int] | None = None
    certain = len(text)
    found = text.find(closer, pos)
    while found >= 0:
        end = found + len(closer)
        at = skip_white(text, end)
        if any(text.startswith(item, at) for item in followers) or (final and at >= len(text)):
            if _holds_whole_calls(call, text, pos, found):
                ends = found, end
                break
            torn = torn or (found, end)
        elif not final and any(item.startswith(text[at:]) for item in followers):
            certain = found
            break
        found = text.find(closer, end)
    if ends is None and torn is not None:
        if not final:
            return None
        ends = torn
    limit = ends[0] if ends else certain
    others = [item for item in keys or () if item != key]
    missing = _missing_closer(call, text, pos, limit, final, others)
    if missing is None and keys is None and ends is not None:
        missing = _next_opener(call, text, pos, limit)
    if missing is not None:
        return missing, missing
    if ends is not None or not final or certain < len(text):
        return ends
    found = text.find(closer, pos)
    return None if found < 0 else (found, found + len(closer))


def certain_end(call: CompiledCall, text: str, pos: int, begin: int) -> tuple[int, bool]:
    """Find up to where a text is a value's for certain, whatever follows.

    Args:
        call: The form.
        text: The text so far.
        pos: Where the value begins, white space of the format included.
        begin: Up to where it is known to be the value's.

    Returns:
        That place, and whether anything stands behind it that may end the value: not only the
        beginning of that.
    """
    param = call.param
    assert param is not None
    at = begin
    while True:
        found = param.ends.search(text, at)
        if found is None or not _is_inner(call, text, found):
            break
        at = found.end()
    end = found.start() if found else held(text, at, param.prefixes, param.longest)
    # White space before what ends a value may be the format's.
    room = len(param.closer.lead) * (2 if "\n" in param.closer.lead else 1)
    while room and end > pos and text[end - 1] in f"{param.closer.lead}\r":
        end, room = end - 1, room - 1
    return max(end, begin), found is not None


def _is_inner(call: CompiledCall, text: str, found: re.Match[str]) -> bool:
    """Whether a closer can't end the value, since nothing follows it that may follow a value."""
    param = call.param
    assert param is not None
    if found.group() != param.closer.core or not call.closer.parts:
        return False
    at = skip_white(text, found.end())
    followers = [param.opener.core, call.closer.parts[0], call.closer.parts[-1]]
    return at < len(text) and not any(
        text.startswith(item, at) or item.startswith(text[at:]) for item in followers
    )


def _next_opener(call: CompiledCall, text: str, start: int, end: int) -> int | None:
    """Find the first line that begins another argument where a value holds more openers than closers."""
    param = call.param
    assert param is not None
    head = rf"\n{re.escape(param.opener.core)}[^\n<>]+{re.escape(param.key_closer.core)}"
    openers = [found.start() for found in re.finditer(head, text[start:end])]
    if len(openers) <= text.count(param.closer.core, start, end):
        return None
    return start + openers[0]


def _holds_whole_calls(call: CompiledCall, text: str, start: int, end: int) -> bool:
    """Whether as many calls begin in a part of a text as end there."""
    if not (call.opener.parts and call.closer.parts):
        return True
    begun = text.count(call.opener.parts[-1], start, end)
    return begun == 0 or begun == text.count(call.closer.parts[0], start, end)


def _missing_closer(
    call: CompiledCall, text: str, pos: int, limit: int, final: bool, keys: list[str]
) -> int | None:
    """Find a line before `limit` that begins the tool's next argument or ends the call."""
    param = call.param
    assert param is not None
    places: list[int] = []
    for key in keys:
        head = f"\n{param.opener.core}{key}{param.key_closer.core}"
        found = text.find(head, pos - 1, limit)
        if found >= 0 and _holds_whole_calls(call, text, pos, found):
            places.append(found)
    if call.boundary is not None:
        for match in call.boundary.finditer(text, pos, limit if limit < len(text) else len(text)):
            if limit >= len(text) and match.group(1) is not None and not final:
                continue
            if limit < len(text) and match.group(1) is not None:
                continue
            places.append(match.start())
            break
    return min(places) if places else None


def python_or_json(text: str) -> Any:
    """Return the value of text that is JSON or a Python literal.

    Raises:
        Invalid: It is neither.
    """
    try:
        return decode_json(text)
    except Invalid:
        return decode_python(text)
