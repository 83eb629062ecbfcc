"""`DataLoadingPrimer`: the transform that hands out rows to conversations.

Rows come out in the loader's order, each repeated for its group, for ever; where the reading stands
can be saved and restored, so that a run that goes on sees each row once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from antiphon.conversations.fields import nested_entry
from antiphon.envs.composite import Composite
from antiphon.envs.entries import has_key, with_entries
from antiphon.envs.specs import Unbounded
from antiphon.envs.transformed import Transform
from antiphon.errors import EnvError, InvalidData, InvalidParameter

Row = dict[str, Any]
# Entries that mean something else in the tensordict of a conversation.
_RESERVED = frozenset({"history", "tokens", "masks", "log_probs", "next", "done", "reward", "turn"})


class DataLoadingPrimer(Transform):
    """Puts the next rows of a data loader into what an environment is reset from.

    Each row is handed out ``repeats`` times in succession and carries the number of its group as
    ``"group_id"`` (int64), so that advantages are taken over the right answers even where rows are
    equal. When the loader is at its end it begins anew.

    Args:
        dataloader: Yields rows (mappings), batches of rows (lists, tensordicts), or batches as
            mappings of columns if it says a ``batch_size``.
        dataloader_factory: Makes the loader on first use, in place of ``dataloader``.
        primers: The specs of the entries; found from the first row if None.
        stack_method: Makes a tensordict of a list of rows; by default each field becomes an entry.
        repeats: How often each row is handed out; None is once.
        device: Where tensors are put.
        group_repeats: Refuse batches that would split a group.
        batch_size: How many rows a reset takes where nothing else says it.
        data_key: The field that each row must have; None does not look.
        row_fault: Says in words what is wrong with a row, as `Task.row_fault`; None does not look.
    """

    def __init__(
        self,
        dataloader: Iterable[Any] | None = None,
        *,
        dataloader_factory: Callable[[], Iterable[Any]] | None = None,
        primers: Composite | None = None,
        stack_method: Callable[[list[Any]], TensorDictBase] | None = None,
        repeats: int | None = None,
        device: torch.device | str | None = None,
        group_repeats: bool = False,
        batch_size: torch.Size | tuple[int, ...] | int | None = None,
        data_key: str | None = None,
        row_fault: Callable[[Row], str | None] | None = None,
    ) -> None:
        super().__init__()
        if (dataloader is None) == (dataloader_factory is None):
            raise InvalidParameter("Give either dataloader or dataloader_factory.")
        if repeats is not None and repeats < 1:
            raise InvalidParameter(f"repeats must be at least 1, not {repeats}.")
        self._loader = dataloader
        self._factory = dataloader_factory
        self.primers = primers
        self.stack_method = stack_method
        self.repeats = 1 if repeats is None else repeats
        self.device = device
        self.group_repeats = group_repeats
        self.batch_size = (batch_size,) if isinstance(batch_size, int) else batch_size
        self.data_key = data_key
        self.row_fault = row_fault
        self._began: dict[str, Any] | None = None
        self._iterator: Iterator[Any] | None = None
        # Rows that were read and not handed out, each with its number in the data, if that is known.
        self._waiting: list[tuple[Any, int | None]] = []
        self._taken = 0
        self._read = 0  # items since the data was begun
        self._left = 0
        self._group = -1
        self._current: tuple[Any, int | None] = (None, None)
        self._fields: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        # An iterator can't be sent anywhere: a copy begins another one, at the same place.
        place = None if self._iterator is None else self.state_dict()
        return {**self.__dict__, "_iterator": None, "_waiting": [], "_place": place}

    def __setstate__(self, state: dict[str, Any]) -> None:
        place = state.pop("_place")
        self.__dict__.update(state)
        if place is not None:
            self.load_state_dict(place)

    @property
    def dataloader(self) -> Iterable[Any]:
        """The loader, made on first use."""
        if self._loader is None:
            assert self._factory is not None
            self._loader = self._factory()
        return self._loader

    # Rows.

    def _next_row(self) -> tuple[Any, int | None]:
        """Return the next row that is due, a group's rows one after the other."""
        if self._left == 0:
            self._current = self._next_item()
            self._left = self.repeats
            self._group += 1
        self._left -= 1
        return self._current

    def _next_item(self) -> tuple[Any, int | None]:
        for _ in range(2):
            if self._iterator is None:
                self._iterator = iter(self._begin_epoch())
            while not self._waiting:
                # Where the loader stood before this batch, and how much of the batch was used.
                self._began, self._taken = self._loader_state(), 0
                batch = next(self._iterator, None)
                if batch is None:
                    break
                rows = self._rows_of(batch)
                numbers = list(getattr(self.dataloader, "numbers", ()))
                known = len(numbers) == len(rows)
                self._waiting = list(
                    zip(rows, numbers if known else [None] * len(rows), strict=True)
                )
            if self._waiting:
                self._taken += 1
                self._read += 1
                return self._waiting.pop(0)
            self._iterator = None
        if self._read:
            raise InvalidData(
                f"The data loader gave {self._read} rows and can't be begun again; give a list, or a "
                "loader whose iterator starts anew."
            )
        raise InvalidData("The data loader holds no rows; give it at least one.")

    def _begin_epoch(self) -> Iterable[Any]:
        return self.dataloader

    def _loader_state(self) -> dict[str, Any] | None:
        state = getattr(self.dataloader, "state_dict", None)
        return None if state is None else dict(state())

    def _rows_of(self, batch: Any) -> list[Any]:
        if isinstance(batch, TensorDictBase):
            return list(batch.unbind(0)) if batch.batch_dims else [batch]
        if isinstance(batch, Mapping):
            if getattr(self.dataloader, "batch_size", None) is None:
                return [batch]
            columns = {key: list(column) for key, column in batch.items()}
            count = min(map(len, columns.values()), default=0)
            return [{key: column[i] for key, column in columns.items()} for i in range(count)]
        return list(batch)

    def next_rows(self, count: int) -> tuple[list[Any], list[int]]:
        """Return the next ``count`` rows and the number of each one's group.

        Raises:
            EnvError: ``group_repeats`` is set and ``count`` is no multiple of ``repeats``.
            InvalidData: A row lacks the data key, or has a field that is the environment's.
        """
        taken, groups = self.take(count)
        rows = [
            self._checked(
                row, f"Item {group + 1} of the data" if number is None else f"Row {number}"
            )
            for (row, number), group in zip(taken, groups, strict=True)
        ]
        return rows, groups

    def take(self, count: int) -> tuple[list[tuple[Any, int | None]], list[int]]:
        """Return what `next_rows` does, the rows as the loader gives them, with their numbers.

        Raises:
            EnvError: ``count`` is 0, or ``group_repeats`` is set and it is no multiple of ``repeats``.
        """
        if self.group_repeats and (count % self.repeats or self._left):
            raise EnvError(
                f"A reset of {count} rows would split a group of {self.repeats} repeats; choose a "
                "batch size that is a multiple of repeats, or group_repeats=False."
            )
        if count < 1:
            raise EnvError("A reset needs at least one row to start; it was asked for none.")
        rows, groups = [], []
        for _ in range(count):
            rows.append(self._next_row())
            groups.append(self._group)
        return rows, groups

    def _checked(self, row: Any, item: str) -> Any:
        if isinstance(row, TensorDictBase):
            return row
        if not isinstance(row, Mapping):
            raise InvalidData(
                f"{item} is {type(row).__name__}, not a mapping of "
                "fields; use a collate_fn that makes one."
            )
        # The row itself stays as it is: it may be asked for again.
        found = dict(row)
        if "text" in found and "query" not in found:
            found["query"] = found["text"]
        found.pop("text", None)
        taken = sorted(_RESERVED & found.keys())
        if taken:
            raise InvalidData(
                f"{item} has a field {taken[0]!r}, which is an entry of the environment; rename it."
            )
        if self.data_key is not None and found.get(self.data_key) is None:
            raise InvalidData(
                f"{item} has no field {self.data_key!r}; it has "
                f"{', '.join(map(repr, sorted(map(str, found)))) or 'none'}."
            )
        fault = None if self.row_fault is None else self.row_fault(found)
        if fault is not None:
            raise InvalidData(f"{item} {fault}.")
        return found

    # The environment.

    def _reset_env_preprocess(self, tensordict: TensorDictBase | None) -> TensorDictBase:
        size = self._size(tensordict)
        rows, groups = self.next_rows(size)
        made = self._stacked(rows)
        made.set("group_id", torch.tensor(groups, dtype=torch.int64, device=self.device))
        self._fields.update(made.keys())
        if tensordict is None:
            return made
        # A row that starts again keeps nothing of the data row before.
        return with_entries(made, tensordict, self._fields)

    def _size(self, tensordict: TensorDictBase | None) -> int:
        parent = self.parent
        size: Any = None if parent is None else parent.batch_size
        if tensordict is not None and tensordict.batch_dims:
            size = tensordict.batch_size
        elif self.batch_size is not None:
            size = self.batch_size
        if size is None or len(size) != 1:
            raise EnvError(
                "DataLoadingPrimer fills batches of one dimension; give it batch_size, or an "
                "environment that has one."
            )
        return int(size[0])

    def _stacked(self, rows: list[Any]) -> TensorDictBase:
        if self.stack_method is not None:
            return self.stack_method(rows)
        if all(isinstance(row, TensorDictBase) for row in rows):
            from tensordict import lazy_stack

            stacked: TensorDictBase = lazy_stack(rows)
            return stacked
        keys = list(dict.fromkeys(key for row in rows for key in row))
        made = TensorDict(batch_size=(len(rows),), device=self.device)
        for key in keys:
            values = [row.get(key) for row in rows]
            tensors = all(isinstance(value, torch.Tensor) for value in values)
            if tensors and len({value.shape for value in values}) == 1:
                made.set(key, torch.stack(values))
            else:
                made.set(key, nested_entry(values, 1))
        return made

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        """Carry the group and the primers' entries over: they hold for the whole conversation."""
        primers: list[str] = [] if self.primers is None else self.primers.keys()
        for key in ("group_id", *primers):
            if has_key(tensordict, key) and not has_key(next_tensordict, key):
                next_tensordict.set(key, tensordict.get(key))
        return next_tensordict

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        size = observation_spec.shape
        observation_spec["group_id"] = Unbounded(size, dtype=torch.int64)
        if self.primers is not None:
            observation_spec.update(self.primers)
        return observation_spec

    def transform_state_spec(self, state_spec: Composite) -> Composite:
        # A reset needs nothing from outside: its rows come from the loader.
        return Composite(shape=state_spec.shape)

    def set_seed(self, seed: int | None) -> None:
        """Begin the data anew in the order that a seed settles, where the loader knows of seeds."""
        settle = getattr(self.dataloader, "set_seed", None)
        if seed is not None and settle is not None:
            settle(seed)
            self.reset_dataloader()

    def reset_dataloader(self) -> None:
        """Begin the data anew, with a new epoch where the loader counts them."""
        begin = getattr(self.dataloader, "reset", None)
        if begin is not None:
            begin()
        self._iterator = None
        self._waiting, self._left, self._current = [], 0, (None, None)
        self._read = 0

    def state_dict(self) -> dict[str, Any]:
        """Return where the data stands: the loader's own state and what was taken since.

        A loader without a state is read again up to this place, which is right where it yields the
        same each time.
        """
        return {
            "loader": self._began,
            "taken": self._taken,
            "read": self._read,
            "left": self._left,
            "group": self._group,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called, in the middle of a group if need be.

        Args:
            state: What `state_dict` gave, perhaps in another process.
        """
        self._iterator, self._waiting = None, []
        restore = getattr(self.dataloader, "load_state_dict", None)
        groups = int(state["group"]) + 1
        if restore is not None and state["loader"] is not None:
            restore(state["loader"])
            skip = int(state["taken"])
        else:
            skip = int(state["read"])
        self._current = (None, None)
        for _ in range(skip):
            self._current = self._next_item()
        self._read = int(state["read"])
        self._left, self._group = int(state["left"]), groups - 1
