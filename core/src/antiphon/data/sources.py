"""Where the rows of a data set come from: JSON lines, Parquet, Arrow, or a Hugging Face data set.

A source hands out blocks of rows, one after another, and never holds more than one: reading is cheap and stays with
the process that hands out the work, decoding is done where a block is used. Which rows are in which block depends on
the input alone, so a run that goes on finds the same blocks again. Rows count from 0, blank lines left out, as in the
data set that `datasets` makes of the same files.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from antiphon.conversations.arguments import items, of_kind, said, short, whole
from antiphon.conversations.dataset_rows import ROW_KEYS
from antiphon.data.files import (
    SUFFIXES,
    arrow_parts,
    arrow_rows,
    is_data_file,
    read_parts,
    wanted_columns,
)
from antiphon.errors import InvalidData, InvalidParameter, OutputError, reason_of

COLUMNS = (
    *ROW_KEYS,
    "prompt",
    "completion",
    "tools",
    "functions",
    "system",
    "system_prompt",
    "chat_template_kwargs",
)
# Splits as the names of files and folders tell them.
_SPLITS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
}
_SHARD_OF = re.compile(r"(?:.*/)?([^/]+)-\d{5}-of-\d{5}\.[^/]+")


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
        total: How much there is, in bytes or rows; None where that is not known.
        parts: Makes the blocks' contents: (kind, payload, count, weight), given the rows of a block.
    """

    name: str
    identity: str
    total: int | None
    parts: Callable[[int], Iterator[tuple[Any, Any, int, int]]]

    def blocks(self, rows: int) -> Iterator[Block]:
        """Yield all rows in blocks of at most ``rows``.

        Raises:
            InvalidData: A file can't be read, or has no column with conversations.
            OSError: A file can't be opened.
            InvalidParameter: ``rows`` is less than 1.
        """
        first = 0
        _check_rows(rows)
        for number, (kind, payload, count, weight) in enumerate(self.parts(rows)):
            yield Block(number, first, count, kind, payload, weight)
            first += count


def _check_rows(rows: Any) -> None:
    if not 1 <= whole("rows", rows) < 2**31:
        raise InvalidParameter(
            f"The rows of a block are 1 or more, and no more than 31 bits tell, not {rows}."
        )


def rows_of(block: Block) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a block with their numbers; a line that is no JSON is an `InvalidData` in the row's place."""
    values: Iterable[Any] = block.payload
    if block.kind == "arrow":
        values = arrow_rows(block.payload)
    elif block.kind == "lines":
        values = map(_line, block.payload)
    return enumerate(values, block.first)


def bytes_of(block: Block) -> int:
    """How many bytes the payload of a block has, about; 0 where that is not known."""
    if block.kind == "arrow":
        return len(block.payload)
    return sum(map(len, block.payload)) if block.kind == "lines" else 0


def _line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return InvalidData(f"the line is not JSON ({reason_of(error)})")


def open_rows(
    name: str | Path,
    *more: str | Path,
    split: str | None = None,
    config: str | None = None,
    columns: Sequence[str] | None = COLUMNS,
) -> RowSource:
    """Return the rows of files, of the files in a folder, of a saved data set, or of one on the hub.

    Args:
        name: A path, a pattern of paths, or else the name of a data set, which is streamed.
        *more: Further paths or patterns of files.
        split: Which split; a data set's "train" where none is named. In folders the names of files tell.
        config: Which configuration of a data set on the hub.
        columns: The columns to read of those that are there; None for all.

    Raises:
        InvalidData: There is nothing of that name, or no file of a known kind.
        InvalidParameter: There is no such split or configuration, or a folder has several splits and none is named.
    """
    for each in (name, *more):
        of_kind("the name of a data set", each, (str, Path), "a path or a name")
        _check_name(each)
    for what, value in (("split", split), ("config", config)):
        of_kind(what, value, (str, type(None)), "a name")
    if columns is not None:
        of_kind("columns", columns, Collection, "names of columns")
    path = Path(name)
    if not more and path.is_dir():
        if (path / "state.json").exists() or (path / "dataset_dict.json").exists():
            _refuse_config(name, config)
            return _saved(path, split, columns)
    elif not more and not _files_of(name) and not _is_path(str(name)):
        return _hub(str(name), split or "train", config, columns)
    _refuse_config(name, config)
    files: list[tuple[Path, str]] = []
    for each in (name, *more):
        found = _files_of(each)
        if not found:
            raise InvalidData(
                f"{each} holds no file that ends in {', '.join(SUFFIXES)}."
                if Path(each).is_dir()
                else f"There is no file {each}."
            )
        files += found
    chosen = _of_split(files, split, str(name))
    told = str(name) if not more else f"{name} and {len(more)} more"
    return _files(told, chosen, columns)


def _check_name(name: str | Path) -> None:
    try:
        Path(name).exists()
    except (OSError, ValueError) as error:  # too long, or of characters that no name has
        raise InvalidData(
            f"{short(str(name))} is no name of a file: {reason_of(error, 60)}."
        ) from error


def _is_path(name: str) -> bool:
    """Whether a name is that of files, and not of a data set on the hub."""
    return is_data_file(Path(name)) or name.count("/") > 1 or glob.has_magic(name)


def _refuse_config(name: str | Path, config: str | None) -> None:
    if config is not None:
        raise InvalidParameter(
            f"Only a data set on the hub has configurations; {name} is here, so leave config ({short(config)}) out."
        )


