"""The command line: what it prints, what it says where something is wrong, its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from antiphon.cli import run

MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
TEXT = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n"


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: Any, name: str = "file.json") -> str:
        path = tmp_path / name
        content = text if isinstance(text, str) else json.dumps(text)
        path.write_text(content, encoding="utf-8", newline="")
        return str(path)

    return write


def test_no_arguments_show_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    run([])
    shown = capsys.readouterr()
    assert "plugins" in shown.out + shown.err


def test_unknown_command_and_option_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rendr"]) == 2
    assert "rendr" in capsys.readouterr().err
    assert run(["render", "--no-such-option"]) == 2


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("antiphon ")


def test_render_prints_the_text_exactly(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", file(MESSAGES), "--family", "chatml"]) == 0
    assert capsys.readouterr().out == TEXT


def test_render_reads_objects_lines_and_lists(
    file: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    row = json.dumps({"messages": MESSAGES})
    for text in (f"{row}\n\n{row}\n", [MESSAGES, MESSAGES]):
        assert run(["render", file(text), "--family", "chatml", "--json"]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [row["text"] for row in rows] == [TEXT, TEXT]
        start = TEXT.index("Ho")
        assert rows[0]["turns"] == [
            {"message": 1, "start": start, "end": start + 12, "closed": True}
        ]


def test_a_conversation_that_the_template_refuses_withholds_no_other(
    file: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    template = file(
        "{{ raise_exception('no') if messages|length > 1 }}{{ messages[0].content }}", "t.jinja"
    )
    one = [{"role": "user", "content": "one"}]
    path = file([one, one * 2, one], "many.json")
    assert run(["render", path, "--template", template, "--json"]) == 1
    printed = capsys.readouterr()
    assert [json.loads(line)["text"] for line in printed.out.splitlines()] == ["one", "one"]
    assert "many.json, conversation 2: The template" in printed.err


@pytest.mark.parametrize("name", ["messages", "tokenizer", "family", "tools", "chat_template"])
def test_neither_settings_nor_rows_set_what_is_no_variable(
    name: str, file: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = file(MESSAGES)
    assert run(["render", plain, "--template", plain, "--set", f"{name}=x"]) == 1
    assert f"{name} is no variable of a template" in capsys.readouterr().err
    row = file({"messages": MESSAGES, "chat_template_kwargs": {name: "x"}}, "row.json")
    for command in ("render", "view"):
        assert run([command, row, "--family", "chatml"]) == 1
        assert f"sets {name}, which is no template variable" in capsys.readouterr().err


def test_render_takes_a_template_and_its_variables(
    file: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    template = file("{{ n + 1 }}{{ word }}{{ messages | length }}", "t.jinja")
    line = ["render", file(MESSAGES), "--template", template, "--set", "n=1", "--set", "word=a b"]
    assert run(line) == 0
    assert capsys.readouterr().out == "2a b2"


def test_render_explains(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", file(MESSAGES), "--family", "chatml", "--explain"]) == 0
    assert "1.content:Ho" in capsys.readouterr().out


def test_parse_reads_what_render_prints(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["parse", file(TEXT), "--family", "chatml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == MESSAGES


def test_parse_reads_one_completion(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["parse", file("Ho"), "--family", "chatml", "--response", "--json"]
    assert run(line) == 0
    message = json.loads(capsys.readouterr().out)
    assert (message["content"], message["is_complete"]) == ("Ho", False)
    assert run(["parse", file("Ho"), "--family", "chatml", "--response", "--explain"]) == 0
    told = capsys.readouterr().out
    assert "Read as chatml" in told
    assert "(cut off)" in told


WRONG = [
    (["render", "nowhere.json"], "nowhere.json", None),
    (["render", "{file}", "--family", "chatlm"], "did you mean 'chatml'", MESSAGES),
    (
        ["render", "{file}", "--family", "chatml"],
        "conversation 1: the row has none of messages",
        {},
    ),
    (["render", "{file}", "--family", "chatml"], "line 2: this is not JSON", "[]\n{"),
    (["render", "{file}", "--family", "chatml"], "no list of messages", "3"),
    (["render", "{file}", "--family", "chatml"], "is empty", ""),
    (["render", "{file}", "--family", "chatml"], "conversation 1: ", [{"role": "user"}]),
    (["render", "{file}", "--set", "n", "--family", "chatml"], "name=value", MESSAGES),
    (["render", "{file}", "--tools", "{file}", "--family", "chatml"], "no list", "{}"),
    (["parse", "{file}", "--ids", "--family", "chatml"], "list of token ids", "[true]"),
    (["parse", "{file}"], "family", TEXT),
    (["render", "{file}", "--tools", "{file}", "--family", "chatml"], "Item 0 of", MESSAGES),
    (["render", "{file}", "--tokenizer", "{file}"], "There is no tokenizer", [[1]]),
    (["render", "{file}", "--family", "chatml"], "its JSON is nested too deeply", "[" * 100_000),
    (
        ["parse", "{file}", "--ids", "--family", "chatml"],
        "its JSON is nested too deeply",
        "[" * 100_000,
    ),
    (["view", "{file}", "--family", "chatml"], "is nested too deeply", "[" * 100_000),
    (["view", "{file}"], "Row 0 of", [{"input_ids": "ab", "labels": [1, 2]}]),
    (["view", "{file}"], "Row 0 of", [{"input_ids": 5}]),
    (["view", "{file}"], "Row 0 of", [{"input_ids": [1], "assistant_mask": [1], "messages": 5}]),
    (["view", "{file}"], "holds no rows", []),
    (["drift", "{file}", "--tokenizer", "a/b/c"], "There is no tokenizer", [MESSAGES]),
    (["plugins", "show", "unheard-of"], "unheard-of", None),
]


@pytest.mark.parametrize(("line", "words", "content"), WRONG)
def test_what_is_wrong_is_told_in_one_sentence(
    line: list[str], words: str, content: Any, file: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file(content) if content is not None else ""
    assert run([path if part == "{file}" else part for part in line]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("antiphon: ")
    assert words in shown.err
    assert shown.err.count("\n") == 1
    assert "Traceback" not in shown.err


def test_a_folder_in_place_of_a_file_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("render", "parse"):
        assert run([command, str(tmp_path), "--family", "chatml"]) == 1
        told = capsys.readouterr().err
        assert told.startswith(f"antiphon: {tmp_path}: ")
        assert "Errno" not in told


def test_a_path_without_a_tokenizer_is_told_what_it_lacks(
    file: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers", reason="it reads tokenizers")
    (tmp_path / "empty").mkdir()
    for place, words in (
        (tmp_path / "empty", "holds no tokenizer.json"),
        (Path(file(MESSAGES)), "it is no folder"),
        (tmp_path / "nowhere", "there is no such folder"),
        (Path("~nobody-of-that-name/of/mine"), "There is no tokenizer"),
    ):
        assert run(["render", file(MESSAGES), "--tokenizer", str(place)]) == 1
        assert words in capsys.readouterr().err


def test_rows_of_every_form_are_read(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shared = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]
    row = {"messages": MESSAGES}
    forms: list[Any] = [
        [row, row],
        [{"conversations": shared}, {"prompt": "Hi", "completion": "Ho"}],
        "\ufeff" + json.dumps(row) + "\n" + json.dumps({"conversations": shared}) + "\n",
    ]
    for form in forms:
        path = file(form)
        assert run(["render", path, "--family", "chatml", "--json"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [json.loads(line)["text"] for line in lines] == [TEXT, TEXT]
    assert run(["render", file(row), "--family", "chatml"]) == 0
    assert capsys.readouterr().out == TEXT
    for command in ("render", "view"):
        assert run([command, file(forms[0]), "--family", "chatml"]) == 0
        assert capsys.readouterr().out.count("Ho") == 2


def test_ends_of_lines_in_strings_end_no_line(
    file: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = "a\u2028b\u2029c\x85d"
    row = json.dumps({"messages": [{"role": "user", "content": odd}]}, ensure_ascii=False)
    assert run(["render", file(f"{row}\r\n{row}\n"), "--family", "chatml", "--json"]) == 0
    lines = capsys.readouterr().out.rstrip("\n").split("\n")
    assert len(lines) == 2
    assert all(odd in json.loads(line)["text"] for line in lines)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_characters_that_output_lacks_are_written_as_escapes(file: Any, encoding: str) -> None:
    path = file([{"role": "user", "content": "\ud800 \u00fc \U0001f600"}])
    variables = {**os.environ, "PYTHONIOENCODING": encoding}
    for options in (["--json"], []):
        line = [sys.executable, "-m", "antiphon.cli", "render", path, "--family", "chatml"]
        done = subprocess.run(
            [*line, *options], capture_output=True, env=variables, timeout=600, check=False
        )
        assert done.returncode == 0, done.stderr
        assert b"\\ud800" in done.stdout
        if options:
            assert "\ud800 \u00fc \U0001f600" in json.loads(done.stdout)["text"]


@pytest.mark.skipif(os.name == "nt", reason="the shell of Windows closes no streams")
def test_closed_and_full_streams_are_no_fault_of_the_program(file: Any) -> None:
    antiphon = f"{sys.executable} -m antiphon.cli"
    render = f"{antiphon} render --family chatml"
    for line, code, told in (
        (f"{antiphon} plugins list >&-", 0, ""),
        (f"{render} {file(MESSAGES)} >&-", 0, ""),
        (f"{render} {file(MESSAGES)} 2>&-", 0, ""),
        (f"{render} nowhere.json 2>&-", 1, ""),
        (f"{render} - <&-", 1, "antiphon: Standard input is closed"),
        (f"{render} - </dev/null", 1, "antiphon: standard input is empty"),
    ):
        done = subprocess.run(
            line, shell=True, capture_output=True, text=True, timeout=600, check=False
        )
        assert (done.returncode, done.stderr[: len(told)]) == (code, told), (line, done.stderr)
        assert "fault in the program" not in done.stderr


def test_an_interruption_while_modules_load_is_told_in_one_line() -> None:
    code = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupts())
from antiphon.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stderr) == (130, "antiphon: interrupted.\n")


def test_debug_raises_anywhere_on_the_line(file: Any) -> None:
    for line in (["--debug", "render", "nowhere.json"], ["render", "nowhere.json", "--debug"]):
        with pytest.raises(FileNotFoundError):
            run(line)


def test_fault_of_the_program_is_told_as_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("antiphon.cli.inputs.read_text", broken)
    assert run(["render", "-", "--family", "chatml"]) == 1
    told = capsys.readouterr().err
    assert "ZeroDivisionError: boom" in told
    assert "--debug" in told


def test_plugins_list_and_which(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "list"]) == 0
    assert "family chatml" in capsys.readouterr().out
    assert run(["plugins", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["distribution"] == "antiphon"
    assert run(["plugins", "show", "chatml"]) == 0
    assert "family chatml" in capsys.readouterr().out
    assert run(["plugins", "which", "org/Some-ChatML-7B"]) == 0
    assert "chatml (from antiphon" in capsys.readouterr().out
    assert run(["plugins", "which", "org/Unheard-Of"]) == 1
