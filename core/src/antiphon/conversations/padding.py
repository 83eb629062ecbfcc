"""Ragged rows to padded tensors and back.

Padding is told apart by where it is, never by its value: a padded container keeps, for every entry, the first and
one past the last position that is real, so a real end token that is also the padding token is never lost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from tensordict import LazyStackedTensorDict, TensorDict

from antiphon.conversations.arguments import said, whole
from antiphon.errors import ContainerError

Side = Literal["left", "right"]


def check_padding(fill: Any, side: Any, sizes: Any) -> None:
    """Refuse what can't be padded with, on, or to.

    Raises:
        ContainerError: a value that is no number, a side that is none, or sizes that are no lengths by name.
    """
    if not isinstance(fill, (bool, int, float)):
        raise ContainerError(f"the value to pad with must be a number, got {said(fill)}")
    if not isinstance(side, (str, type(None))) or side not in (None, "left", "right"):
        raise ContainerError(f"side must be 'left' or 'right', got {said(side)}")
    if not isinstance(sizes, (Mapping, type(None))):
        raise ContainerError(f"sizes must be lengths by name, got {said(sizes)}")
    for name, size in () if sizes is None else sizes.items():
        if whole(f"the size of {name}", size) < 0:
            raise ContainerError(f"the size of {name} to pad to must not be negative, got {size}")


def token_rows(td: Any, name: str) -> Any:
    """The rows of an entry in nested lists, one tensor [tokens] each; None where there is no such entry.

    Args:
        td: the storage of a container; dense, ragged (a lazy stack), or of no batch dimension, whose entry may
            still be a batch.
        name: the entry.
    """
    if isinstance(td, LazyStackedTensorDict):
        members = td.tensordicts if td.stack_dim == 0 else td.unbind(0)
        rows = [token_rows(member, name) for member in members]
        return None if not rows or all(row is None for row in rows) else rows
    value = td._get_str(name, None)
    if value is None:
        return None
    if not isinstance(value, torch.Tensor):
        raise ContainerError(f"{name} must be a tensor of tokens, got {type(value).__name__}")
    return _tensor_rows(value)


def _tensor_rows(value: torch.Tensor) -> Any:
    if value.is_nested:
        return list(value.unbind())
    if value.ndim <= 1:
        if not value.ndim:
            raise ContainerError(
                "a row of tokens has one dimension at least, and this tensor has none"
            )
        return value
    return [_tensor_rows(row) for row in value]


def depth_of(rows: Any) -> int:
    """How deep the lists are nested."""
    depth = 0
    while isinstance(rows, list):
        depth += 1
        rows = next((row for row in rows if row is not None), None)
    return depth


def leaves(rows: Any) -> list[Any]:
    """The rows in one list."""
    return [leaf for part in rows for leaf in leaves(part)] if isinstance(rows, list) else [rows]


def regrouped(rows: Any, flat: Sequence[Any]) -> Any:
    """`flat` in lists of the form of `rows`."""
    source = iter(flat)

    def walk(part: Any) -> Any:
        return [walk(item) for item in part] if isinstance(part, list) else next(source)

    return walk(rows)


def padded(
    rows: Sequence[torch.Tensor], value: float, side: Side, size: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as one tensor.

    Args:
        rows: tensors [tokens], of one dtype and device.
        value: what to fill with.
        side: where to fill.
        size: the common length; by default the longest row's.

    Returns:
        The tensor [rows, size], and the bounds [rows, 2], int64: start and end of what is real in each row.
    """
    size = max((len(row) for row in rows), default=0) if size is None else size
    first = rows[0] if rows else torch.zeros(0, dtype=torch.int64)
    try:
        out = torch.full((len(rows), size), value, dtype=first.dtype, device=first.device)
    except (
        OverflowError,
        RuntimeError,
        TypeError,
    ) as error:  # not enough memory is one, and says so
        raise ContainerError(
            f"{len(rows)} rows of {first.dtype} can't be padded with {value} to {size}: {error}"
        ) from error
    bounds = torch.empty((len(rows), 2), dtype=torch.int64, device=first.device)
    for i, row in enumerate(rows):
        if len(row) > size:
            raise ContainerError(
                f"row {i} has {len(row)} tokens, more than the size {size} to pad to"
            )
        if row.device != first.device:
            raise ContainerError(
                f"row {i} is on {row.device}, row 0 on {first.device}: move them to one device"
            )
        start = size - len(row) if side == "left" else 0
        out[i, start : start + len(row)] = row
        bounds[i, 0], bounds[i, 1] = start, start + len(row)
    return out, bounds


