"""JSON in text that may still grow, string-aware.

A scanner is told where a value begins and finds where it ends; `Nested` keeps its place between
calls, so that a long value costs its length once, however finely it is cut.
"""

from __future__ import annotations

import json
import re
from typing import Any

WHITE = " \t\n\r"

_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING_END = re.compile(r'["\\]')
_DECODER = json.JSONDecoder(strict=False)


class Invalid(Exception):
    """What is wrong with a value or a call; it never leaves the reader."""


def skip_white(text: str, pos: int) -> int:
    """Return the first position at or after `pos` that is not white space."""
    end = len(text)
    while pos < end and text[pos] in WHITE:
        pos += 1
    return pos


def without_start_of(literal: str, text: str) -> int:
    """Return where a text ends without what may be the beginning of a literal at its end."""
    for size in range(min(len(literal) - 1, len(text)), 0, -1):
        if text.endswith(literal[:size]):
            return len(text) - size
    return len(text)


class Nested:
    """Finds the end of a JSON object or list, string-aware, in text that may grow.

    Attributes:
        start: Where the opening bracket stands.
        pos: Up to where the text has been read.
        end: One past the closing bracket, or -1.
    """

    __slots__ = ("_depth", "_in_string", "end", "pos", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.pos = start
        self.end = -1
        self._depth = 0
        self._in_string = False

    def advance(self, text: str) -> bool:
        """Read on; True once the end is found."""
        if self.end >= 0:
            return True
        pos, depth = self.pos, self._depth
        in_string = self._in_string
        size = len(text)
        while pos < size:
            if in_string:
                found = _STRING_END.search(text, pos)
                if found is None:
                    pos = size
                    break
                if text[found.start()] == "\\":
                    if found.end() >= size:
                        pos = found.start()
                        break
                    pos = found.end() + 1
                    continue
                in_string = False
                pos = found.end()
                continue
            found = _STRUCTURE.search(text, pos)
            if found is None:
                pos = size
                break
            pos = found.end()
            char = text[found.start()]
            if char == '"':
                in_string = True
            elif char in "{[":
                depth += 1
            else:
                depth -= 1
                if depth <= 0:
                    self.end = pos
                    break
        self.pos, self._depth, self._in_string = pos, depth, in_string
        return self.end >= 0


def decode_json(text: str) -> Any:
    """Return the value of JSON text; control characters inside strings are let pass.

    Raises:
        Invalid: It is not JSON.
    """
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"not JSON: {error}") from error


def decode_json_at(text: str, pos: int) -> tuple[Any, int] | None:
    """Return the JSON value at `pos` and where it ends, or None."""
    try:
        return _DECODER.raw_decode(text, pos)
    except (ValueError, RecursionError):
        return None


def json_member(text: str, pos: int, end: int, key: str, is_last: bool) -> tuple[int, int] | None:
    """Return where the value of an object's key stands in text that is known to be valid JSON.

    Args:
        text: The text.
        pos: The position of the opening brace.
        end: One past the closing brace.
        key: The key; where it stands there more than once, the last one counts.
        is_last: The object's keys end with it: its value need not be read again to be found.
    """
    found: tuple[int, int] | None = None
    at = skip_white(text, pos + 1)
    while at < end and text[at] == '"':
        name = decode_json_at(text, at)
        if name is None:
            break
        at = skip_white(text, skip_white(text, name[1]) + 1)
        if is_last and name[0] == key and _stands_once(text, at, end, key):
            stop = end - 1
            while text[stop - 1] in WHITE:
                stop -= 1
            return at, stop
        value = decode_json_at(text, at)
        if value is None:
            break
        if name[0] == key:
            found = at, value[1]
        at = skip_white(text, value[1])
        if at < end and text[at] == ",":
            at = skip_white(text, at + 1)
    return found


def has_twice(text: str, pos: int, end: int, key: str) -> bool:
    """Whether an object in text that is known to be valid JSON has a key twice; arguments as `json_member`."""
    if text.count(f'"{key}"', pos, end) < 2:
        return False
    count = 0
    at = skip_white(text, pos + 1)
    while at < end and text[at] == '"':
        name = decode_json_at(text, at)
        value = name and decode_json_at(text, skip_white(text, skip_white(text, name[1]) + 1))
        if not name or not value:
            break
        count += name[0] == key
        at = skip_white(text, value[1])
        if at < end and text[at] == ",":
            at = skip_white(text, at + 1)
    return count > 1


def _stands_once(text: str, pos: int, end: int, key: str) -> bool:
    """Whether a key certainly does not stand in a part of a text, however it is spelled."""
    return text.find(f'"{key}"', pos, end) < 0 and text.find("\\u", pos, end) < 0
