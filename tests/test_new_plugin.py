"""From nothing to a plugin that is installed, tested and clean, by the command that people use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from antiphon.scaffold import kinds
from installing import antiphon, install, records, run


def build(folder: Path, into: Path) -> None:
    """Build a wheel of a distribution and install it, alone, into a folder."""
    wheels = into.parent / f"wheels-{into.name}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    made = ["wheel", "-q", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, folder]
    subprocess.run([*pip, *made], check=True, capture_output=True, timeout=600)
    wheel = next(wheels.glob("*.whl"))
    installed = ["install", "-q", "--no-deps", "--no-index", "--target", into, wheel]
    subprocess.run([*pip, *installed], check=True, capture_output=True, timeout=600)


@pytest.mark.parametrize("name", ["grey-parrot", "parrot2.5"])
@pytest.mark.parametrize("kind", kinds())
def test_new_plugin_installs_passes_its_tests_and_lints(
    kind: str, name: str, tmp_path: Path
) -> None:
    pytest.importorskip("hatchling", reason="hatchling builds the new distribution")
    empty = tmp_path / "empty"
    distribution = f"antiphon-{name.replace('.', '-')}"
    folder = tmp_path / distribution
    done = antiphon("plugins", "new", kind, name, "--folder", str(folder), site=empty)
    assert done.returncode == 0, done.stderr
    assert "pip install -e . pytest hypothesis" in done.stdout
    site = tmp_path / "site"
    build(folder, site)
    record = records(site)[distribution]
    assert (record["status"], record["error"]) == ("loaded", None)
    assert record["provides"] == [f"{kind}:{name}"]
    tests = run(["-m", "pytest", "-q", "-c", str(folder / "pyproject.toml"), str(folder)], site)
    assert tests.returncode == 0, tests.stdout + tests.stderr
    for line in (["check", "."], ["format", "--check", "."]):
        ruff = subprocess.run(
            [sys.executable, "-m", "ruff", *line],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert ruff.returncode == 0, ruff.stdout + ruff.stderr
    left = [path for path in folder.rglob("*.*") if path.is_file() and "@" in path.name]
    assert left == []


ODD = """{%- for message in messages -%}
{%- if message.role not in ['system', 'user', 'assistant'] -%}{{ raise_exception('Who?') }}{%- endif -%}
<|says|>{{ message.role }}:
{{ message.content or '' }}
{%- for call in message.tool_calls or [] -%}
<call "{{ call.function.name }}">{{ call.function.arguments | tojson }}</call>
{%- endfor -%}<|stop|>
{% endfor %}
{%- if add_generation_prompt -%}<|says|>assistant:
{% endif %}"""


def test_new_family_of_a_template_has_what_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling builds the new distribution")
    (tmp_path / "odd.jinja").write_text(ODD, encoding="utf-8", newline="")
    folder, site = tmp_path / "antiphon-odd", tmp_path / "site"
    line = ("family", "odd", "--folder", str(folder), "--template", str(tmp_path / "odd.jinja"))
    done = antiphon("plugins", "new", *line, site=tmp_path / "empty")
    assert (done.returncode, done.stderr) == (0, "")
    package = folder / "src" / "antiphon_odd"
    assert (package / "templates" / "odd.jinja").read_text(encoding="utf-8") == ODD
    assert '"<|stop|>"' in (package / "plugin.py").read_text(encoding="utf-8")
    assert "CallForm(" in (package / "grammar.py").read_text(encoding="utf-8")
    assert "calls = parallel_calls" in (folder / "tests/test_family.py").read_text(encoding="utf-8")
    build(folder, site)
    tests = run(["-m", "pytest", "-q", "-c", str(folder / "pyproject.toml"), str(folder)], site)
    assert tests.returncode == 0, tests.stdout + tests.stderr
    for command in (["check", "."], ["format", "--check", "."]):
        ruff = subprocess.run(
            [sys.executable, "-m", "ruff", *command], cwd=folder, capture_output=True, check=False
        )
        assert ruff.returncode == 0, ruff.stdout


def test_new_family_of_a_template_that_shows_no_grammar_declares_none(tmp_path: Path) -> None:
    template = tmp_path / "mute.jinja"
    template.write_text("{% for m in messages %}x{% endfor %}", encoding="utf-8")
    line = ("family", "mute", "--folder", str(tmp_path / "new"), "--template", str(template))
    done = antiphon("plugins", "new", *line, site=tmp_path / "empty")
    assert done.returncode == 0
    assert done.stderr.startswith("No grammar could be inferred, so none is declared: ")
    package = tmp_path / "new" / "src" / "antiphon_mute"
    assert "grammar=None" in (package / "plugin.py").read_text(encoding="utf-8")
    assert not (package / "grammar.py").exists()


@pytest.mark.parametrize(
    ("kind", "template", "words"),
    [
        ("family", "{% if %}", "not valid Jinja"),
        ("family", "{{ bos_token }}" + ODD, "asks for bos_token: give --tokenizer"),
        ("env", "x", "--template is for a family"),
    ],
)
def test_template_that_will_not_do_is_refused_and_nothing_written(
    kind: str, template: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "it.jinja").write_text(template, encoding="utf-8")
    line = (
        kind,
        "odd",
        "--folder",
        str(tmp_path / "new"),
        "--template",
        str(tmp_path / "it.jinja"),
    )
    done = antiphon("plugins", "new", *line, site=tmp_path / "empty")
    assert done.returncode == 1
    assert words in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *(
            (name, "can't be named")
            for name in ("7b", "a b", "", "grey--parrot", "parrot.", "..", "../up", "Ārā")
        ),
        ("Parrot", "for example 'parrot'"),
        ("Parrot 2.5", "for example 'parrot-2.5'"),
        ("x" * 300, "at most 60"),
        ("antiphon-parrot", "leave out 'antiphon'"),
        ("chatml", "is taken by antiphon 0."),
        ("healthy", "is taken by stranger-healthy 1.0"),
        ("llama", ""),
        ("model", "could be any model's name"),
    ],
)
def test_name_that_will_not_do_is_refused_in_a_sentence(
    name: str, words: str, tmp_path: Path
) -> None:
    install(tmp_path, "healthy")
    target = tmp_path / "new"
    line = ("plugins", "new", "family", "--folder", str(target), "--", name)
    done = antiphon(*line, site=tmp_path)
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert len(done.stderr) < 300
    assert not target.exists()


@pytest.mark.parametrize("name", ["class", "none", "a_b-c", "con"])
def test_odd_names_make_modules_that_python_takes(name: str, tmp_path: Path) -> None:
    for kind in kinds():
        target = tmp_path / "a folder" / kind
        done = antiphon("plugins", "new", kind, name, "--folder", str(target), site=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"cd '{target}'" in done.stdout
        for file in target.rglob("*.py"):
            compile(file.read_text(encoding="utf-8"), str(file), "exec")


def test_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    done = antiphon("plugins", "new", "env", "parrot", "--folder", str(file), site=tmp_path)
    assert (done.returncode, "is a file" in done.stderr) == (1, True)


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
