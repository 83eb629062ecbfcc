"""Workers collect from one data set; what they collect arrives whole, and once."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from antiphon import DatasetChatEnv, History
from antiphon.conversations.containers import ChatHistory
from antiphon.envs import WordProblems
from antiphon.errors import EnvError, InvalidParameter
from antiphon_ray import RayCollector
from tensordict import TensorDictBase

ROWS = [{"query": f"q{i}", "answer": f"#### {i}"} for i in range(8)]


class Answers:
    """A policy that answers each question by its number."""

    def __init__(self) -> None:
        self.added = 0

    def __call__(self, root: TensorDictBase) -> TensorDictBase:
        prompt = root["history"].prompt
        texts = [f"#### {int(query[1:]) + self.added}" for query in root["query"]]
        response = History.from_chats([[{"role": "assistant", "content": text}] for text in texts])
        full = prompt.extend(response, inplace=False, dim=-1)
        return root.set(
            "history", ChatHistory(prompt=prompt, full=full, batch_size=root.batch_size)
        )


def make_env(name: str) -> Any:
    task = WordProblems(data_key="query", system_prompt=None)
    return DatasetChatEnv(
        dataset=ROWS, shuffle=False, num_envs=2, task=task, dataloader_actor_name=name
    )


def collected(items: list[TensorDictBase]) -> list[tuple[str, float]]:
    return [
        (step["query"], step["next", "reward"].item())
        for item in items
        for step in item.reshape(-1).unbind(0)
    ]


def test_workers_share_the_work() -> None:
    shared = make_env("collected")
    collector = RayCollector(
        lambda: make_env("collected"), Answers, num_workers=2, total_dialog_turns=16
    )
    items = list(collector)
    assert [item.numel() for item in items] == [2] * 8
    found = collected(items)
    assert all(reward == 1.0 for _, reward in found)
    # 16 answers are two epochs of the 8 rows; what a worker was at in the end was not taken.
    assert len({query for query, _ in found}) == 8
    assert collector.stats.turns >= 14
    assert collector.stats.reward == collector.stats.turns
    collector.shutdown()
    with pytest.raises(EnvError, match="shut down"):
        collector._begin(0)
    shared.close()


def test_a_state_loses_no_item() -> None:
    shared = make_env("saved")

    def made() -> RayCollector:
        return RayCollector(lambda: make_env("saved"), Answers, num_workers=2)

    collector = made()
    taken = []
    for item in collector:
        taken.append(item)
        if len(taken) == 3:
            break
    state, rows = collector.state_dict(), shared.state_dict()
    collector.shutdown()
    other = made()
    other.load_state_dict(state)
    shared.load_state_dict(rows)
    for item in other:
        taken.append(item)
        if len(taken) == 8:
            break
    under_way = other.state_dict()
    other.shutdown()
    handed_out = [
        group
        for data in [
            *taken,
            *under_way["items"],
            *(root for worker in under_way["workers"] for root in worker["roots"]),
        ]
        for group in data["group_id"].reshape(-1).tolist()
    ]
    # Groups are numbered as they are handed out: none is missing, none there twice.
    assert sorted(handed_out) == list(range(len(handed_out)))
    with pytest.raises(InvalidParameter, match="of 2 workers"):
        RayCollector(lambda: make_env("saved"), Answers).load_state_dict(state)


def test_a_worker_that_fails_says_why() -> None:
    def broken(root: TensorDictBase) -> TensorDictBase:
        raise EnvError("The policy is at a loss.")

    shared = make_env("broken")
    collector = RayCollector(lambda: make_env("broken"), lambda: broken)
    with pytest.raises(EnvError, match=r"The policy is at a loss\."):
        next(iter(collector))
    collector.shutdown()

    def absent() -> Any:
        raise EnvError("There is no policy.")

    with pytest.raises(EnvError, match=r"There is no policy\."):
        RayCollector(lambda: make_env("broken"), absent)
    collector = RayCollector(lambda: make_env("broken"), Answers)
    ray.kill(collector.workers[0])
    with pytest.raises(EnvError, match="Worker 0 has died"):
        next(iter(collector))
    collector.shutdown()
    shared.close()
    with pytest.raises(InvalidParameter, match="num_workers"):
        RayCollector(lambda: make_env("x"), Answers, num_workers=0)
    with pytest.raises(InvalidParameter, match="callback stays in this process"):
        RayCollector(lambda: make_env("x"), Answers, callback=print)


def test_weights_reach_every_worker() -> None:
    class Updated(Answers):
        def register_collector(self, collector: Any) -> None:
            collector.weight_updater = lambda weights: setattr(self, "added", weights)

    shared = make_env("updated")
    collector = RayCollector(
        lambda: make_env("updated"), Updated, num_workers=1, track_policy_version=True
    )
    items = iter(collector)
    first = [next(items), next(items)]
    assert all(reward == 1.0 for _, reward in collected(first))
    collector.update_policy_weights_(1)
    later = [next(items) for _ in range(6)]
    assert [int(item["next", "policy_version"].max()) for item in later[-2:]] == [1, 1]
    assert all(reward == pytest.approx(0.1) for _, reward in collected(later[-2:]))
    collector.shutdown()
    shared.close()
