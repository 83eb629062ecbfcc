"""What a stream shows of calls while they are written: no more than is certain.

What is shown of a call's arguments, joined, is a beginning of their JSON text as the message has it, however
the text comes; nothing is ever taken back.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from antiphon.reading.call_parts import (
    Draft,
    Growing,
    Progress,
    arguments_text,
    holds_marker,
    spelled_out,
)
from antiphon.reading.compiled import CompiledCall
from antiphon.reading.events import Tools
from antiphon.reading.literals import braces_value
from antiphon.reading.scan import Invalid, skip_white, without_start_of
from antiphon.reading.schema import is_text, typed


def show_more(call: CompiledCall, text: str, progress: Progress, tools: Tools) -> None:
    """Add to the drafts of `progress` what is certain by now.

    Args:
        call: The form that the calls are read by.
        text: The text so far.
        progress: What its reader has found.
        tools: The parameter schema of each tool, where the tools are known.
    """
    if call.form.style == "params":
        draft = _draft(call, progress, 0, progress.name)
        if draft is not None:
            _show_params(call, text, progress, tools, draft)
        return
    for made in progress.calls[progress.told :]:
        draft = _draft(call, progress, progress.told, made.name)
        if draft is None:
            return
        draft.say(call.plain(arguments_text(made))[draft.size :])
        progress.told += 1
    is_braces = call.form.values == "braces" and text.startswith("{", progress.arguments)
    if progress.value is None and not is_braces and call.form.style != "pythonic":
        return
    draft = _draft(call, progress, len(progress.calls), progress.name)
    if draft is None:
        return
    if progress.value is not None:
        _show_value(call, text, progress, draft)
    elif is_braces:
        with contextlib.suppress(Invalid):
            _show_braces(call, text, progress, draft)


def _draft(call: CompiledCall, progress: Progress, number: int, name: str | None) -> Draft | None:
    """Return the draft of a call; None while its name is not known or none."""
    if len(progress.drafts) <= number:
        if not name or holds_marker(call, name):
            return None
        progress.drafts.append(Draft(name))
    return progress.drafts[number]


def _show_value(call: CompiledCall, text: str, progress: Progress, draft: Draft) -> None:
    """Show arguments that are one JSON value."""
    assert progress.value is not None
    progress.value.advance(text)
    size = progress.value.pos
    if size > progress.shown:
        draft.say(call.plain(text[progress.shown : size]))
        progress.shown = size


def _show_braces(call: CompiledCall, text: str, progress: Progress, draft: Draft) -> None:
    """Show members in Gemma's notation: whole ones, and the text of a string that grows."""
    quote = call.quote
    while True:
        pos = skip_white(text, max(progress.certain, progress.arguments + 1))
        if progress.told:
            if not text.startswith(",", pos):
                return
            pos = skip_white(text, pos + 1)
        elif text.startswith(("{", '"'), pos) and not text.startswith(quote, pos):
            return  # JSON: shown when it is whole
        if text.startswith(quote, pos):
            read = braces_value(text, pos, quote)
            if read is None:
                return
            key, colon = read[0], skip_white(text, read[1])
        else:
            colon = text.find(":", pos)
            key = text[pos:colon].strip()
        if colon < 0 or pos >= len(text) or text[pos] == "}" or not text.startswith(":", colon):
            return
        key, start = call.plain(key), skip_white(text, colon + 1)
        read = braces_value(text, start, quote)
        if read is None:
            if text.startswith(quote, start):
                start += len(quote)
                end = max(start, without_start_of(quote, text))
                _show_growing(call, text, progress, draft, Growing(key, start, end, True))
            return
        value = spelled_out(call, read[0])
        draft.say(_member(progress.told, key, value)[progress.part :])
        progress.certain, progress.told, progress.part = read[1], progress.told + 1, 0
        draft.is_open = True


def _show_params(
    call: CompiledCall, text: str, progress: Progress, tools: Tools, draft: Draft
) -> None:
    """Show arguments that are spelled one after the other: whole ones, and the text of one that grows."""
    schema = (tools or {}).get(progress.name or "")
    for key, value, is_bare in progress.members[progress.told :]:
        made = typed(value, key, call, schema) if is_bare else value
        draft.say(_member(progress.told, key, made)[progress.part :])
        progress.told, progress.part, draft.is_open = progress.told + 1, 0, True
    growing = progress.growing
    if growing is None:
        return
    if not (progress.part or growing.is_text):
        begun = call.plain(text[growing.start : growing.end])
        if not is_text(begun, growing.key, call, schema):
            return
    _show_growing(call, text, progress, draft, growing)


def _show_growing(
    call: CompiledCall, text: str, progress: Progress, draft: Draft, growing: Growing
) -> None:
    """Show more of a string that is being written."""
    if not progress.part:
        head = _member(progress.told, growing.key, "")[:-1]
        draft.say(head)
        progress.part, progress.shown = len(head), growing.start
    if growing.end > progress.shown:
        more = _escaped(call.plain(text[progress.shown : growing.end]))
        draft.say(more)
        progress.part, progress.shown = progress.part + len(more), growing.end


def _member(place: int, key: str, value: Any) -> str:
    """Return an object's member as JSON text with what stands before it in the object."""
    text = json.dumps({key: value}, ensure_ascii=False)[1:-1]
    return f", {text}" if place else "{" + text


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
