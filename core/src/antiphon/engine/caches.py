"""A bounded map without locks: safe for threads under the interpreter's own lock, and after a fork."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keeps items up to a total weight; when it is full, the oldest half goes.

    Single dict operations are atomic, so no lock is held that a forked child could find taken. Two threads may both
    compute an item, which then is the same item twice.
    """

    def __init__(self, limit: int, weigh: Callable[[K, V], int] = lambda key, value: 1) -> None:
        self._items: dict[K, V] = {}
        self._limit = limit
        self._weigh = weigh
        self._weight = 0

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: K) -> V | None:
        """Return the item, or None."""
        return self._items.get(key)

    def get_all(self, keys: Iterable[K]) -> list[V | None]:
        """Return an item for each key, or None."""
        return list(map(self._items.get, keys))

    def put(self, key: K, value: V) -> None:
        """Keep an item."""
        self._items[key] = value
        self._weight += self._weigh(key, value)
        if self._weight > self._limit:
            self._shrink()

    def _shrink(self) -> None:
        try:
            oldest = list(itertools.islice(self._items, len(self._items) // 2 + 1))
        except RuntimeError:  # another thread has put an item just now; it will shrink
            return
        for key in oldest:
            value = self._items.pop(key, None)
            if value is not None:
                self._weight -= self._weigh(key, value)

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self._weight = 0
