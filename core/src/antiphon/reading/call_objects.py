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
    holds_marker,
    name_end,
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
    has_twice,
    json_member,
    skip_white,
)

_NO_OBJECT = "no JSON object follows the call's opening marker"
_SYMBOL = re.compile("[\ud800-\udfff]")


_BRACES = re.compile(r"\{\s*\{")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_INDEXED = re.compile(r"(.+):\d+\Z", re.DOTALL)


def read_json(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    """Read a JSON object or a list of them; models write several objects behind each other too."""
    if progress.next < 0:
        progress.next = pos
    while True:
        if progress.next >= progress.end:
            at = skip_white(text, progress.next)
            if at >= len(text):
                return MORE
            if text[at] == "[" and not progress.listed:
                progress.listed, progress.next = True, at + 1
                continue
            if not (progress.listed or progress.calls) and call.form.listed:
                raise Invalid(_NO_OBJECT)
            if text[at] == "]" and progress.listed:
                if not progress.calls:
                    raise Invalid("the list of calls is empty")
                if progress.kept == len(progress.calls) and call.form.values != "python":
                    raise Invalid("the list of calls ends with a comma")
                progress.end, progress.listed = at + 1, False
            elif not _read_next(call, text, at, final, progress):
                return MORE
        after = skip_white(text, progress.end)
        if progress.listed:
            if after >= len(text):
                return MORE
            if text[after] not in ",]":
                raise Invalid("a call is followed by neither a comma nor the end of the list")
            if text[after] == ",":
                progress.go_on(after + 1)
            else:
                progress.next = after
            continue
        if text[after : after + 1] in (",", ";"):
            after = skip_white(text, after + 1)
        if after >= len(text) and not final:
            return MORE
        if call.form.listed or call.form.bare or text[after : after + 1] != "{":
            return closed(call, text, progress.end, final, progress.calls)
        progress.go_on(after)


def _read_next(call: CompiledCall, text: str, start: int, final: bool, progress: Progress) -> bool:
    """Read the next object, a call; False for more text. What is known of it is noted in `progress`."""
    is_whole = False
    try:
        is_whole = _read_object(call, text, start, final, progress)
    finally:
        if not is_whole and text[start] == "{":
            _watch(call, text, start, progress)
    return is_whole


def _read_object(
    call: CompiledCall, text: str, start: int, final: bool, progress: Progress
) -> bool:
    if text[start] != "{":
        raise Invalid(_NO_OBJECT)
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
            return False
        end = nested.end
        try:
            value = decode_json(call.plain(text[start:end]))
        except Invalid:
            if call.form.values != "python":
                raise
    if value is None and call.form.values == "python":
        found = python_value(text, start)
        if found is None:
            return False
        value, end = spelled_out(call, found[0]), found[1]
    progress.take(json_call(call, value, text, (start, end)), end)
    return True


def _plain_value(call: CompiledCall, text: str, value: Any) -> Any:
    """Return the value of JSON text with control characters written out; `value` if it has none."""
    if text.isascii() or not _SYMBOL.search(text):
        return value
    return decode_json(call.plain(text))


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
        if isinstance(item.get(key), dict) and _first_text(form.name_keys, item) is None:
            inner = item[key]
            is_last = next(reversed(item)) == key
            start, end = json_member(text, start, end, key, is_last) or (start, start)
    name = _first_text(form.name_keys, inner)
    if not name:
        raise Invalid("the call has no name")
    held = next(filter(call.argument_keys.__contains__, inner), None)
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
    # A stream shows the first of them before the second is there.
    first = form.name_keys[0]
    if has_twice(text, start, end, held) or has_twice(text, start, end, first):
        raise Invalid("the call has its name or its arguments twice")
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


def _watch(call: CompiledCall, text: str, start: int, progress: Progress) -> None:
    """Note name and arguments of a growing object as soon as they are there, to show them."""
    if progress.arguments >= 0:
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
        is_wrapper = key.group(1) in call.form.wrapper_keys and progress.name is None
        if is_wrapper and text[key.end()] == "{":
            pos = progress.pos = key.end() + 1
            continue
        value = decode_json_at(text, key.end())
        if value is None:
            break
        after = skip_white(text, value[1])
        if after >= len(text) or text[after] != ",":
            break
        is_name = key.group(1) in call.form.name_keys and isinstance(value[0], str)
        if is_name and value[0] and not holds_marker(call, value[0]):
            progress.name = progress.name or call.plain(value[0])
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
        progress.arguments = at
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
