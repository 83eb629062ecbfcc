"""What is imported when: core without plugins, listing without anything heavy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from installing import install, run

# Imports of these fail in the child processes: who needs one is caught by it.
BLOCK = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError(f"{{name}} is blocked")

sys.meta_path.insert(0, Block())
"""
HEAVY = (
    "torch",
    "tensordict",
    "transformers",
    "vllm",
    "numpy",
    "datasets",
    "pyarrow",
    "tokenizers",
)


def blocked(code: str, *sites: Path, names: tuple[str, ...] = HEAVY) -> str:
    done = run(["-c", BLOCK.format(blocked=set(names)) + code], *sites)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_antiphon_needs_nothing_heavy() -> None:
    blocked("import antiphon")


def test_import_antiphon_does_not_build_the_host_or_import_a_plugin() -> None:
    code = """
import antiphon, sys
assert "pluggy" not in sys.modules
assert not [name for name in sys.modules if name.startswith("antiphon_")]
from antiphon.plugins import host
assert host._process.host is None
"""
    blocked(code)


@pytest.mark.parametrize("command", [["list"], ["list", "--json"], ["doctor"], ["show", "chatml"]])
def test_plugin_tables_need_nothing_heavy(command: list[str]) -> None:
    blocked(f"from antiphon.cli import run; sys.exit(run(['plugins', *{command!r}]))")


def test_detection_needs_nothing_heavy() -> None:
    blocked("from antiphon import detect_family; detect_family('nobody/Unheard-Of-7B')")


def test_listing_twelve_plugins_needs_nothing_heavy(tmp_path: Path) -> None:
    names = [f"bird{number}" for number in range(12)]
    for name in names:
        install(tmp_path / "site", "no_hook", plugin=name, distribution=f"stranger-{name}")
    code = "from antiphon.cli import run; sys.exit(run(['plugins', 'list', '--json']))"
    listed = {record["name"] for record in json.loads(blocked(code, tmp_path / "site"))}
    assert listed >= set(names)


def test_installed_plugins_load_without_a_fault() -> None:
    code = """
import json
from antiphon.plugins import get_host
print(json.dumps([[r.distribution, r.status, r.error] for r in get_host().records]))
"""
    found = json.loads(blocked(code))
    assert len(found) >= 5
    assert [record for record in found if record[1] != "loaded"] == []
