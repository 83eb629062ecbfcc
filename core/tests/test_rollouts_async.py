"""Rolling out without rounds: the same conversations in whatever order answers come, and clean ends."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from antiphon.envs.conversation import Prompter
from antiphon.envs.tasks import FunctionTask, Reply, WordProblems
from antiphon.errors import BackendError, InvalidData, InvalidParameter
from antiphon.generation.backends import AsyncBackend, Generation, Scores, TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon.rollouts.async_loop import iterate, roll_out_async
from antiphon.rollouts.sampling_loop import RolloutSettings, Trajectory, roll_out

sys.path.insert(0, str(Path(__file__).parent))

from rollout_helpers import FakeBackend

ROWS = [{"question": f"What is {i} + {i}?", "answer": f"#### {2 * i}"} for i in range(6)]


class Awaited(FakeBackend):
    """Answers each call after a time of its own, so that they end in any order."""

    def __init__(self, *args: Any, delays: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.random = random.Random(delays)
        self.in_flight = self.most_in_flight = self.given_up = 0

    async def generate_async(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            for _ in range(self.random.randrange(8)):
                await asyncio.sleep(0)
            return self.generate(batch, params)
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        finally:
            self.in_flight -= 1

    async def score_async(self, batch: TokenBatch, **options: Any) -> Scores:
        await asyncio.sleep(0)
        return self.score(batch, **options)


def settings(**changes: Any) -> RolloutSettings:
    given = {"samples": 3, "batch_size": 5, "seed": 3}
    return RolloutSettings(**{**given, **changes}, params=SamplingParams(max_new_tokens=40))


def begin(
    backend: Any, *, rows: Any = ROWS, task: Any = None, done: Any = (), **changes: Any
) -> Any:
    task = task or WordProblems(max_turns=3)
    prompter = Prompter(backend.tokenizer)
    return roll_out_async(task, rows, backend, settings(**changes), prompter=prompter, done=done)


def rolled_out(backend: Any, **options: Any) -> list[Trajectory]:
    return [each for finished in iterate(begin(backend, **options)) for each in finished]


def by_name(trajectories: list[Trajectory]) -> dict[str, Any]:
    return {t.name: t.records() for t in trajectories}


@pytest.fixture(scope="module")
def in_rounds() -> dict[str, Any]:
    backend = FakeBackend()
    prompter = Prompter(backend.tokenizer)
    found = roll_out(WordProblems(max_turns=3), ROWS, backend, settings(), prompter=prompter)
    return by_name([each for finished in found for each in finished])


@pytest.mark.parametrize("delays", range(4))
def test_answers_in_any_order_give_the_conversations_that_rounds_give(
    delays: int, in_rounds: dict[str, Any]
) -> None:
    assert by_name(rolled_out(Awaited(delays=delays))) == in_rounds


def test_a_backend_that_can_not_be_awaited_gives_the_same_through_a_thread(
    in_rounds: dict[str, Any],
) -> None:
    backend = FakeBackend()
    assert not isinstance(backend, AsyncBackend)
    assert by_name(rolled_out(backend)) == in_rounds
    assert not [t for t in threading.enumerate() if t.name == "antiphon-batching"]


def test_no_more_are_under_way_than_the_settings_say() -> None:
    backend = Awaited()
    rolled_out(backend, batch_size=4)
    assert backend.most_in_flight == 4


def test_a_short_conversation_does_not_wait_for_a_long_one() -> None:
    class Stuck(Awaited):
        async def generate_async(self, batch: TokenBatch, params: SamplingParams) -> Generation:
            if batch.groups == [0]:
                await others_over.wait()
            return await super().generate_async(batch, params)

    backend = Stuck()

    async def collect() -> list[str]:
        names = []
        async for finished in begin(backend, samples=1, batch_size=2):
            names += [t.name for t in finished]
            if len(names) == len(ROWS) - 1:
                others_over.set()
        return names

    others_over = asyncio.Event()
    names = asyncio.run(asyncio.wait_for(collect(), 60))
    assert names[-1] == "0/0"
    assert sorted(names) == [f"{i}/0" for i in range(len(ROWS))]


def test_the_reward_sees_the_answer_of_its_own_row() -> None:
    seen: list[tuple[str, str]] = []

    def echo(prompt: list[int], seed: int) -> str:
        text = backend.tokenizer.decode(prompt)
        return text[text.rindex("<q>") : text.rindex("</q>")]

    async def respond(messages: Any, row: Any, turn: int) -> Reply:
        for _ in range(order.randrange(5)):
            await asyncio.sleep(0)
        seen.append((messages[-1]["content"], f"<q>{row['question']}"))
        return Reply([{"role": "user", "content": f"<q>{row['question']}</q>"}], truncated=turn > 3)

    order = random.Random(1)
    backend = Awaited(answers=echo)
    rows = [{"question": f"q{i}", "answer": "#### 1"} for i in range(7)]
    task = WordProblems()
    task.start = lambda row: [{"role": "user", "content": f"<q>{row['question']}</q>"}]  # type: ignore[method-assign]
    task.respond = respond  # type: ignore[assignment]
    trajectories = rolled_out(backend, rows=rows, task=task, samples=2)
    assert len(trajectories) == 14
    assert all(len(t.turns) == 4 for t in trajectories)
    assert all(got == wanted for got, wanted in seen)


def test_a_task_from_an_asynchronous_function_keeps_its_limit_of_turns() -> None:
    async def respond(messages: Any, row: Any, turn: int) -> Reply:
        await asyncio.sleep(0)
        return Reply([{"role": "user", "content": "And?"}], reward=float(turn))

    task = FunctionTask(respond, data_key="question", max_turns=3)
    trajectories = rolled_out(Awaited(), task=task, samples=1)
    assert [[turn.reward for turn in t.turns] for t in trajectories] == [[1.0, 2.0, 3.0]] * len(
        ROWS
    )
    assert all(t.truncated for t in trajectories)


def test_an_asynchronous_task_is_refused_in_rounds() -> None:
    class Slow(WordProblems):
        async def respond(self, messages: Any, row: Any, turn: int) -> Reply:  # type: ignore[override]
            return Reply(truncated=True)

    backend = FakeBackend()
    with (
        pytest.warns(RuntimeWarning, match="never awaited"),
        pytest.raises(InvalidParameter, match=r"Slow\.respond is asynchronous"),
    ):
        list(roll_out(Slow(), ROWS, backend, settings(), prompter=Prompter(backend.tokenizer)))


def test_an_answer_that_takes_too_long_is_named_and_the_rest_is_given_up() -> None:
    class Hangs(Awaited):
        async def generate_async(self, batch: TokenBatch, params: SamplingParams) -> Generation:
            if batch.groups == [2]:
                await asyncio.sleep(3600)
            return await super().generate_async(batch, params)

    backend = Hangs()
    with pytest.raises(
        BackendError, match=r"Answer 1 of conversation 2/\d took longer than the 2 seconds"
    ):
        rolled_out(backend, timeout=2)  # the others are quicker on a busy machine too
    assert backend.in_flight == 0


def test_what_ended_before_an_error_is_there_and_the_error_is_that_of_the_row() -> None:
    class Fails(Awaited):
        async def generate_async(self, batch: TokenBatch, params: SamplingParams) -> Generation:
            if batch.groups == [4]:
                raise BackendError("the engine is gone.")
            return await super().generate_async(batch, params)

    backend = Fails()
    found: list[Trajectory] = []
    rolling = iterate(begin(backend))
    with pytest.raises(BackendError, match="the engine is gone"):
        found.extend(each for finished in rolling for each in finished)
    assert found
    assert all(t.done for t in found)
    assert backend.in_flight == 0


def test_closing_gives_up_what_is_under_way() -> None:
    backend = Awaited()
    rolling = iterate(begin(backend))
    next(rolling)
    rolling.close()
    assert backend.in_flight == 0
    assert backend.given_up > 0


def test_cancelling_gives_up_what_is_under_way() -> None:
    backend = Awaited()

    async def collect() -> None:
        async for _ in begin(backend):
            task.cancel()
            await asyncio.sleep(0)

    async def both() -> None:
        nonlocal task
        task = asyncio.create_task(collect())
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(5):
            await asyncio.sleep(0)

    task: Any = None
    asyncio.run(both())
    assert backend.in_flight == 0


def test_an_interrupt_while_waiting_leaves_no_task_behind() -> None:
    class Interrupts(Awaited):
        async def generate_async(self, batch: TokenBatch, params: SamplingParams) -> Generation:
            if batch.groups == [3]:
                raise KeyboardInterrupt
            return await super().generate_async(batch, params)

    backend = Interrupts()
    with pytest.raises(KeyboardInterrupt):
        rolled_out(backend)
    assert backend.in_flight == 0


def test_a_problem_that_can_not_be_rendered_is_named_before_anything_is_sampled() -> None:
    backend = Awaited()
    backend.max_context = 300
    rows = [*ROWS[:1], {"question": "x" * 300, "answer": "#### 1"}]
    with pytest.raises(InvalidData, match=r"Row 2 of the data has \d+ tokens"):
        rolled_out(backend, rows=rows)
    assert backend.calls == 0


def test_what_is_done_is_not_sampled_again(in_rounds: dict[str, Any]) -> None:
    done = set(list(in_rounds)[::2])
    rest = {name: records for name, records in in_rounds.items() if name not in done}
    assert by_name(rolled_out(Awaited(), done=done)) == rest


def test_each_turn_knows_the_weights_that_sampled_it() -> None:
    class Trained(Awaited):
        def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
            made = super().generate(batch, params)
            made.versions = [[(0, 7), (2, 8)] for _ in made.ids]
            return made

    trajectories = rolled_out(Trained(), samples=1)
    assert all(turn.versions == [(0, 7), (2, 8)] for t in trajectories for turn in t.turns)
    assert trajectories[0].records()[0]["turns"][0]["versions"] == "[[0, 7], [2, 8]]"


def test_joined_generations_keep_what_each_row_was_sampled_with() -> None:
    def made(version: Any, versions: Any = None) -> Generation:
        import torch

        return Generation(
            [[1, 2, 3]], [torch.zeros(3)], ["end"], weight_version=version, versions=versions
        )

    same = Generation.cat([made(1), made(1)])
    assert same.versions is None
    joined = Generation.cat([made(1), made(2), made(3, [[(0, 2), (1, 3)]])])
    assert [joined.versions_of(i) for i in range(3)] == [[(0, 1)], [(0, 2)], [(0, 2), (1, 3)]]
    assert joined.take(2, 3).versions_of(0) == [(0, 2), (1, 3)]


def test_a_function_may_be_the_task() -> None:
    task = FunctionTask(lambda messages, row, turn: Reply(), data_key="question", max_turns=2)
    assert all(len(t.turns) == 2 for t in rolled_out(Awaited(), task=task, samples=1))
