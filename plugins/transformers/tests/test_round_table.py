"""Models around a table, through wrappers: each keeps its ids over many rounds."""

from __future__ import annotations

import itertools

import pytest
import torch
from antiphon import ChatEnv
from antiphon.envs import RoundTable, Speaker
from antiphon_transformers import TransformersWrapper
from tensordict import TensorDict
from tiny_models import SIZES
from transformers import LlamaConfig, LlamaForCausalLM


@pytest.mark.parametrize("mode", ["tokens", "history"])
def test_three_models_talk_for_eleven_rounds(mode, tokenizer):
    torch.manual_seed(0)
    sizes = {**SIZES, "max_position_embeddings": 4096}
    model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    seen = {name: [] for name in ("agent", "Bob", "Eve")}

    def speaker(name, seed):
        wrapper = TransformersWrapper(
            model,
            tokenizer=tokenizer,
            input_mode=mode,
            generate_kwargs={"max_new_tokens": 6, "temperature": 1.0, "seed": seed},
        )

        def policy(root):
            step = wrapper(root)
            seen[name].append([ids.tolist() for ids in step["tokens"].get("full", as_list=True)])
            return step

        return Speaker(policy, ChatEnv(input_mode=mode, tokenizer=tokenizer), name=name)

    agent, *others = (speaker(name, seed) for seed, name in enumerate(seen))
    env = ChatEnv(input_mode=mode, tokenizer=tokenizer, batch_size=2)
    env = env.append_transform(RoundTable(others))
    start = TensorDict({"query": ["One", "Two"]}, batch_size=2)
    steps = env.rollout(11, agent.policy, tensordict=start)
    for turns in seen.values():
        assert len(turns) == 11
        for before, after in itertools.pairwise(turns):
            for known, ids in zip(before, after, strict=True):
                assert ids[: len(known)] == known
    for name in ("Bob", "Eve"):
        step = steps["next", "table"][1][-1].sides[name].step
        sampled = step["tokens"].get("response")
        assert seen[name][-1][1][-len(sampled) :] == sampled.tolist()
        assert torch.isfinite(step["log_probs"].get("response")).all()
