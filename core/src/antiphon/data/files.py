"""Readers of files: JSON lines, JSON, Parquet and Arrow, in parts of some rows and of some megabytes at most.

Each reader yields what a block of rows holds, not decoded yet: (kind, payload, count, weight), where kind and payload
are those of `antiphon.data.sources.Block` and weight counts bytes of the file. No reader holds more of a file than it
yields, however large the file, its row groups or its record batches are.
"""

from __future__ import annotations

import codecs
import gzip
import json
import mmap
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from antiphon.conversations.dataset_rows import ROW_KEYS, other_kind
from antiphon.data.conversations import is_conversation
from antiphon.errors import InvalidData, reason_of

Part = tuple[Any, Any, int, int]

SUFFIXES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz", ".parquet", ".arrow")  # fmt: skip
BLOCK_BYTES = 8 * 2**20
_READ_AT_ONCE = 2**20
_ROWS_AT_ONCE = 64  # of Arrow's, as Python objects
_EXTENSION = b"ARROW:extension:name"
_BLANKS = " \t\r\n"


def is_data_file(path: Path) -> bool:
    """Whether a file's name says that it is of a kind that can be read."""
    return path.name.lower().endswith(SUFFIXES)


def read_parts(path: Path, rows: int, columns: Sequence[str] | None) -> Iterator[Part]:
    """Yield a file's rows, at most ``rows`` at a time.

    Raises:
        InvalidData: The file can't be read, or has no column with conversations.
        OSError: It can't be opened.
    """
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".parquet"):
        return _parquet(path, rows, columns)
    if name.endswith(".arrow"):
        return _arrow(path, rows, columns)
    return _text(path, rows, whole=name.endswith(".json"))


def wanted_columns(present: Iterable[str], columns: Sequence[str] | None, name: str) -> list[str]:
    """Return which of the columns that are there are to be read.

    Raises:
        InvalidData: None of them holds conversations.
    """
    names = list(present)
    if columns is None:
        return names
    wanted = [column for column in names if column in columns]
    other = None if "chosen" in wanted or any(k in names for k in ROW_KEYS) else other_kind(names)
    if other:
        raise InvalidData(f"{name} {other}.")
    if not any(column in (*ROW_KEYS, "prompt", "chosen") for column in wanted):
        raise InvalidData(
            f"{name} has no column with conversations (messages, conversations, prompt, …); its columns are "
            f"{', '.join(names)}."
        )
    return wanted


