"""The files of tokenised data: shards that are whole or absent, and a manifest that says which run they are of.

A shard appears in one step, by renaming; its Parquet metadata say which rows it holds and what became of them, so a
finished shard needs nothing else. The manifest lies beside the shards as ``_manifest.json``; names that begin with an
underscore are passed over by ``datasets.load_dataset``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from antiphon.data.preferences import Preference, PreferenceBatch
from antiphon.data.training import Sample, SampleBatch
from antiphon.errors import OutputError

FORMAT = 1
IGNORED = -100  # the label of tokens that are not trained, as PyTorch's cross entropy has it
MANIFEST = "_manifest.json"
REPORT = "_report.jsonl"
_KEY = b"antiphon"
_SHARD = re.compile(r"shard-\d{6,}\.parquet")
_TEMPORARY = re.compile(r"\.(shard-\d{6,}\.parquet|_\w+\.jsonl?)\.\d+\.tmp")


def shard_path(output: Path, number: int) -> Path:
    """Return the file of a shard."""
    return output / f"shard-{number:06d}.parquet"


def write_shard(
    path: Path,
    batches: Iterable[SampleBatch | PreferenceBatch],
    about: dict[str, Any],
    *,
    preference: bool = False,
) -> dict[str, Any]:
    """Write a shard, a row group for each batch, and return what its metadata say.

    Args:
        path: The file.
        batches: The samples.
        about: What the metadata shall say; counts and notes are added.
        preference: Whether the samples are preferences.

    Raises:
        OSError: The file can't be written; nothing is left of it.
    """
    pa, pq = _pyarrow()
    schema = _preference_schema(pa) if preference else _schema(pa)
    table: Callable[[Any, Any, Any], Any] = _preference_table if preference else _table
    notes: list[list[Any]] = []
    samples = tokens = trained = 0
    temporary = _temporary(path)
    try:
        with temporary.open("wb") as file:
            with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                for batch in batches:
                    notes += [list(note) for note in batch.notes]
                    if batch.samples:
                        writer.write_table(table(pa, schema, batch.samples))
                    samples += len(batch.samples)
                    tokens += sum(sample.tokens for sample in batch.samples)
                    trained += sum(sample.trained for sample in batch.samples)
                told = {**about, "samples": samples, "tokens": tokens, "trained": trained}
                told["notes"] = notes
                writer.add_key_value_metadata({_KEY: json.dumps(told).encode()})
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return told


def read_about(path: Path) -> dict[str, Any] | None:
    """Return what a shard's metadata say; None where it is no finished shard."""
    pa, pq = _pyarrow()
    try:
        metadata = pq.read_metadata(path).metadata or {}
        told = json.loads(metadata[_KEY])
    except (OSError, ValueError, KeyError, pa.ArrowException):
        return None
    return told if isinstance(told, dict) else None


