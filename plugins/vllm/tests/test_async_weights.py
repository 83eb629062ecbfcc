"""Weights on their way to another process arrive as they are, and leave nothing behind."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest
import torch
from antiphon.errors import OutputError
from antiphon_vllm import async_weights
from antiphon_vllm.async_weights import read, stored

EMBEDDING = torch.randn(40, 8)
WEIGHTS = [
    ("embed.weight", EMBEDDING),
    ("head.weight", EMBEDDING),  # tied: one memory, two names
    ("half", torch.randn(3, 5).bfloat16()),
    ("turned", torch.randn(4, 6).T),
    ("part", torch.randn(10, 10)[2:4]),
    ("scalar", torch.tensor(2.0)),
]


@pytest.mark.parametrize("file_bytes", [1 << 30, 500, 1])
def test_what_is_stored_is_read_in_order_whatever_the_size_of_files(monkeypatch, file_bytes):
    monkeypatch.setattr(async_weights, "_FILE_BYTES", file_bytes)
    with stored(WEIGHTS) as folder:
        files = len(list(Path(folder).iterdir()))
        found = list(read(folder))
    assert files == {1 << 30: 1, 500: 3, 1: 6}[file_bytes]
    assert {name for name, _ in found} == {name for name, _ in WEIGHTS}
    for name, value in found:
        assert torch.equal(value, dict(WEIGHTS)[name])
        assert value.dtype == dict(WEIGHTS)[name].dtype
    assert not Path(folder).exists()


def test_without_room_in_memory_they_go_where_temporary_files_go(monkeypatch, tmp_path):
    monkeypatch.setattr(async_weights, "_MEMORY", str(tmp_path / "not there"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with stored(WEIGHTS) as folder:
        assert Path(folder).parent == tmp_path
    assert not list(tmp_path.iterdir())


def test_no_room_at_all_is_said_and_leaves_nothing_behind(monkeypatch, tmp_path):
    monkeypatch.setattr(async_weights, "_MEMORY", str(tmp_path / "not there"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OutputError, match="could not be written to"), stored(WEIGHTS):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not list(tmp_path.iterdir())
