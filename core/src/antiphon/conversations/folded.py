"""Stacks whose members are plain Python values until somebody asks for them.

tensordict keeps a string as a `NonTensorData`, an object of some 700 bytes that takes microseconds to make, and
a message as a tensordict of those. Conversations are mostly read as a whole (rendered, converted, measured),
so the two stacks here hold each message as a dict and each value as itself, and make the tensordict object of
a member when it is touched: *unfold* it. From then on that object is the member, so writing into it is seen
by everybody who holds the stack, as in any lazy stack. What isn't overridden here unfolds all members and
goes the ordinary way of `LazyStackedTensorDict`.

A folded dict is never written to: copies share it.
"""

# mypy: disable-error-code="attr-defined,override,misc,no-any-return,unused-ignore,unreachable,no-untyped-call"
# What is overridden here is partly untyped in tensordict, partly declared as an attribute where it is a property.

from __future__ import annotations

import copy
from collections.abc import Iterable, KeysView, Mapping, Sequence
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict
from tensordict.base import _NESTED_TENSORS_AS_LISTS, NO_DEFAULT, _register_tensor_class
from tensordict.utils import LinkedList

_EMPTY = torch.Size([])
# The types whose values a deep copy may share.
_IMMUTABLE = (str, bool, int, float, type(None))


def _blank_state(cls: type) -> dict[str, Any]:
    """What the constructor of this tensordict version sets on an empty stack, less members and size."""
    state = dict(LazyStackedTensorDict(batch_size=_EMPTY).__dict__)
    for name in ("tensordicts", "_batch_size", "_device"):
        state.pop(name, None)
    return state


def non_tensor(value: Any, device: torch.device | None = None) -> NonTensorData:
    """`value` as one non-tensor entry; a list stays one value whatever list_to_stack says."""
    return NonTensorData(data=value, batch_size=_EMPTY, device=device)


def unfolded_message(fields: Mapping[str, Any], device: torch.device | None = None) -> TensorDict:
    """The tensordict of one message, []."""
    return TensorDict(
        {field: non_tensor(value, device) for field, value in fields.items()},
        batch_size=_EMPTY,
        device=device,
    )


def _copied(value: Any) -> Any:
    return value if isinstance(value, _IMMUTABLE) else copy.deepcopy(value)


class _Folded(LazyStackedTensorDict):
    """What both stacks share: cells that are folded values or unfolded members."""

    _cells: list[Any]
    _blank: dict[str, Any] = {}  # noqa: RUF012 (one per class, filled once)

    @classmethod
    def fold(cls, cells: list[Any], device: torch.device | None = None) -> Any:
        """A stack over `cells`, which it keeps (no copy), of batch size [len(cells)]."""
        if not cls.__dict__.get("_blank"):
            cls._blank = _blank_state(cls)
        self = cls.__new__(cls)
        state = self.__dict__
        state.update(cls._blank)
        state["_cells"] = cells
        state["_batch_size"] = torch.Size((len(cells),))
        state["_device"] = device
        return self

    # What the kinds of cells differ in: each subclass says.

    @staticmethod
    def _is_folded(cell: Any) -> bool:
        raise NotImplementedError

    @classmethod
    def _folded_only(cls, cells: list[Any]) -> bool:
        return all(map(cls._is_folded, cells))

    def _unfolded(self, cell: Any) -> Any:
        raise NotImplementedError

    def _fresh_copy(self, cell: Any, recurse: bool) -> Any:
        raise NotImplementedError

    # LazyStackedTensorDict keeps its members in this attribute and reads it everywhere.
    @property
    def tensordicts(self) -> list[Any]:
        cells = self._cells
        is_folded = self._is_folded
        for i, cell in enumerate(cells):
            if is_folded(cell):
                cells[i] = self._unfolded(cell)
        return cells

    @tensordicts.setter
    def tensordicts(self, members: Iterable[Any]) -> None:
        self._cells = members if type(members) is list else list(members)

    @property
    def _all_folded(self) -> bool:
        """Whether the fast paths hold: nothing was unfolded, and the stack was not reshaped."""
        return self.stack_dim == 0 and self._folded_only(self._cells)

    @property
    def folded_cells(self) -> list[Any] | None:
        """The cells if all are folded (not to be written to), else None."""
        return self._cells if self._all_folded else None

    @property
    def device(self) -> torch.device | None:
        if self._all_folded:
            return self._device
        return LazyStackedTensorDict.device.fget(self)

    @device.setter
    def device(self, value: Any) -> None:
        if self._all_folded:
            self._device = None if value is None else torch.device(value)
        else:
            LazyStackedTensorDict.device.fset(self, value)

    def clear_device_(self) -> Any:
        if self._all_folded:
            self._device = None
            return self
        return super().clear_device_()

    @property
    def is_locked(self) -> bool:
        if self._is_locked is None and self._all_folded:
            return False
        return LazyStackedTensorDict.is_locked.fget(self)

    @is_locked.setter
    def is_locked(self, value: bool) -> None:
        if value:
            self.lock_()
        else:
            self.unlock_()

    @property
    def _is_shared(self) -> bool:
        return not self._all_folded and LazyStackedTensorDict._is_shared.fget(self)

    @property
    def _is_memmap(self) -> bool:
        return not self._all_folded and LazyStackedTensorDict._is_memmap.fget(self)

    def _has_names(self) -> bool:
        return False if self._all_folded else bool(super()._has_names())

    def _clone(self, recurse: bool = True) -> Any:
        if not self._all_folded:
            return super()._clone(recurse=recurse)
        return self.fold([self._fresh_copy(c, recurse) for c in self._cells], self._device)

    def __getitem__(self, index: Any) -> Any:
        if type(index) is tuple and len(index) == 1:
            index = index[0]
        if self.stack_dim == 0 and len(self._batch_size) == 1:
            if type(index) is int:
                cell = self._cells[index]
                if self._is_folded(cell):
                    cell = self._cells[index] = self._unfolded(cell)
                return cell
            if type(index) is slice and self._all_folded:
                return self.fold(self._cells[index], self._device)
        return super().__getitem__(index)

    def _apply_nest(self, fn: Any, *others: Any, **kwargs: Any) -> Any:
        """What `to`, `apply`, `detach` and the like end in: nothing here is a tensor, so only the device counts."""
        plain = (
            self._all_folded
            and not others
            and not kwargs.get("call_on_nested")
            and kwargs.get("is_leaf") in (None, _NESTED_TENSORS_AS_LISTS)
            and not any(kwargs.get(name) for name in ("out", "batch_size"))
        )
        if not plain:
            return super()._apply_nest(fn, *others, **kwargs)
        if kwargs.get("inplace"):
            return self
        device = kwargs.get("device", NO_DEFAULT)
        return self.fold(list(self._cells), self._device if device is NO_DEFAULT else device)


