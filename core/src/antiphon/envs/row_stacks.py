"""Rows of batches of any shape, and batches of rows that need not be alike."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NonTensorData, TensorDictBase, is_non_tensor, lazy_stack


def flat_rows(tensordict: TensorDictBase) -> list[TensorDictBase]:
    """Return the rows of a batch of any shape, in order."""
    if not tensordict.batch_dims:
        return [tensordict]
    return [row for part in tensordict.unbind(0) for row in flat_rows(part)]


def stacked(rows: list[TensorDictBase], shape: torch.Size) -> TensorDictBase:
    """Return rows as a batch of this shape."""
    for size in reversed(shape[1:]):
        rows = [lazy_stack(rows[at : at + size]) for at in range(0, len(rows), size)]
    return lazy_stack(rows)


def alike(rows: list[TensorDictBase]) -> list[TensorDictBase]:
    """Return rows that have the same non-tensor entries: None stands where a row has none.

    A lazy stack shows only what all its rows have, so one row's lack would hide the others' data.
    """
    plain = {key for row in rows for key, value in row.items() if is_non_tensor(value)}
    nothing: Any = NonTensorData(None)
    alike = []
    for row in rows:
        lacking = plain.difference(row.keys())
        row = row.copy() if lacking else row
        for key in lacking:
            row.set(key, nothing)
        alike.append(row)
    return alike