def _files_of(name: str | Path) -> list[tuple[Path, str]]:
    """Return the files of a path or a pattern, sorted, each with the part of its name that may tell its split.

    Raises:
        InvalidData: A file is of no known kind.
    """
    path = Path(name)
    if path.is_dir():
        found = (p for p in path.rglob("*") if is_data_file(p) and p.is_file())
        return [(p, p.relative_to(path).as_posix()) for p in sorted(found) if _is_input(p, path)]
    if path.exists():
        paths = [path]
    else:
        paths = [Path(p) for p in sorted(glob.glob(str(name), recursive=True))]
        paths = [p for p in paths if p.is_file()]
    for each in paths:
        if not is_data_file(each):
            raise InvalidData(
                f"{each} ends in none of {', '.join(SUFFIXES)}, so its form is not known."
            )
    return [(p, p.name) for p in paths]


def _is_input(path: Path, folder: Path) -> bool:
    """Whether a file in a folder is data: nothing hidden, nor the output of a run in a folder below."""
    hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    output = path.parent != folder and (path.parent / "_manifest.json").exists()
    return not (hidden or output)


def _of_split(files: list[tuple[Path, str]], split: str | None, name: str) -> list[Path]:
    """Return the files of a split.

    Raises:
        InvalidParameter: There is none, or none is named and there are several.
    """
    splits = {path: _split_of(part) for path, part in files}
    names = sorted({found for found in splits.values() if found})
    if split is None:
        if len(names) > 1:
            raise InvalidParameter(
                f"{name} has files of several splits ({', '.join(names)}): name one of them (--split)."
            )
        return [path for path, _ in files]
    wanted = [path for path, _ in files if splits[path] in (split, _SPLITS.get(split, split))]
    if wanted:
        return wanted
    if not names and split == "train":
        return [path for path, _ in files]
    told = f"its files are of {', '.join(names)}" if names else "its files name none"
    raise InvalidParameter(f"{name} has no split {split!r}; {told}.")


def _split_of(name: str) -> str | None:
    """Return the split that a file's name tells, as `datasets` reads it; None where it tells none."""
    shard = _SHARD_OF.fullmatch(name)
    if shard is not None:
        return _SPLITS.get(shard[1], shard[1])
    words = re.split(r"[^a-zA-Z0-9]+", name.lower())
    return next((_SPLITS[word] for word in words if word in _SPLITS), None)


def from_values(values: Iterable[Any], name: str = "rows") -> RowSource:
    """Return a source of rows that are at hand, or of an iterable that can be walked more than once.

    Raises:
        InvalidParameter: ``values`` is none.
    """
    items("values", values, "an iterable of rows")
    total = len(values) if isinstance(values, Sized) else None
    return RowSource(name, "", total, lambda rows: _lists(values, rows))


def from_dataset(
    dataset: Any, name: str | None = None, columns: Sequence[str] | None = COLUMNS
) -> RowSource:
    """Return the rows of a `datasets.Dataset` or `datasets.IterableDataset`.

    Raises:
        InvalidData: It is none, or has no column with conversations.
    """
    if not callable(getattr(dataset, "with_format", None)):
        raise InvalidData(
            f"from_dataset reads a Dataset or an IterableDataset of one split, not {said(dataset)}."
        )
    present = getattr(dataset, "column_names", None)
    if present:
        dataset = dataset.select_columns(wanted_columns(present, columns, name or "the data set"))
    arrow = dataset.with_format("arrow")

    def parts(rows: int) -> Iterator[tuple[Any, Any, int, int]]:
        for table in arrow.iter(batch_size=rows):
            for batch in table.combine_chunks().to_batches():
                for data, part in arrow_parts(batch, rows):
                    yield "arrow", data, part.num_rows, part.num_rows

    total = len(dataset) if hasattr(dataset, "__len__") else None
    identity = str(getattr(dataset, "_fingerprint", None) or getattr(dataset, "info", ""))
    return RowSource(name or "the data set", _digest(identity.encode()), total, parts)


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
    total = sum(path.stat().st_size for path in files)

    def parts(rows: int) -> Iterator[tuple[Any, Any, int, int]]:
        for path in files:
            yield from read_parts(path, rows, columns)

    return RowSource(name, mark.hexdigest()[:16], total, parts)


def _saved(path: Path, split: str | None, columns: Sequence[str] | None) -> RowSource:
    found = _datasets(str(path)).load_from_disk(str(path))
    if isinstance(found, dict):
        name = split or (
            "train" if "train" in found or len(found) > 1 else next(iter(found), "train")
        )
        if name not in found:
            raise InvalidParameter(
                f"{path} has no split {name!r}; it has {', '.join(sorted(found))}."
            )
        found = found[name]
    elif split not in (None, str(found.split)):
        raise InvalidParameter(f"{path} is one split ({found.split}), not {split!r}.")
    source = from_dataset(found, str(path), columns)
    files = [Path(each["filename"]) for each in found.cache_files]
    if not files or getattr(found, "_indices", None) is not None:
        return source
    # Read as files, what was read can be let go; the data set would keep all of it mapped.
    return replace(_files(str(path), files, columns), identity=source.identity)


def _hub(name: str, split: str, config: str | None, columns: Sequence[str] | None) -> RowSource:
    try:
        found = _datasets(name).load_dataset(name, config, split=split, streaming=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise InvalidData(
            f"{name} is no file, and no data set of that name could be opened: {reason_of(error)}."
        ) from error
    source = from_dataset(found, name, columns)
    return replace(source, identity=_digest(f"{name} {config} {split}".encode()))


def _datasets(name: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise OutputError(
            f"{name} is read with the datasets package: run `pip install antiphon[data]`."
        ) from error
    return datasets


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
