"""The spec of a tensordict: which specs its keys have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from tensordict import (
    LazyStackedTensorDict,
    TensorDict,
    TensorDictBase,
    is_tensor_collection,
)

from antiphon.envs.entries import has_key
from antiphon.envs.specs import Spec, shape_fits
from antiphon.errors import InvalidParameter

Key = str | tuple[str, ...]


class Composite(Spec):
    """A mapping of keys to specs: the spec of a tensordict, or of a tensorclass.

    Args:
        entries: Specs (or mappings) by name; keyword arguments say the same.
        shape: The batch size of the tensordict; each entry's shape starts with it.
        device: Handed to entries that are mappings.
        data_cls: The tensorclass whose fields the entries are, or None for a plain tensordict.
    """

    def __init__(
        self,
        entries: Mapping[str, Spec | Mapping[str, Any] | None] | None = None,
        *,
        shape: torch.Size | tuple[int, ...] | int = (),
        device: torch.device | str | None = None,
        data_cls: type | None = None,
        **kwargs: Spec | Mapping[str, Any] | None,
    ) -> None:
        super().__init__(shape, None, device)
        self.data_cls = data_cls
        self._specs: dict[str, Spec | None] = {}
        for key, spec in {**(entries or {}), **kwargs}.items():
            self[key] = spec

    @property
    def batch_size(self) -> torch.Size:
        """The batch size of the tensordict."""
        return self.shape

    def __setitem__(self, key: Key, spec: Spec | Mapping[str, Any] | None) -> None:
        if isinstance(key, tuple):
            if len(key) > 1:
                inner = self._specs.get(key[0])
                if inner is None:
                    inner = self._specs[key[0]] = Composite(shape=self.shape, device=self.device)
                if not isinstance(inner, Composite):
                    raise InvalidParameter(f"{key[0]!r} is a leaf, so it can't hold {key[1:]!r}.")
                inner[key[1:]] = spec
                return
            key = key[0]
        if isinstance(spec, Mapping):
            spec = Composite(spec, shape=self.shape, device=self.device)
        if spec is not None and not shape_fits(spec.shape[: self.ndim], self.shape):
            raise InvalidParameter(
                f"The shape of entry {key!r}, {tuple(spec.shape)}, must start with the "
                f"composite's, {tuple(self.shape)}."
            )
        self._specs[key] = spec

    def get(self, key: Key, default: Any = None) -> Any:
        """Return the spec under ``key`` (a name or a tuple of names), or ``default``."""
        names = (key,) if isinstance(key, str) else key
        spec: Any = self
        for name in names:
            if not isinstance(spec, Composite) or name not in spec._specs:
                return default
            spec = spec._specs[name]
        return spec

    def __getitem__(self, key: Key) -> Any:
        missing = object()
        spec = self.get(key, missing)
        if spec is missing:
            raise KeyError(f"no spec under {key!r}; there are {sorted(self._specs)}")
        return spec

    def __delitem__(self, key: Key) -> None:
        if isinstance(key, tuple) and len(key) > 1:
            del self[key[0]][key[1:]]
        else:
            del self._specs[key if isinstance(key, str) else key[0]]

    def __contains__(self, key: object) -> bool:
        missing = object()
        return isinstance(key, (str, tuple)) and self.get(key, missing) is not missing

    def __len__(self) -> int:
        return len(self._specs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def keys(self, include_nested: bool = False, leaves_only: bool = False) -> list[Any]:
        """Return the keys; nested ones as tuples.

        Args:
            include_nested: Whether the entries of composites inside are listed too.
            leaves_only: Whether composites themselves are left out.
        """
        found: list[Key] = []
        for name, spec in self._specs.items():
            inner = isinstance(spec, Composite)
            if not (inner and leaves_only):
                found.append(name)
            if inner and include_nested:
                for key in cast("Composite", spec).keys(True, leaves_only):
                    found.append((name, *((key,) if isinstance(key, str) else key)))
        return found

    def items(self, include_nested: bool = False, leaves_only: bool = False) -> list[Any]:
        """Return pairs of key and spec.

        Args:
            include_nested: Whether the entries of composites inside are listed too.
            leaves_only: Whether composites themselves are left out.
        """
        return [(key, self[key]) for key in self.keys(include_nested, leaves_only)]

    def values(self, include_nested: bool = False, leaves_only: bool = False) -> list[Any]:
        """Return the specs.

        Args:
            include_nested: Whether the entries of composites inside are listed too.
            leaves_only: Whether composites themselves are left out.
        """
        return [self[key] for key in self.keys(include_nested, leaves_only)]

    def update(self, other: Composite | Mapping[str, Any]) -> Composite:
        """Take over the entries of ``other``, nested ones one by one; returns self."""
        for key, spec in other.items():
            mine = self._specs.get(key)
            if isinstance(mine, Composite) and isinstance(spec, Composite):
                mine.update(spec)
            else:
                self[key] = spec
        return self

    def clone(self) -> Composite:
        new = cast("Composite", super().clone())
        new._specs = {k: None if s is None else s.clone() for k, s in self._specs.items()}
        return new

    def expand(self, *shape: int) -> Composite:
        new = self.clone()
        batch, keep = torch.Size(shape), self.ndim
        new.shape = batch
        new._specs = {
            k: None if s is None else s._with_batch(batch, keep) for k, s in new._specs.items()
        }
        return new

    def to(self, device: torch.device | str | None) -> Composite:
        new = cast("Composite", super().to(device))
        new._specs = {k: None if s is None else s.to(device) for k, s in self._specs.items()}
        return new

    def problem(self, value: Any) -> str | None:
        if not is_tensor_collection(value):
            return f"a tensordict was expected, not {type(value).__name__}"
        if not shape_fits(value.batch_size[: self.ndim], self.shape):
            return f"batch size {tuple(self.shape)} was expected, not {tuple(value.batch_size)}"
        for key, spec in self._specs.items():
            if spec is None:
                continue
            entry = _entry(value, key)
            if entry is None:
                return f"there is nothing under {key!r}"
            problem = spec.problem(entry)
            if problem is not None:
                return f"{key!r}: {problem}"
        return None

    def _make(self, method: str) -> Any:
        size = [0 if s == -1 else s for s in self.shape]
        made = TensorDict(
            {k: getattr(s, method)() for k, s in self._specs.items() if s is not None},
            batch_size=size,
            device=self.device,
        )
        return made if self.data_cls is None else self.data_cls.from_tensordict(made)  # type: ignore[attr-defined]

    def zero(self) -> Any:
        return self._make("zero")

    def rand(self) -> Any:
        return self._make("rand")

    def __repr__(self) -> str:
        inner = ", ".join(f"{key}: {spec!r}" for key, spec in self._specs.items())
        return f"Composite({{{inner}}}, shape={tuple(self.shape)})"


def _entry(value: Any, key: str) -> Any:
    """Return what stands under ``key``, a ragged batch as the list of its rows; None if absent."""
    data = value if isinstance(value, TensorDictBase) else value._tensordict
    if not has_key(data, key):
        return None
    if isinstance(data, LazyStackedTensorDict):
        rows = cast("Any", data).get(key, as_list=True)
        if isinstance(rows, list) and all(isinstance(row, torch.Tensor) for row in rows):
            same = len({row.shape for row in rows}) == 1
            return torch.stack(rows) if same else rows
    return value.get(key)
