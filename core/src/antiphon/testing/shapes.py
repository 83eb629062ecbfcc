"""Whether the fields of a grammar are what their types say: a form in the place of a tuple reads nothing."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any


def wrong_fields(value: Any, path: str) -> Iterator[str]:
    """Yield a sentence for each field of a dataclass, and of those within, that is of another type.

    Args:
        value: The dataclass.
        path: What to call it.
    """
    hints = typing.get_type_hints(type(value))
    for each in fields(value):
        given = getattr(value, each.name)
        whose = f"{path}.{each.name}"
        if not _fits(given, hints[each.name]):
            yield f"{whose} is {_short(given)}, and must be {each.type}"
            continue
        items = given if type(given) is tuple else (given,)
        for index, item in enumerate(items):
            if is_dataclass(item):
                yield from wrong_fields(item, f"{whose}[{index}]" if items is given else whose)


def _fits(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is tuple:  # of any length: the only kind that grammars have
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    return isinstance(value, hint)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
