"""Text that knows which message it came from.

`Traced` is a ``str`` that keeps, for ranges of its characters, an origin: ``(message, field)``. Chat templates work on
such strings without noticing; the pieces that a template prints then tell content from scaffold. Every operation here
gives exactly the text that ``str`` gives. Where an operation can't say which characters came from where, the result
loses its origin; it is never given a wrong one.

The attribute names start with an underscore, so that the sandbox hides them from templates.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

Origin = tuple[int, tuple[Any, ...]]
"""The index of a message (-1: tools, documents and variables) and the path of the field in it."""

SpanTuple = tuple[int, int, Origin]

MIXED: Origin = (-1, ("several sources",))
"""The origin of text that was made from several fields and can't be taken apart."""

# Any of these names holds a message's reasoning; transformers 5 fills the others in (chat_template_utils).
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")


class Traced(str):
    """A string with origins for ranges of its characters; the ranges are sorted and don't overlap."""

    __slots__ = ("_antiphon_spans",)
    _antiphon_spans: tuple[SpanTuple, ...]

    def __str__(self) -> str:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return traced, (str.__str__(self), self._antiphon_spans)

    def __add__(self, other: str) -> str:
        return concat((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> str:
        return concat((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> str:
        times = count.__index__()
        return concat((self,) * times) if times > 0 else ""

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> str:
        return percent_format(self, values)

    def __getitem__(self, index: SupportsIndex | slice) -> str:
        text = str.__getitem__(self, index)
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return _cut(self, start, start + len(text))
            return concat([_cut(self, i, i + 1) for i in range(start, stop, step)])
        start = index.__index__()
        start += len(self) if start < 0 else 0
        return _cut(self, start, start + 1)

    def __iter__(self) -> Iterator[str]:
        return (_cut(self, i, i + 1) for i in range(len(self)))

    def strip(self, chars: str | None = None, /) -> str:
        start = len(self) - len(str.lstrip(self, chars))
        return _cut(self, start, start + len(str.strip(self, chars)))

    def lstrip(self, chars: str | None = None, /) -> str:
        return _cut(self, len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> str:
        return _cut(self, 0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> str:
        return _cut(self, len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> str:
        return _cut(self, 0, len(str.removesuffix(self, suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return _locate(self, str.split(self, sep, maxsplit), len(sep) if sep else None)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return _locate(self, str.rsplit(self, sep, maxsplit), len(sep) if sep else None)

    def splitlines(self, keepends: bool = False) -> list[str]:
        starts, position = [], 0
        for line in str.splitlines(self, True):
            starts.append(position)
            position += len(line)
        lines = str.splitlines(self, keepends)
        return [_cut(self, i, i + len(line)) for i, line in zip(starts, lines, strict=True)]

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        head, found, _tail = str.partition(self, sep)
        size = len(self)
        cuts = (0, len(head), len(head) + len(found), size)
        first, middle, last = (_cut(self, a, b) for a, b in itertools.pairwise(cuts))
        return first, middle, last

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        head, found, _ = str.rpartition(self, sep)
        cuts = (0, len(head), len(head) + len(found), len(self))
        first, middle, last = (_cut(self, a, b) for a, b in itertools.pairwise(cuts))
        return first, middle, last

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> str:
        return replace(self, old, new, count)

    def join(self, parts: Iterable[str], /) -> str:
        return join(self, parts)

    def format(self, *args: Any, **kwargs: Any) -> str:
        # The environment replaces this with a formatter that the sandbox guards; here for use outside of it.
        return coarse(str.format(self, *args, **kwargs), self, *args, *kwargs.values())

    def lower(self) -> str:
        return recased(self, str.lower(self))

    def upper(self) -> str:
        return recased(self, str.upper(self))

    def title(self) -> str:
        return recased(self, str.title(self))

    def capitalize(self) -> str:
        return recased(self, str.capitalize(self))

    def swapcase(self) -> str:
        return recased(self, str.swapcase(self))

    def casefold(self) -> str:
        return recased(self, str.casefold(self))

    def center(self, width: SupportsIndex, fill: str = " ", /) -> str:
        return _padded(self, str.center(self, width, fill))

    def ljust(self, width: SupportsIndex, fill: str = " ", /) -> str:
        return _padded(self, str.ljust(self, width, fill))

    def rjust(self, width: SupportsIndex, fill: str = " ", /) -> str:
        return _padded(self, str.rjust(self, width, fill))

    def zfill(self, width: SupportsIndex, /) -> str:
        return coarse(str.zfill(self, width), self)

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        return coarse(str.expandtabs(self, tabsize), self)

    def translate(self, table: Any, /) -> str:
        return coarse(str.translate(self, table), self)

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        result = TracedBytes(str.encode(self, encoding, errors))
        result._antiphon_text = self
        return result


class TracedBytes(bytes):
    """An encoded text; what is decoded or printed of it keeps its origin."""

    _antiphon_text: Traced

    def __str__(self) -> str:
        return coarse(bytes.__repr__(self), self._antiphon_text)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the text, with its very spans where nothing was lost."""
        text = bytes.decode(self, encoding, errors)
        return (
            self._antiphon_text
            if text == self._antiphon_text
            else coarse(text, self._antiphon_text)
        )


class TracedDict(dict[Any, Any]):
    """A mapping from a message; ``str()`` and JSON of it keep its origin."""

    __slots__ = ("_antiphon_origin",)
    _antiphon_origin: Origin

    def __str__(self) -> str:
        return traced_whole(dict.__repr__(self), self._antiphon_origin)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (TracedDict, dict(self), self._antiphon_origin)


class TracedList(list[Any]):
    """A list from a message; ``str()`` and JSON of it keep its origin."""

    __slots__ = ("_antiphon_origin",)
    _antiphon_origin: Origin

    def __str__(self) -> str:
        return traced_whole(list.__repr__(self), self._antiphon_origin)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (TracedList, list(self), self._antiphon_origin)


def _rebuild(kind: Any, items: Any, origin: Origin) -> Any:
    container = kind(items)
    container._antiphon_origin = origin
    return container


def traced(text: str, spans: tuple[SpanTuple, ...]) -> str:
    """Return ``text`` with ``spans``; a plain string where there are none."""
    if not spans:
        return text
    result = Traced(text)
    result._antiphon_spans = spans
    return result


def traced_whole(text: str, origin: Origin) -> str:
    """Return ``text``, all of which came from ``origin``."""
    if not text:
        return text
    result = Traced(text)
    result._antiphon_spans = ((0, len(text), origin),)
    return result


def spans_of(value: Any) -> tuple[SpanTuple, ...]:
    """Return the spans of a string, or none."""
    return value._antiphon_spans if isinstance(value, Traced) else ()


def concat(parts: Iterable[str]) -> str:
    """Join strings and keep their origins (what Jinja's macros, set blocks and ``~`` use)."""
    parts = parts if isinstance(parts, (list, tuple)) else list(parts)
    text = "".join(parts)
    spans: list[SpanTuple] = []
    position = 0
    for part in parts:
        if part.__class__ is not str and isinstance(part, Traced):
            for start, end, origin in part._antiphon_spans:
                spans.append((start + position, end + position, origin))
        position += len(part)
    return traced(text, tuple(spans)) if spans else text


def join(separator: str, parts: Iterable[Any]) -> str:
    """``separator.join(parts)`` with origins."""
    parts = list(parts)
    if not isinstance(separator, Traced) and not any(isinstance(part, Traced) for part in parts):
        return separator.join(parts)
    pieces: list[str] = []
    for part in parts:
        if not isinstance(part, str):
            return separator.join(parts)  # raises as str does
        if pieces:
            pieces.append(separator)
        pieces.append(part)
    # A separator stands before each part but the first: the loop above adds none while `pieces` is empty.
    return concat(pieces)


def replace(text: str, old: str, new: str, count: SupportsIndex = -1) -> str:
    """``text.replace(old, new, count)`` with origins; ``new`` brings its own."""
    if not isinstance(text, Traced) and not isinstance(new, Traced):
        return text.replace(old, new, count)
    if not old:
        return coarse(str.replace(text, old, new, count), text, new)
    limit = count.__index__()
    pieces: list[str] = []
    position = 0
    while limit != 0:
        found = str.find(text, old, position)
        if found < 0:
            break
        pieces += (text[position:found], new)
        position = found + len(old)
        limit -= 1
    if not pieces:
        return text
    pieces.append(text[position:])
    return concat(pieces)


def recased(original: str, text: str) -> str:
    """Return ``text``, which has changed the case of ``original``, with the origins of the latter."""
    if len(text) == len(original):
        return traced(text, spans_of(original))
    return coarse(text, original)  # 'ß'.upper() is two letters


def coarse(text: str, *sources: Any) -> str:
    """Return ``text`` made from ``sources`` by an operation that can't be followed.

    It is traced as a whole: to the origin that all of them share, or to none in particular (`MIXED`), which still
    tells it from what a template wrote.
    """
    origins: set[Origin] = set()
    alone = True
    for source in sources:
        if isinstance(source, (list, tuple, dict)):
            source = text_of(source)
        spans = spans_of(source)
        origins.update(span[2] for span in spans)
        alone = alone and (bool(spans) or not isinstance(source, str) or not source.strip())
    if not origins:
        return text
    return traced_whole(text, origins.pop() if len(origins) == 1 and alone else MIXED)


def text_of(value: Any) -> str:
    """``str(value)`` with origins, as templates print values."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple, dict)):
        if isinstance(value, (TracedDict, TracedList)):
            return str(value)
        text = str(value)
        pieces = _represent(value)
        return pieces if pieces == text else traced_whole(text, MIXED)
    return str(value)


def _represent(value: Any) -> str:
    """``repr(value)`` with origins."""
    kind = value.__class__
    if isinstance(value, Traced):
        return coarse(str.__repr__(value), value)
    if isinstance(value, (TracedDict, TracedList)):
        return str(value)
    if kind is dict:
        items = [concat((_represent(key), ": ", _represent(item))) for key, item in value.items()]
        return concat(("{", join(", ", items), "}"))
    if kind is list:
        return concat(("[", join(", ", map(_represent, value)), "]"))
    if kind is tuple:
        items = [_represent(item) for item in value]
        return concat(("(", join(", ", items), ",)" if len(items) == 1 else ")"))
    if isinstance(value, (dict, list, tuple)):  # as `groupby` gives them
        return coarse(repr(value), *(value.values() if isinstance(value, dict) else value))
    return repr(value)


def _cut(text: Traced | str, start: int, end: int) -> str:
    piece = str.__getitem__(text, slice(start, end))
    if not isinstance(text, Traced):
        return piece
    spans = text._antiphon_spans
    if start == 0 and end >= len(text):
        return text
    if not piece:
        return piece
    if len(spans) == 1:
        first, last, origin = spans[0]
        first = first - start if first > start else 0
        last = (last if last < end else end) - start
        if first >= last:
            return piece
        result = Traced(piece)
        result._antiphon_spans = ((first, last, origin),)
        return result
    return traced(
        piece,
        tuple(
            (max(first, start) - start, min(last, end) - start, origin)
            for first, last, origin in spans
            if first < end and last > start
        ),
    )


def _locate(text: Traced, parts: list[str], gap: int | None) -> list[str]:
    """Give the parts of a split their origins; ``gap`` is the separator's length, None for white space."""
    located = []
    position = 0
    for part in parts:
        if gap is None:
            position = str.index(text, part, position)
        located.append(_cut(text, position, position + len(part)))
        position += len(part) + (gap or 0)
    return located


def _padded(text: Traced, result: str) -> str:
    if len(result) == len(text):
        return text
    start = result.find(text)
    # Fill characters may repeat the text's own: then its place is not certain.
    if result.find(text, start + 1) >= 0:
        return coarse(result, text)
    spans = tuple((a + start, b + start, origin) for a, b, origin in text._antiphon_spans)
    return traced(result, spans)


_CONVERSION = re.compile(r"%(?:\(([^()]*)\))?([#0\- +]*\d*(?:\.\d*)?)(.)", re.DOTALL)


def percent_format(template: str, values: Any) -> str:
    """``template % values`` with origins: each conversion is done alone, which gives the same text."""
    plain = str.__mod__(template, values)
    named = isinstance(values, Mapping)
    arguments = list(
        values.values() if named else values if isinstance(values, tuple) else [values]
    )
    if not any(spans_of(text_of(value)) for value in (template, *arguments)):
        return plain
    pieces: list[str] = []
    position, number = 0, 0
    for match in _CONVERSION.finditer(template):
        pieces.append(template[position : match.start()])
        position = match.end()
        key, flags, kind = match.groups()
        if kind == "%":
            pieces.append("%")
            continue
        if (key is not None) != named or (not named and number >= len(arguments)):
            return coarse(plain, template, *arguments)
        value = values[key] if named else arguments[number]
        number += 1
        try:
            alone = f"%{flags}{kind}" % (value,)
        except (TypeError, ValueError):  # a width that is an argument too
            return coarse(plain, template, *arguments)
        pieces.append(coarse(alone, value) if flags or kind != "s" else text_of(value))
    result = concat([*pieces, template[position:]])
    return result if result == plain else coarse(plain, template, *arguments)
