"""Two models talk to each other through wrappers: ten turns and more, no id lost on either side."""

from __future__ import annotations

import itertools

import pytest
import torch
from antiphon import ChatEnv
from antiphon.envs import SimulatedUser
from antiphon_transformers import TransformersWrapper
from tensordict import TensorDict
from tiny_models import SIZES
from transformers import LlamaConfig, LlamaForCausalLM


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, "max_position_embeddings": 2048})).eval()


@pytest.mark.parametrize("mode", ["tokens", "history"])
def test_two_models_talk_for_eleven_turns(mode, model, tokenizer):
    options = {"max_new_tokens": 6, "seed": 3, "temperature": 1.0}
    wrappers = [
        TransformersWrapper(
            model, tokenizer=tokenizer, input_mode=mode, generate_kwargs={**options, "seed": seed}
        )
        for seed in (1, 2)
    ]
    seen = [[], []]

    def remembering(number):
        def policy(root):
            step = wrappers[number](root)
            seen[number].append([ids.tolist() for ids in step["tokens"].get("full", as_list=True)])
            return step

        return policy

    sides = [ChatEnv(input_mode=mode, tokenizer=tokenizer, batch_size=2) for _ in range(2)]
    env = sides[0].append_transform(
        SimulatedUser(remembering(1), sides[1], system_prompt="You ask.", key="other")
    )
    start = TensorDict({"query": ["One", "Two"]}, batch_size=2)
    steps = env.rollout(11, remembering(0), tensordict=start)
    assert len(seen[0]) == len(seen[1]) == 11
    for turns in seen:
        for before, after in itertools.pairwise(turns):
            for known, ids in zip(before, after, strict=True):
                assert ids[: len(known)] == known
    # The other side's step says what it sampled, and how likely it was.
    side = steps["next", "other"][0][-1]
    sampled = side.step["tokens"].get("response")
    assert seen[1][-1][0][-len(sampled) :] == sampled.tolist()
    probs = side.step["log_probs"].get("response")
    assert probs.shape == sampled.shape
    assert torch.isfinite(probs).all()