class FoldedMessages(_Folded):
    """The messages of one conversation, [messages], each a dict {field: value} or a tensordict.

    Every folded message has the same fields (see `with_equal_fields`), so a field is listed by `keys` before
    and after unfolding alike. A conversation without messages has the fields that its batch has.
    """

    _empty_fields: tuple[str, ...] = ("content", "is_complete", "role")

    @property
    def folded_fields(self) -> KeysView[str] | None:
        """The fields of the messages if all are folded, else None."""
        if not self._all_folded:
            return None
        return (self._cells[0] if self._cells else dict.fromkeys(self._empty_fields)).keys()

    @classmethod
    def empty_with(
        cls, fields: Iterable[str], device: torch.device | None = None
    ) -> FoldedMessages:
        """No messages, with these fields."""
        self: FoldedMessages = cls.fold([], device)
        self._empty_fields = tuple(fields)
        return self

    @staticmethod
    def _is_folded(cell: Any) -> bool:
        return type(cell) is dict

    @classmethod
    def _folded_only(cls, cells: list[Any]) -> bool:
        return set(map(type, cells)) <= {dict}

    def _unfolded(self, cell: dict[str, Any]) -> TensorDict:
        return unfolded_message(cell, self._device)

    def _fresh_copy(self, cell: dict[str, Any], recurse: bool) -> dict[str, Any]:
        if recurse and not all(isinstance(value, _IMMUTABLE) for value in cell.values()):
            return {field: _copied(value) for field, value in cell.items()}
        return cell

    def _key_list(self) -> list[str]:
        fields = self.folded_fields
        if fields is not None:
            return sorted(fields)
        keys: list[str] = super()._key_list()
        return keys

    def _get_str(self, key: str, default: Any = None, **kwargs: Any) -> Any:
        fields = self.folded_fields
        if fields is not None and key in fields:
            return FoldedValues.fold([cell[key] for cell in self._cells], self._device)
        return super()._get_str(key, default, **kwargs)


class FoldedValues(_Folded, NonTensorStack):
    """One field of a conversation, [messages]: a `NonTensorStack` over plain values."""

    @staticmethod
    def _is_folded(cell: Any) -> bool:
        return not isinstance(cell, (NonTensorData, NonTensorStack))

    def _unfolded(self, cell: Any) -> NonTensorData:
        return non_tensor(cell, self._device)

    def _fresh_copy(self, cell: Any, recurse: bool) -> Any:
        return _copied(cell) if recurse else cell

    def tolist(self, *, as_linked_list: bool = False, **kwargs: Any) -> Any:
        if self._all_folded:
            values = list(self._cells)
            return LinkedList(values, td=self) if as_linked_list else values
        return super().tolist(as_linked_list=as_linked_list, **kwargs)


# So that load_memmap finds the class by the name that memmap wrote.
_register_tensor_class(FoldedMessages)
_register_tensor_class(FoldedValues)


def with_equal_fields(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with None for a field that only others have."""
    if not cells:
        return []
    first = cells[0].keys()
    if all(cell.keys() == first for cell in cells):
        return list(cells)
    fields = dict.fromkeys(field for cell in cells for field in cell)
    return [{field: cell.get(field) for field in fields} for cell in cells]
