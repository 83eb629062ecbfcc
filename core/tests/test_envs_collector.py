"""The collector: steps or whole conversations, in turn or side by side, never mixed up."""

from __future__ import annotations

import pickle
import random
import threading
import time
from typing import Any

import pytest
from antiphon import DatasetChatEnv, History
from antiphon.conversations.containers import ChatHistory
from antiphon.envs import FunctionTask, Reply, ToolTransform
from antiphon.envs.collector import LLMCollector
from antiphon.errors import EnvError, InvalidParameter
from tensordict import TensorDictBase


def env(name: str = "q", rows: int = 2, lasts: tuple[int, ...] = (1, 2, 3), **options: Any) -> Any:
    """Conversations about ``q0``, ``q1``, ...; the i-th ends after ``lasts[i % len]`` answers."""

    def respond(messages: Any, row: Any, turn: int) -> Reply:
        texts = [m["content"] for m in messages if m["role"] == "assistant"]
        assert texts == [f"{row['query']}!"] * turn, "a row has seen another's answers"
        return Reply(
            [{"role": "user", "content": "more"}], reward=1.0, terminated=turn == row["last"]
        )

    data = [{"query": f"{name}{i}", "last": lasts[i % len(lasts)]} for i in range(50)]
    return DatasetChatEnv(
        dataset=data, shuffle=False, num_envs=rows, task=FunctionTask(respond), **options
    )


def policy(root: TensorDictBase) -> TensorDictBase:
    prompt = root["history"].prompt
    response = History.from_chats(
        [[{"role": "assistant", "content": f"{query}!"}] for query in root["query"]]
    )
    full = prompt.extend(response, inplace=False, dim=-1)
    return root.set("history", ChatHistory(prompt=prompt, full=full, batch_size=root.batch_size))


def query(step: TensorDictBase) -> str:
    return str(step["query"])


def test_batches_of_steps() -> None:
    collector = LLMCollector(env(), policy, dialog_turns_per_batch=4, total_dialog_turns=12)
    items = list(collector)
    assert [item.batch_size[0] for item in items] == [4, 4, 4]  # type: ignore[union-attr]
    assert collector.stats.turns == 12
    assert collector.stats.reward == 12.0
    assert collector.stats.conversations == sum(
        bool(step["next", "done"].item())
        for item in items
        for step in item.unbind(0)  # type: ignore[union-attr]
    )


def test_whole_conversations() -> None:
    collector = LLMCollector(
        env(), policy, yield_completed_trajectories=True, total_dialog_turns=40
    )
    for item in collector:
        assert item is not None
        number = int(query(item[0])[1:])
        assert item.batch_size[0] == (1, 2, 3)[number % 3]
        assert {query(step) for step in item.unbind(0)} == {f"q{number}"}
        done = [step["next", "done"].item() for step in item.unbind(0)]
        assert done == [False] * (len(done) - 1) + [True]


def test_only_last_steps() -> None:
    collector = LLMCollector(
        env(), policy, yield_only_last_steps=True, dialog_turns_per_batch=3, total_dialog_turns=30
    )
    for item in collector:
        assert item is not None
        assert all(step["next", "done"].item() for step in item.unbind(0))


def test_environments_are_mixed_by_weight() -> None:
    collector = LLMCollector(
        [env("a"), env("b")], policy, weights=[3, 1], seed=0, total_dialog_turns=400
    )
    seen = [query(step)[0] for item in collector for step in item.unbind(0)]  # type: ignore[union-attr]
    assert 0.6 < seen.count("a") / len(seen) < 0.9


def test_side_by_side_in_random_order_rows_never_mix() -> None:
    drawn = random.Random(0)
    lock = threading.Lock()

    def unhurried(root: TensorDictBase) -> TensorDictBase:
        with lock:
            pause = drawn.uniform(0, 0.01)
        time.sleep(pause)
        return policy(root)

    collector = LLMCollector(
        [lambda name=name: env(name) for name in "abcd"],  # type: ignore[misc]
        unhurried,
        async_envs=True,
        max_in_flight=2,
        yield_completed_trajectories=True,
        total_dialog_turns=200,
    )
    counts: dict[str, int] = {}
    for item in collector:
        assert item is not None
        first = query(item[0])
        assert item.batch_size[0] == (1, 2, 3)[int(first[1:]) % 3]
        counts[first] = counts.get(first, 0) + 1
    assert {name[0] for name in counts} == set("abcd")
    # Each row of the data comes once before any comes again.
    assert max(counts.values()) == 1
    assert not [t for t in threading.enumerate() if t.name.startswith("antiphon-collector")]