def pad_storage(
    td: Any, fill: float, sides: Mapping[str, Side], sizes: Mapping[str, int] | None = None
) -> TensorDict:
    """A padded copy of a container's storage: dense, with `padded` set and `bounds` of every entry.

    `full` is a row's prompt and response side by side where both are there and make it up: the prompt
    padded on its side and the response on its own, so that all prompts end at one position.
    """
    sizes = {} if sizes is None else sizes
    batch = td.batch_size
    rows = {name: token_rows(td, name) for name in sides}
    rows = {name: value for name, value in rows.items() if value is not None}
    entries: dict[str, Any] = {}
    bounds: dict[str, Any] = {}
    for name, nested in rows.items():
        flat = leaves(nested)
        missing = next((i for i, row in enumerate(flat) if row is None), None)
        if missing is not None:
            raise ContainerError(f"row {missing} has no {name}, so the batch cannot be padded")
        shape = _list_shape(nested)
        if len(shape) < len(batch) or -1 in shape:
            raise ContainerError(
                f"{name} has rows of shape {shape}, which do not fill the batch {list(batch)}"
            )
        tensor, where = padded(flat, fill, sides[name], sizes.get(name))
        entries[name] = tensor.reshape(*shape, tensor.shape[-1])
        bounds[name] = where.reshape(*shape, 2)
    if {"prompt", "response", "full"} <= entries.keys() and _side_by_side(rows):
        width = entries["prompt"].shape[-1]
        entries["full"] = torch.cat([entries["prompt"], entries["response"]], -1)
        inner = torch.stack([bounds["prompt"][..., 0], bounds["response"][..., 1] + width], -1)
        contiguous = bool((bounds["prompt"][..., 1] == width).all()) and bool(
            (bounds["response"][..., 0] == 0).all()
        )
        if contiguous:
            bounds["full"] = inner
        else:
            entries["full"], where = padded(
                leaves(rows["full"]), fill, sides["full"], sizes.get("full")
            )
            shape = _list_shape(rows["full"])
            entries["full"] = entries["full"].reshape(*shape, -1)
            bounds["full"] = where.reshape(*shape, 2)
    out = TensorDict(entries, batch_size=batch, device=td.device)
    out["bounds"] = TensorDict(bounds, batch_size=batch, device=td.device)
    return out


def place_storage(td: Any, names: Sequence[str], fill: float, like: Any) -> TensorDict:
    """A padded copy of a container's storage whose rows stand where `like`, padded, has those of its `full`.

    Raises:
        ContainerError: `like` does not know where its rows are, or they have other lengths.
    """
    where = _bounds(like, "full")
    shape = None if where is None else like._get_str("full", None).shape
    if where is None or shape is None:
        raise ContainerError(
            "there is no padded `full` with known bounds to place the rows like: pad it with pad()"
        )
    entries: dict[str, Any] = {}
    for name in names:
        nested = token_rows(td, name)
        if nested is None:
            continue
        rows = leaves(nested)
        if len(rows) != len(where):
            raise ContainerError(
                f"{name} has {len(rows)} rows, what it is to be padded like has {len(where)}"
            )
        out = torch.full((len(rows), shape[-1]), fill, dtype=rows[0].dtype, device=rows[0].device)
        for i, (row, (start, end)) in enumerate(zip(rows, where, strict=True)):
            if len(row) != end - start:
                raise ContainerError(
                    f"row {i} of {name} has {len(row)} values for {end - start} tokens"
                )
            out[i, start:end] = row
        entries[name] = out.reshape(shape)
    made = TensorDict(entries, batch_size=td.batch_size, device=td.device)
    bounds = torch.tensor(where, device=td.device).reshape(*shape[:-1], 2)
    made["bounds"] = TensorDict(
        dict.fromkeys(entries, bounds), batch_size=td.batch_size, device=td.device
    )
    return made


