"""Renderings that are remembered: what was rendered before, and all that was found out about it since.

A prompt of which sixteen answers are sampled is rendered once, and a conversation that is rendered to be sampled from,
to be scored and to be trained on, is not rendered three times. A rendering is the same where the template, its
variables and the messages are, down to types and the order of keys; templates that ask for the date or for chance are
never remembered.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from antiphon.engine.caches import BoundedCache

if TYPE_CHECKING:
    from antiphon.engine.rendering import Rendering

_KEPT_CHARACTERS = (
    4 * 2**20
)  # of text; messages, ids and masks take about eight times as many bytes
_VOLATILE = ("strftime_now", "random", "lipsum")
_PLAIN = (bool, int, float)


class _NotPlainError(Exception):
    """A value that may be equal to another one and print differently."""


def rendering_key(messages: Any, template: str, *variables: Any) -> Hashable | None:
    """Return what a rendering depends on, or None where it can't be told."""
    if any(word in template for word in _VOLATILE):
        return None
    try:
        key = (template, _frozen(messages), *map(_frozen, variables))
    except (_NotPlainError, RecursionError):
        return None
    return key


def recall(key: Hashable | None, tokenizer: Any) -> Rendering | None:
    """Return a rendering made before, with lists of its own, or None."""
    kept = None if key is None else _kept.get(key)
    return None if kept is None else _copy(kept, tokenizer)


def remember(key: Hashable | None, rendering: Rendering) -> None:
    """Keep a rendering."""
    if key is not None:
        _kept.put(key, _copy(rendering, None))


def forget() -> None:
    """Forget all renderings; only benchmarks need it."""
    _kept.clear()


def _copy(rendering: Rendering, tokenizer: Any) -> Rendering:
    return replace(
        rendering,
        spans=list(rendering.spans),
        input_spans=list(rendering.input_spans),
        tokenizer=tokenizer,
    )


def _frozen(value: Any) -> Hashable:
    kind = value.__class__
    if kind is str or value is None:
        return value  # type: ignore[no-any-return]
    if kind is dict:
        items: list[Hashable] = [dict]
        for key, item in value.items():
            if key.__class__ is not str:
                raise _NotPlainError
            items.append(key)
            items.append(item if item.__class__ is str else _frozen(item))
        return tuple(items)
    if kind is list or kind is tuple:
        return (kind, *map(_frozen, value))
    if kind in _PLAIN:
        return (kind, repr(value))
    raise _NotPlainError


def _weigh(key: Hashable, rendering: Rendering) -> int:
    return len(rendering.text) + 1024


_kept: BoundedCache[Hashable, Rendering] = BoundedCache(_KEPT_CHARACTERS, _weigh)
