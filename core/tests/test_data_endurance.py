"""`antiphon tokenize` on files that are large, and in runs that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from antiphon.data import SampleOptions, open_rows, tokenize_dataset
from antiphon.data.files import read_parts
from rendering_helpers import tokenizer

pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow, which writes shards, is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

CHATML = SampleOptions(family="chatml")


def conversations(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Conversations that have no text in common."""
    return [
        {
            "messages": [
                {"role": role, "content": f"{role} {number} says: " + f"word{number} " * 30}
                for role in ("user", "assistant")
            ]
        }
        for number in range(start, start + count)
    ]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=50)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_ten_times_the_rows_take_no_more_memory(tmp_path: Path, form: str) -> None:
    own = tokenizer("qwen3")
    first = written(tmp_path / f"first.{form}", conversations(20, 10**6))
    tokenize_dataset(open_rows(first), tmp_path / "first", own, CHATML)
    peaks = []
    for count in (60, 600):
        data = written(tmp_path / f"{count}.{form}", conversations(count, count * 1000))
        tracemalloc.start()
        tokenize_dataset(open_rows(data), tmp_path / str(count), own, CHATML, shard_rows=30)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0], peaks


def test_a_row_group_that_is_the_whole_file_is_not_read_at_once(tmp_path: Path) -> None:
    """Arrow's memory, of which Python's tracing does not know."""
    path = tmp_path / "one.parquet"
    table = pa.Table.from_pylist(conversations(40_000))
    pq.write_table(table, path, row_group_size=len(table), compression="none")
    whole = table.nbytes
    del table
    before = pa.total_allocated_bytes()
    peak = rows = 0
    for _, _, count, _ in read_parts(path, 128, None):
        rows += count
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert rows == 40_000
    assert peak < whole / 4, (peak, whole)


def command(data: Path, output: Path) -> list[str]:
    line = [
        *(sys.executable, "-m", "antiphon.cli", "tokenize", data, output, "--family", "chatml"),
        *("--tokenizer", tokenizer("qwen3").name_or_path, "--workers", "2", "--shard-rows", "10"),
    ]
    return [str(part) for part in line]


def started(line: list[str], output: Path) -> subprocess.Popen[bytes]:
    """Start a run, and return it when it has finished some shards."""
    first = subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while len(list(output.glob("*.parquet"))) < 2 and first.poll() is None:
        time.sleep(0.02)
    return first


def group_of(process: int) -> list[int]:
    """Return the processes of a session, zombies left out."""
    told = subprocess.run(
        ["ps", "-o", "pid=,stat=", "-s", str(process)], capture_output=True, text=True, check=False
    ).stdout
    fields = [line.split() for line in told.splitlines()]
    return [int(number) for number, state in fields if not state.startswith("Z")]


@pytest.mark.skipif(not Path("/proc").exists(), reason="ps knows sessions on Linux")
def test_workers_end_with_a_run_whose_first_process_was_killed(tmp_path: Path) -> None:
    data = written(tmp_path / "in.jsonl", conversations(30_000))
    first = started(command(data, tmp_path / "out"), tmp_path / "out")
    try:
        assert len(group_of(first.pid)) > 2
        first.kill()
        first.wait()
        deadline = time.monotonic() + 60
        while group_of(first.pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not group_of(first.pid)
    finally:
        for process in group_of(first.pid):
            os.kill(process, signal.SIGKILL)


def test_a_run_that_was_killed_with_all_its_processes_goes_on(tmp_path: Path) -> None:
    data = written(tmp_path / "in.jsonl", conversations(1000))
    output = tmp_path / "out"
    line = command(data, output)
    first = started(line, output)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    finished = {path: path.stat().st_mtime_ns for path in output.glob("shard-*.parquet")}
    assert finished
    done = subprocess.run([*line, "--resume"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(path.stat().st_mtime_ns == made for path, made in finished.items())
    shards = sorted(output.glob("*"))
    assert not [path for path in shards if path.name.endswith(".tmp")]
    rows = [
        row
        for path in sorted(output.glob("*.parquet"))
        for row in pq.read_table(path)["row"].to_pylist()
    ]
    assert rows == list(range(1000))
