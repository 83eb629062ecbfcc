"""Where the rows of a data set come from: JSON lines, Parquet, Arrow, or a Hugging Face data set.

A source hands out blocks of rows, one after another, and never holds more than one: reading is cheap and stays with
the process that hands out the work, decoding is done where a block is used. Which rows are in which block depends on
the input alone, so a run that goes on finds the same blocks again. Rows count from 0, blank lines left out, as in the
data set that `datasets` makes of the same files.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from antiphon.conversations.chats import _ROW_KEYS
from antiphon.data.conversations import is_conversation
from antiphon.errors import InvalidData, InvalidParameter, OutputError, reason_of

_LINES = (".jsonl", ".ndjson", ".jsonl.gz")
_SUFFIXES = (*_LINES, ".json", ".parquet", ".arrow")
COLUMNS = (
    *_ROW_KEYS,
    "prompt",
    "completion",
    "tools",
    "functions",
    "system",
    "chat_template_kwargs",
)
_BLOCK_BYTES = 64 * 2**20


class Block(NamedTuple):
    """Rows ``first`` and following, not decoded yet.

    ``kind`` says what ``payload`` is: lines of JSON, values, or one Arrow stream. ``weight`` is the block's part of
    the source's ``total``.
    """

    number: int
    first: int
    size: int
    kind: Literal["lines", "values", "arrow"]
    payload: Any
    weight: int


@dataclass(frozen=True)
class RowSource:
    """The rows of a data set.

    Attributes:
        name: What to call it.
        identity: A digest of what it holds, as far as that can be told cheaply; another input gives another one.
        padded: Whether rows come from Arrow, which fills missing keys with None.
        total: How much there is, in bytes or rows; None where that is not known.
        parts: Makes the blocks' contents: (kind, payload, count, weight), given the rows of a block.
    """

    name: str
    identity: str
    padded: bool
    total: int | None
    parts: Callable[[int], Iterator[tuple[Any, Any, int, int]]]

    def blocks(self, rows: int) -> Iterator[Block]:
        """Yield all rows in blocks of at most ``rows``.

        Raises:
            InvalidData: A file can't be read, or has no column with conversations.
            OSError: A file can't be opened.
        """
        first = 0
        for number, (kind, payload, count, weight) in enumerate(self.parts(rows)):
            yield Block(number, first, count, kind, payload, weight)
            first += count


def rows_of(block: Block) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a block with their numbers; a line that is no JSON is an `InvalidData` in the row's place."""
    if block.kind == "arrow":
        import pyarrow as pa

        with pa.ipc.open_stream(block.payload) as stream:
            number = block.first
            for batch in stream:
                for value in batch.to_pylist():
                    yield number, value
                    number += 1
        return
    for number, item in enumerate(block.payload, block.first):
        if block.kind == "values":
            yield number, item
            continue
        try:
            value = json.loads(item)
        except (ValueError, RecursionError) as error:
            value = InvalidData(f"the line is not JSON ({reason_of(error)})")
        yield number, value


def open_rows(
    name: str | Path,
    *,
    split: str = "train",
    config: str | None = None,
    columns: Sequence[str] | None = COLUMNS,
) -> RowSource:
    """Return the rows of a file, of the files in a folder, of a saved data set, or of one on the hub.

    Args:
        name: A path, or else the name of a data set, which is streamed.
        split: Which split of a data set.
        config: Which configuration of a data set.
        columns: The columns to read of those that are there; None for all.

    Raises:
        InvalidData: There is nothing of that name, or no file of a known kind.
    """
    path = Path(name)
    if path.is_dir():
        if (path / "state.json").exists() or (path / "dataset_dict.json").exists():
            return _saved(path, split, columns)
        files = sorted(
            p
            for p in path.rglob("*")
            if p.name.endswith(_SUFFIXES)
            and not any(part.startswith((".", "_")) for part in p.relative_to(path).parts)
        )
        if not files:
            raise InvalidData(f"{path} holds no file that ends in {', '.join(_SUFFIXES)}.")
        return _files(str(path), files, columns)
    if path.exists():
        if not path.name.endswith(_SUFFIXES):
            raise InvalidData(
                f"{path} ends in none of {', '.join(_SUFFIXES)}, so its form is not known."
            )
        return _files(str(path), [path], columns)
    if (path.suffix and str(name).endswith(_SUFFIXES)) or str(name).count("/") > 1:
        raise InvalidData(f"There is no file {name}.")
    return _hub(str(name), split, config, columns)


def from_values(values: Iterable[Any], name: str = "rows") -> RowSource:
    """Return a source of rows that are at hand, or of an iterable that can be walked more than once."""
    total = len(values) if isinstance(values, Sized) else None
    return RowSource(name, "", False, total, lambda rows: _lists(values, rows))


def from_dataset(
    dataset: Any, name: str | None = None, columns: Sequence[str] | None = COLUMNS
) -> RowSource:
    """Return the rows of a `datasets.Dataset` or `datasets.IterableDataset`."""
    present = getattr(dataset, "column_names", None)
    if present:
        dataset = dataset.select_columns(_wanted(present, columns, name or "the data set"))
    arrow = dataset.with_format("arrow")

    def parts(rows: int) -> Iterator[tuple[Any, Any, int, int]]:
        for table in arrow.iter(batch_size=rows):
            yield "arrow", _ipc(table.to_batches(), table.schema), table.num_rows, table.num_rows

    total = len(dataset) if hasattr(dataset, "__len__") else None
    identity = str(getattr(dataset, "_fingerprint", None) or getattr(dataset, "info", ""))
    return RowSource(name or "the data set", _digest(identity.encode()), True, total, parts)


