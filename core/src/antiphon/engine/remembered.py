"""Renderings that are remembered: what was rendered before, and all that was found out about it since.

A prompt of which sixteen answers are sampled is rendered once, and a conversation that is rendered to be sampled from,
to be scored and to be trained on, is not rendered three times. A rendering is the same where the template, its
variables and the messages are, down to types and the order of keys; templates that ask for the date or for chance are
never remembered.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon.engine.caches import BoundedCache

if TYPE_CHECKING:
    from antiphon.engine.provenance import SpanTuple
    from antiphon.engine.rendering import Rendering
    from antiphon.engine.source import Source

_KEPT_CHARACTERS = (
    4 * 2**20
)  # of text; messages, ids and masks take about eight times as many bytes
_VOLATILE = ("strftime_now", "random", "lipsum")
_PLAIN = (bool, int, float)


class Kept(NamedTuple):
    """What is kept of a rendering; the rest stands in its key."""

    text: str
    origins: tuple[SpanTuple, ...]
    source: Source
    found: dict[Any, Any]


class _NotPlainError(Exception):
    """A value that may be equal to another one and print differently."""


def frozen_variables(template: str, *variables: Any) -> tuple[Hashable, ...] | None:
    """Return what the renderings of all conversations have in common, or None where it can't be told."""
    if any(word in template for word in _VOLATILE):
        return None
    return _frozen(template, *variables)


def rendering_key(messages: Any, variables: tuple[Hashable, ...] | None) -> Hashable | None:
    """Return what a rendering depends on, or None where it can't be told."""
    own = None if variables is None else _frozen(messages)
    return None if own is None else (variables, own)


def growing_keys(
    messages: Sequence[Any], variables: tuple[Hashable, ...] | None, steps: Iterable[int]
) -> list[Hashable]:
    """Return the key of a conversation, and those it had when it was so many messages shorter; none if one has none."""
    if variables is None:
        return []
    flat: list[Hashable] = []
    ends = [0]
    try:
        for message in messages:
            _freeze(message, flat)
            ends.append(len(flat))
    except (_NotPlainError, RecursionError):
        return []
    count = len(messages)
    return [
        (variables, (list, left, *flat[: ends[left]]))
        for left in (count, *(count - step for step in steps))
        if left > 0
    ]


def recall(key: Hashable | None) -> Kept | None:
    """Return what was kept of a rendering made before, or None."""
    return None if key is None else _kept.get(key)


def remember(key: Hashable | None, made: Rendering) -> None:
    """Keep a rendering."""
    if key is not None:
        _kept.put(key, Kept(made.text, made.origins, made.source, made.found))


def forget() -> None:
    """Forget all renderings; only benchmarks need it."""
    _kept.clear()


def _frozen(*values: Any) -> tuple[Hashable, ...] | None:
    """Return values as one flat tuple: a container is its type, its length and its items."""
    flat: list[Hashable] = []
    try:
        for value in values:
            _freeze(value, flat)
    except (_NotPlainError, RecursionError):
        return None
    return tuple(flat)


def _freeze(value: Any, flat: list[Hashable]) -> None:
    kind = value.__class__
    if kind is str or value is None:
        flat.append(value)
    elif kind is dict:
        flat += (dict, len(value))
        for key, item in value.items():
            if key.__class__ is not str:
                raise _NotPlainError
            flat.append(key)
            if item.__class__ is str:
                flat.append(item)
            else:
                _freeze(item, flat)
    elif kind is list or kind is tuple:
        flat += (kind, len(value))
        for item in value:
            _freeze(item, flat)
    elif kind in _PLAIN:
        flat += (kind, repr(value))
    else:
        raise _NotPlainError


def _weigh(key: Hashable, kept: Kept) -> int:
    return len(kept.text) + 1024


_kept: BoundedCache[Hashable, Kept] = BoundedCache(_KEPT_CHARACTERS, _weigh)
