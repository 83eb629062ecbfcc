"""What is no row, number, name, option or source is refused in a sentence before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from antiphon.data import (
    PromptGroup,
    SampleOptions,
    TrainOn,
    make_preferences,
    make_samples,
    open_rows,
    tokenize_dataset,
)
from antiphon.data.sources import from_dataset, from_values
from antiphon.drift import drift_of, drift_report
from antiphon.errors import AntiphonError, OutputError
from container_tokenizers import small_tokenizer

CHAT = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]
NONSENSE: list[Any] = [
    5,
    -1.5,
    2**70,
    float("nan"),
    b"x",
    np.float32(1.5),
    np.array([1.5, 2.5]),
    torch.zeros(2, 2),
    torch.zeros(2, device="meta"),
    object(),
    ValueError("x"),
    np.array(3.5),
    torch.tensor(3.5),
]
absurd = pytest.mark.parametrize("wrong", NONSENSE, ids=lambda value: type(value).__name__)


def refused(call: Any, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(AntiphonError, match=r"\w+ .*\w") as told:
        call(*args, **kwargs)
    assert len(str(told.value)) < 400


@absurd
@pytest.mark.parametrize("name", ["turns", "roles", "marked_by", "messages"])
def test_what_is_trained_is_told_by_names_and_indices(name: str, wrong: Any) -> None:
    if name != "messages" or not isinstance(wrong, bytes):  # which is a collection of numbers
        refused(TrainOn, **{name: wrong})
    if name != "messages" or not isinstance(wrong, int):
        refused(TrainOn, **{name: [wrong]})


def test_names_that_no_file_has_are_refused(tmp_path: Path) -> None:
    for wrong in ("x" * 9000, "a\0b", "\ud800"):
        refused(open_rows, wrong)
        with pytest.raises(OutputError, match="can't be written"):
            tokenize_dataset(from_values([CHAT]), tmp_path / wrong, small_tokenizer())


def test_roles_are_several_names() -> None:
    refused(TrainOn, roles="assistant")  # else parts of the name would be roles
    refused(TrainOn, turns="x" * 9000)


@absurd
@pytest.mark.parametrize("name", ["variables", "train_on", "long", "padded", "preference"])
def test_options_of_samples_are_what_they_are_said_to_be(name: str, wrong: Any) -> None:
    if name not in ("padded", "preference") or not isinstance(wrong, int):
        refused(SampleOptions, **{name: wrong})


def test_lengths_are_whole_numbers_above_zero() -> None:
    for wrong in (0, -1, True, 1.5, "5", float("nan"), torch.zeros(2), [], {}):
        refused(SampleOptions, max_length=wrong)
    refused(SampleOptions, variables={None: 1})
    assert SampleOptions(max_length=np.int64(5)).max_length == 5  # type: ignore[arg-type]


@absurd
def test_rows_come_with_their_numbers(wrong: Any) -> None:
    own = small_tokenizer()
    for make, options in (
        (make_samples, SampleOptions()),
        (make_preferences, SampleOptions(preference=True)),
    ):
        for rows in (wrong, [wrong], [(wrong, CHAT, 1)], [("0", CHAT)], [CHAT[0]]):
            refused(make, rows, own, options)
        refused(make, [(0, CHAT)], own, wrong)
        assert make([(0, wrong)], own, options).notes[0].what == "refused"  # type: ignore[operator]


@absurd
def test_sources_are_named_by_texts(wrong: Any, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("[]\n")
    refused(open_rows, wrong)
    refused(open_rows, path, wrong)
    refused(open_rows, path, split=wrong)
    refused(open_rows, path, config=wrong)
    refused(from_dataset, wrong)
    if not isinstance(wrong, (bytes, np.ndarray, torch.Tensor)):
        refused(from_values, wrong)
    refused(lambda: list(open_rows(path).blocks(0 if wrong is NONSENSE[0] else wrong)))


@absurd
@pytest.mark.parametrize(
    "name",
    ["source", "output", "options", "workers", "shard_rows", "resume", "overwrite", "strict", "progress"],
)  # fmt: skip
def test_a_run_that_can_not_be_meant_writes_nothing(name: str, wrong: Any, tmp_path: Path) -> None:
    if isinstance(wrong, int) and name not in ("source", "output", "options", "progress"):
        wrong = 2**70 if name in ("workers", "shard_rows") else 1.5
    given = {"source": from_values([CHAT]), "output": tmp_path / "out", name: wrong}
    refused(tokenize_dataset, tokenizer=small_tokenizer(), **given)
    assert not (tmp_path / "out").exists()


@absurd
def test_groups_are_of_ids_flags_and_numbers(wrong: Any) -> None:
    if isinstance(wrong, bytes):
        return  # small numbers
    refused(PromptGroup.of, wrong)
    refused(PromptGroup.from_rows, wrong, [[True]])
    refused(PromptGroup.from_rows, [[1]], wrong)
    group = PromptGroup.of([1])
    refused(group.add, wrong)
    refused(group.add, [1], sampled=wrong)
    refused(group.add, [1], log_probs=wrong)
    refused(group.padded, 0, side=wrong)
    assert len(group) == 0


@absurd
def test_rows_to_compare_have_ids(wrong: Any) -> None:
    own = small_tokenizer()
    row = {"messages": CHAT, "input_ids": [1]}
    refused(drift_of, wrong, own)
    if not isinstance(wrong, (bytes, np.ndarray)):
        refused(drift_of, {**row, "input_ids": wrong}, own)
        refused(drift_of, {"messages": CHAT, "prompt_ids": [1], "completion_ids": wrong}, own)
        refused(drift_of, {**row, "attention_mask": wrong}, own)
        if not isinstance(wrong, torch.Tensor):
            refused(drift_report, wrong, own)
    if not isinstance(wrong, int):
        refused(drift_of, row, own, with_prompt=wrong)
