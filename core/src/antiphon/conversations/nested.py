"""Nested lists: batches of any shape, ragged or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def flattened(nested: Any, depth: int) -> list[Any]:
    """The leaves of lists nested `depth` deep."""
    if depth == 0:
        return [nested]
    return [leaf for part in nested for leaf in flattened(part, depth - 1)]


def nested_like(nested: Any, depth: int, leaves: Iterable[Any]) -> Any:
    """`leaves` in lists of the form of `nested`."""
    source = iter(leaves)

    def walk(part: Any, level: int) -> Any:
        return next(source) if level == 0 else [walk(item, level - 1) for item in part]

    return walk(nested, depth)
