"""A backend whose work is done by coroutines, in an event loop that runs in a thread of its own.

So it can be called from ordinary code, from any number of threads, and be awaited from any event loop;
calls under way at the same time are all in the one loop, where the engine or the server sees them
together.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import torch
from antiphon.errors import BackendError, InvalidParameter
from antiphon.generation.backends import Generation, Scores, TokenBatch, check_rows
from antiphon.generation.sampling import SamplingParams

from antiphon_vllm.requests import Request, read_score, score_request

#: What a backend that was closed says.
CLOSED = "The backend is closed; make a new one."

_T = TypeVar("_T")


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._closing = False
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop and wait for it; an interrupt here cancels it there.

        Raises:
            BackendError: The loop was closed before it was done.
        """
        future = self._begin(work)
        try:
            return future.result()
        except BaseException:  # an interrupt too: nobody waits for the answer any more
            future.cancel()
            raise

    async def awaited(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await a coroutine that runs in the loop; cancelling the awaiting task cancels it.

        Raises:
            BackendError: The loop was closed before it was done.
        """
        return await asyncio.wrap_future(self._begin(work))

    def _begin(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        if self._closing:
            work.close()
            raise BackendError(CLOSED)
        return asyncio.run_coroutine_threadsafe(self._answered(work), self._loop)

    async def _answered(self, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            return await work
        except asyncio.CancelledError:
            if self._closing:
                raise BackendError(CLOSED) from None
            raise

    def close(self, last: Callable[[], Awaitable[None]] | None = None) -> None:
        """Answer what is under way with an error, await what ``last`` returns, and end the thread."""
        if self._closing or threading.current_thread() is self._thread:
            return
        self._closing = True
        asyncio.run_coroutine_threadsafe(_end(last), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end(last: Callable[[], Awaitable[None]] | None) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    if last is not None:
        await last()


async def together(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run coroutines at once and return their results in order; where one fails, cancel the rest."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def score_rows(
    batch: TokenBatch,
    starts: Sequence[int],
    entropy: bool,
    ask: Callable[[Request, int], Awaitable[Any]],
) -> tuple[list[torch.Tensor], list[torch.Tensor] | None]:
    """Return the log-probs of rows that are scored at once, and their entropies where asked for.

    Args:
        batch: The rows.
        starts: Per row the first position that is asked for.
        entropy: Whether entropies are wanted.
        ask: Returns the finished output for a request, given the row's number.
    """

    async def scored(number: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        row = batch.rows[number]
        request = score_request(row, entropy=entropy)
        output = None if request is None else await ask(request, number)
        return read_score(output, row, starts[number], number, entropy=entropy)

    found = await together(scored(number) for number in range(len(batch)))
    entropies = [each for _, each in found if each is not None] if entropy else None
    return [log_probs for log_probs, _ in found], entropies


class AwaitableBackend(ABC):
    """What backends on a `LoopThread` share: both ways of calling, and what is checked before.

    A subclass gives the two coroutines that do the work, and the rest of
    `antiphon.generation.backends.Backend`.
    """

    name: str
    vocab_size: int
    max_context: int
    _loop: LoopThread
    _ended: str | None = None  # why it can't be used any more

    @abstractmethod
    async def _generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        """Sample for rows that were checked and have seeds."""

    @abstractmethod
    async def _score(
        self, batch: TokenBatch, starts: Sequence[int], temperature: float, entropy: bool
    ) -> Scores:
        """Score rows that were checked."""

    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        """Sample answers; see `antiphon.generation.backends.Backend`."""
        batch = self._checked(batch, params)
        return self._loop.run(self._generate(batch, params)) if batch.rows else _nothing()

    async def generate_async(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        """Await what `generate` returns; see `antiphon.generation.backends.AsyncBackend`."""
        batch = self._checked(batch, params)
        return await self._loop.awaited(self._generate(batch, params)) if batch.rows else _nothing()

    def score(
        self,
        batch: TokenBatch,
        *,
        starts: Sequence[int] | None = None,
        temperature: float = 1.0,
        entropy: bool = False,
        requires_grad: bool = False,
    ) -> Scores:
        """Return log-probs of given ids; see `antiphon.generation.backends.Backend`.

        Raises:
            InvalidParameter: Gradients are asked for, which an engine does not have.
        """
        if requires_grad:
            raise InvalidParameter(
                "vLLM's engine computes no gradients; score with the model that is trained "
                "(TransformersBackend)."
            )
        first = self._checked_starts(batch, starts, temperature)
        return self._loop.run(self._score(batch, first, temperature, entropy))

    async def score_async(
        self,
        batch: TokenBatch,
        *,
        starts: Sequence[int] | None = None,
        temperature: float = 1.0,
        entropy: bool = False,
    ) -> Scores:
        """Await what `score` returns; see `antiphon.generation.backends.AsyncBackend`."""
        first = self._checked_starts(batch, starts, temperature)
        return await self._loop.awaited(self._score(batch, first, temperature, entropy))

    def _checked(self, batch: TokenBatch, params: SamplingParams) -> TokenBatch:
        self._check_rows(batch, room=1)
        if batch.seeds is not None or params.seed is not None:
            return batch.seeded(params, 0)
        # torch's own generator, so that torch.manual_seed makes a run repeatable
        return batch.seeded(params, int(torch.randint(2**62, (1,)).item()))

    def _checked_starts(
        self, batch: TokenBatch, starts: Sequence[int] | None, temperature: float
    ) -> list[int]:
        self._check_rows(batch)
        if temperature <= 0:
            raise InvalidParameter(f"temperature must be above 0, not {temperature!r}.")
        first = [0] * len(batch) if starts is None else [max(0, int(start)) for start in starts]
        if len(first) != len(batch):
            raise InvalidParameter(f"starts has {len(first)} entries for {len(batch)} rows.")
        return first

    def _check_rows(self, batch: TokenBatch, room: int = 0) -> None:
        if self._ended:
            raise BackendError(self._ended)
        check_rows(
            batch,
            backend=self.name,
            vocab_size=self.vocab_size,
            max_context=self.max_context,
            room=room,
        )


def _nothing() -> Generation:
    return Generation([], [], [])
