"""Distributions lie as the padded tokens of their tensordict lie: prompts on the left, responses on the right."""

from __future__ import annotations

import pytest
import torch
from antiphon import Masks, Tokens
from antiphon.generation.backends import TokenBatch
from antiphon_transformers import TransformersWrapper
from tensordict import TensorDict, lazy_stack

PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12]]
ANSWERS = [[20, 21, 22, 23], [24, 25]]
ROWS = [prompt + answer for prompt, answer in zip(PROMPTS, ANSWERS, strict=True)]
TURNS = [
    [False] * len(prompt) + [True] * len(answer)
    for prompt, answer in zip(PROMPTS, ANSWERS, strict=True)
]


def ragged(**parts):
    rows = zip(*parts.values(), strict=True)
    return lazy_stack(
        [
            Tokens(**{name: torch.tensor(ids) for name, ids in zip(parts, row, strict=True)})
            for row in rows
        ]
    )


def padded() -> TensorDict:
    """Rows of 7 tokens each in 9 columns, as a policy with ``pad_output=True`` writes them."""
    tokens = ragged(prompt=PROMPTS, response=ANSWERS, full=ROWS).pad(0)
    assert tokens.full.shape == (2, 9)
    return TensorDict(tokens=tokens, batch_size=(2,))


@pytest.fixture
def scorer(models_by_name):
    return TransformersWrapper(models_by_name("qwen3"), input_mode="tokens", generate=False)


def right(scorer):
    return [row[1:] for row in scorer.backend.score(TokenBatch(ROWS)).log_probs]


def test_log_probs_stand_where_the_tokens_do(scorer):
    data = padded()
    dist = scorer.get_dist(data)
    found = dist.log_prob(data["tokens"].full)
    assert dist.mask.tolist() == [
        [False] * 2 + [False] + [True] * 6,
        [False] + [True] * 6 + [False] * 2,
    ]
    for row, mask, own in zip(found, dist.mask, right(scorer), strict=True):
        torch.testing.assert_close(row[mask], own, atol=1e-4, rtol=0)
        assert (row[~mask] == 0).all()


def turns_in_place():
    place = torch.zeros(2, 9, dtype=torch.bool)
    place[0, 5:9] = True
    place[1, 5:7] = True
    return place


def test_masks_as_wide_as_the_tokens_lie_as_they_do(scorer):
    data = padded()
    data["masks"] = Masks(all_assistant_mask=turns_in_place(), batch_size=(2,))
    for dist in (
        scorer._get_rlhf_dist(data),
        scorer._get_sft_dist(data),
        scorer._get_dist_with_custom_mask(data, turns_in_place()),
        scorer._get_dist_with_custom_mask(data, TURNS),
        scorer.get_dist(data, mask_key=("masks", "all_assistant_mask"), padding_side="right"),
    ):
        assert torch.equal(dist.mask, turns_in_place())


def test_an_attention_mask_tells_where_hand_padded_tokens_lie(scorer):
    ids, mask = torch.zeros(2, 12, dtype=torch.long), torch.zeros(2, 12, dtype=torch.bool)
    for row, (begin, own) in enumerate(zip((1, 4), ROWS, strict=True)):
        ids[row, begin : begin + len(own)] = torch.tensor(own)
        mask[row, begin : begin + len(own)] = True
    data = TensorDict(
        tokens=Tokens(full=ids, batch_size=(2,)), attention_mask=mask, batch_size=(2,)
    )
    dist = scorer.get_dist(data)
    found = dist.log_prob(ids)
    for row, begin, own in zip(found, (1, 4), right(scorer), strict=True):
        torch.testing.assert_close(row[begin + 1 : begin + 7], own, atol=1e-4, rtol=0)


def test_ragged_tokens_are_padded_on_the_side_that_is_asked_for(scorer):
    rows = [[5, 6, 7], [8, 9, 10, 11, 12]]
    tokens = ragged(full=rows)
    data = TensorDict(tokens=tokens, batch_size=(2,))
    assert scorer.get_dist(data).mask[0].tolist() == [False, False, False, True, True]
    asked = scorer.get_dist(data, padding_side="right")
    assert asked.mask[0].tolist() == [False, True, True, False, False]
