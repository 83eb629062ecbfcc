"""Containers of rows of unequal lengths: a lazy stack, a row for each conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict

from antiphon.conversations.folded import non_tensor
from antiphon.conversations.padding import depth_of, leaves


def ragged(
    cls: Any,
    batch_size: Sequence[int],
    rows: dict[str, Any],
    device: torch.device | None = None,
    shared: Mapping[str, Any] | None = None,
) -> Any:
    """A container of batch size `batch_size` from nested lists of tensors [tokens].

    Lists deeper than the batch size become dense where all rows have one length; else they become batch
    dimensions. `shared` are plain values that every row has; they are stored once.
    """
    depth = max((depth_of(value) for value in rows.values()), default=0)
    batch = len(batch_size)
    if depth > batch and not all(_is_dense(value, batch) for value in rows.values()):
        batch = depth
    values = {"padded": False, **(shared or {})}
    entries = {name: non_tensor(v, device) for name, v in values.items() if v is not None}
    td = _ragged_storage(rows, batch, device, entries)
    return cls._from_tensordict(td)


def shared_values(td: Any, name: str) -> list[Any]:
    """What the rows of a container hold under a name that they share; rows without it are left out."""
    if isinstance(td, LazyStackedTensorDict):
        return [value for member in td.tensordicts for value in shared_values(member, name)]
    value = td._get_str(name, None)
    if value is None:
        return []
    value = value.tolist() if isinstance(value, LazyStackedTensorDict) else value.data
    return _flat(value)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [item for part in value for item in _flat(part)]
    return [value]


def _is_dense(rows: Any, batch: int) -> bool:
    """Whether each part of a batch of `batch` dimensions is rows of one length."""
    if batch and isinstance(rows, list):
        return all(_is_dense(part, batch - 1) for part in rows)
    return len({len(row) for row in leaves(rows)}) <= 1


def _ragged_storage(
    rows: dict[str, Any], batch: int, device: torch.device | None, shared: dict[str, Any]
) -> Any:
    if batch == 0:
        entries = {name: _dense(value, device) for name, value in rows.items() if value is not None}
        return TensorDict({**entries, **shared}, batch_size=(), device=device)
    length = next((len(value) for value in rows.values() if value is not None), 0)
    if length == 0:
        empty = {name: torch.zeros((0,) * (batch + 1), dtype=torch.int64) for name in rows}
        return TensorDict(empty, batch_size=(0,) * batch, device=device)
    parts = [
        _ragged_storage(
            {name: value[i] for name, value in rows.items() if value is not None},
            batch - 1,
            device,
            shared,
        )
        for i in range(length)
    ]
    return LazyStackedTensorDict(*parts)


def _dense(value: Any, device: torch.device | None) -> torch.Tensor:
    if isinstance(value, list):
        if not value:
            return torch.zeros((0, 0), dtype=torch.int64, device=device)
        return torch.stack([_dense(item, device) for item in value])
    tensor: torch.Tensor = value
    return tensor if device is None else tensor.to(device)
