"""`IFEvalEnv` scores each answer by the instructions of its own row."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from antiphon import ChatEnv, History
from antiphon.conversations.containers import ChatHistory
from antiphon.envs import DataLoadingPrimer, check_env
from antiphon.errors import EnvError, InvalidData
from antiphon.registry import get_env, get_reward
from antiphon_ifeval import IFEvalEnv, IFEvalScoreData, IfEvalScorer, IFEvalTask
from tensordict import TensorDictBase

if sys.version_info < (3, 11):
    pytest.skip("if-verifiable has no release for Python 3.10", allow_module_level=True)

NULLS = {"num_words": None, "relation": None, "keywords": None}
ROWS: list[dict[str, Any]] = [
    {
        "key": 1000,
        "prompt": "Name rivers. No commas.",
        "instruction_id_list": ["punctuation:no_comma"],
        "kwargs": [NULLS],
    },
    {
        "key": 1001,
        "prompt": "Quote a title.",
        "instruction_id_list": ["startend:quotation", "detectable_format:title"],
        "kwargs": [NULLS, NULLS],
    },
    {
        "key": 1002,
        "prompt": "Say river in two words or more.",
        "instruction_id_list": ["keywords:existence", "length_constraints:number_words"],
        "kwargs": [
            {**NULLS, "keywords": ["river"]},
            {**NULLS, "num_words": 2, "relation": "at least"},
        ],
    },
]


def answer(root: TensorDictBase, *texts: str) -> TensorDictBase:
    prompt = root["history"].prompt
    response = History.from_chats([[{"role": "assistant", "content": t}] for t in texts])
    full = prompt.extend(response, inplace=False, dim=-1)
    return root.set("history", ChatHistory(prompt=prompt, full=full, batch_size=root.batch_size))


def column(scores: Any, name: str) -> list[Any]:
    found: list[Any] = getattr(scores, name)[:, 0].tolist()
    return found


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_each_answer_is_scored_by_its_own_row(order: list[int]) -> None:
    env = IFEvalEnv(dataset=[ROWS[i] for i in order], shuffle=False, num_envs=3)
    texts = ["Rhine Elbe", '"so"', "Big River"]
    step = env.step(answer(env.reset(), *[texts[i] for i in order]))
    following = step["next"]
    scores = following["ifeval_score"]
    assert isinstance(scores, IFEvalScoreData)
    strict = [True, False, True]
    assert column(scores, "prompt_level_strict_acc") == [strict[i] for i in order]
    assert column(scores, "inst_level_strict_acc") == [[1.0, 0.5, 1.0][i] for i in order]
    rewards = [1.0, 0.3 * 0.5 + 0.1 * 0.5, 1.0]
    assert following["reward"][:, 0].tolist() == pytest.approx([rewards[i] for i in order])
    assert following["done"].all()
    assert following["terminated"][:, 0].tolist() == [strict[i] for i in order]
    env.full_reward_spec.assert_is_in(following)


def test_a_second_turn_is_asked_for() -> None:
    env = IFEvalEnv(dataset=ROWS[:1], max_steps=2, num_envs=1)
    step = env.step(answer(env.reset(), "Rhine, Elbe"))
    assert not step["next", "done"].any()
    root = env.step_mdp(step)
    assert "ifeval_score" not in set(root.keys())
    assert root["history"].prompt.to_chats()[0][-1]["role"] == "user"
    step = env.step(answer(root, "Rhine"))
    assert step["next", "terminated"].all()
    assert step["next", "reward"].item() == pytest.approx(1.0)


def test_a_row_that_can_not_be_scored_is_refused_before_it_is_answered() -> None:
    rows = [ROWS[0], {**ROWS[1], "instruction_id_list": ["a:b", "startend:quotation"]}]
    env = IFEvalEnv(dataset=rows, shuffle=False)
    env.reset()
    with pytest.raises(InvalidData, match="Row 2 can't be scored: Row 1001 asks for"):
        env.reset()


def test_without_a_reward() -> None:
    env = IFEvalEnv(dataset=ROWS, compute_reward=False, num_envs=2)
    step = env.step(answer(env.reset(), "a", "b"))
    assert step["next", "truncated"].all()
    assert "ifeval_score" not in set(step["next"].keys())


def test_the_transform_scores_any_chat_env() -> None:
    primer = DataLoadingPrimer(ROWS, data_key="prompt")
    env = ChatEnv(data_key="prompt", batch_size=3).append_transform(primer)
    env.append_transform(IfEvalScorer(format_weights=(1, 0, 0, 0)))
    step = env.step(answer(env.reset(), "Rhine, Elbe", '"<<so>>"', "Big River"))
    assert step["next", "reward"][:, 0].tolist() == [0.0, 1.0, 1.0]
    assert step["next", "terminated"].all()
    kept = ChatEnv(data_key="prompt", batch_size=3).append_transform(
        DataLoadingPrimer(ROWS, data_key="prompt")
    )
    kept.append_transform(
        IfEvalScorer(
            aggregate_reward=lambda scores: scores.inst_level_loose_acc * 2,  # type: ignore[operator]
            set_done_if_answer=False,
            score_key="scores",
        )
    )
    step = kept.step(answer(kept.reset(), "Rhine", '"so"', "x"))
    assert step["next", "reward"][:, 0].tolist() == [2.0, 1.0, 0.0]
    assert not step["next", "done"].any()
    assert isinstance(step["next", "scores"], IFEvalScoreData)
    with pytest.raises(EnvError, match="works on a ChatEnv"):
        IfEvalScorer()._step(step, step)


def test_rollouts_and_specs() -> None:
    check_env(IFEvalEnv(dataset=ROWS, num_envs=2))
    env = IFEvalEnv(dataset=ROWS, num_envs=2, shuffle=False)
    steps = env.rollout(4, lambda root: answer(root, "a", '"<<b>>"'), break_when_any_done=False)
    assert steps["key"].tolist() == [[1000, 1002, 1001, 1000], [1001, 1000, 1002, 1001]]
    assert steps["next", "ifeval_score"].batch_size == (2, 4)


def test_the_plugin_registers_both() -> None:
    assert get_env("ifeval").load() is IFEvalEnv
    task: Any = IFEvalEnv.make_task(max_turns=3)
    assert isinstance(task, IFEvalTask)
    assert get_reward("ifeval").load()()("none", ROWS[0])["reward"] == pytest.approx(1.0)
    assert torch.is_tensor(IFEvalEnv(dataset=ROWS).reset()["group_id"])
