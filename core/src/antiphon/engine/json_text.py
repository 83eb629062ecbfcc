"""JSON that knows which message each part of it came from."""

from __future__ import annotations

import json
import json.encoder
from collections.abc import Callable
from typing import Any

from antiphon.engine.provenance import (
    Origin,
    TracedDict,
    TracedList,
    coarse,
    concat,
    spans_of,
    traced_whole,
)


def dump_json(value: Any, **options: Any) -> str:
    """``json.dumps(value, **options)`` with origins: of each string and key, and of each container's punctuation."""
    text = json.dumps(value, **options)
    if isinstance(value, (TracedDict, TracedList)) and value._antiphon_origin[0] < 0:
        return traced_whole(text, value._antiphon_origin)
    writer = _JSONWriter(**options)
    writer.write(value, None, 0)
    if not writer.found:
        return text
    result = concat(writer.pieces)
    return result if result == text else coarse(text, value)


class _JSONWriter:
    """Writes what ``json.dumps`` writes, in pieces that keep their origin."""

    def __init__(
        self,
        ensure_ascii: bool = True,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> None:
        self.pieces: list[str] = []
        self.found = False
        self.escape: Callable[[str], str] = (
            json.encoder.encode_basestring_ascii if ensure_ascii else json.encoder.encode_basestring
        )
        self.options: dict[str, Any] = {"ensure_ascii": ensure_ascii}
        self.indent = " " * indent if isinstance(indent, int) else indent
        self.comma, self.colon = separators or (", " if indent is None else ",", ": ")
        self.sort_keys = sort_keys

    def write(self, value: Any, origin: Origin | None, depth: int) -> None:
        if isinstance(value, str):
            self.string(value, origin)
        elif isinstance(value, (dict, list, tuple)) and value:
            self.container(value, getattr(value, "_antiphon_origin", origin), depth)
        else:
            self.text(json.dumps(value, **self.options), getattr(value, "_antiphon_origin", origin))

    def text(self, text: str, origin: Origin | None) -> None:
        if origin is not None:
            self.found = True
            text = traced_whole(text, origin)
        self.pieces.append(text)

    def string(self, value: str, origin: Origin | None) -> None:
        self.text('"', origin)
        position = 0
        for start, end, own in spans_of(value):
            self.text(self.escape(str.__getitem__(value, slice(position, start)))[1:-1], origin)
            self.text(self.escape(str.__getitem__(value, slice(start, end)))[1:-1], own)
            position = end
        self.text(self.escape(str.__getitem__(value, slice(position, None)))[1:-1], origin)
        self.text('"', origin)

    def container(self, value: Any, origin: Origin | None, depth: int) -> None:
        mapping = isinstance(value, dict)
        opening, closing = "{}" if mapping else "[]"
        margin = "" if self.indent is None else "\n" + self.indent * (depth + 1)
        items = value.items() if mapping else enumerate(value)
        if mapping and self.sort_keys:
            items = sorted(items)
        before = opening + margin
        for key, item in items:
            self.text(before, origin)
            before = self.comma + margin
            if mapping:
                if isinstance(key, str):
                    self.string(key, origin)
                else:
                    self.text(f'"{json.dumps(key)}"', origin)
                self.text(self.colon, origin)
            self.write(item, origin, depth + 1)
        self.text(("" if self.indent is None else "\n" + self.indent * depth) + closing, origin)
