"""What users pass to the constructors of containers, made into tensordict entries.

A list is a batch if the container has batch dimensions, else one value: whatever list_to_stack says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NonTensorStack, is_tensor_collection

from antiphon.conversations.arguments import said
from antiphon.conversations.chats import FIELDS
from antiphon.conversations.folded import FoldedValues, non_tensor
from antiphon.errors import ContainerError, InvalidMessage


def list_shape(value: Any) -> tuple[int, ...] | None:
    """The shape of nested lists of scalars; -1 where they are ragged. None if it is no list."""
    if not isinstance(value, (list, tuple)):
        return None
    if not value or not isinstance(value[0], (list, tuple)):
        return (len(value),)
    shapes = [list_shape(item) or () for item in value]
    ranks = {len(shape) for shape in shapes}
    if len(ranks) > 1:
        return (len(value),)
    inner = tuple(
        sizes[0] if all(size == sizes[0] for size in sizes) else -1
        for sizes in zip(*shapes, strict=True)
    )
    return (len(value), *inner)


def plain_value(value: Any) -> Any:
    """Non-tensor entries as the values they hold; everything else as it is."""
    return value.tolist() if getattr(value, "_is_non_tensor", False) else value


def batch_values(name: str, value: Any, size: Sequence[int]) -> list[Any]:
    """The values of a field along the first dimension of a batch; one value stands for all.

    Raises:
        ContainerError: a list of another length.
    """
    if not isinstance(value, (list, tuple)):
        if size[0] < 0:
            raise ContainerError(
                f"{name} needs a list: the batch size {list(size)} does not say how many"
            )
        return [value] * size[0]
    if size[0] >= 0 and len(value) != size[0]:
        raise ContainerError(
            f"{name} has {len(value)} values for a batch of {size[0]} (batch size {list(size)})"
        )
    return list(value)


def field_entry(name: str, value: Any, size: Sequence[int], device: torch.device | None) -> Any:
    """A value or (nested) list of values as the entry of a container of batch size `size`."""
    if is_tensor_collection(value) or isinstance(value, torch.Tensor):
        return value
    if not size:
        return non_tensor(value, device)
    values = batch_values(name, value, size)
    if len(size) > 1:
        return NonTensorStack(*[field_entry(name, item, size[1:], device) for item in values])
    return FoldedValues.fold(values, device)


def nested_entry(values: Any, depth: int, device: torch.device | None = None) -> Any:
    """Values in lists `depth` deep as one non-tensor entry; the lists may be ragged."""
    if depth == 0:
        return non_tensor(values, device)
    if depth == 1:
        return FoldedValues.fold(list(values), device)
    return NonTensorStack(*[nested_entry(item, depth - 1, device) for item in values])


def given_fields(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a message that a constructor was given, by name.

    Raises:
        TypeError: more than there are, or one that there is not, as any constructor raises it.
    """
    if len(args) > len(FIELDS):
        raise TypeError(
            f"History takes at most {len(FIELDS)} positional arguments, got {len(args)}"
        )
    fields = {**dict(zip(FIELDS, args, strict=False)), **kwargs}
    unknown = fields.keys() - set(FIELDS)
    if unknown:
        raise TypeError(
            f"History has no field {', '.join(sorted(unknown))}; its fields: {', '.join(FIELDS)}"
        )
    return fields


def message_entries(
    fields: Mapping[str, Any], size: Sequence[int], device: torch.device | None
) -> dict[str, Any]:
    """The entries of messages whose content is a `Content`.

    Raises:
        InvalidMessage: another field is a tensor collection, or the content is one that has no parts.
    """
    for name, value in fields.items():
        if is_tensor_collection(value) and (name != "content" or not hasattr(value, "to_parts")):
            raise InvalidMessage(f"the {name} of a message can't be a {type(value).__name__}")
    role = fields.get("role")
    if not isinstance(role, (str, list, tuple)):
        raise InvalidMessage(f"role must be a string, or a list of them, got {said(role)}")
    return {name: field_entry(name, value, size, device) for name, value in fields.items()}
