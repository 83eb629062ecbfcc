"""Python literals, Python calls and Gemma's braces, in text that may still grow.

Each reader is told where a value begins. It returns the value and where it ends, None where the
text ends first, and raises `Invalid` where no such value stands.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from antiphon.reading.scan import Invalid, Nested, decode_json, skip_white

MAX_DEPTH = 120
"""Values nested deeper than this are malformed; it keeps hostile input off the interpreter's
stack."""

IDENTIFIER = re.compile(r"[^\W\d][\w.\-]*")
_PREFIX = re.compile(r"[uUrR]?(?=[\"'])")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_WORD = re.compile(r"[+\-]?[^\s,:=()\[\]{}\"']+")
_SCALAR = re.compile(r"[^\s,}\]]+")
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"',
    "a": "\a", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "",
}  # fmt: skip
_HEX = {"x": 2, "u": 4, "U": 8}


def python_string(text: str, pos: int) -> tuple[str, int] | None:
    """Read a quoted Python string (adjacent ones join); see the module for what comes back."""
    parts: list[str] = []
    start = pos
    while True:
        prefix = _PREFIX.match(text, pos)
        if prefix is None:
            if not parts:
                raise Invalid("a string is missing")
            return "".join(parts), start
        raw = "r" in prefix.group().lower()
        pos = prefix.end()
        quote = text[pos]
        if text.startswith(quote * 3, pos):
            end = text.find(quote * 3, pos + 3)
            while end >= 0 and text[end - 1] == "\\":
                end = text.find(quote * 3, end + 1)
            if end < 0:
                return None
            parts.append(text[pos + 3 : end])
            start = end + 3
        else:
            pos += 1
            plain = _PLAIN[quote]
            while True:
                run = plain.match(text, pos)
                assert run is not None  # the pattern matches nothing as well
                parts.append(run.group())
                pos = run.end()
                if pos >= len(text):
                    return None
                if text[pos] == quote:
                    start = pos + 1
                    break
                escape = _escape(text, pos, raw)
                if escape is None:
                    return None
                parts.append(escape[0])
                pos = escape[1]
        pos = skip_white(text, start)


def _escape(text: str, pos: int, raw: bool) -> tuple[str, int] | None:
    if pos + 1 >= len(text):
        return None
    char = text[pos + 1]
    if raw:
        return text[pos : pos + 2], pos + 2
    if char in _HEX:
        digits = text[pos + 2 : pos + 2 + _HEX[char]]
        if len(digits) < _HEX[char] and pos + 2 + len(digits) >= len(text):
            return None
        try:
            return chr(int(digits, 16)), pos + 2 + len(digits)
        except (ValueError, OverflowError):
            return text[pos : pos + 2], pos + 2
    # An unknown escape is two characters, as in Python.
    return _ESCAPES.get(char, "\\" + char), pos + 2


def python_value(text: str, pos: int, depth: int = 0) -> tuple[Any, int] | None:
    """Read a Python literal as JSON would have it (tuples and sets are lists); JSON's words count
    too.
    """
    if depth > MAX_DEPTH:
        raise Invalid("nested too deep")
    pos = skip_white(text, pos)
    if pos >= len(text):
        return None
    char = text[pos]
    if _PREFIX.match(text, pos):
        return python_string(text, pos)
    if char in "[(":
        return _python_items(text, pos, "]" if char == "[" else ")", depth)
    if char == "{":
        return _python_members(text, pos, depth)
    word = _WORD.match(text, pos)
    if word is None:
        raise Invalid(f"{char!r} begins no value")
    if word.end() >= len(text):
        return None
    lowered = word.group().lower()
    if lowered in _WORDS:
        return _WORDS[lowered], word.end()
    return _number(word.group()), word.end()


def _number(word: str) -> int | float:
    plain = word.replace("_", "").lstrip("+")
    for kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            continue
    raise Invalid(f"{word!r} is no value")


def _python_items(text: str, pos: int, closer: str, depth: int) -> tuple[Any, int] | None:
    items: list[Any] = []
    pos = skip_white(text, pos + 1)
    while pos < len(text):
        if text[pos] == closer:
            return items, pos + 1
        item = python_value(text, pos, depth + 1)
        if item is None:
            return None
        items.append(item[0])
        pos = _after_item(text, item[1], closer)
    return None


def _python_members(text: str, pos: int, depth: int) -> tuple[Any, int] | None:
    members: dict[str, Any] = {}
    items: list[Any] = []
    pos = skip_white(text, pos + 1)
    while pos < len(text):
        if text[pos] == "}":
            return (items if items else members), pos + 1
        key = python_value(text, pos, depth + 1)
        if key is None:
            return None
        pos = skip_white(text, key[1])
        if pos >= len(text):
            return None
        if text[pos] != ":":
            items.append(key[0])
            pos = _after_item(text, pos, "}")
            continue
        value = python_value(text, pos + 1, depth + 1)
        if value is None:
            return None
        members[key[0] if isinstance(key[0], str) else json.dumps(key[0])] = value[0]
        pos = _after_item(text, value[1], "}")
    return None


def _after_item(text: str, pos: int, closer: str) -> int:
    """Step over the comma after an item; the closer stays."""
    pos = skip_white(text, pos)
    if pos < len(text) and text[pos] == ",":
        return skip_white(text, pos + 1)
    if pos < len(text) and text[pos] != closer:
        raise Invalid(f"an item is followed by {text[pos]!r}")
    return pos


def python_call(text: str, pos: int, suffix: str = "") -> tuple[str, dict[str, Any], int] | None:
    """Read ``name(key=literal, ...)``: name, arguments and where it ends."""
    pos = skip_white(text, pos)
    name = IDENTIFIER.match(text, pos)
    if name is None:
        if pos >= len(text):
            return None
        raise Invalid("a function's name is missing")
    if name.end() >= len(text):
        return None
    label = name.group()
    if not label.endswith(suffix) or text[name.end()] != "(":
        raise Invalid("the name is not followed by arguments in parentheses")
    arguments: dict[str, Any] = {}
    pos = skip_white(text, name.end() + 1)
    while pos < len(text):
        if text[pos] == ")":
            return label[: len(label) - len(suffix)], arguments, pos + 1
        key = IDENTIFIER.match(text, pos)
        if key is None:
            raise Invalid("an argument has no name")
        pos = skip_white(text, key.end())
        if pos >= len(text):
            return None
        if text[pos] != "=":
            raise Invalid("an argument has no name")
        value = python_value(text, pos + 1)
        if value is None:
            return None
        arguments[key.group()] = value[0]
        pos = _after_item(text, value[1], ")")
    return None


def decode_python(text: str) -> Any:
    """Return the value of a whole Python literal.

    Raises:
        Invalid: It is no literal.
    """
    # The white space ends a number or a word that would otherwise run to the end of the text.
    read = python_value(text + " ", 0)
    if read is None or text[read[1] :].strip():
        raise Invalid("not a Python literal")
    return read[0]


_LOOSE_KEY = re.compile(r"(?:\A|,)\s*([^\W\d]\w*)\s*=")
_LOOSE_NEXT = re.compile(r"\)\s*,\s*(?=[^\W\d][\w.\-]*\()")


def loose_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Read calls whose strings are not escaped: a value reaches to the next ``, key=``.

    Args:
        text: One or more calls ``f(a="x"), g(b=1)``, without the brackets around them.

    Raises:
        Invalid: They are no calls.
    """
    made = []
    pieces = _LOOSE_NEXT.split(text)
    for number, piece in enumerate(pieces):
        whole = piece.strip() + (")" if number < len(pieces) - 1 else "")
        name = IDENTIFIER.match(whole)
        if name is None or whole[name.end() : name.end() + 1] != "(" or not whole.endswith(")"):
            raise Invalid("not a list of calls")
        body = whole[name.end() + 1 : -1]
        keys = list(_LOOSE_KEY.finditer(body))
        if body.strip() and (not keys or body[: keys[0].start()].strip()):
            raise Invalid("an argument has no name")
        arguments: dict[str, Any] = {}
        for key, following in zip(keys, [*keys[1:], None], strict=False):
            value = body[key.end() : following.start() if following else len(body)].strip()
            if len(value) >= 2 and value[0] in "\"'" and value[-1] == value[0]:
                arguments[key.group(1)] = value[1:-1]
            else:
                arguments[key.group(1)] = decode_python(value)
        made.append((name.group(), arguments))
    return made


