"""The backend contract's data."""

from __future__ import annotations

import pytest
import torch
from antiphon.errors import BackendError, InvalidParameter
from antiphon.generation.backends import Generation, TokenBatch, check_rows
from antiphon.generation.sampling import SamplingParams


def check(rows, **options):
    check_rows(TokenBatch(rows), backend="fake", **{"vocab_size": 10, "max_context": 4, **options})


def test_a_row_that_no_model_can_take_is_named():
    check([[1], [9, 0, 1, 2]])
    with pytest.raises(InvalidParameter, match="Row 1 is empty"):
        check([[1], []])
    with pytest.raises(InvalidParameter, match="Row 1 has the id 10"):
        check([[1], [10]])
    with pytest.raises(InvalidParameter, match="Row 0 has the id -1"):
        check([[-1], [1]])
    with pytest.raises(InvalidParameter, match="Row 1 has 4 tokens"):
        check([[1], [1, 2, 3, 4]], room=1)


def test_seeds_and_groups_need_one_entry_per_row():
    with pytest.raises(InvalidParameter, match="seeds"):
        TokenBatch([[1]], seeds=[1, 2])
    with pytest.raises(InvalidParameter, match="groups"):
        TokenBatch([[1]], groups=[])


def test_joined_batches_keep_their_order_and_their_groups_apart():
    joined = TokenBatch.cat([TokenBatch([[1], [2]], [5, 6], [0, 0]), TokenBatch([[1]], [7], [0])])
    assert joined.rows == [[1], [2], [1]]
    assert joined.seeds == [5, 6, 7]
    assert joined.groups == [0, 0, 1]
    assert joined[1:] == TokenBatch([[2], [1]], [6, 7], [0, 1])
    assert TokenBatch.cat([joined, TokenBatch([[3]])]).seeds is None


def test_seeds_are_settled_before_rows_are_merged():
    params = SamplingParams(seed=3)
    alone = TokenBatch([[1, 2]]).seeded(params, 0)
    merged = TokenBatch.cat([TokenBatch([[1, 2]]).seeded(params, 0), alone])
    assert merged.seeds == [alone.seeds[0]] * 2
    assert TokenBatch([[1, 2]]).seeded(SamplingParams(), 3) == alone
    assert alone.seeded(SamplingParams(seed=9), 0) == alone


def test_a_generation_with_rows_missing_is_refused():
    with pytest.raises(BackendError, match="1 finish for 2 rows"):
        Generation([[1], [2]], [torch.zeros(1), torch.zeros(1)], ["end"])


def test_generations_split_and_join_by_prompt():
    rows = [[i] for i in range(6)]
    tops = [(torch.zeros(1, 2), torch.zeros(1, 2))] * 6
    whole = Generation(rows, [torch.full((1,), -float(i)) for i in range(6)], ["end"] * 6, top=tops)
    parts = [whole.take(0, 1, 2), whole.take(1, 3, 2)]
    assert parts[1].ids == [[2], [3], [4], [5]]
    assert Generation.cat(parts).ids == rows
    assert len(Generation.cat(parts).top) == 6
