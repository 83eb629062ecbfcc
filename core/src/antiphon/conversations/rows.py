"""The storage of a `History` seen as rows: a row is one conversation, [messages]; a batch nests lists of rows.

tensordict has many ways to store the same messages (stacked lazily or densely, along either dimension); here
they are all read alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, NonTensorData, TensorDict, is_non_tensor

from antiphon.conversations.chats import openai_messages, stored_message
from antiphon.conversations.fields import batch_values
from antiphon.conversations.folded import FoldedMessages, unfolded_message, with_equal_fields
from antiphon.errors import ContainerError, InvalidMessage


def device_of(td: Any) -> torch.device | None:
    """The device of a tensordict or a row."""
    device: torch.device | None = td.device
    return device


Message = dict[str, Any]


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
    # A dense tensordict: a lazy stack without members has no names, no fields and cannot be indexed.
    size = (0,) * (depth + 1)
    entries = {
        name: NonTensorData(data=[], batch_size=size, device=device) for name in ("role", "content")
    }
    return TensorDict(entries, batch_size=size, device=device)


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


def fold(cells: list[Message]) -> FoldedMessages:
    """A row of stored messages."""
    row: FoldedMessages = FoldedMessages.fold(with_equal_fields(cells))
    return row


def equal_rows(rows: Any, depth: int) -> Any:
    """The rows with equal fields: a field that some conversation has is then a key of the batch."""
    if depth == 0:
        return rows
    flat = rows
    for _ in range(depth - 1):
        flat = [row for part in flat for row in part]
    fields: dict[str, None] = {}
    differ = False
    for row in flat:
        names = row.folded_fields if isinstance(row, FoldedMessages) else None
        if names is None:
            return rows
        if fields.keys() != names:
            differ = differ or bool(fields)
            fields.update(dict.fromkeys(names))
    return map_nested(rows, depth, lambda row: _widened(row, fields)) if differ else rows


def _widened(row: FoldedMessages, fields: Iterable[str]) -> Any:
    cells = row.folded_cells
    if not cells:
        return FoldedMessages.empty_with(fields, row.device)
    return FoldedMessages.fold([{f: cell.get(f) for f in fields} for cell in cells], row.device)


def map_nested(rows: Any, depth: int, function: Any) -> Any:
    """`function` of each item of lists nested `depth` deep."""
    return function(rows) if depth == 0 else [map_nested(row, depth - 1, function) for row in rows]


def joined(rows: Any, others: Any, depth: int, above: int, device: torch.device | None) -> Any:
    """Row lists nested `depth` deep, joined along the dimension that has `above` dimensions after it.

    Raises:
        ContainerError: the batches differ.
    """
    if depth == 0:
        return row_of(row_cells(rows) + row_cells(others), device)
    if depth == above:
        return [*rows, *map_nested(others, depth, lambda row: row_of(row_cells(row), device))]
    if len(rows) != len(others):
        raise ContainerError(
            f"the batch has {len(rows)} conversations, what is added to it has {len(others)}"
        )
    return [
        joined(row, other, depth - 1, above, device)
        for row, other in zip(rows, others, strict=True)
    ]


def single_messages(td: Any) -> Any:
    """The rows of a batch of messages as conversations of one message each."""
    if td.ndim == 0:
        return row_of([message_cell(td)], td.device)
    if td.ndim == 1:
        return [row_of([cell], td.device) for cell in row_cells(td)]
    return [single_messages(member) for member in members(td)]


def row_length(row: Any) -> int:
    """The number of messages of a row."""
    return int(row.batch_size[0])


def row_messages(row: Any) -> list[Message]:
    """The messages of a row in OpenAI form; they may share what they hold with the row."""
    return openai_messages(
        cell if type(cell) is dict else plain_fields(cell) for cell in row_cells(row)
    )


def plain_fields(td: Any) -> Message:
    """The fields of the storage of one message, a `Content` as its parts."""
    fields = message_fields(td)
    content: Any = fields.get("content")
    if hasattr(content, "to_parts"):
        fields["content"] = content.to_parts()
    return fields


# Batches from fields, and shapes


def stored_fields(fields: Message, size: torch.Size, device: torch.device | None) -> Any:
    """The storage of a batch of `size` from fields that are values or (nested) lists of values."""
    if not size:
        return unfolded_message(stored_message(fields), device)
    if "role" not in fields:
        raise InvalidMessage("messages need a role: pass role=, one string for all or a list")
    rows = _field_rows(fields, tuple(size), device)
    return stack_rows(equal_rows(rows, len(size) - 1), len(size) - 1, device)


def _field_rows(fields: Message, size: tuple[int, ...], device: torch.device | None) -> Any:
    columns = {name: batch_values(name, value, size) for name, value in fields.items()}
    parts = [
        {name: values[i] for name, values in columns.items()} for i in range(len(columns["role"]))
    ]
    if len(size) > 1:
        return [_field_rows(part, size[1:], device) for part in parts]
    return FoldedMessages.fold(with_equal_fields([stored_message(part) for part in parts]), device)


def filled(size: Any, count: int) -> list[int] | None:
    """`size` with -1 filled in so that it holds `count`; None if it cannot."""
    size = list(size)
    if size.count(-1) == 1:
        known = -math.prod(size)
        if known == 0 or count % known:
            return None
        size[size.index(-1)] = count // known
    return size if all(n >= 0 for n in size) and math.prod(size) == count else None


def reshaped(td: Any, size: Sequence[int], is_ragged: bool, count: int) -> Any:
    """The storage of a History in another shape.

    Args:
        td: its storage, [..., messages].
        size: the new shape, its last dimension being time; one -1 stands for what is left.
        is_ragged: whether its conversations differ in length.
        count: how many messages it holds.

    Raises:
        ContainerError: another number of messages, or conversations of unequal length asked to be equal.
    """
    rows = map_rows(td, lambda row: row, flat=True)
    device = device_of(td)
    if is_ragged and len(size) > 1:
        lead, length = filled(size[:-1], len(rows)), size[-1]
        if lead is None or length != -1:
            raise ContainerError(
                f"a ragged History of batch size {list(td.batch_size)} and {count} messages cannot have the "
                f"shape {list(size)}: flatten its messages with -1, or keep -1 as the last dimension"
            )
    else:
        whole = filled(size, count)
        if whole is None:
            raise ContainerError(f"{count} messages cannot have the shape {list(size)}")
        *lead, length = whole
        cells = [cell for row in rows for cell in row_cells(row)]
        starts = range(0, count, length) if length else [0] * math.prod(lead)
        rows = [row_of(cells[i : i + length], device) for i in starts]
    for parts in reversed(lead[1:]):
        rows = [rows[i : i + parts] for i in range(0, len(rows), parts)]
    return stack_rows(rows if lead else rows[0], len(lead), device)
