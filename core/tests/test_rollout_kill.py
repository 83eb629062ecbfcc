"""A rollout that is killed at any moment, twenty times, and resumed: nothing is lost, nothing doubled."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from antiphon.rollouts.files import part_path, read_about, read_records

KILLS = 20
# One run imports everything; each further one is a fork of that process, and a process of its own.
SCRIPT = textwrap.dedent(
    f"""
    import json, os, sys, tempfile, time
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    import antiphon.rollouts.run, rollout_helpers
    from antiphon.cli import run

    class Slow(rollout_helpers.FakeBackend):
        def generate(self, batch, params):
            time.sleep(0.01)
            return super().generate(batch, params)

    antiphon.rollouts.run.load_backend = lambda options: Slow()
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with tempfile.TemporaryDirectory() as folder:
        run(["rollout", "--limit", "1", "--output", os.path.join(folder, "first.parquet")])
    told = os.fdopen(out, "w")
    print("ready", file=told, flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(run(json.loads(line)))
        print(child, file=told, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=told, flush=True)
    """
)


class Runs:
    """Starts runs of ``antiphon rollout`` quickly."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def run(self, output: Path, *arguments: str, kill_after: float | None = None) -> int:
        """Run, perhaps kill it after so many seconds, and return the exit code (-9: killed)."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = ["rollout", "--output", str(output), "--limit", "8", "--batch-size", "3", *arguments]
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        child = int(self.process.stdout.readline())
        if kill_after is not None:
            time.sleep(kill_after)
            with contextlib.suppress(ProcessLookupError):  # it may be through
                os.kill(child, signal.SIGKILL)
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    if not hasattr(os, "fork"):
        pytest.skip("runs are forked, which this system can't")
    pytest.importorskip("pyarrow", reason="the output is Parquet, which needs pyarrow")
    made = Runs()
    yield made
    assert made.process.stdin is not None
    made.process.stdin.close()
    made.process.wait(30)
    assert made.process.stdout is not None
    made.process.stdout.close()


def finished(path: Path) -> list[dict[str, Any]]:
    """The records in a part file as any reader finds them: whole lines are JSON, a torn one is last."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    if len(lines) > 1:
        assert "antiphon_rollout" in json.loads(lines[0])
    return [record for line in lines[1:-1] for record in json.loads(line)]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_killed_at_random_moments_and_resumed_nothing_is_lost_or_doubled(
    suffix: str, runs: Runs, tmp_path: Path
) -> None:
    reference = tmp_path / f"whole{suffix}"
    began = time.monotonic()
    assert runs.run(reference) == 0
    whole_run = time.monotonic() - began
    whole = {record["conversation"]: record for record in read_records(reference)}
    assert len(whole) == 16
    output, part = tmp_path / f"o{suffix}", part_path(tmp_path / f"o{suffix}")
    drawn = random.Random(suffix)
    kills = completed = 0
    before: list[dict[str, Any]] = []
    while kills < KILLS // 2 or not completed:
        code = runs.run(output, "--resume", kill_after=drawn.uniform(0, 1.1 * whole_run))
        if code == -signal.SIGKILL:
            kills += 1
        else:
            assert code == 0
        if output.exists():  # whole, or not there
            assert {r["conversation"]: r for r in read_records(output)} == whole
            assert read_about(output) == read_about(reference)
        if code == 0:
            completed += 1
            assert not part.exists()
            assert len(read_records(output)) == len(whole)
            output.unlink()
            before = []
            continue
        now = finished(part)
        if not output.exists():
            # What was on disk stays as it is; more may have come.
            assert now[: len(before)] == before
        names = [record["conversation"] for record in now]
        assert len(set(names)) == len(names)
        before = now
    output.unlink(missing_ok=True)
    (tmp_path / f".o{suffix}.killed{suffix}").touch()  # as where a kill met the writing
    assert runs.run(output, "--resume") == 0
    assert sorted(os.listdir(tmp_path)) == sorted([output.name, reference.name])
