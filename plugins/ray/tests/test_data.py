"""One loader for many: each row goes to one environment, whoever asks for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import ray
from antiphon import ChatEnv, DatasetChatEnv
from antiphon.envs import RowLoader, TransformedEnv
from antiphon.errors import EnvError, InvalidData, InvalidParameter
from antiphon.registry import get_transform
from antiphon_ray import RayDataLoadingPrimer

ROWS = [{"query": f"q{i}", "answer": i} for i in range(12)]


def loader() -> RowLoader:
    return RowLoader(ROWS, batch_size=2, shuffle=True, seed=5)


@ray.remote(num_cpus=0.5)
class Environments:
    """A worker with an environment of its own."""

    def __init__(self, env: Any = None) -> None:
        self.env = env or DatasetChatEnv(
            dataset=ROWS, seed=5, num_envs=2, repeats=2, dataloader_actor_name="shared rows"
        )

    def reset(self) -> list[tuple[str, int]]:
        root = self.env.reset()
        return list(zip(root["query"], root["group_id"].tolist(), strict=True))


def test_workers_share_the_rows_of_a_data_set() -> None:
    # The one who starts it keeps it alive.
    own = DatasetChatEnv(
        dataset=ROWS, seed=5, num_envs=2, repeats=2, dataloader_actor_name="shared rows"
    )
    workers = [Environments.remote() for _ in range(2)]
    seen = [
        pair
        for _ in range(6)
        for pairs in ray.get([w.reset.remote() for w in workers])
        for pair in pairs
    ]
    # An epoch of 12 rows twice each is 12 resets of 2: every row once, whole groups.
    assert sorted(query for query, _ in seen) == sorted([row["query"] for row in ROWS] * 2)
    assert sorted(group for _, group in seen) == sorted([*range(12)] * 2)
    assert len(set(seen)) == 12
    assert own.reset()["group_id"].tolist() == [12, 12]


def test_an_environment_is_sent_to_workers_whole() -> None:
    primer = RayDataLoadingPrimer(dataloader_factory=loader, data_key="query")
    env = TransformedEnv(ChatEnv(batch_size=2), primer)
    worker = Environments.remote(env)
    seen = [pair for _ in range(2) for pair in ray.get(worker.reset.remote())]
    seen += list(zip((root := env.reset())["query"], root["group_id"].tolist(), strict=True))
    assert len({query for query, _ in seen}) == 6
    assert sorted(group for _, group in seen) == list(range(6))


def test_the_state_is_saved_and_restored() -> None:
    def taken(primer: RayDataLoadingPrimer, count: int) -> list[tuple[str, int]]:
        rows, groups = primer.next_rows(count)
        return [(row["query"], group) for row, group in zip(rows, groups, strict=True)]

    whole = RayDataLoadingPrimer(dataloader_factory=loader, repeats=3)
    taken(whole, 7)
    state = json.loads(json.dumps(whole.state_dict()))
    ahead = taken(whole, 50)
    whole.load_state_dict(state)
    assert taken(whole, 50) == ahead
    whole.reset_dataloader()
    assert len({query for query, _ in taken(whole, 36)}) == 12


def test_errors_are_those_of_a_loader_in_this_process() -> None:
    primer = RayDataLoadingPrimer(ROWS, repeats=4, group_repeats=True, data_key="query")
    with pytest.raises(EnvError, match="3 rows would split a group of 4"):
        primer.next_rows(3)
    assert len(primer.next_rows(4)[0]) == 4
    missing = RayDataLoadingPrimer([{"question": "x"}], data_key="query")
    with pytest.raises(InvalidData, match="Item 1 of the data has no field 'query'"):
        missing.next_rows(1)
    with pytest.raises(InvalidData, match="can't be read: No such file"):
        DatasetChatEnv(dataset="nowhere.jsonl", ray_backend=True).reset()
    with pytest.raises(InvalidParameter, match="no actor 'nobody' runs yet"):
        RayDataLoadingPrimer(actor_name="nobody")
    with pytest.raises(InvalidParameter, match="needs an actor_name"):
        RayDataLoadingPrimer(ROWS, detached=True)


def test_a_loader_that_has_died_is_named() -> None:
    primer = RayDataLoadingPrimer(ROWS, actor_name="mortal")
    assert len(RayDataLoadingPrimer(actor_name="mortal").next_rows(2)[0]) == 2
    ray.kill(primer._actor)
    with pytest.raises(EnvError, match="The shared data loader 'mortal' has died"):
        primer.next_rows(1)
    # Its name is free again.
    fresh = RayDataLoadingPrimer(ROWS, actor_name="mortal")
    assert fresh.next_rows(1)[1] == [0]


def test_the_plugin_registers_it() -> None:
    assert get_transform("ray_data").load() is RayDataLoadingPrimer
