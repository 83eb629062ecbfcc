"""Weights on their way to an engine in another process: files in memory, read where the model is."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from antiphon.errors import OutputError

_FILE_BYTES = 1 << 30
_MEMORY = "/dev/shm"


@contextlib.contextmanager
def stored(weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[str]:
    """Write weights to a folder that every process of this machine can read, for as long as needed.

    The folder is in memory where the system has such a place with room for them.

    Args:
        weights: Names and tensors, on any device.

    Raises:
        OutputError: There is no room for them.
    """
    from safetensors import SafetensorError

    given = list(weights)
    size = sum(value.numel() * value.element_size() for _, value in given)
    folder = tempfile.mkdtemp(prefix="antiphon-weights-", dir=_place(size))
    try:
        try:
            _write(given, Path(folder))
        except (OSError, SafetensorError) as error:
            raise OutputError(
                f"{size / 1e9:.3g} GB of weights could not be written to {folder} for the engine "
                f"({error}); make room there, or set TMPDIR to another folder."
            ) from error
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read(folder: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what `stored` wrote, a weight at a time."""
    from safetensors import safe_open

    for path in sorted(Path(folder).iterdir()):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (not a mapping)
                yield name, file.get_tensor(name)


def _place(size: int) -> str | None:
    try:
        return _MEMORY if shutil.disk_usage(_MEMORY).free > size * 1.1 else None
    except OSError:  # no such place on this system
        return None


def _write(weights: list[tuple[str, torch.Tensor]], folder: Path) -> None:
    from safetensors.torch import save_file

    part: dict[str, torch.Tensor] = {}
    size = number = 0
    for name, value in weights:
        # A copy of its own: the file's format knows no two names of one memory.
        part[name] = value.detach().to("cpu", copy=True).contiguous()
        size += value.numel() * value.element_size()
        if size >= _FILE_BYTES:
            save_file(part, folder / f"{number:05}.safetensors")
            part, size, number = {}, 0, number + 1
    if part:
        save_file(part, folder / f"{number:05}.safetensors")