def arrow_parts(batch: Any, rows: int) -> Iterator[tuple[bytes, Any]]:
    """Yield slices of a record batch, of a few megabytes at most, each as a stream and as it is."""
    start = 0
    while start < batch.num_rows:
        part = batch.slice(start, rows)
        while part.nbytes > BLOCK_BYTES and part.num_rows > 1:
            part = part.slice(0, part.num_rows // 2)
        yield _stream(part), part
        start += part.num_rows


# JSON


def _text(path: Path, rows: int, *, whole: bool) -> Iterator[Part]:
    """Read lines of JSON, or a file of ``whole`` JSON values; either may be packed by gzip."""
    kind = "values" if whole else "lines"
    items: list[Any] = []
    size = 0
    zipped = path.suffix.lower() == ".gz"
    with path.open("rb") as file, gzip.open(file) if zipped else nullcontext(file) as unpacked:
        told = 0

        def part() -> Part:
            nonlocal told
            before, told = told, file.tell()
            return kind, items, len(items), told - before

        try:
            for item, length in _values(path, unpacked) if whole else _lines(unpacked):
                items.append(item)
                size += length
                if len(items) >= rows or size >= BLOCK_BYTES:
                    yield part()
                    items, size = [], 0
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InvalidData(f"{path} can't be read as gzip: {reason_of(error)}.") from error
        if items:
            yield part()


def _lines(file: Any) -> Iterator[tuple[bytes, int]]:
    for line in file:
        if line.strip():
            yield line, len(line)


def _values(path: Path, file: Any) -> Iterator[tuple[Any, int]]:
    """Yield the rows of a JSON file, and how long each is: the items of a list, or values one after another.

    A list whose first item is a message is one conversation.
    """
    found = _decoded(path, file)
    first = next(found, None)
    if first is None:
        return
    value, length, in_list = first
    if not isinstance(value, (list, dict)):
        raise InvalidData(f"{path} holds no conversations, but {json.dumps(value)[:40]}.")
    if in_list and is_conversation([value]):
        values = [value, *(item for item, _, _ in found)]
        yield values, length * len(values)
        return
    yield value, length
    for value, length, _ in found:
        yield value, length


def _decoded(path: Path, file: Any) -> Iterator[tuple[Any, int, bool]]:
    """Yield values with their lengths and whether they are items of one list; only a part of the text is held."""
    decoder = json.JSONDecoder()
    text = _Text(path, file)
    in_list = text.next() == "["
    if in_list:
        text.at += 1
    count = 0
    while True:
        character = text.next()
        if in_list and character == "]":
            text.at += 1
            if text.next():
                raise text.error("more follows the list", count)
            return
        if in_list and count and character == ",":
            text.at += 1
            character = text.next()
        elif in_list and count and character:
            raise text.error("the list lacks a comma or its end", count)
        if not character:
            if in_list or not count:
                raise text.error("the end is missing" if in_list else "the file is empty", count)
            return
        while True:
            try:
                value, end = decoder.raw_decode(text.held, text.at)
            except json.JSONDecodeError as error:
                if text.more():
                    continue
                text.at = error.pos
                raise text.error(error.msg, count) from error
            except RecursionError as error:
                raise text.error("it is nested too deeply", count) from error
            if end == len(text.held) and text.more():
                continue  # a number may go on
            break
        yield value, end - text.at, in_list
        text.at = end
        count += 1


class _Text:
    """A text that is read as it is needed: ``held`` from position ``at`` on is still to be decoded."""

    def __init__(self, path: Path, file: Any) -> None:
        self._path = path
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._gone = 0
        self.held = ""
        self.at = 0

    def more(self) -> bool:
        """Read on, twice what is held: a long value is not decoded again too often."""
        left = self.held[self.at :]
        try:
            data = self._file.read(max(_READ_AT_ONCE, len(left)))
            read = self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise InvalidData(f"{self._path} is not UTF-8 text ({error}).") from error
        self._gone += self.at
        self.held, self.at = left + read, 0
        return bool(data)

    def next(self) -> str:
        """Return the next character that is not blank, "" at the end."""
        while True:
            while self.at < len(self.held):
                if self.held[self.at] not in _BLANKS:
                    return self.held[self.at]
                self.at += 1
            if not self.more():
                return ""

    def error(self, reason: str, count: int) -> InvalidData:
        where = f"character {self._gone + self.at}" + (f", after {count} rows" if count else "")
        return InvalidData(f"{self._path} is not JSON: {reason} ({where}).")


# Arrow


def _parquet(path: Path, rows: int, wanted: Sequence[str] | None) -> Iterator[Part]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Buffered, and not ahead, so that a row group, which may be the whole file, is not read at once.
        with pq.ParquetFile(path, buffer_size=_READ_AT_ONCE, pre_buffer=False) as file:
            columns = wanted_columns(file.schema_arrow.names, wanted, str(path))
            count = max(1, file.metadata.num_rows)
            share = path.stat().st_size // count
            at_once = max(1, min(rows, BLOCK_BYTES * count // max(1, _bytes(file.metadata, columns))))  # fmt: skip
            for batch in file.iter_batches(at_once, columns=columns, use_threads=False):
                for data, part in arrow_parts(batch, rows):
                    yield "arrow", data, part.num_rows, share * part.num_rows
    except (pa.ArrowException, OSError) as error:  # of broken pages pyarrow says OSError
        raise InvalidData(f"{path} can't be read as Parquet: {reason_of(error)}.") from error


def _bytes(metadata: Any, columns: Sequence[str]) -> int:
    """How many bytes some columns of a Parquet file have, unpacked."""
    total = 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            if column.path_in_schema.split(".")[0] in columns:
                total += column.total_uncompressed_size
    return total


def _arrow(path: Path, rows: int, wanted: Sequence[str] | None) -> Iterator[Part]:
    import pyarrow as pa

    try:
        with path.open("rb") as file:
            if not path.stat().st_size:
                raise InvalidData(f"{path} can't be read as Arrow: it is empty.")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        buffer = pa.py_buffer(mapped)
        try:
            reader = pa.ipc.open_stream(buffer)
            batches: Iterator[Any] = iter(reader)
        except pa.ArrowInvalid:
            reader = whole = pa.ipc.open_file(buffer)
            batches = (whole.get_batch(i) for i in range(whole.num_record_batches))
        columns = wanted_columns(reader.schema.names, wanted, str(path))
        for batch in batches:
            for data, part in arrow_parts(batch.select(columns), rows):
                yield "arrow", data, part.num_rows, part.nbytes
                if hasattr(mmap, "MADV_DONTNEED"):
                    # What was read would count as this process's memory until the file ends.
                    mapped.madvise(mmap.MADV_DONTNEED)
    except (pa.ArrowException, OSError) as error:  # of a broken stream likewise
        raise InvalidData(f"{path} can't be read as Arrow: {reason_of(error)}.") from error


def arrow_rows(payload: bytes) -> Iterator[dict[str, Any]]:
    """Yield the rows of a stream of Arrow as they were before Arrow took them.

    Arrow gives every dict of a column the same keys, and None to those that are missing: they are left out again. Where
    no common keys were found, `datasets` has stored JSON, which is decoded; its None is meant.
    """
    import pyarrow as pa

    with pa.ipc.open_stream(payload) as stream:
        convert = {field.name: _converter(field) for field in stream.schema}
        for batch in stream:
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                for row in batch.slice(start, _ROWS_AT_ONCE).to_pylist():
                    yield {name: convert[name](value) for name, value in row.items()}


def _converter(field: Any) -> Callable[[Any], Any]:
    """Return what makes of a value of Arrow's, as Python, the value that was stored."""
    import pyarrow as pa

    kind = field.type
    names = (getattr(kind, "extension_name", None), (field.metadata or {}).get(_EXTENSION))
    if "arrow.json" in names or b"arrow.json" in names:
        return _decoded_json
    if pa.types.is_map(kind):
        return lambda value: None if value is None else dict(value)
    if pa.types.is_struct(kind):
        parts = {kind.field(i).name: _converter(kind.field(i)) for i in range(kind.num_fields)}
        return lambda value: (
            None
            if value is None
            else {key: parts[key](item) for key, item in value.items() if item is not None}
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if pa.types.is_primitive(kind.value_type):
            return _same
        inner = _converter(kind.value_field)
        return lambda value: None if value is None else [inner(item) for item in value]
    return _same


def _decoded_json(value: Any) -> Any:
    try:
        return None if value is None else json.loads(value)
    except ValueError:  # somebody else's: told where the row is looked at
        return value


def _same(value: Any) -> Any:
    return value


def _stream(batch: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
