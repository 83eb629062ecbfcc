"""The specs of containers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from antiphon.conversations.arguments import said, shape_of
from antiphon.errors import ContainerError


def container_spec(
    cls: type, shape: Any, names: Sequence[str] | None, known: Sequence[str], leaf: Any
) -> Any:
    """The spec of a container: `leaf(shape)` under each name.

    Raises:
        ContainerError: a name that the container does not have.
    """
    from antiphon.envs import Composite

    shape = tuple(shape_of(shape))
    if names is not None and not (
        isinstance(names, Sequence) and all(isinstance(name, str) for name in names)
    ):
        raise ContainerError(f"keys must be a list of names, got {said(names)}")
    unknown = set(names or ()) - set(known)
    if unknown:
        raise ContainerError(
            f"{cls.__name__} has no {', '.join(sorted(unknown))}; it has {', '.join(known)}"
        )
    entries = {name: leaf(shape) for name in names or known}
    return Composite(entries, shape=shape, data_cls=cls)


def tensor_leaf(dtype: torch.dtype) -> Any:
    """What makes the spec of rows of tokens, [..., tokens], of batches of a shape."""
    from antiphon.envs import Unbounded

    return lambda shape: Unbounded(shape=(*shape, -1), dtype=dtype)
