"""Give what templates are shown its origins: messages, tools, documents and variables, copied and traced."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from antiphon.engine.provenance import Origin, Traced, TracedDict, TracedList, traced_whole


def trace(value: Any, message: int, path: tuple[Any, ...] = ()) -> Any:
    """Copy plain data and give every string in it the origin ``(message, path)``.

    What templates see is what transformers 5 shows them: subclasses are reduced to their base, dataclasses and
    pydantic models become mappings, and anything else becomes ``"<TypeName>"``.
    """
    kind = value.__class__
    if kind is str:
        return traced_whole(value, (message, path))
    if value is None or kind is bool or kind is int or kind is float:
        return value
    if kind is dict:
        if not path and message >= 0:
            return _trace_message(value, message)
        keys_are_content = "arguments" in path or "properties" in path
        result = TracedDict()
        result._antiphon_origin = (message, path)
        for key, item in value.items():
            inner = (*path, key)
            if key.__class__ is str:
                if keys_are_content or not key.isidentifier():
                    key = traced_whole(key, (message, inner))
            else:
                key = trace(key, message, inner)
            result[key] = (
                traced_whole(item, (message, inner))
                if item.__class__ is str
                else trace(item, message, inner)
            )
        return result
    if kind is list:
        items = TracedList([trace(item, message, (*path, i)) for i, item in enumerate(value)])
        items._antiphon_origin = (message, path)
        return items
    return (
        trace(plain(value), message, path)
        if kind is not tuple
        else tuple(trace(item, message, (*path, i)) for i, item in enumerate(value))
    )


@functools.lru_cache(maxsize=4096)
def _field_origin(message: int, key: Any) -> Origin:
    """The origin of a whole field: one object for all conversations, which the garbage collector sees once."""
    return message, (key,)


def _trace_message(message: dict[Any, Any], index: int) -> TracedDict:
    """Trace the fields of a message; a role that is a plain word is the template's, not text that someone sends."""
    result = TracedDict()
    result._antiphon_origin = (index, ())
    for key, item in message.items():
        if item.__class__ is not str:
            item = trace(item, index, (key,))
        elif item and not (key == "role" and item.isidentifier()):
            text = Traced(item)
            text._antiphon_spans = ((0, len(item), _field_origin(index, key)),)
            item = text
        result[key if key.__class__ is str else trace(key, index, (key,))] = item
    return result


def plain(value: Any) -> Any:
    """Reduce one value, not its items, to a JSON type; anything else to ``"<TypeName>"``."""
    if isinstance(value, str):
        return "".join(value) if isinstance(value, Traced) else str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Mapping):
        return dict(value.items())
    if isinstance(value, list):
        return list(value)
    if isinstance(value, tuple):
        return tuple(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    for convert in ("model_dump", "item"):  # pydantic models; numpy scalars
        method = getattr(value, convert, None)
        if (
            callable(method)
            and (convert != "item" or type(value).__module__ == "numpy")
            and not getattr(value, "ndim", 0)
        ):
            return method()
    return f"<{type(value).__name__}>"
