"""Calls that are Python: lists of calls, Llama 3.1's built-in tools, plain code."""

from __future__ import annotations

import re

from antiphon.reading.call_parts import (
    MORE,
    Call,
    Found,
    Progress,
    checked_name,
    closed,
    spelled_out,
)
from antiphon.reading.compiled import CompiledCall
from antiphon.reading.literals import decode_unescaped_call, loose_calls, python_call
from antiphon.reading.scan import WHITE, Invalid, skip_white

_CALL_HEAD = re.compile(r"([^\W\d][\w.\-]*)\(")
_ARGUMENT = re.compile(r"\s*(?:[^\W\d]\w*\s*=|\))")


def read_pythonic(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    form = call.form
    at = skip_white(text, pos)
    if at >= len(text):
        return MORE
    if not form.listed and form.call_suffix:
        return _read_builtin(call, text, at, final, progress)
    listed = text[at] == "["
    if form.listed and not listed:
        raise Invalid("no list of calls follows the opening marker")
    if progress.next < 0:
        progress.next = at + listed
    try:
        return _read_python_calls(call, text, final, listed, progress)
    except Invalid:
        # Strings that are not escaped: the calls reach to the closing marker.
        at = skip_white(text, progress.next)
        if _CALL_HEAD.match(text, at) is None:
            raise
        closers = [*call.block_closer.parts[:1], *call.closer.parts[:1], *call.ends]
        ends = [found for part in closers if (found := text.find(part, at)) >= 0]
        if not ends:
            if closers and not final:
                return MORE
            raise
        body = text[at : min(ends)].strip(WHITE)
        if listed and not body.endswith("]"):
            raise
        made = [
            Call(checked_name(call, name), spelled_out(call, arguments), form=call)
            for name, arguments in loose_calls(body[:-1] if listed else body)
        ]
        return closed(call, text, at + len(body), final, [*progress.calls, *made])


def _read_python_calls(
    call: CompiledCall, text: str, final: bool, listed: bool, progress: Progress
) -> Found | None:
    while True:
        at = skip_white(text, progress.next)
        if at >= len(text):
            return MORE
        if listed and text[at] == "]" and progress.calls:
            return closed(call, text, at + 1, final, progress.calls)
        head = _CALL_HEAD.match(text, at)
        if head is not None:
            progress.name = checked_name(call, head.group(1))
        read = python_call(text, at, call.form.call_suffix)
        if read is None:
            return MORE
        name, arguments, end = read
        made = Call(checked_name(call, name), spelled_out(call, arguments), form=call)
        if not listed:
            return closed(call, text, end, final, [made])
        at = skip_white(text, end)
        if at >= len(text):
            return MORE
        if text[at] not in ",]":
            raise Invalid("a call is followed by neither a comma nor the end of the list")
        progress.take(made, end)
        if text[at] == ",":
            progress.go_on(at + 1)
        else:
            progress.next = at


def _read_builtin(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    """Llama 3.1's ``name.call(key="value")``, which reaches to the closer or the end of the
    turn.
    """
    found = call.stop.search(text, pos) if call.stop is not None else None
    head = re.compile(r"[^\W\d][\w.\-]*").match(text, pos)
    if head is None:
        raise Invalid("no built-in call follows")
    if head.end() < len(text) and (
        text[head.end()] != "(" or not head.group().endswith(call.form.call_suffix)
    ):
        raise Invalid("no built-in call follows")
    if _ARGUMENT.match(text, head.end() + 1):
        # Code may call a method of the suffix's name too, but a tool's arguments have names.
        progress.name = checked_name(call, head.group().removesuffix(call.form.call_suffix))
    if found is None and not final:
        return MORE
    end = found.start() if found else len(text)
    body = text[pos:end]
    if not body.rstrip().endswith(")"):
        if final and found is None:
            return MORE
        raise Invalid("the built-in call is not closed")
    try:
        read = python_call(text, pos, call.form.call_suffix)
        name, arguments = (
            (read[0], read[1]) if read and read[2] >= pos + len(body.rstrip()) else ("", {})
        )
        if not name:
            raise Invalid("not plain Python")
    except Invalid:
        name, arguments = decode_unescaped_call(body, call.form.call_suffix)
    made = Call(checked_name(call, name), spelled_out(call, arguments), form=call)
    return closed(call, text, pos + len(body.rstrip()), final, [made])


def read_fixed(call: CompiledCall, text: str, pos: int, final: bool) -> Found | None:
    """Everything up to the end of the turn is one argument of one tool (code)."""
    found = call.stop.search(text, pos) if call.stop is not None else None
    if found is None and not final:
        return MORE
    end = found.start() if found else len(text)
    form = call.form
    made = Call(form.fixed_name, {form.fixed_argument: call.plain(text[pos:end])}, form=call)
    return Found([made], end)
