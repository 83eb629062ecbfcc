"""Rows of data sets and files, in batches, epoch after epoch, in an order that a seed settles."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from antiphon.envs.problems import numbered_rows
from antiphon.errors import InvalidData, InvalidParameter

Row = dict[str, Any]
Numbered = tuple[int | None, Any]
_FILES = (".jsonl", ".json", ".ndjson", ".parquet", ".arrow")


class RowLoader:
    """Hands out the rows of a data set in batches, epoch after epoch.

    Args:
        rows: A sequence (or a ``datasets`` data set), or an iterable that can be begun again.
        batch_size: Rows in a batch; the last of an epoch may be smaller.
        shuffle: Draw a new order for each epoch; rows without a length must know ``shuffle(seed=)``.
        seed: Settles the orders.

    Attributes:
        numbers: The places in the data, from 1, of the rows in the last batch; None where a stream
            doesn't tell.
    """

    def __init__(
        self,
        rows: Sequence[Any] | Iterable[Any],
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int | None = None,
    ) -> None:
        if batch_size < 1:
            raise InvalidParameter(f"batch_size must be at least 1, not {batch_size}.")
        self._sized = hasattr(rows, "__getitem__") and hasattr(rows, "__len__")
        if shuffle and not self._sized and not hasattr(rows, "shuffle"):
            raise InvalidParameter(
                "shuffle needs rows that have a length; give a list or a data set, or shuffle=False."
            )
        self.rows = rows
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = int(torch.empty((), dtype=torch.int64).random_(2**31)) if seed is None else seed
        self.epoch = 0
        self.position = 0
        self.numbers: list[int | None] = []

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield the batches that are left of this epoch; afterwards the next one begins."""
        batch: list[Numbered] = []
        for place, numbered in enumerate(self._ordered()):
            if place < self.position:
                continue
            batch.append(numbered)
            if len(batch) == self.batch_size:
                yield self._begun(batch)
                batch = []
        if batch:
            yield self._begun(batch)
        self.epoch += 1
        self.position = 0

    def _begun(self, batch: list[Numbered]) -> list[Any]:
        self.position += len(batch)
        self.numbers = [number for number, _ in batch]
        return [row for _, row in batch]

    def _ordered(self) -> Iterable[Numbered]:
        """Yield the rows of this epoch, each with its place in the data."""
        rows: Any = self.rows
        if self.shuffle and self._sized:
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(len(rows), generator=generator).tolist()
            return ((index + 1, rows[index]) for index in order)
        if self.shuffle:
            # A stream shuffles within a buffer.
            rows = rows.shuffle(seed=self.seed + self.epoch)
        if isinstance(rows, StreamedRows):
            return rows.numbered()
        return ((None if self.shuffle else place, row) for place, row in enumerate(rows, start=1))

    def set_seed(self, seed: int) -> None:
        """Begin anew, in the orders that ``seed`` settles."""
        self.seed, self.epoch, self.position = seed, 0, 0

    def reset(self) -> None:
        """Begin the next epoch, whatever is left of this one."""
        self.epoch += self.position > 0
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        """Return where the reading stands."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on where `state_dict` was called.

        Args:
            state: What `state_dict` gave, perhaps in another process.
        """
        self.seed, self.epoch = int(state["seed"]), int(state["epoch"])
        self.position = int(state["position"])


class StreamedRows:
    """The rows of a JSONL or Parquet file, read while they are used.

    Args:
        path: The file.
        seed: Shuffle within a buffer, in the order that this settles; None keeps the file's order.
        buffer: How many rows the buffer holds.

    Iterating raises `InvalidData` at a row that is broken, and names it.
    """

    def __init__(self, path: Path, *, seed: int | None = None, buffer: int = 1024) -> None:
        self.path, self.seed, self.buffer = path, seed, buffer

    def shuffle(self, seed: int) -> StreamedRows:
        """Return the rows in another order."""
        return StreamedRows(self.path, seed=seed, buffer=self.buffer)

    def __iter__(self) -> Iterator[Row]:
        return (row for _, row in self.numbered())

    def numbered(self) -> Iterator[tuple[int, Row]]:
        """Yield each row with its number, counted from 1 as lines are in an editor."""
        if self.seed is None:
            yield from self._read()
            return
        drawn = random.Random(self.seed)
        held: list[tuple[int, Row]] = []
        for numbered in self._read():
            if len(held) < self.buffer:
                held.append(numbered)
                continue
            index = drawn.randrange(self.buffer)
            chosen, held[index] = held[index], numbered
            yield chosen
        drawn.shuffle(held)
        yield from held

    def _read(self) -> Iterator[tuple[int, Row]]:
        for number, row in numbered_rows(self.path):
            if isinstance(row, str):
                raise InvalidData(
                    f"Row {number} of {self.path} {row}; each row must be a JSON object."
                )
            yield number, dict(row)


def load_rows(
    dataset: Any, *, name: str | None = None, split: str | None = None, streaming: bool = False
) -> Any:
    """Return the rows of a data set.

    Args:
        dataset: Rows as a list or a ``datasets`` object, a JSONL, Parquet or Arrow file, a folder
            that ``datasets`` saved, or a name on the hub.
        name: The configuration of a hub data set.
        split: The split; where there are several and none is named, it is ``"train"``.
        streaming: Read a file or a hub data set while it is used.

    Raises:
        InvalidData: The file or the data set is not there, or a row is broken.
    """
    if isinstance(dataset, Path) or (isinstance(dataset, str) and dataset.endswith(_FILES)):
        path = Path(dataset)
        if path.suffix == ".arrow":
            return _arrow_rows(path)
        return StreamedRows(path) if streaming else _file_rows(path)
    if not isinstance(dataset, str):
        if isinstance(dataset, Mapping):
            return _split(dataset, split)
        return dataset
    datasets = _datasets(dataset)
    try:
        if Path(dataset).is_dir():
            return _split(datasets.load_from_disk(dataset), split)
        return _split(datasets.load_dataset(dataset, name, split=split, streaming=streaming), split)
    except (OSError, ValueError) as error:
        raise InvalidData(f"The data set {dataset!r} can't be loaded: {error}") from error


def _split(dataset: Any, split: str | None) -> Any:
    if not isinstance(dataset, Mapping):
        return dataset
    chosen = split or ("train" if "train" in dataset else next(iter(dataset), None))
    if chosen not in dataset:
        raise InvalidData(
            f"The data set has no split {chosen!r}; it has {', '.join(map(repr, dataset))}."
        )
    return dataset[chosen]


def _datasets(wanted: Any) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise InvalidData(
            f"The data set {str(wanted)!r} needs the package datasets; run "
            "`pip install antiphon[data]`."
        ) from error
    return datasets


def _arrow_rows(path: Path) -> Any:
    datasets = _datasets(path)
    try:
        return datasets.Dataset.from_file(str(path))
    except (OSError, ValueError) as error:
        raise InvalidData(f"The data file {path} can't be read as Arrow: {error}") from error


def _file_rows(path: Path) -> list[Row]:
    rows = [row for _, row in StreamedRows(path).numbered()]
    if not rows:
        raise InvalidData(f"{path} holds no rows; give a file with at least one.")
    return rows
