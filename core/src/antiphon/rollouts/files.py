"""The files of a rollout: a part file that survives anything, and the one file it becomes.

Each finished conversation is one whole line of ``OUTPUT.part.jsonl``, on disk before the next one is
begun; the first line says which run it is. Whatever ends the process, a line is there or it is not:
a torn last line is cut off on `resume`. The output itself appears in one step, by renaming.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from antiphon.errors import InvalidData, OutputError

FORMAT = 1
Record = dict[str, Any]
_COLUMNS_KEY = b"antiphon"


def part_path(output: Path) -> Path:
    """Return where the finished conversations of an unfinished run are."""
    return output.with_name(output.name + ".part.jsonl")


class PartFile:
    """Finished conversations of one run, one line each.

    Args:
        output: The file that the run is for; the part file lies beside it.
        settings: What the run is; a run is only resumed under equal settings.
        resume: Whether to go on where a part file is. Without one, a new run begins either way.

    Raises:
        OutputError: The file can't be written, another process writes it, there is one although
            ``resume`` is False, or its settings differ.
        InvalidData: A line before the last can't be read.
    """

    def __init__(self, output: Path, settings: Mapping[str, Any], *, resume: bool) -> None:
        self.path = part_path(output)
        self.records: list[Record] = []
        present = self.path.exists()
        if present and not resume and self.path.stat().st_size:
            raise OutputError(
                f"{self.path} holds an unfinished run; go on with --resume, or delete the file to "
                "begin anew."
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: nothing is left to be flushed when the disk is full.
            self._file: IO[bytes] = self.path.open("r+b" if present else "x+b", buffering=0)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        try:
            _lock(self._file, self.path)
            _clear_unfinished(output)
            self._end = 0
            header = self._read() if present else None
            if header is None:
                self._write({"antiphon_rollout": FORMAT, "settings": dict(settings)})
            else:
                _check_settings(self.path, header.get("settings", {}), settings)
        except (
            BaseException
        ):  # an interrupt too: the file and its lock are let go, and the error goes on
            self._file.close()
            raise

    def _read(self) -> Record | None:
        """Take in the whole lines, and return the header; a torn last line is cut off."""
        header: Record | None = None
        lines = self.path.read_bytes().splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                record = json.loads(line)
            except ValueError as error:
                raise InvalidData(
                    f"Line {number} of {self.path} is not valid JSON ({error}); delete that line to "
                    "sample its conversation again."
                ) from error
            if number == 1:
                if not isinstance(record, dict) or record.get("antiphon_rollout") != FORMAT:
                    raise InvalidData(
                        f"{self.path} is no part file of this version; move it away to begin anew."
                    )
                header = record
            else:
                self.records += record
            self._end += len(line)
        self._cut()
        return header

    def reload(self) -> None:
        """Take in what is on disk, after an interruption that may have hit in between."""
        self.records, self._end = [], 0
        self._read()

    def append_conversation(self, records: Sequence[Record]) -> None:
        """Write a finished conversation; when this returns it is on disk, with all its segments.

        Raises:
            OutputError: It can't be written; the ones before are safe.
        """
        self._write(list(records))
        self.records += records

    def _write(self, record: Record | list[Record]) -> None:
        line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode(
            "utf-8", "surrogatepass"
        )
        try:
            self._file.seek(self._end)
            left = memoryview(line + b"\n")
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            self._cut()
            done = len({record["conversation"] for record in self.records})
            raise OutputError(
                f"Writing {self.path} failed: {error.strerror}; the {done} conversations finished "
                "before are safe there. Make room and go on with --resume."
            ) from error
        self._end += len(line) + 1

    def _cut(self) -> None:
        # Where that fails too, the torn line stays and is cut off by the next resume.
        with contextlib.suppress(OSError):
            self._file.truncate(self._end)

    def close(self, *, remove: bool = False) -> None:
        """Let go of the file; ``remove`` when all it holds is in the output."""
        if remove:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def __enter__(self) -> PartFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: two runs on one file are the user's to avoid.
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutputError(
            f"Another process is writing {path}; wait for it, or choose another output."
        ) from error
    except OSError:
        # A file system without locks.
        return


def _check_settings(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    for key in sorted({*old, *new}):
        was, now = old.get(key), json.loads(json.dumps(new.get(key)))
        if was != now:
            raise OutputError(
                f"{path} belongs to a run with {key} = {was!r}, and this one has {now!r}; resume "
                "with the same settings, or choose another output."
            )


def check_output(output: Path) -> None:
    """Refuse an output that can't be written, before anything is sampled.

    Raises:
        OutputError: It is a folder, its suffix is unknown, or Parquet is asked for without pyarrow.
    """
    if output.is_dir():
        raise OutputError(f"The output {output} is a folder; give the path of a file.")
    if output.suffix not in (".parquet", ".jsonl"):
        raise OutputError(
            f"The output {output} must end in .parquet or .jsonl, which says the form of the file."
        )
    if output.suffix == ".parquet":
        _pyarrow(output)


def write_output(output: Path, records: Iterable[Record], about: Mapping[str, Any]) -> None:
    """Write the trajectories as Parquet or JSON lines, by the suffix; all of it or nothing.

    Args:
        output: The file; one that is there is replaced.
        records: The rows.
        about: Fingerprints and settings. Parquet keeps them as schema metadata under ``antiphon``,
            JSON lines in every row.

    Raises:
        OutputError: It can't be written.
    """
    write = _write_parquet if output.suffix == ".parquet" else _write_jsonl
    _atomically(output, lambda path: write(path, records, about))


def read_about(output: Path) -> Mapping[str, Any]:
    """Return fingerprints and settings of a file that `write_output` wrote.

    Raises:
        InvalidData: The file is no such file.
    """
    try:
        if output.suffix == ".parquet":
            metadata = _pyarrow(output).parquet.read_schema(output).metadata or {}
            found = json.loads(metadata[_COLUMNS_KEY])
        else:
            with output.open(encoding="utf-8") as file:
                found = json.loads(file.readline())["about"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidData(f"{output} is no file of trajectories ({error}).") from error
    return dict(found)


def read_records(output: Path) -> list[Record]:
    """Return the rows of a file that `write_output` wrote."""
    if output.suffix == ".parquet":
        rows = _pyarrow(output).parquet.read_table(output).to_pylist()
        return [dict(row) for row in rows]
    with output.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _write_jsonl(path: Path, records: Iterable[Record], about: Mapping[str, Any]) -> None:
    with path.open("w", encoding="utf-8", errors="surrogatepass") as file:
        for record in records:
            file.write(json.dumps({**record, "about": about}, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _write_parquet(path: Path, records: Iterable[Record], about: Mapping[str, Any]) -> None:
    pa = _pyarrow(path)
    schema = _schema(pa).with_metadata({_COLUMNS_KEY: json.dumps(about).encode()})
    with pa.parquet.ParquetWriter(path, schema) as writer:
        for chunk in _chunks(records, 1024):
            writer.write_table(pa.Table.from_pylist(chunk, schema=schema))
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _schema(pa: Any) -> Any:
    turn = pa.struct(
        [
            ("start", pa.int32()),
            ("end", pa.int32()),
            ("segment", pa.int32()),
            ("finish", pa.string()),
            ("versions", pa.string()),
            ("reward", pa.float64()),
            ("info", pa.string()),
        ]
    )
    difference = pa.struct(
        [("message", pa.int32()), ("position", pa.int32()), ("why", pa.string())]
    )
    return pa.schema(
        [
            ("conversation", pa.string()),
            ("problem", pa.int32()),
            ("sample", pa.int32()),
            ("segment", pa.int32()),
            ("input_ids", pa.list_(pa.int32())),
            ("assistant_mask", pa.list_(pa.bool_())),
            ("log_probs", pa.list_(pa.float32())),
            ("scored_log_probs", pa.list_(pa.float32())),
            ("reward", pa.float64()),
            ("turns", pa.list_(turn)),
            ("terminated", pa.bool_()),
            ("truncated", pa.bool_()),
            ("breaks", pa.list_(difference)),
            ("log_prob_difference", pa.float64()),
            ("messages", pa.string()),
        ]
    )


def _chunks(records: Iterable[Record], size: int) -> Iterator[list[Record]]:
    chunk: list[Record] = []
    for record in records:
        chunk.append(record)
        if len(chunk) == size:
            yield chunk
            chunk = []
    yield chunk


def _atomically(output: Path, write: Callable[[Path], None]) -> None:
    temporary: Path | None = None
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            prefix=f".{output.name}.", suffix=output.suffix, dir=output.parent
        )
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        # mkstemp makes files for the owner alone; the output gets what the user's umask says.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(output)
    except OSError as error:
        raise _unwritable(output, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _clear_unfinished(output: Path) -> None:
    """Remove outputs that a killed run was writing; whoever holds the part file's lock is alone."""
    for stale in output.parent.glob(f".{glob.escape(output.name)}.*{output.suffix}"):
        stale.unlink(missing_ok=True)


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{path} can't be written: {error.strerror or error}; choose another place with --output or "
        "make room, what was finished is kept in the part file."
    )


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise OutputError(
            f"{path} is Parquet, which needs pyarrow: run `pip install antiphon[data]`, or choose an "
            "output that ends in .jsonl."
        ) from error
    return pa