def unhurried(seed: int) -> Any:
    """The policy, each time after another pause."""
    drawn, lock = random.Random(seed), threading.Lock()

    def act(root: TensorDictBase) -> TensorDictBase:
        with lock:
            pause = drawn.uniform(0, 0.004)
        time.sleep(pause)
        return policy(root)

    return act


def test_tool_results_go_to_the_row_that_called_whatever_ends_first() -> None:
    drawn, lock = random.Random(1), threading.Lock()

    def look_up(name: str) -> str:
        """Look it up."""
        with lock:
            pause = drawn.uniform(0, 0.01)
        time.sleep(pause)
        return f"found {name}"

    def act(root: TensorDictBase) -> TensorDictBase:
        prompt = root["history"].prompt
        answers = []
        for row in prompt.unbind(0):
            chat = row.to_chats()
            name = chat[0]["content"]
            assert all(m["content"] == f"found {name}" for m in chat if m["role"] == "tool")
            calls = [
                {"type": "function", "function": {"name": "look_up", "arguments": {"name": name}}}
            ] * (chat[-1]["role"] != "tool")
            more = {"tool_calls": calls} if calls else {}
            answers.append([{"role": "assistant", "content": f"{name}!", **more}])
        full = prompt.extend(History.from_chats(answers), inplace=False, dim=-1)
        chats = ChatHistory(prompt=prompt, full=full, batch_size=root.batch_size)
        return root.set("history", chats)

    def respond(messages: Any, row: Any, turn: int) -> Reply:
        assert messages[-1]["content"] == f"{row['query']}!"
        return Reply(reward=float(row["query"][1:]), terminated=messages[-2]["role"] == "tool")

    def made(name: str) -> Any:
        data = [{"query": f"{name}{i}"} for i in range(40)]
        task = FunctionTask(respond)
        env = DatasetChatEnv(dataset=data, shuffle=False, num_envs=3, task=task)
        return env.append_transform(ToolTransform([look_up]))

    collector = LLMCollector(
        [made(name) for name in "abc"],
        act,
        async_envs=True,
        yield_completed_trajectories=True,
        total_dialog_turns=90,
    )
    for item in collector:
        assert item is not None
        names = {query(step) for step in item.unbind(0)}
        (name,) = names
        assert item["next", "reward"].reshape(-1).tolist() == [0.0, float(name[1:])]
        last = item[-1]["next", "history"].prompt.to_chats()
        assert f"found {name}" in [message["content"] for message in last]
    collector.shutdown()


def test_no_more_is_in_flight_than_allowed_and_the_slow_do_not_hold_the_quick() -> None:
    lock = threading.Condition()
    running = most = 0
    counts = {"a": 0, "b": 0, "c": 0}

    def quick() -> int:
        return counts["b"] + counts["c"]

    def act(root: TensorDictBase) -> TensorDictBase:
        nonlocal running, most
        name = root["query"][0][0]
        with lock:
            running += 1
            most = max(most, running)
            counts[name] += 1
            lock.notify_all()
            if name == "a":  # as slow as eight steps of others
                others = quick() + 8
                assert lock.wait_for(lambda: quick() >= others or counts["a"] > 2, 60)
            running -= 1
        return policy(root)

    collector = LLMCollector(
        [env(name) for name in "abc"],
        act,
        async_envs=True,
        max_in_flight=2,
        dialog_turns_per_batch=2,
        total_dialog_turns=200,
    )
    for _ in collector:
        pass
    assert most == 2
    assert 200 <= collector.stats.turns <= 200 + 2 * 2
    assert counts["a"] >= 2
    assert quick() >= 16
    # Nobody takes: nobody goes on.
    waiting = iter(
        LLMCollector(
            [env("b"), env("c")], act, async_envs=True, max_in_flight=3, dialog_turns_per_batch=2
        )
    )
    next(waiting)
    before = dict(counts)
    time.sleep(0.2)
    assert sum(counts.values()) - sum(before.values()) <= 3
    waiting.close()  # type: ignore[attr-defined]


def test_weights_hold_side_by_side_too() -> None:
    collector = LLMCollector(
        [env("a"), env("b")],
        unhurried(2),
        async_envs=True,
        weights=[3, 1],
        seed=0,
        total_dialog_turns=400,
    )
    seen = [query(step)[0] for item in collector for step in item.unbind(0)]  # type: ignore[union-attr]
    assert 0.6 < seen.count("a") / len(seen) < 0.9
    never = LLMCollector([env("a"), env("b")], policy, weights=[0, 1], total_dialog_turns=20)
    assert {query(step)[0] for item in never for step in item.unbind(0)} == {"b"}  # type: ignore[union-attr]


