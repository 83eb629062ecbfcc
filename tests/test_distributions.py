"""What every distribution owes the people who install it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(
    file.parent
    for pattern in ("core", "plugin-*", "plugins/*")
    for file in ROOT.glob(f"{pattern}/pyproject.toml")
)
VERSION = re.search(r'^version = "(.*)"$', (ROOT / "core/pyproject.toml").read_text("utf-8"), re.M)


@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_distribution_has_what_people_and_type_checkers_look_for(folder: Path) -> None:
    project = (folder / "pyproject.toml").read_text(encoding="utf-8")
    name = re.search(r'^name = "(.*)"$', project, re.MULTILINE)
    assert name is not None
    package = folder / "src" / name[1].replace("-", "_")
    assert (package / "py.typed").is_file()
    assert (package / "__init__.py").is_file()
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert name[1] in (folder / "README.md").read_text(encoding="utf-8")
    for line in ('license = "MIT"', 'requires-python = ">=3.10"', "Typing :: Typed"):
        assert line in project
    assert VERSION is not None
    assert f'version = "{VERSION[1]}"' in project


def test_the_change_log_begins_with_the_version_at_hand() -> None:
    assert VERSION is not None
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", text, re.MULTILINE)[0] in (VERSION[1], "Unreleased")
