"""`vLLMWrapper`: conversations through the engine, token by token what was sampled."""

from __future__ import annotations

import pytest
import torch
from antiphon import ChatHistory, History
from antiphon_transformers import TransformersWrapper
from antiphon_vllm import vLLMWrapper
from tensordict import TensorDict

CHATS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 + 2?"}],
    [{"role": "user", "content": "Hi"}],
]
SETTINGS = {"generate_kwargs": {"max_new_tokens": 8, "seed": 3, "temperature": 1.0}}


def ask(chats=CHATS):
    history = History.from_chats(chats)
    return TensorDict(
        history=ChatHistory(prompt=history, batch_size=(len(chats),)), batch_size=(len(chats),)
    )


@pytest.fixture(scope="module")
def policy(engine_of):
    backend, _ = engine_of("qwen3")
    return vLLMWrapper(backend, tokenizer=backend.tokenizer, **SETTINGS)


def test_answers_and_their_log_probs_are_the_trainers(policy, engine_of):
    _, model = engine_of("qwen3")
    made = policy(ask())
    scorer = TransformersWrapper(
        model, tokenizer=policy.tokenizer, generate=False, input_mode="tokens", inplace=False
    )
    scored = scorer(made.select(("tokens", "full")))
    for own, other in zip(
        made.get(("log_probs", "response"), as_list=True),
        scored.get(("log_probs", "full"), as_list=True),
        strict=True,
    ):
        assert torch.allclose(own, other[-len(own) :], atol=1e-4)


def test_equal_prompts_are_answered_apart(policy):
    ids = policy(ask()).get(("tokens", "response"), as_list=True)
    assert ids[0].tolist() != ids[2].tolist()


def test_samples_have_a_dimension_of_their_own(policy):
    several = policy.get_new_version(num_samples=4)
    made = several(ask())
    assert made.batch_size == (3, 4)
    alone = several(ask(CHATS[1:2]))
    for one, other in zip(made[1].unbind(0), alone[0].unbind(0), strict=True):
        assert torch.equal(one["tokens", "response"], other["tokens", "response"])


def test_a_next_turn_starts_with_exactly_what_was_sampled(policy):
    made = policy(ask(CHATS[:1]))
    for turn in range(3):
        before = made.get(("tokens", "full"), as_list=True)[0].tolist()
        history = made["history", "full"].append(
            History.from_chats([{"role": "user", "content": f"And {turn}?"}]), inplace=False, dim=-1
        )
        following = TensorDict(
            history=ChatHistory(prompt=history, batch_size=(1,)), batch_size=(1,)
        )
        made = policy(following)
        prompt = made.get(("tokens", "prompt"), as_list=True)[0].tolist()
        assert prompt[: len(before)] == before


def test_the_wrapper_scores_what_it_is_given(policy):
    made = policy(ask())
    scorer = policy.get_new_version(generate=False, input_mode="tokens", inplace=False)
    scored = scorer(made.select(("tokens", "full")))
    for own, other in zip(
        made.get(("log_probs", "response"), as_list=True),
        scored.get(("log_probs", "full"), as_list=True),
        strict=True,
    ):
        assert torch.allclose(own, other[-len(own) :], atol=1e-4)
