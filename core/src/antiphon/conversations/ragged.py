"""Containers of rows of unequal lengths: a lazy stack, a row for each conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict

from antiphon.conversations.folded import non_tensor
from antiphon.conversations.padding import depth_of, leaves


def ragged(
    cls: Any, batch_size: Sequence[int], rows: dict[str, Any], device: torch.device | None = None
) -> Any:
    """A container of batch size `batch_size` from nested lists of tensors [tokens].

    Lists deeper than the batch size become dense where all rows have one length; else they become batch
    dimensions.
    """
    depth = max((depth_of(value) for value in rows.values()), default=0)
    batch = len(batch_size)
    if depth > batch and not all(_is_dense(value, batch) for value in rows.values()):
        batch = depth
    td = _ragged_storage(rows, batch, device)
    return cls._from_tensordict(td)


def _is_dense(rows: Any, batch: int) -> bool:
    """Whether each part of a batch of `batch` dimensions is rows of one length."""
    if batch and isinstance(rows, list):
        return all(_is_dense(part, batch - 1) for part in rows)
    return len({len(row) for row in leaves(rows)}) <= 1


def _ragged_storage(rows: dict[str, Any], batch: int, device: torch.device | None) -> Any:
    if batch == 0:
        entries = {name: _dense(value, device) for name, value in rows.items() if value is not None}
        return TensorDict(
            {**entries, "padded": non_tensor(False, device)}, batch_size=(), device=device
        )
    length = next((len(value) for value in rows.values() if value is not None), 0)
    if length == 0:
        empty = {name: torch.zeros((0,) * (batch + 1), dtype=torch.int64) for name in rows}
        return TensorDict(empty, batch_size=(0,) * batch, device=device)
    parts = [
        _ragged_storage(
            {name: value[i] for name, value in rows.items() if value is not None}, batch - 1, device
        )
        for i in range(length)
    ]
    return LazyStackedTensorDict(*parts)


def _dense(value: Any, device: torch.device | None) -> torch.Tensor:
    if isinstance(value, list):
        return torch.stack([_dense(item, device) for item in value])
    tensor: torch.Tensor = value
    return tensor if device is None else tensor.to(device)
