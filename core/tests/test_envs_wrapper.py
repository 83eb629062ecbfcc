"""An environment and a wrapper together: the same conversations in all three modes."""

from __future__ import annotations

from typing import Any

import pytest
import rollout_helpers
from antiphon import ChatEnv, LLMWrapper
from antiphon.envs import WordProblems
from tensordict import TensorDict


@pytest.fixture(scope="module")
def helpers() -> Any:
    return rollout_helpers


def prompts_and_rewards(helpers: Any, mode: Any) -> tuple[Any, Any]:
    backend = helpers.FakeBackend()
    policy = LLMWrapper(backend, input_mode=mode, generate_kwargs={"max_new_tokens": 20, "seed": 1})
    task = WordProblems(max_turns=4)
    env = ChatEnv(input_mode=mode, tokenizer=backend.tokenizer, task=task, batch_size=3)
    rows = {
        "question": ["What is 1?", "What is 22222?", "And 3?"],
        "answer": ["#### 1", "#### 2", "#### 3"],
    }
    steps = env.rollout(
        4, policy, tensordict=TensorDict(rows, batch_size=3), break_when_all_done=True
    )
    rewards = [[s["next", "reward"].item() for s in row.unbind(0)] for row in steps.unbind(0)]
    return sorted(backend.prompts), rewards


def test_all_modes_give_the_same_prompts_and_rewards(helpers: Any) -> None:
    tokens = prompts_and_rewards(helpers, "tokens")
    assert len(tokens[0]) > 6
    assert prompts_and_rewards(helpers, "history") == tokens
    assert prompts_and_rewards(helpers, "text") == tokens
