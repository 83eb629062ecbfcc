"""Reading one tool call, in each of the four styles, in text that may still grow.

A reader stands at the first character after the call's opener and says one of four things: what
the call is and where it ends; that more text is needed; that no such call stands there and why.
Which of them depends on the text alone, never on how it was cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from antiphon.reading.compiled import TOKEN, CompiledCall, Mark
from antiphon.reading.literals import (
    braces_value,
    decode_python,
    decode_unescaped_call,
    loose_calls,
    python_call,
    python_value,
)
from antiphon.reading.scan import (
    WHITE,
    Invalid,
    Nested,
    decode_json,
    decode_json_at,
    json_members,
    skip_white,
)

_NO_NAME = re.compile(r"[\s<>{}\[\]\"]")
_NO_ARGUMENTS = "the call's name is not followed by its arguments"
_SYMBOL = re.compile("[\ud800-\udfff]")
_CALL_HEAD = re.compile(r"\[?\s*[^\W\d][\w.\-]*\(")
_INDEXED = re.compile(r"(.+):\d+\Z", re.DOTALL)


@dataclass
class Call:
    """One call as read.

    Attributes:
        name: The tool's name; None where it could not be read.
        arguments: The arguments: a mapping, or what stood in its place.
        text: The arguments as they stood in the text, where they stood there as one JSON value.
        id: The call's id, where the text has one.
        status: ``"ok"``, ``"incomplete"`` or ``"malformed"`` (and what `antiphon.reading.schema` adds).
        problem: What is wrong, as a sentence.
        raw: The call's whole text.
        untyped: Arguments that stood there as bare text, which a schema may type.
        form: How it was written.
    """

    name: str | None = None
    arguments: Any = None
    text: str | None = None
    id: str | None = None
    status: str = "ok"
    problem: str = ""
    raw: str = ""
    untyped: frozenset[str] = frozenset()
    form: CompiledCall | None = None


@dataclass
class Found:
    """Calls that were read, and where the last of them ends."""

    calls: list[Call]
    end: int


@dataclass
class Progress:
    """What a reader keeps between two looks at a growing text.

    Attributes:
        nested: The value that is being scanned.
        value: The arguments inside it, likewise, where they are being shown as they grow.
        name: The tool's name, once it is known.
        shown: Up to where the arguments' text has been shown.
        emitted: How many characters that were, control tokens written out.
        arguments: Where the arguments' text begins, once that is known; -1 before.
        params: The parameters read so far.
        pos: Where the next parameter is expected.
        tools: The parameter schema of each tool, where the tools are known.
    """

    nested: Nested | None = None
    value: Nested | None = None
    name: str | None = None
    id: str | None = None
    shown: int = -1
    emitted: int = 0
    arguments: int = -1
    params: dict[str, Any] = field(default_factory=dict)
    untyped: set[str] = field(default_factory=set)
    pos: int = -1
    tools: Mapping[str, Mapping[str, Any]] | None = None

    def keys(self) -> tuple[str, ...]:
        """Return the tool's parameters that have not been read yet, where its schema is known."""
        schema = (self.tools or {}).get(self.name or "")
        properties = schema.get("properties") if schema else None
        if not isinstance(properties, Mapping):
            return ()
        return tuple(key for key in properties if isinstance(key, str) and key not in self.params)


MORE = None
"""More text is needed."""