_BUILTIN_CALL = re.compile(r"([A-Za-z_][\w.\-]*)\(")
_NEXT_ARGUMENT = re.compile(r"\"\s*,\s*(?=[A-Za-z_]\w*\s*=\s*\")")
_BUILTIN_ARGUMENT = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*\"")


def decode_unescaped_call(text: str, suffix: str) -> tuple[str, dict[str, Any]]:
    """Return name and arguments of ``name.call(key="value", ...)`` whose quotes are not escaped
    (Llama 3.1).

    A value reaches to the last quote before the next ``, key="`` or the closing parenthesis.

    Raises:
        Invalid: It is no such call.
    """
    head = _BUILTIN_CALL.match(text)
    if head is None or not head.group(1).endswith(suffix) or not text.rstrip().endswith(")"):
        raise Invalid("not a built-in call")
    name = head.group(1)[: len(head.group(1)) - len(suffix)]
    body = text.rstrip()[head.end() : -1]
    arguments: dict[str, Any] = {}
    pos = 0
    while pos < len(body):
        key = _BUILTIN_ARGUMENT.match(body, pos)
        if key is None:
            raise Invalid('an argument is not of the form key="value"')
        following = _NEXT_ARGUMENT.search(body, key.end())
        if following is not None:
            arguments[key.group(1)] = body[key.end() : following.start()]
            pos = following.end()
            continue
        tail = body.rstrip()
        if not tail.endswith('"') or len(tail) <= key.end() - 1:
            raise Invalid("a string is not closed")
        arguments[key.group(1)] = tail[key.end() : -1]
        break
    return name, arguments


