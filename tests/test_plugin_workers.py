"""Workers have the driver's plugins: spawned, forked, of a fork server, of Ray; and are told where not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from installing import install, run

WORKERS = """
import json, multiprocessing, sys, threading
from antiphon.plugins import get_host
from antiphon.registry import get_family

def ask(inventory):
    host = get_host()
    host.check_same(inventory)
    return [host.fingerprint(), get_family("parrot").line]

if __name__ == "__main__":
    mine = get_host().inventory()
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        told = pool.map(ask, [mine] * 4)
    print(json.dumps([[get_host().fingerprint(), "parrot"], *told]))
"""
RAY = """
import json, os, sys
import ray
from antiphon.errors import PluginError
from antiphon.plugins import get_host
from antiphon.registry import get_family

@ray.remote
def ask(inventory):
    host = get_host()
    host.check_same(inventory)
    return [host.fingerprint(), get_family("parrot").line]

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
mine = get_host().inventory()
print(json.dumps([[get_host().fingerprint(), "parrot"], ray.get(ask.remote(mine))]))
try:
    ray.get(ask.remote({**mine, "healthy": "stranger-healthy 2.0"}))
except PluginError as error:
    print(error)
ray.shutdown()
"""


def told_by(folder: Path, code: str, *arguments: str) -> list[str]:
    install(folder / "site", "healthy")
    program = folder / "program.py"
    program.write_text(code, encoding="utf-8")
    done = run([str(program), *arguments], folder / "site")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_worker_processes_have_the_same_plugins(method: str, tmp_path: Path) -> None:
    if sys.platform == "win32" and method != "spawn":
        pytest.skip("this platform starts processes by spawning alone")
    (line,) = told_by(tmp_path, WORKERS, method)
    found = json.loads(line)
    assert len(found) == 5
    assert found == [found[0]] * 5


def test_ray_workers_have_the_same_plugins_and_differences_are_told(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray starts the workers")
    first, *error = told_by(tmp_path, RAY)
    driver, worker = json.loads(first)
    assert driver == worker
    assert "healthy: stranger-healthy 1.0 here, stranger-healthy 2.0 there" in "\n".join(error)
