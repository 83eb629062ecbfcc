"""Plugins that listen hear of everything, change nothing, and end no run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from installing import install, run

HERE = Path(__file__).parent
RUN = str(HERE / "event_run.py")


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the run prints where nobody listens."""
    done = run([RUN], tmp_path_factory.mktemp("nobody"))
    assert done.returncode == 0, done.stderr
    return done.stdout


def listened(site: Path, *plugins: str, **variables: str) -> Any:
    for plugin in plugins:
        install(site, plugin)
    return run([RUN], site, **variables)


def test_listener_hears_of_each_rendering_turn_and_trajectory(tmp_path: Path, silent: str) -> None:
    heard = tmp_path / "heard.jsonl"
    done = listened(tmp_path / "site", "listens", HEARD=str(heard))
    assert done.returncode == 0, done.stderr
    assert done.stdout == silent
    rendered, answers, records, collected = json.loads(silent)
    events: dict[str, list[Any]] = {}
    for line in heard.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        events.setdefault(event.pop("event"), []).append(event)
    assert set(events) == {"RenderingMade", "TurnSampled", "TrajectoryFinished"}

    first = events["RenderingMade"][0]
    assert first["text"] == rendered[0]
    assert first["messages"] == [{"role": "user", "content": "Hi"}]
    assert (first["add_generation_prompt"], first["continued"]) == (True, False)
    (start, end, message, field) = first["spans"][0]
    assert (first["text"][start:end], message, field) == ("Hi", 0, ["content"])
    texts = [event["text"] for event in events["RenderingMade"][:4]]
    assert ["Hello." in text for text in texts] == [False, True, False, False]

    turns = events["TurnSampled"]
    outside = [turn for turn in turns if turn["conversation"] is None]
    assert [turn["ids"] for turn in outside[:2]] == answers
    assert {turn["backend"] for turn in turns} == {"toy"}
    assert all(len(turn["ids"]) == len(turn["log_probs"]) > 0 for turn in turns)
    finished, steps = events["TrajectoryFinished"][:4], events["TrajectoryFinished"][4:]
    assert {each["conversation"] for each in finished} == {"0/0", "0/1", "1/0", "1/1"}
    for each in finished:
        own = [record for record in records if record["conversation"] == each["conversation"]]
        assert [segment["ids"] for segment in each["segments"]] == [r["input_ids"] for r in own]
        assert [s["sampled"] for s in each["segments"]] == [r["assistant_mask"] for r in own]
        sampled = [turn for turn in turns if turn["conversation"] == each["conversation"]]
        assert [turn["turn"] for turn in sampled] == list(range(1, len(each["turns"]) + 1))
        for turn, place in zip(sampled, each["turns"], strict=True):
            ids = each["segments"][place["segment"]]["ids"]
            assert ids[place["start"] : place["end"]] == turn["ids"]
            assert ids[: place["start"]] == turn["prompt_ids"]
        assert each["messages"][-1]["role"] == "assistant"
        assert each["reward"] == own[0]["reward"]
    assert len(steps) == len(collected) == 4
    for each, (ids, reward) in zip(steps, collected, strict=True):
        places = [(t["start"], t["end"], each["segments"][t["segment"]]) for t in each["turns"]]
        assert [whole["ids"][start:end] for start, end, whole in places] == ids
        assert all(all(whole["sampled"][start:end]) for start, end, whole in places)
        assert all(None not in whole["log_probs"][start:end] for start, end, whole in places)
        assert (each["reward"], each["log_prob_difference"]) == (reward, None)
    by_mode = [[message["role"] for message in each["messages"]] for each in steps]
    assert by_mode == [["system", "user", "assistant", "user", "assistant"]] * 2 + [[]] * 2


def test_listener_that_raises_is_named_once_and_the_run_goes_on(
    tmp_path: Path, silent: str
) -> None:
    done = listened(tmp_path, "listener_raises")
    assert done.returncode == 0, done.stderr
    assert done.stdout == silent
    for hook, error in (
        ("antiphon_rendering_made", "ConnectionError: the log server is away"),
        ("antiphon_turn_sampled", "SystemExit: 3"),
        ("antiphon_trajectory_finished", "IndexError"),
    ):
        who = f"Plugin 'listener_raises' of stranger-listener-raises 1.0 failed in {hook} ({error}"
        assert done.stderr.count(f"PluginWarning: {who}") == 1
    assert "ANTIPHON_DISABLE_PLUGINS=listener_raises" in done.stderr
    faults = json.loads(done.stderr.splitlines()[-1])
    assert [fault[1] for fault in faults] == [
        "antiphon_rendering_made",
        "antiphon_turn_sampled",
        "antiphon_trajectory_finished",
    ]
    assert faults[0][2] > 4
    assert faults[2][2] == 8


def test_listener_that_raises_ends_a_strict_run(tmp_path: Path) -> None:
    done = listened(tmp_path, "listener_raises", ANTIPHON_STRICT_PLUGINS="1")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "PluginError" in last
    assert "stranger-listener-raises 1.0 failed in antiphon_rendering_made" in last


def test_listener_can_change_nothing_and_does_not_hear_itself(tmp_path: Path, silent: str) -> None:
    heard = tmp_path / "heard.jsonl"
    done = listened(tmp_path / "site", "listener_meddles", "listens", HEARD=str(heard))
    assert done.returncode == 0, done.stderr
    assert done.stdout == silent
    told = heard.read_text(encoding="utf-8")
    assert "meddled" not in told
    assert "again" not in told.replace("Again?", "")


def test_one_listener_that_raises_takes_nothing_from_another(tmp_path: Path, silent: str) -> None:
    heard = tmp_path / "heard.jsonl"
    done = listened(tmp_path / "site", "listener_raises", "listens", HEARD=str(heard))
    assert done.stdout == silent
    assert '"event": "TrajectoryFinished"' in heard.read_text(encoding="utf-8")


def test_probes_of_templates_are_told_to_nobody(tmp_path: Path) -> None:
    heard = tmp_path / "heard.jsonl"
    install(tmp_path / "site", "listens")
    code = """
import antiphon
template = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|e|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
class Tokenizer:
    chat_template = template
    name_or_path = "nobody/unheard-of"
    special_tokens_map = {}
    def get_vocab(self):
        return {"<|e|>": 1}
antiphon.detect_family(Tokenizer())
from antiphon.reading.infer import infer_grammar
print(infer_grammar(template).end_tokens)
antiphon.render([{"role": "user", "content": "x"}], chat_template=template)
"""
    done = run(["-c", code], tmp_path / "site", HEARD=str(heard))
    assert done.returncode == 0, done.stderr
    (only,) = heard.read_text(encoding="utf-8").splitlines()
    assert json.loads(only)["text"] == "<|user|>x<|e|>"


def test_plugin_that_renders_while_it_is_loaded_is_no_fault(tmp_path: Path) -> None:
    install(tmp_path, "renders_at_import")
    code = """
import antiphon
print(antiphon.render([{"role": "user", "content": "x"}], chat_template="{{ messages[0].content }}").text)
from antiphon.plugins import get_host
print(*(r.status for r in get_host().records if r.name == "renders_at_import"))
"""
    done = run(["-c", code], tmp_path, ANTIPHON_PLUGINS="renders_at_import")
    assert done.stdout.split() == ["x", "loaded"], done.stderr