def _lists(values: Iterable[Any], rows: int) -> Iterator[tuple[Any, Any, int, int]]:
    iterator = iter(values)
    while part := list(itertools.islice(iterator, rows)):
        yield "values", part, len(part), len(part)


def _files(name: str, files: list[Path], columns: Sequence[str] | None) -> RowSource:
    mark = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            size = path.stat().st_size
            mark.update(f"{path.name} {size} ".encode())
            mark.update(file.read(65536))
            file.seek(max(0, size - 65536))
            mark.update(file.read(65536))
    padded = all(path.suffix in (".parquet", ".arrow") for path in files)
    total = sum(path.stat().st_size for path in files)

    def parts(rows: int) -> Iterator[tuple[Any, Any, int, int]]:
        for path in files:
            if path.suffix == ".parquet":
                yield from _parquet(path, rows, columns)
            elif path.suffix == ".arrow":
                yield from _arrow(path, rows, columns)
            elif path.suffix == ".json":
                yield from _json(path, rows)
            else:
                yield from _lines(path, rows)

    return RowSource(name, mark.hexdigest()[:16], padded, total, parts)


def _lines(path: Path, rows: int) -> Iterator[tuple[Any, Any, int, int]]:
    zipped = path.suffix == ".gz"
    opener: Any = gzip.open if zipped else open
    lines: list[bytes] = []
    size = 0
    with opener(path, "rb") as file:
        for line in file:
            size += len(line)
            if line.strip():
                lines.append(line)
            if len(lines) >= rows or size >= _BLOCK_BYTES:
                yield "lines", lines, len(lines), 0 if zipped else size
                lines, size = [], 0
    if lines:
        yield "lines", lines, len(lines), 0 if zipped else size


def _json(path: Path, rows: int) -> Iterator[tuple[Any, Any, int, int]]:
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidData(
            f"{path} is not one JSON value ({reason_of(error)}); JSON lines go in a file that ends in .jsonl."
        ) from error
    if isinstance(values, dict):
        values = [values]
    if not isinstance(values, list) or (values and not isinstance(values[0], (list, dict))):
        raise InvalidData(f"{path} is no JSON list of conversations.")
    if is_conversation(values):
        values = [values]
    share = path.stat().st_size // max(1, len(values))
    for kind, part, count, _ in _lists(values, rows):
        yield kind, part, count, share * count


def _parquet(
    path: Path, rows: int, wanted: Sequence[str] | None
) -> Iterator[tuple[Any, Any, int, int]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            columns = _wanted(file.schema_arrow.names, wanted, str(path))
            share = path.stat().st_size // max(1, file.metadata.num_rows)
            for batch in file.iter_batches(batch_size=rows, columns=columns):
                yield "arrow", _ipc([batch], batch.schema), batch.num_rows, share * batch.num_rows
    except (pa.ArrowException, OSError) as error:  # of broken pages pyarrow says OSError
        raise InvalidData(f"{path} can't be read as Parquet: {reason_of(error)}.") from error


def _arrow(
    path: Path, rows: int, wanted: Sequence[str] | None
) -> Iterator[tuple[Any, Any, int, int]]:
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as mapped:
            try:
                reader = pa.ipc.open_stream(mapped)
                batches: Iterator[Any] = iter(reader)
            except pa.ArrowInvalid:
                mapped.seek(0)
                file = pa.ipc.open_file(mapped)
                batches = (file.get_batch(i) for i in range(file.num_record_batches))
                reader = file
            columns = _wanted(reader.schema.names, wanted, str(path))
            for batch in batches:
                chosen = batch.select(columns)
                for start in range(0, chosen.num_rows, rows):
                    part = chosen.slice(start, rows)
                    yield "arrow", _ipc([part], part.schema), part.num_rows, part.nbytes
    except (pa.ArrowException, OSError) as error:  # of a broken stream likewise
        raise InvalidData(f"{path} can't be read as Arrow: {reason_of(error)}.") from error


def _saved(path: Path, split: str, columns: Sequence[str] | None) -> RowSource:
    found = _datasets(str(path)).load_from_disk(str(path))
    if isinstance(found, dict):
        if split not in found:
            raise InvalidParameter(
                f"{path} has no split {split!r}; it has {', '.join(sorted(found))}."
            )
        found = found[split]
    return from_dataset(found, str(path), columns)


def _hub(name: str, split: str, config: str | None, columns: Sequence[str] | None) -> RowSource:
    try:
        found = _datasets(name).load_dataset(name, config, split=split, streaming=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise InvalidData(
            f"{name} is no file, and no data set of that name could be opened: {reason_of(error)}."
        ) from error
    source = from_dataset(found, name, columns)
    return RowSource(
        name, _digest(f"{name} {config} {split}".encode()), True, source.total, source.parts
    )


def _datasets(name: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise OutputError(
            f"{name} is read with the datasets package: run `pip install antiphon[data]`."
        ) from error
    return datasets


def _wanted(present: Iterable[str], columns: Sequence[str] | None, name: str) -> list[str]:
    names = list(present)
    if columns is None:
        return names
    wanted = [column for column in names if column in columns]
    if not any(column in (*_ROW_KEYS, "prompt") for column in wanted):
        raise InvalidData(
            f"{name} has no column with conversations (messages, conversations, prompt, …); its columns are "
            f"{', '.join(names)}."
        )
    return wanted


def _ipc(batches: list[Any], schema: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
