"""Listeners hear of each rendering, answer and conversation that a public path hands out, once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from installing import install, run

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each path handed out, and what was heard meanwhile."""
    folder = tmp_path_factory.mktemp("paths")
    install(folder / "site", "listens")
    heard = str(folder / "heard.jsonl")
    done = run([str(HERE / "event_paths.py")], folder / "site", HEARD=heard)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def events(path: dict[str, Any], kind: str) -> list[Any]:
    return [event for event in path["heard"] if event["event"] == kind]


def test_every_path_tells_of_the_texts_that_it_hands_out(walked: list[dict[str, Any]]) -> None:
    asked = [path for path in walked if path["texts"] is not None]
    assert len(asked) > 8
    for path in asked:
        heard = Counter(event["text"] for event in events(path, "RenderingMade"))
        assert heard == Counter(path["texts"]), path["path"]


def test_every_path_tells_of_the_answers_that_were_sampled(walked: list[dict[str, Any]]) -> None:
    asked = [path for path in walked if path["answers"]]
    assert len(asked) > 14
    for path in asked:
        heard = sorted(event["ids"] for event in events(path, "TurnSampled"))
        assert heard == sorted(path["answers"]), path["path"]
        assert all(len(e["ids"]) == len(e["log_probs"]) for e in events(path, "TurnSampled"))


def test_every_path_tells_of_the_conversations_that_ended(walked: list[dict[str, Any]]) -> None:
    for path in walked:
        finished = events(path, "TrajectoryFinished")
        assert len(finished) == path["ended"], path["path"]
        assert all(each["terminated"] or each["truncated"] for each in finished), path["path"]
    ended = {path["path"]: path["ended"] for path in walked}
    assert ended["env, history"] == ended["env, all done"] == 2
    assert ended["env, started again"] == 4
    assert ended["env, cut off"] == ended["LLMHashingEnv"] == 0


def test_checks_of_the_kit_are_told_to_nobody(tmp_path: Path) -> None:
    install(tmp_path / "site", "listens")
    code = "from antiphon.testing import check_family; assert check_family('chatml').ok"
    heard = tmp_path / "heard.jsonl"
    done = run(["-c", code], tmp_path / "site", HEARD=str(heard))
    assert done.returncode == 0, done.stderr
    assert not heard.exists()