def braces_value(text: str, pos: int, quote: str, depth: int = 0) -> tuple[Any, int] | None:
    """Read a value in Gemma's notation: ``{key:value,...}``, lists, `quote`d strings, bare scalars.

    Returns:
        The value and where it ends; None where the text ends first.

    Raises:
        Invalid: It is no such value.
    """
    if depth > MAX_DEPTH:
        raise Invalid("nested too deep")
    pos = skip_white(text, pos)
    if pos >= len(text):
        return None
    if text.startswith(quote, pos):
        end = text.find(quote, pos + len(quote))
        return None if end < 0 else (text[pos + len(quote) : end], end + len(quote))
    if quote.startswith(text[pos:]):
        return None
    if text[pos] == "[":
        items: list[Any] = []
        pos = skip_white(text, pos + 1)
        while True:
            if pos >= len(text):
                return None
            if text[pos] == "]":
                return items, pos + 1
            item = braces_value(text, pos, quote, depth + 1)
            if item is None:
                return None
            items.append(item[0])
            pos = skip_white(text, item[1])
            if pos < len(text) and text[pos] == ",":
                pos = skip_white(text, pos + 1)
            elif pos < len(text) and text[pos] != "]":
                raise Invalid("a list item is followed by neither comma nor bracket")
    if text[pos] == "{":
        members: dict[str, Any] = {}
        brace, pos = pos, skip_white(text, pos + 1)
        if quote[0] != '"' and text.startswith('"', pos):
            # Models and templates write JSON here as well.
            nested = Nested(brace)
            if not nested.advance(text):
                return None
            with contextlib.suppress(Invalid):
                return decode_json(text[brace : nested.end]), nested.end
        while True:
            if pos >= len(text):
                return None
            if text[pos] == "}":
                return members, pos + 1
            key: Any
            if text.startswith(quote, pos) or quote.startswith(text[pos:]):
                read = braces_value(text, pos, quote, depth + 1)
                if read is None:
                    return None
                key, colon = read[0], skip_white(text, read[1])
            else:
                colon = text.find(":", pos)
                if colon < 0:
                    return None
                key = text[pos:colon].strip()
            if colon >= len(text):
                return None
            if text[colon] != ":":
                raise Invalid("a key is not followed by a colon")
            item = braces_value(text, colon + 1, quote, depth + 1)
            if item is None:
                return None
            members[key] = item[0]
            pos = skip_white(text, item[1])
            if pos < len(text) and text[pos] == ",":
                pos = skip_white(text, pos + 1)
            elif pos < len(text) and text[pos] != "}":
                raise Invalid("a value is followed by neither comma nor brace")
    found = _SCALAR.match(text, pos)
    if found is None:
        raise Invalid("a value is missing")
    if found.end() >= len(text):
        return None
    word = found.group()
    if word.lower() in _WORDS:
        return _WORDS[word.lower()], found.end()
    try:
        return json.loads(word), found.end()
    except ValueError:
        return word, found.end()
