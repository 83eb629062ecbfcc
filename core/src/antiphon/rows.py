"""The storage of a `History` seen as rows: a row is one conversation, [messages]; a batch nests lists of rows.

tensordict has many ways to store the same messages (stacked lazily or densely, along either dimension); here
they are all read alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, is_non_tensor

from antiphon.errors import ContainerError
from antiphon.folded import FoldedMessages, with_equal_fields


def device_of(td: Any) -> torch.device | None:
    """The device of a tensordict or a row."""
    device: torch.device | None = td.device
    return device


def storage(container: Any) -> Any:
    """The tensordict inside a tensorclass."""
    return container._tensordict


def members(td: Any) -> list[Any]:
    """The parts of a batch along its first dimension."""
    if isinstance(td, LazyStackedTensorDict) and td.stack_dim == 0:
        return list(td.tensordicts)
    if td.batch_size[0] < 0:
        raise ContainerError(
            "time comes first in this batch and conversations differ in length: time must be its last dimension"
        )
    return list(td.unbind(0))


def rows_of(td: Any) -> Any:
    """The rows of a History's storage in nested lists, one list for each dimension before time."""
    return td if td.ndim <= 1 else [rows_of(member) for member in members(td)]


def map_rows(td: Any, function: Callable[[Any], Any], flat: bool = False) -> Any:
    """`function` of each row, in nested lists or in one list."""
    if td.ndim <= 1:
        result = function(td)
        return [result] if flat else result
    results = [map_rows(member, function, flat) for member in members(td)]
    return [item for part in results for item in part] if flat else results


def empty_rows(depth: int, device: torch.device | None = None) -> Any:
    """A batch of no conversations: [0] x depth and no messages."""
    row = FoldedMessages.fold([], device)
    td: Any = row
    for _ in range(depth):
        td = LazyStackedTensorDict(batch_size=td.batch_size, device=device)
    return td


def stack_rows(rows: Any, depth: int, device: torch.device | None = None) -> Any:
    """The storage of a History from nested lists of rows, `depth` lists deep."""
    if depth == 0:
        return rows
    if not rows:
        return empty_rows(depth, device)
    return LazyStackedTensorDict(*[stack_rows(row, depth - 1, device) for row in rows])


def row_cells(row: Any) -> list[Any]:
    """The messages of a row: dicts of plain values, or the tensordict of a message that holds something else.

    The dicts may be shared: not to be written to.
    """
    if isinstance(row, FoldedMessages):
        cells = row.folded_cells
        if cells is not None:
            return cells
        return [cell if type(cell) is dict else message_cell(cell) for cell in row._cells]
    return [message_cell(member) for member in members(row)]


def row_of(cells: list[Any], device: torch.device | None = None) -> FoldedMessages:
    """A row of `row_cells`."""
    if all(type(cell) is dict for cell in cells):
        cells = with_equal_fields(cells)
    else:
        cells = [
            cell if type(cell) is dict or cell.device == device else _moved(cell, device)
            for cell in cells
        ]
    row: FoldedMessages = FoldedMessages.fold(cells, device)
    return row


def _moved(td: Any, device: torch.device | None) -> Any:
    return td.copy().clear_device_() if device is None else td.to(device)


def message_cell(td: Any) -> Any:
    """A message as a dict of plain values, or as it is where it holds something else (a Content, a tensor)."""
    fields = message_fields(td)
    return (
        td
        if any(isinstance(v, torch.Tensor) or hasattr(v, "batch_size") for v in fields.values())
        else fields
    )


def message_fields(td: Any) -> dict[str, Any]:
    """The fields of the storage of one message, [], as plain values (a nested tensorclass stays one)."""
    fields = {}
    for key in list(td.keys()):
        value = td._get_str(key, None)
        if is_non_tensor(value):
            value = value.tolist() if isinstance(value, LazyStackedTensorDict) else value.data
        fields[key] = value
    return fields
