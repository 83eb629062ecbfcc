"""A group stores its prompt once and gives whole rows back."""

from __future__ import annotations

import math

import pytest
from antiphon.data import PromptGroup
from antiphon.errors import InvalidData, InvalidParameter
from hypothesis import given
from hypothesis import strategies as st

IDS = st.lists(st.integers(0, 5), max_size=8)


@given(IDS, st.lists(IDS, min_size=1, max_size=5))
def test_rows_come_back_as_they_went_in(prompt: list[int], answers: list[list[int]]) -> None:
    rows = [prompt + answer for answer in answers]
    masks = [[False] * len(prompt) + [True] * len(answer) for answer in answers]
    group = PromptGroup.from_rows(rows, masks)
    assert list(group.rows()) == list(zip(rows, masks, strict=True))
    assert len(group) == len(answers)
    assert group.stored <= len(prompt) + sum(map(len, answers))


def test_the_prompt_is_stored_once_and_no_sampled_token_belongs_to_it() -> None:
    prompt, answers = list(range(100)), [[7, 7, 1], [7, 7, 2], [7, 7, 3]]
    masks = [[False] * 100 + [True] * 3] * 3
    group = PromptGroup.from_rows([prompt + answer for answer in answers], masks)
    assert group.stored == 100 + 9
    assert list(group.prompt) == prompt


def test_rows_are_padded_on_either_side() -> None:
    group = PromptGroup.of([1, 2])
    group.add([3, 4, 5], log_probs=[-1.0, -2.0, -3.0])
    group.add([6], sampled=[False])
    right, left = group.padded(0), group.padded(0, side="left")
    assert right["input_ids"] == [[1, 2, 3, 4, 5], [1, 2, 6, 0, 0]]
    assert left["input_ids"] == [[1, 2, 3, 4, 5], [0, 0, 1, 2, 6]]
    assert left["attention_mask"][1] == [0, 0, 1, 1, 1]
    assert right["assistant_mask"] == [[False, False, True, True, True], [False] * 5]
    assert right["log_probs"][0][2:] == [-1.0, -2.0, -3.0]
    assert all(math.isnan(value) for value in right["log_probs"][1])
    assert PromptGroup.of([1]).padded(0)["input_ids"] == []


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(InvalidData, match="Row 0 has 2 ids and a mask of 1"):
        PromptGroup.from_rows([[1, 2]], [[True]])
    with pytest.raises(InvalidData, match="mask for each row"):
        PromptGroup.from_rows([], [])
    with pytest.raises(InvalidData, match="2 ids and 1 log_probs"):
        PromptGroup.of([1]).add([1, 2], log_probs=[0.0])
    with pytest.raises(InvalidParameter, match="middle"):
        PromptGroup.of([1]).padded(0, side="middle")  # type: ignore[arg-type]
