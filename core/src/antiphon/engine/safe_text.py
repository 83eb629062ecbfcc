"""Text that a template has marked safe for HTML: what `markupsafe.Markup` is, with origins.

Templates mark text with the filters ``safe`` and ``escape`` and inside ``{% autoescape true %}``. Plain text that meets
safe text is escaped, as `Markup` does it; here both keep their origins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex

from markupsafe import Markup

from antiphon.engine.provenance import Traced, coarse, concat, join, replace, spans_of, traced


def _marked(name: str) -> Callable[..., Any]:
    """The method of `Traced`, with what it returns marked safe."""
    method = getattr(Traced, name)

    def marked(self: Traced, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        return (
            mark_safe(result) if isinstance(result, str) else type(result)(map(mark_safe, result))
        )

    return marked


class SafeTraced(Traced):
    """Text marked safe, with the origins it has, if any."""

    __slots__ = ()

    def __html__(self) -> str:
        return self

    def __add__(self, other: Any) -> str:
        if isinstance(other, str) or hasattr(other, "__html__"):
            return mark_safe(concat((self, escape(other))))
        return NotImplemented

    def __radd__(self, other: Any) -> str:
        if isinstance(other, str) or hasattr(other, "__html__"):
            return mark_safe(concat((escape(other), self)))
        return NotImplemented

    def __mod__(self, values: Any) -> str:
        sources = values if isinstance(values, tuple) else (values,)
        return mark_safe(coarse(str.__str__(Markup(plain(self)) % values), self, *sources))

    def __iter__(self) -> Iterator[str]:
        return iter(unmarked(self))

    def join(self, parts: Iterable[str], /) -> str:
        return mark_safe(join(self, map(escape, parts)))

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> str:
        return mark_safe(replace(unmarked(self), old, escape(new), count))

    def center(self, width: SupportsIndex, fill: str = " ", /) -> str:
        return mark_safe(Traced.center(self, width, escape(fill)))

    def ljust(self, width: SupportsIndex, fill: str = " ", /) -> str:
        return mark_safe(Traced.ljust(self, width, escape(fill)))

    def rjust(self, width: SupportsIndex, fill: str = " ", /) -> str:
        return mark_safe(Traced.rjust(self, width, escape(fill)))

    def unescape(self) -> str:
        return coarse(Markup(plain(self)).unescape(), self)

    def striptags(self) -> str:
        return coarse(Markup(plain(self)).striptags(), self)

    __mul__ = _marked("__mul__")
    __rmul__ = _marked("__mul__")
    __getitem__ = _marked("__getitem__")
    strip = _marked("strip")
    lstrip = _marked("lstrip")
    rstrip = _marked("rstrip")
    removeprefix = _marked("removeprefix")
    removesuffix = _marked("removesuffix")
    split = _marked("split")
    rsplit = _marked("rsplit")
    splitlines = _marked("splitlines")
    partition = _marked("partition")
    rpartition = _marked("rpartition")
    lower = _marked("lower")
    upper = _marked("upper")
    title = _marked("title")
    capitalize = _marked("capitalize")
    swapcase = _marked("swapcase")
    casefold = _marked("casefold")
    zfill = _marked("zfill")
    expandtabs = _marked("expandtabs")
    translate = _marked("translate")


def plain(text: str) -> str:
    """Return the text alone, as an exact ``str``."""
    return "".join((text,))


def unmarked(text: str) -> str:
    """Return the text with its origins, not marked safe: what ``str()`` gives of `Markup`."""
    return traced(plain(text), spans_of(text)) if isinstance(text, SafeTraced) else text


def mark_safe(value: Any) -> str:
    """Mark text as safe, whatever is in it."""
    if value.__class__ is SafeTraced:
        return value
    text = value.__html__() if hasattr(value, "__html__") else value
    result = SafeTraced(plain(text) if isinstance(text, str) else text)
    result._antiphon_spans = spans_of(text)
    return result


def is_safe(value: Any) -> bool:
    """Whether a value says itself what HTML it stands for, and is not escaped."""
    return hasattr(value, "__html__")


_ESCAPED = (("&", "&amp;"), (">", "&gt;"), ("<", "&lt;"), ("'", "&#39;"), ('"', "&#34;"))


def escape(value: Any) -> str:
    """Return a value's text, safe for HTML; text that is marked safe stays as it is."""
    if is_safe(value):
        return mark_safe(value)
    if not isinstance(value, Traced):
        return mark_safe(Markup.escape(value))
    text: str = value
    for character, escaped in _ESCAPED:
        text = replace(text, character, escaped)
    return mark_safe(text)