def write_json(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON value a line, in one step.

    Raises:
        OutputError: The file can't be written.
    """
    temporary = _temporary(path)
    try:
        with temporary.open("w", encoding="utf-8", errors="backslashreplace") as file:
            for line in lines:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OutputError(
            f"{path} can't be written ({error.strerror or error}); finished shards are valid, make room and go on "
            "with --resume."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def check_output(output: Path, *, resume: bool, overwrite: bool) -> None:
    """Make sure that a run can begin in the folder, which is made where it is not there; nothing is deleted.

    Args:
        output: The folder.
        resume: Go on where a run stopped; without one, a new run begins.
        overwrite: Begin anew where a run has been.

    Raises:
        OutputError: The folder can't be written, holds a run and neither is asked for, or holds Parquet files of
            somebody else's, which would be read together with the shards.
    """
    present = _files_in(output)
    if _read_manifest(output / MANIFEST) is None:
        foreign = sorted(path.name for path in present if path.suffix == ".parquet")
        if foreign:
            raise OutputError(
                f"{output} holds {foreign[0]}, which is not of a tokenize run; choose an empty folder."
            )
    elif not (overwrite or resume):
        raise OutputError(
            f"{output} holds a tokenize run already; go on with --resume, begin anew with --overwrite, or choose "
            "another folder."
        )


def open_output(
    output: Path, manifest: Mapping[str, Any], *, resume: bool, overwrite: bool
) -> None:
    """Make the folder ready for a run.

    Args:
        output: The folder.
        manifest: What the run is, with ``fingerprints``.
        resume: Go on where a run of equal fingerprints stopped.
        overwrite: Delete what an earlier run has left.

    Raises:
        OutputError: As `check_output` says, or the folder holds a run of other fingerprints.
    """
    check_output(output, resume=resume, overwrite=overwrite)
    old = _read_manifest(output / MANIFEST)
    if old is not None and not overwrite:
        _check_same(output, old, manifest)
    for path in _files_in(output):
        of_run = bool(_SHARD.fullmatch(path.name)) or path.name in (MANIFEST, REPORT)
        if _TEMPORARY.fullmatch(path.name) or (overwrite and old is not None and of_run):
            path.unlink(missing_ok=True)
    write_json(output / MANIFEST, [manifest])


def _files_in(output: Path) -> list[Path]:
    """Return the files of a folder that can be written, which is made where it is not there.

    Raises:
        OutputError: It can't be.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        probe = _temporary(output / MANIFEST)
        probe.touch()
        probe.unlink()
        return [path for path in output.iterdir() if path.is_file()]
    except (FileExistsError, NotADirectoryError) as error:
        raise OutputError(f"{output} is a file; the output of tokenize is a folder.") from error
    except (OSError, ValueError) as error:  # the latter of characters that no name has
        raise OutputError(
            f"{output} can't be written ({getattr(error, 'strerror', None) or error}); choose another folder."
        ) from error


def _check_same(output: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    before, now = old.get("fingerprints", {}), new["fingerprints"]
    other = [key for key in now if before.get(key) != now[key]]
    if other:
        told = "; ".join(f"{key}: {before.get(key)} there, {now[key]} here" for key in other)
        raise OutputError(
            f"{output} was begun with another {' and another '.join(other)} ({told}); resume with the same, begin "
            "anew with --overwrite, or choose another folder."
        )


def _read_manifest(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise OutputError(
            f"{path} can't be read ({error}); begin anew in another folder."
        ) from error
    if not isinstance(found, dict) or found.get("antiphon_tokenize") != FORMAT:
        raise OutputError(f"{path} is of another version; begin anew in another folder.")
    return found


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _schema(pa: Any) -> Any:
    return pa.schema(
        [
            ("input_ids", pa.list_(pa.int32())),
            ("attention_mask", pa.list_(pa.int8())),
            ("labels", pa.list_(pa.int32())),
            ("assistant_masks", pa.list_(pa.int8())),
            ("message_index", pa.list_(pa.int32())),
            ("row", pa.int64()),
            ("sample", pa.int32()),
        ]
    )


def _table(pa: Any, schema: Any, samples: list[Sample]) -> Any:
    import numpy as np

    offsets = np.zeros(len(samples) + 1, dtype=np.int32)
    np.cumsum([len(sample.input_ids) for sample in samples], out=offsets[1:])

    def flat(field: str, dtype: Any) -> Any:
        return np.concatenate([np.array(getattr(s, field), dtype=dtype) for s in samples])

    ids, mask = flat("input_ids", np.int32), flat("mask", np.bool_)
    columns = [
        ids,
        np.ones(len(ids), dtype=np.int8),
        np.where(mask, ids, np.int32(IGNORED)),
        mask.astype(np.int8),
        flat("message_index", np.int32),
    ]
    arrays = [pa.ListArray.from_arrays(offsets, column) for column in columns]
    arrays.append(pa.array([sample.row for sample in samples], pa.int64()))
    arrays.append(pa.array([sample.number for sample in samples], pa.int32()))
    return pa.Table.from_arrays(arrays, schema=schema)


def _preference_schema(pa: Any) -> Any:
    ids = [(name, pa.list_(pa.int32())) for name in ("prompt_ids", "chosen_ids", "rejected_ids")]
    return pa.schema([*ids, ("row", pa.int64())])


def _preference_table(pa: Any, schema: Any, samples: list[Preference]) -> Any:
    return pa.Table.from_pylist([sample._asdict() for sample in samples], schema=schema)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise OutputError(
            "Shards are Parquet, which needs pyarrow: run `pip install antiphon[data]`."
        ) from error
    return pa, pq
