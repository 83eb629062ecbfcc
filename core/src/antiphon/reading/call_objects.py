"""Calls whose arguments are one value: JSON objects, and names with an object behind them."""

from __future__ import annotations

import re
from typing import Any

from antiphon.reading.call_parts import (
    MORE,
    NO_ARGUMENTS,
    Call,
    Found,
    Progress,
    checked_name,
    close,
    closed,
    name_end,
    name_of,
    spelled_out,
    step,
)
from antiphon.reading.compiled import TOKEN, CompiledCall
from antiphon.reading.literals import braces_value, python_value
from antiphon.reading.scan import (
    WHITE,
    Invalid,
    Nested,
    decode_json,
    decode_json_at,
    json_member,
    skip_white,
)

_SYMBOL = re.compile("[\ud800-\udfff]")


_BRACES = re.compile(r"\{\s*\{")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_INDEXED = re.compile(r"(.+):\d+\Z", re.DOTALL)


def read_json(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    """Read a JSON object or a list of them; models write several objects behind each other too."""
    try:
        found = _read_objects(call, text, pos, final, progress)
    except Invalid:
        watch_json(call, text, pos, progress)
        raise
    if found is None:
        watch_json(call, text, pos, progress)
    return found


def _read_objects(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    if progress.next < 0:
        progress.next = pos
    while True:
        if progress.next >= progress.end:
            found = _read_next(call, text, final, progress)
            if found is None or progress.next < 0:
                return found
            progress.calls += found.calls
            progress.end, progress.nested = found.end, None
        following = skip_white(text, progress.end)
        if text[following : following + 1] in (",", ";"):
            following = skip_white(text, following + 1)
        if following >= len(text) and not final:
            return MORE
        if call.form.listed or call.form.bare or text[following : following + 1] != "{":
            return closed(call, text, progress.end, final, progress.calls)
        progress.next = following


def _read_next(call: CompiledCall, text: str, final: bool, progress: Progress) -> Found | None:
    """Read the next value; where there were calls before and no other one follows, or one that is cut
    off, return those and say so in `progress`.
    """
    start = skip_white(text, progress.next)
    found = None
    try:
        if start < len(text):
            found = _read_value(call, text, start, final, progress)
    except Invalid:
        if not progress.calls:
            raise
        progress.next = -1
        return closed(call, text, progress.end, final, progress.calls)
    if found is None and final and progress.calls:
        progress.next = -1
        stop = call.stop.search(text, start) if call.stop is not None else None
        end = stop.start() if stop else len(text)
        raw = call.plain(text[start:end])
        name = name_of(call, None, raw)
        cut = Call(name, status="incomplete", problem="the call is cut off", raw=raw, form=call)
        return Found([*progress.calls, cut], end)
    return found


def _read_value(
    call: CompiledCall, text: str, start: int, final: bool, progress: Progress
) -> Found | None:
    """Read one value: an object or a list of them."""
    if text[start] not in "{[" or (call.form.listed and text[start] != "["):
        raise Invalid("no JSON object follows the call's opening marker")
    value: Any = None
    nested = progress.nested
    read = decode_json_at(text, start) if nested is None and final else None
    if read is not None:
        value, end = read
        value = _plain_value(call, text[start:end], value)
    else:
        if nested is None:
            nested = progress.nested = Nested(start)
        if not nested.advance(text) and not (final and call.form.values == "python"):
            return MORE
        end = nested.end
        try:
            value = decode_json(call.plain(text[start:end]))
        except Invalid:
            if call.form.values != "python":
                raise
    if value is None and call.form.values == "python":
        found = python_value(text, start)
        if found is None:
            return MORE
        value, end = spelled_out(call, found[0]), found[1]
    items = value if isinstance(value, list) else [value]
    places = [(start, end)] if isinstance(value, dict) else _item_places(text, start, end)
    calls = [json_call(call, item, text, place) for item, place in zip(items, places, strict=False)]
    if not calls:
        raise Invalid("the list of calls is empty")
    return Found(calls, end)


def _plain_value(call: CompiledCall, text: str, value: Any) -> Any:
    """Return the value of JSON text with control characters written out; `value` if it has none."""
    if text.isascii() or not _SYMBOL.search(text):
        return value
    return decode_json(call.plain(text))


def _item_places(text: str, start: int, end: int) -> list[tuple[int, int]]:
    places = []
    at = skip_white(text, start + 1)
    while at < end and text[at] != "]":
        read = decode_json_at(text, at)
        if read is None:
            break
        places.append((at, read[1]))
        at = skip_white(text, read[1])
        if at < end and text[at] == ",":
            at = skip_white(text, at + 1)
    return places


def json_call(call: CompiledCall, item: Any, text: str, place: tuple[int, int]) -> Call:
    """Make a call of a JSON object.

    Raises:
        Invalid: It is no call.
    """
    form = call.form
    if not isinstance(item, dict):
        raise Invalid("the call is not a JSON object")
    inner, start, end = item, *place
    for key in form.wrapper_keys:
        if isinstance(item.get(key), dict) and not isinstance(item.get(form.name_keys[0]), str):
            inner = item[key]
            is_last = next(reversed(item)) == key
            start, end = json_member(text, start, end, key, is_last) or (start, start)
    name = _first_text(form.name_keys, inner)
    if not name:
        raise Invalid("the call has no name")
    held = next(filter(inner.__contains__, call.argument_keys), None)
    if held is None:
        # Without arguments: a tool that takes none; other keys would be lost. Without a marker it
        # may be anything that has a name.
        known = {*form.name_keys, *form.id_keys, *form.wrapper_keys, "type"}
        if form.bare or not set(inner) <= known:
            raise Invalid("the call has no arguments")
        return Call(name=name, arguments={}, id=_first_text(form.id_keys, inner, item), form=call)
    arguments = inner[held]
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        arguments = {}  # so models call tools that take none
    if not isinstance(arguments, (dict, str)):
        raise Invalid("the arguments are not an object")
    is_last = next(reversed(inner)) == held
    return Call(
        name=name,
        arguments=arguments,
        id=_first_text(form.id_keys, inner, item),
        object=(text, start, end, held, is_last) if end > start else None,
        form=call,
    )


def _first_text(keys: tuple[str, ...], *objects: dict[str, Any]) -> str | None:
    """Return the first text that stands under one of some keys."""
    for item in objects:
        for key in keys:
            value = item.get(key)
            if isinstance(value, str):
                return value
    return None


_KEY = re.compile(r'\s*"((?:[^"\\]|\\.)*)"\s*:\s*', re.DOTALL)


def watch_json(call: CompiledCall, text: str, pos: int, progress: Progress) -> None:
    """Note name and arguments of a growing object as soon as they are there, to show them."""
    start = skip_white(text, pos)
    if progress.arguments >= 0 or start >= len(text) or text[start] != "{":
        return
    pos = progress.pos if progress.pos >= 0 else start + 1
    while True:
        key = _KEY.match(text, pos)
        if key is None or key.end() >= len(text):
            break
        if key.group(1) in call.argument_keys:
            if progress.name is not None and text[key.end()] in "{[":
                progress.arguments = progress.shown = key.end()
                progress.value = Nested(key.end())
            break
        value = decode_json_at(text, key.end())
        if value is None:
            break
        after = skip_white(text, value[1])
        if after >= len(text) or text[after] != ",":
            break
        if key.group(1) in call.form.name_keys and isinstance(value[0], str):
            progress.name = value[0]
        pos = progress.pos = after + 1


def _after_name(call: CompiledCall, text: str, pos: int, final: bool) -> int | None:
    """Step over what stands between name and arguments.

    Where that is a header with two tokens or more (gpt-oss), the first and the last of them tell:
    models put other things between.

    Raises:
        Invalid: Something else stands there.
    """
    at = pos
    for part in call.name_closer.parts:
        end = step(text, at, part, final)
        if end is None:
            return MORE
        if end < 0:
            break
        at = end
    else:
        return at
    tokens = TOKEN.findall("".join(call.name_closer.parts))
    if len(tokens) >= 2:
        found = text.find(tokens[-1], pos)
        if found >= 0 and "\n" not in text[pos:found] and "{" not in text[pos:found]:
            return found + len(tokens[-1])
        if found < 0 and not final and "\n" not in text[pos:] and "{" not in text[pos:]:
            return MORE
    raise Invalid(NO_ARGUMENTS)


def read_named(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    form = call.form
    if progress.pos < 0:
        read = name_end(call, text, pos, final)
        if read is None:
            return MORE
        label, at = read
        if call.id_opener.parts and text.startswith(call.id_opener.parts[0], at):
            at += len(call.id_opener.parts[0])
            stop = call.name_closer.parts[0] if call.name_closer.parts else "{"
            found = text.find(stop, at)
            if found < 0:
                return MORE
            progress.id = text[at:found].strip(WHITE)
            at = found
        after = _after_name(call, text, at, final)
        if after is None:
            return MORE
        at = after
        if form.named_by_id:
            progress.id = label
            indexed = _INDEXED.match(label)
            if indexed is None:
                raise Invalid("the call's id does not name a tool")
            label = indexed.group(1)
        progress.name = checked_name(call, label)
        progress.pos = at
    at = skip_white(text, progress.pos)
    if at >= len(text):
        return MORE
    if form.values == "braces" and _BRACES.match(text, at):
        return _braced_text(call, text, at, final, progress)
    if form.values == "braces":
        read_value = braces_value(text, at, call.quote)
        if read_value is None:
            return MORE
        value, end = spelled_out(call, read_value[0]), read_value[1]
        argument_text = None
    elif form.values == "python" and text[at] == "{":
        read_value = python_value(text, at)
        if read_value is None:
            return MORE
        value, end = spelled_out(call, read_value[0]), read_value[1]
        argument_text = None
    else:
        if text[at] not in "{[":
            return _raw_arguments(call, text, at, final, progress)
        nested = progress.nested
        quick = decode_json_at(text, at) if nested is None and final else None
        if quick is not None:
            value, end = quick
            value = _plain_value(call, text[at:end], value)
        else:
            if nested is None:
                nested = progress.nested = Nested(at)
                progress.arguments = progress.shown = at
                progress.value = Nested(at)
            if not nested.advance(text):
                return MORE
            end = nested.end
            value = decode_json(call.plain(text[at:end]))
        argument_text = call.plain(text[at:end])
    if not isinstance(value, dict):
        raise Invalid("the arguments are not an object")
    made = Call(progress.name, value, argument_text, progress.id, form=call)
    return closed(call, text, end, final, [made])


def _braced_text(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    """JSON text in braces: what templates of the ``braces`` form print of arguments as text."""
    start = skip_white(text, pos + 1)
    nested = progress.nested = progress.nested or Nested(start)
    if not nested.advance(text):
        return MORE
    inner = call.plain(text[start : nested.end])
    decode_json(inner)
    end = skip_white(text, nested.end)
    if end >= len(text):
        return MORE
    if text[end] != "}":
        raise Invalid("the arguments are not an object")
    made = Call(progress.name, inner, inner, progress.id, form=call)
    return closed(call, text, end + 1, final, [made])


def _raw_arguments(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    """Arguments that are no object: JSON text in a string, or none where the closer follows."""
    if text[pos] == '"':
        string = _STRING.match(text, pos)
        if string is None:
            return MORE
        inner = decode_json(call.plain(string.group()))
        if not isinstance(decode_json(inner), dict):
            raise Invalid("the arguments are not an object")
        made = Call(progress.name, inner, inner, progress.id, form=call)
        return closed(call, text, string.end(), final, [made])
    end = close(call.closer, text, pos, final)
    if end is None:
        return MORE
    if end >= 0 and call.closer.parts:
        return Found([Call(progress.name, {}, "", progress.id, form=call)], end)
    end = step(text, pos, "null", final)
    if end is None:
        return MORE
    if end >= 0:
        return closed(
            call, text, end, final, [Call(progress.name, {}, "null", progress.id, form=call)]
        )
    raise Invalid("the arguments are not a JSON object")
