"""Reading the rows that a task asks about from a file, each fault named by its row.

A row is one JSON object a line, or a row of a Parquet table; what it must have, the task says.
Further fields are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.errors import InvalidData, reason_of

if TYPE_CHECKING:
    from antiphon.envs.tasks import Task

Row = dict[str, Any]


def read_rows(path: Path, task: Task) -> list[Row]:
    """Return the rows of a file for a task to ask about.

    Args:
        path: A ``.parquet`` file, or anything else as JSON lines. Empty lines are passed over.
        task: Says what a row must have.

    Raises:
        InvalidData: The file can't be read or a row is faulty; rows are counted from 1, as lines
            are in an editor.
    """
    rows: list[Row] = []
    faults: list[tuple[int, str]] = []
    for number, row in numbered_rows(path):
        fault = row if isinstance(row, str) else task.row_fault(row)
        if fault is None:
            rows.append(dict(row))  # type: ignore[arg-type]
        else:
            faults.append((number, fault))
    if faults:
        number, fault = faults[0]
        others = ", ".join(str(n) for n, _ in faults[1:6])
        also = (
            f"row{'s' if len(faults) > 2 else ''} {others}{' and more' if len(faults) > 6 else ''}"
        )
        more = f" ({also} too)" if others else ""
        raise InvalidData(
            f"Row {number} of {path} {fault}{more}; each row must be {task.row_form}."
        )
    if not rows:
        raise InvalidData(f"{path} holds no rows; give a file with at least one problem.")
    return rows


def numbered_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    """Yield each row with its number, or what is wrong with it."""
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, _parsed(line)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidData(
            f"The data file {path} can't be read: {reason}; check the path given to --data."
        ) from error


def _parsed(line: bytes) -> Mapping[str, Any] | str:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return f"is not UTF-8 (byte {error.start})"
    except RecursionError:
        return "is nested too deep"
    except ValueError as error:
        return f"is not valid JSON ({error})"
    return row if isinstance(row, dict) else f"is {_kind(row)}, not an object"


def _parquet_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InvalidData(
            f"Reading {path} needs pyarrow, which is not installed; run "
            "`pip install antiphon[data]`."
        ) from error
    try:
        with pq.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=1024):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (OSError, pa.ArrowException) as error:
        raise InvalidData(
            f"The data file {path} can't be read as Parquet: {reason_of(error)}; check the path given to "
            "--data."
        ) from error


def text_fault(row: Mapping[str, Any], key: str) -> str | None:
    """Return why a field is no text, in words, or None where it is."""
    if key not in row:
        return f"has no field {key!r}{_near(row)}"
    value = row[key]
    if not isinstance(value, str):
        return f"has {_kind(value)} in {key!r}, not text"
    return None if value.strip() else f"has an empty {key!r}"


def question_fault(row: Mapping[str, Any], key: str) -> str | None:
    """Return why a field is neither text nor a conversation's messages, or None where it is."""
    value = row.get(key)
    if isinstance(value, list) and value:
        strange = any(not isinstance(each, Mapping) or not each.get("role") for each in value)
        return f"has something without a role among the messages in {key!r}" if strange else None
    return text_fault(row, key)


def _near(row: Mapping[str, Any]) -> str:
    keys: Sequence[str] = sorted(map(str, row))
    return f" (it has {', '.join(map(repr, keys[:6]))})" if keys else " (it is empty)"


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    if value is None:
        return "null"
    return names.get(type(value), "a number")
