"""`GSM8KEnv` rewards the answer to the question that was asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from antiphon import History
from antiphon.conversations.containers import ChatHistory
from antiphon.envs import check_env
from antiphon.registry import get_env, get_reward
from antiphon_gsm8k import SYSTEM_PROMPT, GSM8KEnv, GSM8KTask
from tensordict import TensorDictBase

ROWS = [{"question": f"What is {i} + {i}?", "answer": f"<<{i}>>\n#### {2 * i}"} for i in range(5)]


def answer(root: TensorDictBase, *texts: str) -> TensorDictBase:
    prompt = root["history"].prompt
    response = History.from_chats([[{"role": "assistant", "content": t}] for t in texts])
    full = prompt.extend(response, inplace=False, dim=-1)
    return root.set("history", ChatHistory(prompt=prompt, full=full, batch_size=root.batch_size))


def test_one_answer_each_and_all_entries() -> None:
    env = GSM8KEnv(dataset=ROWS, shuffle=False, num_envs=3)
    root = env.reset()
    chat = root["history"].prompt.to_chats()[1]
    assert chat[0] == {"role": "system", "content": SYSTEM_PROMPT}
    assert chat[1] == {"role": "user", "content": "What is 1 + 1?"}
    step = env.step(
        answer(root, "<think>0</think><answer>0</answer>", "<answer>3 of them</answer>", "4 or 5")
    )
    following = step["next"]
    assert following["reward"][:, 0].tolist() == [1.0, pytest.approx(0.1), 0.0]
    assert following["reward_think"][:, 0].tolist() == [1.0, 0.0, 0.0]
    assert following["reward_answer"][:, 0].tolist() == [1.0, 1.0, 0.0]
    assert following["success"][:, 0].tolist() == [True, False, False]
    assert following["done"].all()
    assert following["terminated"][:, 0].tolist() == [True, False, False]
    env.full_reward_spec.assert_is_in(following)


def test_several_turns_and_no_reward() -> None:
    env = GSM8KEnv(dataset=ROWS, shuffle=False, max_steps=2)
    step = env.step(answer(env.reset(), "#### 9"))
    assert not step["next", "done"].any()
    chat = step["next", "history"].prompt.to_chats()[0]
    assert chat[-1]["role"] == "user"
    step = env.step(answer(env.step_mdp(step), "#### 0"))
    assert step["next", "terminated"].all()
    assert step["next", "reward"].item() == 1.0
    env = GSM8KEnv(dataset=ROWS, compute_reward=False, max_steps=1)
    step = env.step(answer(env.reset(), "#### 0"))
    assert step["next", "reward"].item() == 0.0
    assert step["next", "truncated"].all()


def test_groups_of_repeats() -> None:
    env = GSM8KEnv(dataset=ROWS, shuffle=False, repeats=4, num_envs=8, group_repeats=True)
    root = env.reset()
    assert root["group_id"].tolist() == [0] * 4 + [1] * 4
    step = env.step(answer(root, *["#### 2"] * 8))
    assert step["next", "reward"][:, 0].tolist() == pytest.approx([0.1] * 4 + [1.0] * 4)
    check_env(GSM8KEnv(dataset=ROWS, num_envs=2))


def test_the_plugin_registers_both() -> None:
    assert get_env("gsm8k").load() is GSM8KEnv
    task: Any = GSM8KEnv.make_task(max_turns=3)
    assert isinstance(task, GSM8KTask)
    assert task.max_turns == 3
    assert get_reward("gsm8k").load()()("#### 4", "4")["reward"] == 1.0
    assert torch.is_tensor(GSM8KEnv(dataset=ROWS).reset()["group_id"])
