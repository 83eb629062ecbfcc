"""``antiphon rollout`` on the engine that answers many calls at once; its death loses nothing."""

from __future__ import annotations

import os
import signal
import threading
import time

import psutil
from antiphon.cli import run
from antiphon.rollouts.files import part_path, read_records

ROLLOUT = ["--backend", "vllm-async", "--limit", "6", "--samples", "2", "--max-new-tokens", "24"]


def engine_processes():
    """The cores of engines among the processes that were started here."""
    children = psutil.Process().children(recursive=True)
    return {child.pid for child in children if child.name().startswith("VLLM::EngineCor")}


def kill_once_some_are_finished(output, others, killed):
    """Wait for two conversations on disk, then kill the engine that samples."""
    part = part_path(output)
    while not part.exists() or len(part.read_bytes().splitlines()) < 3:
        time.sleep(0.02)
    for pid in engine_processes() - others:
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)


def test_killing_the_engine_loses_no_finished_conversation_and_resume_goes_on(tmp_path, capsys):
    output = tmp_path / "o.jsonl"
    killed = []
    given = (output, engine_processes(), killed)
    killer = threading.Thread(target=kill_once_some_are_finished, args=given, daemon=True)
    killer.start()
    arguments = ["rollout", *ROLLOUT, "--batch-size", "3", "--output", str(output)]
    assert run(arguments) == 1
    killer.join(timeout=60)
    assert killed
    told = capsys.readouterr().err
    assert "The process of vLLM's engine for" in told
    assert "died" in told
    assert "--resume" in told
    assert not output.exists()
    kept = part_path(output).read_bytes().splitlines()[1:]
    assert len(kept) >= 2

    assert run([*arguments, "--resume"]) == 0
    told = capsys.readouterr().out
    assert f"Resuming: {len(kept)} of 12 conversations are there already." in told
    records = read_records(output)
    names = [record["conversation"] for record in records if record["segment"] == 0]
    assert sorted(names) == sorted(f"{p}/{s}" for p in range(6) for s in range(2))
    # What the model sampled, scored again: float32 on both sides.
    assert 0 < max(record["log_prob_difference"] for record in records) <= 1e-4
