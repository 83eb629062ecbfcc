"""The benchmark for GPUs runs, small and on a CPU; what it measures is for machines that have one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "gpu.py"


@pytest.mark.skipif(not SCRIPT.exists(), reason="the benchmarks are not here: no checkout")
def test_the_benchmark_for_gpus_runs_on_a_cpu_too():
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--small"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert found["sampled against re-scored log-probs"]["most"] < 0.5
    assert found["generate"]["tokens_per_second"] > 0
    assert found["score"]["bytes"] is None  # told on a GPU only