@pytest.mark.parametrize("side_by_side", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_whoever_stops_and_goes_on_loses_and_doubles_nothing(
    side_by_side: bool, whole: bool
) -> None:
    """Also what threads had collected when the loop was left, and through a stored state."""

    def made() -> LLMCollector:
        return LLMCollector(
            [env(name, rows=3) for name in "ab"],
            unhurried(3),
            async_envs=side_by_side,
            yield_completed_trajectories=whole,
            dialog_turns_per_batch=4,
        )

    collector = made()
    seen: dict[str, list[int]] = {}
    for round_ in range(6):
        for count, item in enumerate(collector):
            assert item is not None
            for step in item.unbind(0):
                seen.setdefault(query(step), []).append(int(step["next", "turn"].item()))
            if count == round_:
                break
        if round_ == 3:
            state = pickle.loads(pickle.dumps(collector.state_dict()))
            collector = made()
            collector.load_state_dict(state)
    names = {name: sorted(int(each[1:]) for each in seen if each[0] == name) for name in "ab"}
    for name, turns in seen.items():
        if len(turns) == (1, 2, 3)[int(name[1:]) % 3] or not whole:
            assert turns == list(range(1, len(turns) + 1)), "a step is missing, or there twice"
    assert all(len(numbers) >= 3 for numbers in names.values())
    if not whole:
        assert sum(map(len, seen.values())) == 4 * (1 + 2 + 3 + 4 + 5 + 6)


def test_items_have_the_turns_that_were_asked_for() -> None:
    collector = LLMCollector(env(rows=3), policy, dialog_turns_per_batch=4, total_dialog_turns=21)
    assert [item.batch_size[0] for item in collector] == [4, 4, 4, 4, 4, 1]  # type: ignore[union-attr]


def test_the_figures_of_each_environment() -> None:
    collector = LLMCollector([env("a"), env("b", rows=4)], policy, total_dialog_turns=24)
    list(collector)
    assert [stats.turns for stats in collector.env_stats] == [8, 16]
    assert sum(stats.reward for stats in collector.env_stats) == collector.stats.reward == 24.0
    assert sum(s.conversations for s in collector.env_stats) == collector.stats.conversations
    assert collector.stats.tokens == 0


def test_an_error_in_a_thread_reaches_the_one_who_iterates() -> None:
    def broken(root: TensorDictBase) -> TensorDictBase:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        list(LLMCollector([env("a"), env("b")], broken, async_envs=True))


def test_versions_buffers_and_callbacks() -> None:
    stored: list[Any] = []
    seen: list[Any] = []
    given: list[Any] = []
    collector = LLMCollector(
        env(),
        policy,
        dialog_turns_per_batch=2,
        total_dialog_turns=6,
        replay_buffer=type("Buffer", (), {"extend": lambda self, item: stored.append(item)})(),
        callback=seen.append,
        track_policy_version=True,
        weight_updater=given.append,
    )
    for number, item in enumerate(collector):
        assert item is None
        collector.update_policy_weights_({"version": number})
    versions = [item["next", "policy_version"].tolist() for item in stored]
    assert versions == [[0, 0], [1, 1], [2, 2]]
    assert len(seen) == 3
    assert given == [{"version": 0}, {"version": 1}, {"version": 2}]


@pytest.mark.parametrize("stop", [2, 6, 7, 12])
def test_a_restored_collector_goes_on_in_the_middle_of_conversations(stop: int) -> None:
    def made(total: int) -> LLMCollector:
        return LLMCollector(
            env(rows=3), policy, yield_completed_trajectories=True, total_dialog_turns=total
        )

    def collected(collector: LLMCollector) -> list[str]:
        return [query(item[0]) for item in collector if item is not None]

    whole = collected(made(60))
    first = made(stop)
    before = collected(first)
    second = made(60)
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert before + collected(second) == whole


def test_what_can_not_be() -> None:
    with pytest.raises(InvalidParameter, match="either policy"):
        LLMCollector(env())
    with pytest.raises(InvalidParameter, match="exclude each other"):
        LLMCollector(env(), policy, yield_completed_trajectories=True, yield_only_last_steps=True)
    with pytest.raises(InvalidParameter, match="weights"):
        LLMCollector(env(), policy, weights=[1, 2])
    state = LLMCollector([env(), env()], policy).state_dict()
    with pytest.raises(EnvError, match="a collector with 2 environments, and this one has 1"):
        LLMCollector(env(), policy).load_state_dict(state)
    with pytest.raises(EnvError, match="no weight_updater"):
        LLMCollector(env(), policy).update_policy_weights_({"a": 1})
    collector = LLMCollector(env(), policy)
    collector.shutdown()
    with pytest.raises(EnvError, match="closed"):
        next(iter(collector))
