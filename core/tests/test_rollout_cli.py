"""``antiphon rollout`` as people run it: one file, a summary, resumable; bad input in one sentence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from antiphon.cli import run
from antiphon.demo import problems_path
from antiphon.rollouts.files import part_path, read_about, read_records

HERE = Path(__file__).parent
# Runs the command with the backend without a model; it takes its time where asked to.
SCRIPT = textwrap.dedent(
    f"""
    import os, sys, time
    sys.path.insert(0, {str(HERE)!r})
    import rollout_helpers
    import antiphon.rollouts.run
    from antiphon.cli import main

    class Slow(rollout_helpers.FakeBackend):
        def generate(self, batch, params):
            time.sleep(float(os.environ.get("SLOW", "0")))
            return super().generate(batch, params)

    antiphon.rollouts.run.load_backend = lambda options: Slow()
    print("ready", flush=True)
    main(sys.argv[1:])
    """
)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(HERE))
    import rollout_helpers

    made: list[Any] = []

    def load(options: Any) -> Any:
        made.append(rollout_helpers.FakeBackend())
        return made[-1]

    monkeypatch.setattr("antiphon.rollouts.run.load_backend", load)
    return made


def conversations(output: Path) -> list[str]:
    return [record["conversation"] for record in read_records(output)]


def rollout(output: Path, *arguments: str) -> int:
    return run(["rollout", "--output", str(output), "--limit", "5", *arguments])


def test_one_file_and_a_summary(fake: Any, tmp_path: Path, capsys: Any) -> None:
    output = tmp_path / "o.jsonl"
    assert rollout(output) == 0
    told = capsys.readouterr().out
    for figure in ("conversations", "mean reward", "reward, turn 1", "trained tokens", "breaks"):
        assert figure in told
    assert "log-probs, sampler against trainer  0.0e+00 in the mean, 0.0e+00 at most" in told
    assert sorted(conversations(output)) == sorted(f"{p}/{s}" for p in range(5) for s in range(2))
    about = read_about(output)
    assert set(about["fingerprints"]) == {
        "template_fingerprint",
        "tokenizer_fingerprint",
        "plugins_fingerprint",
        "model_fingerprint",
    }
    assert fake[0].closed
    assert os.listdir(tmp_path) == ["o.jsonl"]


def test_parquet_holds_the_same_as_json_lines(fake: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow, which is not installed")
    assert rollout(tmp_path / "o.jsonl") == 0
    assert rollout(tmp_path / "o.parquet") == 0
    lines = [
        {k: v for k, v in r.items() if k != "about"} for r in read_records(tmp_path / "o.jsonl")
    ]
    assert read_records(tmp_path / "o.parquet") == lines
    assert read_about(tmp_path / "o.parquet") == read_about(tmp_path / "o.jsonl")


def test_the_seed_settles_everything(fake: Any, tmp_path: Path) -> None:
    for name, seed, batch in (("a", "1", "3"), ("b", "1", "32"), ("c", "2", "32")):
        assert rollout(tmp_path / f"{name}.jsonl", "--seed", seed, "--batch-size", batch) == 0
    rows = {
        name: {r["conversation"]: r["input_ids"] for r in read_records(tmp_path / f"{name}.jsonl")}
        for name in "abc"
    }
    assert rows["a"] == rows["b"] != rows["c"]


def test_a_finished_output_is_not_touched_without_being_asked(
    fake: Any, tmp_path: Path, capsys: Any
) -> None:
    output = tmp_path / "o.jsonl"
    assert rollout(output) == 0
    before = output.read_bytes()
    assert rollout(output) == 1
    assert "is there already" in capsys.readouterr().err
    assert rollout(output, "--resume") == 0
    assert "is complete: 10 conversations" in capsys.readouterr().out
    assert rollout(output, "--resume", "--seed", "9") == 1
    assert "another seed" in capsys.readouterr().err
    assert output.read_bytes() == before
    assert rollout(output, "--overwrite", "--seed", "9") == 0
    assert output.read_bytes() != before


def test_the_system_prompt_is_replaced_or_left_out(fake: Any, tmp_path: Path) -> None:
    firsts = []
    for name, prompt in (("a", "Be brief."), ("b", "")):
        output = tmp_path / f"{name}.jsonl"
        assert rollout(output, "--system-prompt", prompt) == 0
        firsts.append(json.loads(read_records(output)[0]["messages"])[0])
    assert firsts[0] == {"role": "system", "content": "Be brief."}
    assert firsts[1]["role"] == "user"


def test_raw_log_probs_are_asked_for_and_noted(fake: Any, tmp_path: Path) -> None:
    asked = []
    for name in ("raw", "temperature"):
        output = tmp_path / f"{name}.jsonl"
        assert rollout(output, "--log-probs", name) == 0
        asked.append(fake[-1].params.log_prob_convention)
        assert read_about(output)["settings"]["log_probs"] == name
    assert asked == ["raw", "temperature"]


def test_a_time_out_must_be_above_zero(fake: Any, tmp_path: Path, capsys: Any) -> None:
    assert rollout(tmp_path / "o.jsonl", "--timeout", "0") == 1
    assert "--timeout must be above 0 seconds" in capsys.readouterr().err


def test_an_awaitable_backend_gives_the_same_file_and_its_failure_loses_nothing(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    import rollout_helpers
    from antiphon.errors import BackendError

    class Awaited(rollout_helpers.FakeBackend):
        answers_left = 10

        async def generate_async(self, batch: Any, params: Any) -> Any:
            type(self).answers_left -= 1
            if type(self).answers_left == 0:
                raise BackendError("The engine died.")
            return self.generate(batch, params)

        async def score_async(self, batch: Any, **options: Any) -> Any:
            return self.score(batch, **options)

    assert rollout(tmp_path / "rounds.jsonl") == 0
    monkeypatch.setattr("antiphon.rollouts.run.load_backend", lambda options: Awaited())
    output = tmp_path / "o.jsonl"
    assert rollout(output, "--batch-size", "2") == 1
    told = capsys.readouterr().err
    assert "The engine died. The " in told
    assert "go on with --resume" in told
    assert part_path(output).read_bytes().count(b"\n") > 2
    assert rollout(output, "--batch-size", "2", "--resume") == 0
    rows = {r["conversation"]: r["input_ids"] for r in read_records(output)}
    in_rounds = {r["conversation"]: r["input_ids"] for r in read_records(tmp_path / "rounds.jsonl")}
    assert rows == in_rounds


def test_an_environment_of_a_plugin(fake: Any, tmp_path: Path) -> None:
    pytest.importorskip("antiphon_gsm8k", reason="antiphon-gsm8k is not installed")
    output = tmp_path / "o.jsonl"
    assert rollout(output, "--env", "gsm8k") == 0
    assert "<answer>" in json.loads(read_records(output)[0]["messages"])[0]["content"]


# Interruptions


def start(output: Path, *arguments: str, slow: float = 0.25) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, "rollout", "--output", str(output)]
    process = subprocess.Popen(
        [*command, "--limit", "10", "--batch-size", "3", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SLOW": str(slow)},
        # Where the tests themselves run in the background, an interrupt is ignored and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def wait_for_lines(path: Path, lines: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") >= lines:
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} never had {lines} lines")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_it_has_and_goes_on(how: int, tmp_path: Path) -> None:
    output = tmp_path / "o.jsonl"
    process = start(output)
    wait_for_lines(part_path(output), 5)
    process.send_signal(how)
    told, errors = process.communicate(timeout=600)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "go on with --resume" in told
    have = conversations(output)
    assert 4 <= len(have) < 20
    assert len(set(have)) == len(have)

    process = start(output, "--resume", slow=0)
    told, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert "Resuming" in told
    assert sorted(conversations(output)) == sorted(f"{p}/{s}" for p in range(10) for s in range(2))
    assert not part_path(output).exists()


# Bad input: one sentence, exit code 1, no traceback, nothing lost


def refused(capsys: Any, *arguments: str) -> str:
    code = run(["rollout", *arguments])
    told = capsys.readouterr().err
    assert code != 0
    assert "Traceback" not in told
    assert told.count("\n") == 1, told
    return str(told)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (['{"question": "q", "answer": "#### 1"}', "{broken"], "Row 2 of .* not valid JSON"),
        (['{"question": "q"}'], "Row 1 of .* has no field 'answer'"),
        (
            ['{"question": null, "answer": "#### 1"}'],
            "Row 1 of .* has null in 'question', not text",
        ),
        (["[1]", "[2]"], "Row 1 of .* is a list, not an object \\(row 2 too\\)"),
        (['{"q": "q", "answer": "#### 1"}'], r"no field 'question' \(it has 'answer', 'q'\)"),
        (['{"question": 5, "answer": "#### 1"}'], "has a number in 'question'"),
        (['{"question": " ", "answer": "#### 1"}'], "has an empty 'question'"),
        (['{"question": "q", "answer": "no"}'], "Row 1 of .* has no number in 'answer'"),
        (["[1]"], "is a list, not an object"),
        (["", "null"], "Row 2 of .* is null, not an object"),
        (["{}", "{}", "{}"], r"Row 1 of .* \(rows 2, 3 too\)"),
        ([], "holds no rows"),
    ],
)
def test_broken_data_is_named_by_row(
    lines: list[str], reason: str, fake: Any, tmp_path: Path, capsys: Any
) -> None:
    import re

    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(lines) + "\n")
    told = refused(capsys, "--data", str(data), "--output", str(tmp_path / "o.jsonl"))
    assert re.search(reason, told), told
    assert str(data) in told
    assert fake == []


def test_data_that_is_not_there_or_no_text(fake: Any, tmp_path: Path, capsys: Any) -> None:
    output = ("--output", str(tmp_path / "o.jsonl"))
    assert "can't be read: No such file" in refused(capsys, "--data", "nowhere.jsonl", *output)
    assert "can't be read: Is a directory" in refused(capsys, "--data", str(tmp_path), *output)
    data = tmp_path / "data.jsonl"
    data.write_bytes(b'{"question": "\xff"}\n')
    assert "Row 1 of" in (told := refused(capsys, "--data", str(data), *output))
    assert "is not UTF-8" in told
    (tmp_path / "data.parquet").write_bytes(b"PAR1 no")
    told = refused(capsys, "--data", str(tmp_path / "data.parquet"), *output)
    assert "as Parquet" in told


def test_options_that_make_no_run(fake: Any, tmp_path: Path, capsys: Any) -> None:
    output = ("--output", str(tmp_path / "o.jsonl"))
    assert "--samples must be at least 1" in refused(capsys, "-n", "0", *output)
    assert "temperature" in refused(capsys, "--temperature", "-1", *output)
    assert "exclude each other" in refused(capsys, "--resume", "--overwrite", *output)
    told = refused(capsys, "--env", "chess", *output)
    assert "no env named 'chess'" in told
    assert "Built in is 'word-problems'" in told
    assert "must end in .parquet or .jsonl" in refused(capsys, "--output", str(tmp_path / "o.txt"))
    assert fake == []


def test_a_backend_that_is_not_there(tmp_path: Path, capsys: Any) -> None:
    output = ("--output", str(tmp_path / "o.jsonl"))
    assert "no backend named 'abacus'" in refused(capsys, "--backend", "abacus", *output)


def test_a_conversation_that_the_template_refuses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    import rollout_helpers

    template = "{{ raise_exception('System messages are not for me') }}"
    backend = rollout_helpers.FakeBackend(tokenizer=rollout_helpers.byte_tokenizer(template))
    monkeypatch.setattr("antiphon.rollouts.run.load_backend", lambda options: backend)
    told = refused(capsys, "--output", str(tmp_path / "o.jsonl"))
    assert "Row 1 of the data" in told
    assert "System messages are not for me" in told


def test_a_plugin_that_fails_to_import_is_named_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    from antiphon.families import EnvSpec

    spec = EnvSpec("broken", "no_such_module:Env")
    monkeypatch.setattr("antiphon.registry.get_env", lambda name: spec)
    told = refused(capsys, "--env", "broken", "--output", str(tmp_path / "o.jsonl"))
    assert "no_such_module" in told


def test_the_command_line_is_not_slowed_down_by_torch() -> None:
    code = (
        "import sys; from antiphon.cli import run; run(['rollout', '--help']); "
        "sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'tensordict')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--resume" in done.stdout


def test_the_demo_data_is_the_default(fake: Any, tmp_path: Path) -> None:
    assert run(["rollout", "--output", str(tmp_path / "o.jsonl"), "-n", "1"]) == 0
    count = len(problems_path().read_text(encoding="utf-8").splitlines())
    assert len(set(conversations(tmp_path / "o.jsonl"))) == count
    first = read_records(tmp_path / "o.jsonl")[0]
    assert json.loads(first["messages"])[0]["role"] == "system"


def test_the_scorer_is_the_options_or_what_the_backend_names(monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    import rollout_helpers
    from antiphon.rollouts import run as module

    loaded: list[str] = []

    def load(options: module.RunOptions) -> Any:
        loaded.append(options.backend)
        return rollout_helpers.FakeBackend()

    monkeypatch.setattr(module, "load_backend", load)
    sampler = rollout_helpers.FakeBackend()
    assert module.load_scorer(module.RunOptions(backend="fake"), sampler) is sampler
    assert module.load_scorer(module.RunOptions(backend="fake", scorer="fake"), sampler) is sampler
    assert module.load_scorer(module.RunOptions(scorer="other"), sampler) is not sampler
    sampler.trainer = "trainer"
    assert module.load_scorer(module.RunOptions(backend="fake"), sampler) is not sampler
    assert loaded == ["other", "trainer"]