def _side_by_side(rows: Mapping[str, Any]) -> bool:
    parts = zip(*(leaves(rows[name]) for name in ("prompt", "response", "full")), strict=True)
    return all(len(prompt) + len(response) == len(full) for prompt, response, full in parts)


def _list_shape(rows: Any) -> tuple[int, ...]:
    if not isinstance(rows, list):
        return ()
    inner = {_list_shape(row) for row in rows}
    return (len(rows), *(inner.pop() if len(inner) == 1 else ((-1,) if inner else ())))


def unpad_rows(td: Any, names: Sequence[str], masks: Any = None) -> dict[str, Any]:
    """The real parts of a padded container's entries, nested lists of tensors [tokens].

    Args:
        td: the storage.
        names: the entries.
        masks: an attention mask over `full`, where the container does not know its bounds.

    Raises:
        ContainerError: nothing says what is padding.
    """
    result = {}
    for name in names:
        rows = token_rows(td, name)
        if rows is None:
            continue
        where = real_bounds(td, name, masks)
        if where is None:
            raise ContainerError(
                f"these are padded tokens and nothing says which of {name} are real: pass the attention mask of the "
                "full sequence, or pad with this library, which keeps the bounds"
            )
        there = leaves(rows)
        if len(where) != len(there):
            raise ContainerError(f"{name} has {len(there)} rows, and the mask is of {len(where)}")
        flat = [row[start:end] for row, (start, end) in zip(there, where, strict=True)]
        result[name] = regrouped(rows, flat)
    return result


def real_bounds(td: Any, name: str, masks: Any = None) -> list[list[int]] | None:
    """Start and end of what is real in each padded row of an entry, or None where nothing says so.

    Args:
        td: the storage.
        name: the entry.
        masks: an attention mask over `full`, where the container does not know its bounds.
    """
    where = _bounds(td, name)
    return _from_mask(td, name, masks) if where is None else where


def _bounds(td: Any, name: str) -> list[list[int]] | None:
    if isinstance(td, LazyStackedTensorDict):
        parts = [_bounds(member, name) for member in td.unbind(0)]
        return (
            None
            if any(part is None for part in parts)
            else [b for part in parts if part for b in part]
        )
    known = td._get_str("bounds", None)
    value = None if known is None else known._get_str(name, None)
    return None if value is None else value.reshape(-1, 2).tolist()


def _from_mask(td: Any, name: str, masks: Any) -> list[list[int]] | None:
    if masks is None:
        return None
    mask = (
        masks
        if isinstance(masks, torch.Tensor)
        else masks._tensordict._get_str("all_attention_mask", None)
    )
    if mask is None or not isinstance(mask, torch.Tensor):
        return None
    if not mask.ndim or mask.is_meta:
        raise ContainerError(
            f"an attention mask has a value for each token, not {list(mask.shape)}"
        )
    try:
        widths = {key: _width(td, key) for key in ("prompt", "response", "full")}
    except RuntimeError:  # rows of unequal lengths: they have no padding that a mask could tell
        return None
    if name == "prompt":
        mask = mask[..., : widths["prompt"]]
    elif name == "response":
        mask = mask[..., mask.shape[-1] - (widths["response"] or 0) :]
    bounds = []
    for row in mask.reshape(math.prod(mask.shape[:-1]), mask.shape[-1]).bool():
        real = row.nonzero().flatten()
        bounds.append([int(real[0]), int(real[-1]) + 1] if len(real) else [0, 0])
    return bounds


def _width(td: Any, name: str) -> int | None:
    value = td._get_str(name, None)
    return None if value is None else int(value.shape[-1])
