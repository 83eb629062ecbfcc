"""Whoever starts an engine in other processes may be killed outright: no engine is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

SCRIPT = """
import sys, time
import psutil
from antiphon_vllm import AsyncVLLMBackend, VLLMBackend
from tiny_models import build

if __name__ == "__main__":
    kinds = {"vllm": (VLLMBackend, {"in_process": False}), "vllm-async": (AsyncVLLMBackend, {})}
    make, options = kinds[sys.argv[1]]
    backend = make(build("llama"), **options)
    print(*(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
    time.sleep(3600)
"""


@pytest.mark.parametrize("kind", ["vllm", "vllm-async"])
def test_an_engine_ends_with_its_owner(tmp_path, kind):
    script, told = tmp_path / "owner.py", tmp_path / "stderr"
    script.write_text(SCRIPT)
    with told.open("w") as file:
        owner = subprocess.Popen(
            [sys.executable, str(script), kind],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
            },
        )
    assert owner.stdout is not None
    numbers = [int(number) for number in owner.stdout.readline().split()]
    engine = [psutil.Process(number) for number in numbers]
    assert any(process.name().startswith("VLLM") for process in engine), told.read_text()
    owner.kill()
    _, alive = psutil.wait_procs(engine, timeout=180)
    owner.stdout.close()
    assert not alive
    owner.wait()
