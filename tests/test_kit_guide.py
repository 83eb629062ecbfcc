"""The author's guide does what it says: its files and commands, as printed, make a family that passes."""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "authors-guide.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "plugin-gemma"
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def environment(folder: Path) -> dict[str, str]:
    """Make an environment of its own that sees this one's packages, and return its variables."""
    made = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(made)], check=True, timeout=120)
    seen = [
        path for path in sys.path if Path(path).name == "site-packages"
    ] or site.getsitepackages()
    (target,) = made.glob("lib/python*/site-packages")
    lines = [f"import site; site.addsitedir({path!r})" for path in seen]
    (target / "seen.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    commands = made / "bin"
    for name, module in (("antiphon", "antiphon.cli"), ("pytest", "pytest")):
        command = commands / name
        command.write_text(
            f'#!/bin/sh\nexec "{commands}/python" -m {module} "$@"\n', encoding="utf-8"
        )
        command.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        # What an author downloads is here already: build with it, and without a network.
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


@pytest.mark.skipif(os.name == "nt", reason="the guide is written for a POSIX shell")
def test_commands_of_the_guide_make_a_family_that_passes(tmp_path: Path) -> None:
    for package in ("hatchling", "editables"):
        pytest.importorskip(package, reason="the new distribution is built and installed with it")
    variables = environment(tmp_path)
    folder = tmp_path
    told = ""
    for language, path, text in BLOCK.findall(GUIDE):
        if language != "console":
            (folder / path).write_text(text, encoding="utf-8")
            continue
        for line in text.splitlines():
            command = line.removeprefix("$ ")
            if command.startswith("cd "):
                folder = folder / command.removeprefix("cd ")
                continue
            done = subprocess.run(
                command,
                shell=True,
                cwd=folder,
                env=variables,
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
            told += done.stdout
            assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    assert re.search(r"antiphon-gemma3 +0.1.0 +loaded", told)
    assert "gemma3 (from antiphon-gemma3" in told
    assert re.search(r"\d+ passed.* 2 xfailed", told)


def test_example_is_what_the_guide_prints() -> None:
    files = {path: text for _, path, text in BLOCK.findall(GUIDE) if path}
    assert len(files) == 4
    for path, text in files.items():
        example = EXAMPLE / path.replace("antiphon_gemma3", "antiphon_gemma")
        own = example.read_text(encoding="utf-8")
        assert (
            own.replace("antiphon_gemma:", "antiphon_gemma3:").replace(
                "antiphon_gemma.", "antiphon_gemma3."
            )
            == text
        ), path


def test_example_is_small() -> None:
    files = [
        path for path in EXAMPLE.rglob("*") if path.suffix in (".py", ".jinja", ".toml", ".md")
    ]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) < 150
