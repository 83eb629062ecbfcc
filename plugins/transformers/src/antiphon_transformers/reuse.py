"""Keys and values of answered conversations, kept for their next turn.

What is kept is whole batches of a finished decode (no copy), bounded in bytes, oldest use first
out. A prompt finds the row that shares its longest beginning.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from antiphon_transformers.forward import Forward, GrowingLayer

Layers = list[tuple[torch.Tensor, torch.Tensor]]


@dataclass
class _Kept:
    """One batch: per layer keys and values ``[rows, heads, time, dim]``; per row its ids and where they begin."""

    layers: Layers
    ids: list[np.ndarray[Any, Any]]
    begins: list[int]
    size: int


@dataclass(frozen=True)
class Hit:
    """A kept row that a prompt can start from: batch, row, and how many tokens they share."""

    batch: int
    row: int
    shared: int


class Reuse:
    """A bounded store of keys and values.

    Attributes:
        max_bytes: Most bytes that it holds; 0 keeps nothing.
        hits: Prompts that started from kept states.
        tokens: Tokens that were not computed again.
    """

    def __init__(self, max_bytes: int) -> None:
        """Begin empty."""
        self.max_bytes = max_bytes
        self.hits = self.tokens = 0
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._names = itertools.count()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is kept behind."""
        return {"max_bytes": self.max_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin empty."""
        self.__init__(state["max_bytes"])  # type: ignore[misc]

    def clear(self) -> None:
        """Forget everything (the weights have changed)."""
        with self._lock:
            self._kept.clear()

    def keep(
        self, cache: Any, ids: list[list[int]], begins: list[int], rows: list[int] | None = None
    ) -> None:
        """Keep a decode's states.

        Args:
            cache: The decode's cache.
            ids: Per row the ids whose states it has.
            begins: Per row the column of the first.
            rows: Which of the cache's rows these are; all where None.
        """
        if (
            self.max_bytes == 0
            or not ids
            or any(type(layer) is not GrowingLayer for layer in cache.layers)
        ):
            return
        width = max(begin + len(row) for begin, row in zip(begins, ids, strict=True))
        layers: Layers = []
        for layer in cache.layers:
            if layer.keys is None or layer.keys.dim() != 4:  # nothing in it: no image to attend to
                return
            pair = (layer.keys[..., :width, :], layer.values[..., :width, :])
            layers.append(pair if rows is None else (pair[0][rows], pair[1][rows]))
        size = sum(t.untyped_storage().nbytes() for pair in layers for t in pair)
        if size > self.max_bytes:
            return
        with self._lock:
            arrays = [np.asarray(row, dtype=np.int64) for row in ids]
            self._kept[next(self._names)] = _Kept(layers, arrays, begins, size)
            while sum(kept.size for kept in self._kept.values()) > self.max_bytes:
                self._kept.popitem(last=False)

    def start(self, forward: Forward, prompts: list[list[int]]) -> tuple[Any, int] | None:
        """Return a cache that holds the beginnings of the prompts, and how many columns are left to
        compute.

        The prompts lie right-aligned: row i occupies the last ``len(prompts[i])`` of ``max(len)``
        columns, of which the last few (the second result) are not in the cache. None where starting
        afresh costs about the same.
        """
        with self._lock:
            if not self._kept:
                return None
            turn = forward.turning_length
            hits = [self._best(np.asarray(prompt, dtype=np.int64), turn) for prompt in prompts]
            kept = {hit.batch: self._kept[hit.batch] for hit in hits if hit is not None}
            for batch in kept:
                self._kept.move_to_end(batch)
        longest = max(map(len, prompts))
        left = max(
            len(prompt) - (hit.shared if hit else 0)
            for prompt, hit in zip(prompts, hits, strict=True)
        )
        if left > 0.75 * longest:
            return None
        width = longest - left
        cache = forward.new_cache()
        sample = next(iter(kept.values()))
        for index, (keys, values) in enumerate(sample.layers):
            for which, states in (("keys", keys), ("values", values)):
                joined = states.new_zeros(len(prompts), states.shape[1], width, states.shape[3])
                for row, (prompt, hit) in enumerate(zip(prompts, hits, strict=True)):
                    use = len(prompt) - left
                    if hit is None or use <= 0:
                        continue
                    source = kept[hit.batch]
                    begin = source.begins[hit.row]
                    states = source.layers[index][0 if which == "keys" else 1]
                    joined[row, :, width - use :] = states[hit.row, :, begin : begin + use]
                if which == "keys":
                    first = joined
            cache.layers[index].update(first, joined)
        used = [max(0, len(prompt) - left) for prompt in prompts]
        self.hits += sum(1 for use in used if use)
        self.tokens += sum(used)
        return cache, left

    def _best(self, prompt: np.ndarray[Any, Any], turn: int | None) -> Hit | None:
        """Return the kept row that shares most; of rows up to and above the length ``turn`` no two share any."""
        best: Hit | None = None
        for name, kept in self._kept.items():
            for row, ids in enumerate(kept.ids):
                length = min(len(ids), len(prompt) - 1)  # one token at least is computed
                if length <= (best.shared if best else 0) or ids[0] != prompt[0]:
                    continue
                if turn is not None and (len(ids) > turn) != (len(prompt) > turn):
                    continue
                differs = ids[:length] != prompt[:length]
                shared = int(differs.argmax()) if differs.any() else length
                if shared > (best.shared if best else 0):
                    best = Hit(name, row, shared)
        return best