def read_call(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    """Read the call whose opener ends at `pos`.

    Args:
        call: The form.
        text: The text.
        pos: Where the call's opener ends.
        final: No more text will come.
        progress: What earlier looks at the same call left.

    Returns:
        The calls (more than one where a list stands) and their end, closer included; None where
        more text is needed, or, if `final`, where the text was cut off.

    Raises:
        Invalid: No such call stands there.
    """
    form = call.form
    if form.fixed_name:
        return _read_fixed(call, text, pos, final)
    if form.style == "json":
        return _read_json(call, text, pos, final, progress)
    if form.style == "named":
        return _read_named(call, text, pos, final, progress)
    if form.style == "params":
        return _read_params(call, text, pos, final, progress)
    return _read_pythonic(call, text, pos, final)


def step(text: str, pos: int, part: str, final: bool) -> int | None:
    """Step over white space and `part`.

    Returns:
        Where it ends; -1 where something else stands; None where the text ends too soon to say.
    """
    at = skip_white(text, pos)
    if text.startswith(part, at):
        return at + len(part)
    if not final and part.startswith(text[at:]):
        return None
    return -1


def close(mark: Mark, text: str, pos: int, final: bool) -> int | None:
    """Step over a closer, as `step`: its first part must be there, the others may be."""
    if not mark.parts:
        return pos
    end = step(text, pos, mark.parts[0], final)
    for part in mark.parts[1:]:
        if end is None or end < 0:
            return end
        further = step(text, end, part, final)
        if further is None:
            return None
        if further < 0:
            break
        end = further
    return end


def _closed(
    call: CompiledCall, text: str, pos: int, final: bool, calls: list[Call]
) -> Found | None:
    """Finish calls whose value ends at `pos`: step over the closer.

    A closer that the model left out does no harm where the text ends or another marker stands.
    """
    end = close(call.closer, text, pos, final)
    if end is None:
        return MORE
    if end >= 0:
        return Found(calls, end)
    at = skip_white(text, pos)
    if at >= len(text) or (call.stop is not None and call.stop.match(text, at)):
        return Found(calls, pos) if final or at < len(text) else MORE
    if not final and any(stop.startswith(text[at:]) for stop in call.stops):
        return MORE
    raise Invalid("the call's closing marker does not follow its arguments")


def _read_json(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    start = skip_white(text, pos)
    if start >= len(text):
        return MORE
    if text[start] not in "{[" or (call.form.listed and text[start] != "["):
        raise Invalid("no JSON object follows the call's opening marker")
    value: Any = None
    nested = progress.nested
    read = decode_json_at(text, start) if nested is None and final else None
    if read is not None:
        value, end = read
        if _SYMBOL.search(text, start, end):
            value = decode_json(call.plain(text[start:end]))
    else:
        if nested is None:
            nested = progress.nested = Nested(start)
        if not nested.advance(text):
            _watch_json(call, text, start, progress)
            return MORE
        end = nested.end
        value = decode_json(call.plain(text[start:end]))
    items = value if isinstance(value, list) else [value]
    places = [(start, end)] if isinstance(value, dict) else _item_places(text, start, end)
    calls = [json_call(call, item, text, place) for item, place in zip(items, places, strict=False)]
    if not calls:
        raise Invalid("the list of calls is empty")
    return _closed(call, text, end, final, calls)


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
            start, end = json_members(text, start, end).get(key, (start, start))
    name = next((inner[key] for key in form.name_keys if isinstance(inner.get(key), str)), None)
    if not name:
        raise Invalid("the call has no name")
    held = next((key for key in argument_keys(call) if key in inner), None)
    if held is None:
        # Without arguments: a tool that takes none; other keys would be lost.
        known = {*form.name_keys, *form.id_keys, *form.wrapper_keys, "type"}
        if not set(inner) <= known:
            raise Invalid("the call has no arguments")
        return Call(name=name, arguments={}, id=_id(form.id_keys, inner, item), form=call)
    arguments = inner[held]
    if not isinstance(arguments, (dict, str)):
        raise Invalid("the arguments are not an object")
    span = json_members(text, start, end).get(held) if end > start else None
    return Call(
        name=name,
        arguments=arguments,
        text=call.plain(text[span[0] : span[1]]) if span else None,
        id=_id(form.id_keys, inner, item),
        form=call,
    )


def argument_keys(call: CompiledCall) -> tuple[str, ...]:
    """Return the keys under which arguments stand: the format's, then those that models write."""
    return tuple(dict.fromkeys((*call.form.argument_keys, "arguments", "parameters")))


def _id(keys: tuple[str, ...], *objects: dict[str, Any]) -> str | None:
    for item in objects:
        for key in keys:
            if isinstance(item.get(key), str):
                return str(item[key])
    return None


_KEY = re.compile(r'\s*"((?:[^"\\]|\\.)*)"\s*:\s*', re.DOTALL)


def _watch_json(call: CompiledCall, text: str, start: int, progress: Progress) -> None:
    """Note name and arguments of a growing object as soon as they are there, to show them."""
    if progress.arguments >= 0 or text[start] != "{":
        return
    pos = progress.pos if progress.pos >= 0 else start + 1
    while True:
        key = _KEY.match(text, pos)
        if key is None or key.end() >= len(text):
            break
        if key.group(1) in argument_keys(call):
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


def _name_end(call: CompiledCall, text: str, pos: int, final: bool) -> tuple[str, int] | None:
    """Read a name: returns it and where it ends (before the separator), None for more."""
    candidates = [*call.name_closer.parts[:1], *call.closer.parts[:1], *call.id_opener.parts[:1]]
    tokens = TOKEN.findall("".join(call.name_closer.parts))
    if len(tokens) >= 2:
        candidates += [tokens[0], tokens[-1], " "]
    if call.param is not None:
        candidates += call.param.opener.parts[:1]
        candidates += [part[:-1] + "/>" for part in call.name_closer.parts[:1] if part[-1:] == ">"]
    if not call.name_closer.parts:
        if call.form.style == "named":
            candidates += ["{", "["]
        elif "\n" in call.name_closer.lead:
            candidates.append("\n")
    at = skip_white(text, pos)
    places = [place for part in candidates if (place := text.find(part, at)) >= 0]
    best = min(places, default=-1)
    line = text.find("\n", at)
    if line >= 0 and (best < 0 or best > line):
        # A name is one line; what ends it may stand on the next.
        rest = text[skip_white(text, line) :]
        if not any(rest.startswith(part) or part.startswith(rest) for part in candidates):
            raise Invalid(_NO_ARGUMENTS)
    if best < 0:
        return MORE
    return text[at:best].strip(WHITE), best


def _checked_name(call: CompiledCall, name: str) -> str:
    prefix = call.form.name_prefix
    if prefix and name.startswith(prefix):
        name = name[len(prefix) :]
    if not name:
        raise Invalid("the call has no name")
    if _NO_NAME.search(name):
        raise Invalid(_NO_ARGUMENTS)
    return call.plain(name)


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
    raise Invalid(_NO_ARGUMENTS)


def _read_named(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    form = call.form
    if progress.pos < 0:
        read = _name_end(call, text, pos, final)
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
        progress.name = _checked_name(call, label)
        progress.pos = at
    at = skip_white(text, progress.pos)
    if at >= len(text):
        return MORE
    if form.values == "braces":
        read_value = braces_value(text, at, form.quote)
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
            if _SYMBOL.search(text, at, end):
                value = decode_json(call.plain(text[at:end]))
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
    return _closed(call, text, end, final, [made])


def _raw_arguments(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    """Arguments that are no object: none at all where the closer follows."""
    end = close(call.closer, text, pos, final)
    if end is None:
        return MORE
    if end >= 0 and call.closer.parts:
        return Found([Call(progress.name, {}, "", progress.id, form=call)], end)
    raise Invalid("the arguments are not a JSON object")


def _read_params(
    call: CompiledCall, text: str, pos: int, final: bool, progress: Progress
) -> Found | None:
    param = call.param
    assert param is not None  # a form of this style has one
    if progress.pos < 0:
        read = _name_end(call, text, pos, final)
        if read is None:
            return MORE
        name, at = read
        for part in call.name_closer.parts:
            if part.endswith(">") and text.startswith(part[:-1] + "/>", at):
                # <invoke name="f"/>: a call without arguments may close itself.
                return Found([Call(_checked_name(call, name), {}, form=call)], at + len(part) + 1)
            end = step(text, at, part, final)
            if end is None:
                return MORE
            if end < 0:
                raise Invalid(_NO_ARGUMENTS)
            at = end
        progress.name = _checked_name(call, name)
        progress.pos = at
    while True:
        at = progress.pos
        end = close(call.closer, text, at, final)
        if end is None:
            return MORE
        if end >= 0 and call.closer.parts:
            made = Call(
                progress.name,
                progress.params,
                untyped=frozenset(progress.untyped),
                id=progress.id,
                form=call,
            )
            return Found([made], end)
        opened = _open(param.opener, text, at, final)
        if opened is None:
            return MORE
        if opened < 0:
            if not call.closer.parts:
                made = Call(
                    progress.name, progress.params, untyped=frozenset(progress.untyped), form=call
                )
                return Found([made], at)
            raise Invalid("neither an argument nor the end of the call follows")
        if not _read_param(call, text, opened, final, progress):
            return MORE


def _open(mark: Mark, text: str, pos: int, final: bool) -> int | None:
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
    assert param is not None and form is not None
    key_end = text.find(param.key_closer.core, pos)
    if key_end < 0:
        return False
    key = call.plain(text[pos:key_end].strip(WHITE))
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
    found = _value_end(call, text, at, final, (*progress.keys(),), key)
    if found is None:
        return False
    value_end, end = found
    start = min(start, value_end)
    value_end = _trim_lead(text, start, value_end, param.closer.lead)
    raw = call.plain(text[start:value_end])
    if form.quoted:
        try:
            progress.params[key] = python_or_json(raw)
        except Invalid:
            progress.params[key] = raw
    elif param.flag_closer.parts:
        if flag.lower() in ("true", "string", "str"):
            progress.params[key] = raw
        else:
            try:
                progress.params[key] = decode_json(raw)
            except Invalid:
                progress.params[key] = raw
                progress.untyped.add(key)
    else:
        progress.params[key] = raw
        progress.untyped.add(key)
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
    """Step back over the white space that a literal has at its beginning, as much as stands there."""
    for char in reversed(lead):
        if end > start and text[end - 1] == char:
            end -= 1
        else:
            break
    return end


def _value_end(
    call: CompiledCall, text: str, pos: int, final: bool, keys: tuple[str, ...], key: str
) -> tuple[int, int] | None:
    """Find where a value ends and where what follows it begins; None for more text.

    That is the first closer after which another argument or the end of the call follows: a value
    may hold the closer's text. Models leave closers out; the next argument that the tool has, or
    the whole end of the call, then ends the value too.
    """
    param = call.param
    assert param is not None
    closer = param.closer.core
    followers = [*param.opener.parts[:1], *call.closer.parts[:1]]
    ends: tuple[int, int] | None = None
    certain = len(text)
    found = text.find(closer, pos)
    while found >= 0:
        end = found + len(closer)
        at = skip_white(text, end)
        if any(text.startswith(item, at) for item in followers):
            ends = found, end
            break
        if final and at >= len(text):
            ends = found, end
            break
        if not final and any(item.startswith(text[at:]) for item in followers):
            certain = found
            break
        found = text.find(closer, end)
    limit = ends[0] if ends else certain
    missing = _missing_closer(call, text, pos, limit, final, [item for item in keys if item != key])
    if missing is not None:
        return missing, missing
    if ends is not None or not final or certain < len(text):
        return ends
    found = text.find(closer, pos)
    return None if found < 0 else (found, found + len(closer))


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
        if found >= 0:
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


def _read_pythonic(call: CompiledCall, text: str, pos: int, final: bool) -> Found | None:
    form = call.form
    at = skip_white(text, pos)
    if at >= len(text):
        return MORE
    if not form.listed and form.call_suffix:
        return _read_builtin(call, text, at, final)
    listed = text[at] == "["
    if form.listed and not listed:
        raise Invalid("no list of calls follows the opening marker")
    try:
        return _read_python_calls(call, text, at, final, listed)
    except Invalid:
        # Strings that are not escaped: the calls reach to the closing marker.
        closers = [*call.block_closer.parts[:1], *call.closer.parts[:1], *call.ends]
        ends = [found for part in closers if (found := text.find(part, at)) >= 0]
        if not ends:
            if closers and not final and _CALL_HEAD.match(text, at):
                return MORE
            raise
        body = text[at : min(ends)].strip(WHITE)
        if listed and not body.endswith("]"):
            raise
        made = [
            Call(_checked_name(call, name), spelled_out(call, arguments), form=call)
            for name, arguments in loose_calls(body[1:-1] if listed else body)
        ]
        return _closed(call, text, at + len(body), final, made)


def _read_python_calls(
    call: CompiledCall, text: str, at: int, final: bool, listed: bool
) -> Found | None:
    if listed:
        at += 1
    calls: list[Call] = []
    while True:
        at = skip_white(text, at)
        if at >= len(text):
            return MORE
        if listed and text[at] == "]" and calls:
            return _closed(call, text, at + 1, final, calls)
        read = python_call(text, at, call.form.call_suffix)
        if read is None:
            return MORE
        name, arguments, end = read
        calls.append(Call(_checked_name(call, name), spelled_out(call, arguments), form=call))
        if not listed:
            return _closed(call, text, end, final, calls)
        at = skip_white(text, end)
        if at >= len(text):
            return MORE
        if text[at] == ",":
            at += 1
        elif text[at] != "]":
            raise Invalid("a call is followed by neither a comma nor the end of the list")


def _read_builtin(call: CompiledCall, text: str, pos: int, final: bool) -> Found | None:
    """Llama 3.1's ``name.call(key="value")``, which reaches to the closer or the end of the turn."""
    found = call.stop.search(text, pos) if call.stop is not None else None
    head = re.compile(r"[^\W\d][\w.\-]*").match(text, pos)
    if head is None:
        raise Invalid("no built-in call follows")
    if head.end() < len(text) and (
        text[head.end()] != "(" or not head.group().endswith(call.form.call_suffix)
    ):
        raise Invalid("no built-in call follows")
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
    made = Call(_checked_name(call, name), spelled_out(call, arguments), form=call)
    return _closed(call, text, pos + len(body.rstrip()), final, [made])


def _read_fixed(call: CompiledCall, text: str, pos: int, final: bool) -> Found | None:
    """Everything up to the end of the turn is one argument of one tool (code)."""
    found = call.stop.search(text, pos) if call.stop is not None else None
    if found is None and not final:
        return MORE
    end = found.start() if found else len(text)
    form = call.form
    made = Call(form.fixed_name, {form.fixed_argument: call.plain(text[pos:end])}, form=call)
    return Found([made], end)


def spelled_out(call: CompiledCall, value: Any) -> Any:
    """Return a value with control characters written out in its strings."""
    if isinstance(value, str):
        return call.plain(value)
    if isinstance(value, list):
        return [spelled_out(call, item) for item in value]
    if isinstance(value, dict):
        return {call.plain(key): spelled_out(call, item) for key, item in value.items()}
    return value


def python_or_json(text: str) -> Any:
    """Return the value of text that is JSON or a Python literal.

    Raises:
        Invalid: It is neither.
    """
    try:
        return decode_json(text)
    except Invalid:
        return decode_python(text)


_NAME = re.compile(r'"([^"\\]+)"\s*:\s*"([^"\\]+)"')


def name_of(call: CompiledCall | None, progress_name: str | None, raw: str) -> str | None:
    """Return the name of a call that could not be read, as far as its text shows one."""
    if call is None or call.form.style != "json":
        return progress_name
    for found in _NAME.finditer(raw):
        if found.group(1) in call.form.name_keys:
            return found.group(2)
    return None


def arguments_text(call: Call) -> str:
    """Return a call's arguments as JSON text: as it stood there, or written anew."""
    if call.text is not None:
        return call.text
    return json.dumps(call.arguments, ensure_ascii=False)
