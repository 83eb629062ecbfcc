"""Log-probs of given ids from hidden states, in chunks, and the packing of ragged rows.

The logits of a batch, ``[batch, time, vocabulary]`` in float32, are often larger than everything
else together. Here only the positions that are asked for go through the head, a chunk at a time;
with gradients each chunk's logits are computed again in the backward pass instead of being kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch.utils.checkpoint import checkpoint

from antiphon.errors import InvalidParameter

#: Elements of one chunk's logits: 16 Mi float32 are 64 MiB.
CHUNK_ELEMENTS = 1 << 24

Head = Callable[[torch.Tensor], torch.Tensor]


def selected_log_probs(
    hidden: torch.Tensor,
    targets: torch.Tensor,
    head: Head,
    *,
    vocab_size: int,
    temperature: float = 1.0,
    entropy: bool = False,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return ``log_softmax(head(hidden) / temperature)`` at the targets.

    Args:
        hidden: ``[N, D]``, the states that predict the targets.
        targets: ``[N]`` int64, the ids.
        head: Maps ``[n, D]`` to logits ``[n, V]``.
        vocab_size: V, from which the size of a chunk follows.
        temperature: Divides the logits.
        entropy: Also return the entropies.
        chunk_elements: Most elements that the logits of one chunk may have.

    Raises:
        InvalidParameter: There are not as many states as targets.

    Returns:
        Log-probs ``[N]`` float32 and entropies ``[N]`` float32 (nats) or None. Gradients flow into
        ``hidden`` and the head's parameters where they are enabled.
    """
    if len(hidden) != len(targets):
        raise InvalidParameter(
            f"There are {len(hidden)} states for {len(targets)} targets; each state predicts one target."
        )
    step = max(1, chunk_elements // max(1, vocab_size))
    keep = torch.is_grad_enabled()
    log_probs, entropies = [], []
    for begin in range(0, len(targets), step):
        states, ids = hidden[begin : begin + step], targets[begin : begin + step]
        if keep:
            part = cast(
                "tuple[torch.Tensor, torch.Tensor]",
                checkpoint(_chunk, states, ids, head, temperature, entropy, use_reentrant=False),
            )
        else:
            part = _chunk(states, ids, head, temperature, entropy)
        log_probs.append(part[0])
        entropies.append(part[1])
    if not log_probs:
        empty = torch.zeros(0, dtype=torch.float32, device=hidden.device)
        return empty, empty if entropy else None
    return torch.cat(log_probs), torch.cat(entropies) if entropy else None


def _chunk(
    hidden: torch.Tensor, targets: torch.Tensor, head: Head, temperature: float, entropy: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = head(hidden).float()
    if temperature != 1.0:
        logits = logits / temperature
    total = logits.logsumexp(-1)
    targets = targets.to(logits.device)  # the head of a model on several devices has its own
    chosen = logits.gather(-1, targets[:, None])[:, 0] - total
    if not entropy:
        return chosen, total
    log_probs = logits - total[:, None]
    # An id that is ruled out (-inf) adds nothing; 0 * -inf would add NaN.
    weights = log_probs.exp()
    return chosen, total - (weights * logits.masked_fill(weights == 0, 0.0)).sum(-1)


@dataclass(frozen=True)
class Bin:
    """Rows that lie one after the other in one row of a packed batch.

    Attributes:
        rows: The rows' indices.
        offsets: Where each begins.
        length: Tokens in all.
    """

    rows: list[int]
    offsets: list[int]
    length: int


def pack(lengths: Sequence[int], capacity: int | None = None) -> list[Bin]:
    """Lay rows into bins, the longest first, each where it fits first.

    Args:
        lengths: Tokens per row.
        capacity: Tokens per bin; by default the longest row's, so that attention never costs more
            than with padding.

    Returns:
        The bins, the fullest rows first. Each row is in one of them; a row above the capacity has a
        bin of its own.
    """
    capacity = max(lengths, default=0) if capacity is None else capacity
    bins: list[Bin] = []
    room: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda r: -lengths[r]):
        size = lengths[row]
        place = next((b for b, free in enumerate(room) if free >= size), None)
        if place is None:
            bins.append(Bin([row], [0], size))
            room.append(capacity - size)
        else:
            found = bins[place]
            bins[place] = Bin(
                [*found.rows, row], [*found.offsets, found.length], found.length + size
            )
            room[place] -= size
    return bins


def lay_out(
    rows: Sequence[Sequence[int]], bins: Sequence[Bin], fill: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ids and position ids ``[bins, longest bin]`` of packed rows.

    Positions begin at 0 with every row, which is how a packed row is told from its neighbour; what
    is left of a bin is one more row of ``fill``.
    """
    width = max((b.length for b in bins), default=0)
    ids = torch.full((len(bins), width), fill, dtype=torch.long, device="cpu")
    positions = torch.zeros((len(bins), width), dtype=torch.long, device="cpu")
    for index, packed in enumerate(bins):
        for row, offset in zip(packed.rows, packed.offsets, strict=True):
            size = len(rows[row])
            ids[index, offset : offset + size] = torch.tensor(rows[row], device="cpu")
            positions[index, offset : offset + size] = torch.arange(size, device="cpu")
        positions[index, packed.length :] = torch.arange(width - packed.length, device="cpu")
    return ids, positions


def pad_rows(
    rows: Sequence[Sequence[int]], *, side: str = "left", fill: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids ``[rows, longest]`` and their mask, which comes from the lengths and never from the ids."""
    if side not in ("left", "right"):
        raise InvalidParameter(f"Rows are padded on the 'left' or 'right' side, not {side!r}.")
    width = max((len(row) for row in rows), default=0)
    ids = torch.full((len(rows), width), fill, dtype=torch.long, device="cpu")
    mask = torch.zeros((len(rows), width), dtype=torch.bool, device="cpu")
    for index, row in enumerate(rows):
        part = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[index, part] = torch.tensor(row, dtype=torch.long, device="cpu")
        mask[index, part] = True
    return ids, mask
