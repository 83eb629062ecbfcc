"""From nothing to a plugin that is installed, tested and clean, by the command that people use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from antiphon.scaffold import kinds
from installing import antiphon, records, run


def build(folder: Path, into: Path) -> None:
    """Build a wheel of a distribution and install it, alone, into a folder."""
    wheels = into.parent / f"wheels-{into.name}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    made = ["wheel", "-q", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, folder]
    subprocess.run([*pip, *made], check=True, capture_output=True, timeout=120)
    wheel = next(wheels.glob("*.whl"))
    installed = ["install", "-q", "--no-deps", "--no-index", "--target", into, wheel]
    subprocess.run([*pip, *installed], check=True, capture_output=True, timeout=120)


@pytest.mark.parametrize("kind", kinds())
def test_new_plugin_installs_passes_its_tests_and_lints(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling builds the new distribution")
    empty = tmp_path / "empty"
    folder = tmp_path / "antiphon-grey-parrot"
    done = antiphon("plugins", "new", kind, "grey-parrot", "--folder", str(folder), site=empty)
    assert done.returncode == 0, done.stderr
    assert "pip install -e ." in done.stdout
    site = tmp_path / "site"
    build(folder, site)
    record = records(site)["antiphon-grey-parrot"]
    assert (record["status"], record["error"]) == ("loaded", None)
    assert record["provides"] == [f"{kind}:grey-parrot"]
    tests = run(["-m", "pytest", "-q", "-c", str(folder / "pyproject.toml"), str(folder)], site)
    assert tests.returncode == 0, tests.stdout + tests.stderr
    for line in (["check", "."], ["format", "--check", "."]):
        ruff = subprocess.run(
            [sys.executable, "-m", "ruff", *line],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ruff.returncode == 0, ruff.stdout + ruff.stderr
    left = [path for path in folder.rglob("*.*") if path.is_file() and "@" in path.name]
    assert left == []


@pytest.mark.parametrize("name", ["Parrot", "7b", "a b", "", "grey--parrot", "../up"])
def test_name_that_no_distribution_can_have_is_refused(name: str, tmp_path: Path) -> None:
    target = tmp_path / "new"
    done = antiphon("plugins", "new", "family", name, "--folder", str(target), site=tmp_path)
    assert done.returncode == 1
    assert "can't be named" in done.stderr
    assert not target.exists()


def test_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("all I have", encoding="utf-8")
    line = ("plugins", "new", "family", "parrot", "--folder", str(tmp_path / "full"))
    done = antiphon(*line, site=tmp_path)
    assert done.returncode == 1
    assert "not empty" in done.stderr
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]


def test_unknown_kind_is_told(tmp_path: Path) -> None:
    done = antiphon("plugins", "new", "fmily", "parrot", site=tmp_path)
    assert done.returncode == 1
    assert "family" in done.stderr
