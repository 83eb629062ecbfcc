"""Rolling out without rounds: each conversation goes on as soon as its own answer is there.

Every conversation is a task of its own, and so many are under way at once as the settings say. As
in `sampling_loop`, what is sampled depends on the seed, the problem, the sample number and the turn
alone, so the order in which answers come changes nothing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from itertools import islice
from typing import Any, TypeVar

from antiphon.envs.conversation import Prompter
from antiphon.envs.tasks import Task
from antiphon.errors import BackendError
from antiphon.generation.backends import AsyncBackend, Backend
from antiphon.generation.batching import Batcher
from antiphon.plugins.events import trajectory_finished, turns_sampled
from antiphon.rollouts.sampling_loop import (
    RolloutSettings,
    Trajectory,
    ask,
    begin_all,
    take_answers,
    take_reply,
    take_scores,
    to_sample,
    to_score,
)

_T = TypeVar("_T")


async def roll_out_async(
    task: Task,
    rows: Sequence[Mapping[str, Any]],
    backend: Backend,
    settings: RolloutSettings,
    *,
    prompter: Prompter,
    done: Iterable[str] = (),
    on_tokens: Callable[[int], None] | None = None,
    scorer: Backend | None = None,
) -> AsyncGenerator[list[Trajectory], None]:
    """Sample conversations; yields finished ones as they end.

    Closing the generator, or cancelling the task that awaits it, gives up what is under way. After
    an error in one conversation those that had ended by then are still yielded, then it is raised.

    Args:
        task: What the conversations are about; its ``respond`` may be ``async``. One that is not
            holds up all conversations for as long as it takes: what waits (for a tool, a server)
            should be.
        rows: The problems.
        backend: What samples and scores. One that can't be awaited (see `AsyncBackend`) works in a
            thread, and takes what waits for it as one batch.
        settings: How many, how, from which seed, and how many at once.
        prompter: Turns messages into prompts.
        done: Names of conversations that are not to be sampled again.
        on_tokens: Called with the number of tokens of each answer.
        scorer: What stands for the trainer and scores what was sampled; ``backend`` by default.

    Raises:
        InvalidData: As `roll_out`.
        BackendError: An answer or a score took longer than ``settings.timeout``.
    """
    waiting = begin_all(task, rows, backend, settings, prompter, set(done))
    batchers: list[Batcher] = []

    def awaitable(one: Backend) -> AsyncBackend:
        if isinstance(one, AsyncBackend):
            return one
        batchers.append(Batcher(one, max_batch_size=settings.batch_size))
        return batchers[-1]

    answering = awaitable(backend)
    judging = answering if scorer is None or scorer is backend else awaitable(scorer)

    async def converse(trajectory: Trajectory) -> Trajectory:
        while not trajectory.done:
            doing = f"Answer {len(trajectory.turns) + 1} of conversation {trajectory.name}"
            batch = to_sample([trajectory], settings)
            sampling = answering.generate_async(batch, settings.params)
            generation = await _in_time(sampling, settings.timeout, doing)
            take_answers([trajectory], generation, prompter)
            turns_sampled(backend.name, batch, generation, [trajectory])
            if on_tokens is not None:
                on_tokens(sum(map(len, generation.ids)))
            reply = ask(trajectory, task, rows[trajectory.problem])
            if inspect.isawaitable(reply):
                reply = await reply
            take_reply(trajectory, reply, backend, settings, prompter)
        batch, starts = to_score([trajectory])
        scoring = judging.score_async(
            batch, starts=starts, temperature=settings.params.log_prob_temperature
        )
        doing = f"Scoring conversation {trajectory.name}"
        take_scores([trajectory], await _in_time(scoring, settings.timeout, doing))
        trajectory_finished(trajectory)
        return trajectory

    running: set[asyncio.Task[Trajectory]] = set()
    try:
        while True:
            free = settings.batch_size - len(running)
            running |= {asyncio.create_task(converse(each)) for each in islice(waiting, free)}
            if not running:
                return
            ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            finished = [each.result() for each in ended if each.exception() is None]
            if finished:
                yield sorted(finished, key=lambda t: (t.problem, t.sample))
            for each in ended:
                each.result()
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for batcher in batchers:
            await asyncio.to_thread(batcher.close)


async def _in_time(awaited: Coroutine[Any, Any, _T], timeout: float | None, doing: str) -> _T:
    try:
        return await asyncio.wait_for(awaited, timeout)
    except asyncio.TimeoutError:  # the builtin's alias from Python 3.11 on
        raise BackendError(
            f"{doing} took longer than the {timeout:g} seconds that it may; give it more, or put "
            "fewer conversations under way at once."
        ) from None


def iterate(items: AsyncGenerator[_T, None]) -> Generator[_T, None, None]:
    """Run an asynchronous generator from ordinary code, in an event loop of its own.

    Whatever ends the iteration, an interrupt too, the generator is closed and its tasks are
    cancelled before this returns.

    Raises:
        RuntimeError: An event loop runs in this thread already; use ``async for`` there.
    """
    loop = asyncio.new_event_loop()
    try:
        while True:
            try:
                yield loop.run_until_complete(anext(items))
            except StopAsyncIteration:
                return
    finally:
        try:
            loop.run_until_complete(_give_up(items))
        finally:
            loop.close()


async def _give_up(items: AsyncGenerator[Any, None]) -> None:
    # An interrupt leaves the task that was waiting for the next item behind.
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for each in left:
        each.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await items.aclose()


__all__ = ["iterate", "roll_out_async"]
