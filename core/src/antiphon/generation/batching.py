"""Requests of many threads, answered in batches by one worker that owns the queue.

A batch holds requests with equal parameters. It runs as soon as ``min_batch_size`` rows wait for it
or its oldest request has waited for the time-out, and never has more than ``max_batch_size`` rows.
Whatever happens, every request is answered: with its rows, with its own error, or with
`BatchingClosed`.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from antiphon.errors import BackendError, BatchingClosed, InvalidParameter
from antiphon.generation.backends import (
    Backend,
    Generation,
    Scores,
    TokenBatch,
    check_batch,
    check_flags,
    check_params,
    check_scoring,
)
from antiphon.generation.sampling import SamplingParams

_log = logging.getLogger(__name__)
_IDLE_SECONDS = 5.0
_batchers: weakref.WeakSet[Batcher] = weakref.WeakSet()
_Result = TypeVar("_Result", Generation, Scores)


@dataclass
class _Request:
    kind: str
    settings: Any
    batch: TokenBatch
    starts: list[int] | None = None
    future: Future[Any] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)
    hurry: bool = False

    def shares_batch(self, other: _Request) -> bool:
        if self is other:
            return True
        try:
            return self.kind == other.kind and bool(self.settings == other.settings)
        except (
            Exception
        ):  # a parameter of a foreign class, which can't be compared: it shares with nobody
            return False


@dataclass
class BatchingStatistics:
    """What a `Batcher` has done so far.

    Attributes:
        requests: Requests answered, however.
        rows: Rows computed.
        batches: Calls of the backend, failed ones among them.
        largest: Rows of the largest batch.
        failed: Requests answered with an error.
        cancelled: Requests given up by their callers or by closing.
        waited: Seconds that requests waited in the queue, in all.
        longest_wait: The longest of them.
    """

    requests: int = 0
    rows: int = 0
    batches: int = 0
    largest: int = 0
    failed: int = 0
    cancelled: int = 0
    waited: float = 0.0
    longest_wait: float = 0.0


class Batcher:
    """Joins requests for one backend.

    Attributes:
        backend: What answers.
        min_batch_size: Rows that a batch waits for.
        max_batch_size: Most rows of a batch, or None.
        timeout: Seconds after which a batch runs with what there is.
        statistics: What was done so far.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        min_batch_size: int = 1,
        max_batch_size: int | None = None,
        timeout: float = 10.0,
    ) -> None:
        """Begin with an empty queue; the worker starts with the first request.

        Raises:
            InvalidParameter: Sizes or time-out that can't hold.
        """
        for name, size in (("min_batch_size", min_batch_size), ("max_batch_size", max_batch_size)):
            if size is not None and (
                isinstance(size, bool) or not isinstance(size, int) or size < 1
            ):
                raise InvalidParameter(
                    f"{name} must be a whole number of at least 1, not {size!r}."
                )
        if max_batch_size is not None and min_batch_size > max_batch_size:
            raise InvalidParameter(
                f"min_batch_size ({min_batch_size}) must be <= max_batch_size ({max_batch_size})."
            )
        number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        if not number or not timeout >= 0:  # which NaN is not either
            raise InvalidParameter(f"The time-out must be at least 0 seconds, not {timeout!r}.")
        self.backend = backend
        self.min_batch_size, self.max_batch_size, self.timeout = (
            min_batch_size,
            max_batch_size,
            timeout,
        )
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        """Begin with an empty queue."""
        _batchers.add(self)
        self.statistics = BatchingStatistics()
        self._condition = threading.Condition()
        self._queue: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._worker: threading.Thread | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave queue and worker behind: a copy begins with an empty queue."""
        names = ("backend", "min_batch_size", "max_batch_size", "timeout")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin with an empty queue."""
        self.__dict__.update(state, _closed=False)
        self._reset()

    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        """Return what `Backend.generate` returns for these rows; blocks until it is there.

        Args:
            batch: Rows of ids; they may share a batch with others' rows under equal parameters.
            params: How to sample.

        Raises:
            BatchingClosed: The queue was closed or emptied before the rows were answered.
            BackendError: The backend failed on these rows.
        """
        self._check_wait()
        result: Generation = self.submit_generate(batch, params).result()
        return result

    def score(
        self,
        batch: TokenBatch,
        *,
        starts: Sequence[int] | None = None,
        temperature: float = 1.0,
        entropy: bool = False,
        requires_grad: bool = False,
    ) -> Scores:
        """Return what `Backend.score` returns for these rows; blocks until it is there.

        A graph belongs to its caller, so with ``requires_grad`` the rows are computed here and now.

        Args:
            batch: Rows of ids.
            starts: Per row the first position that is asked for; 0 for all where None.
            temperature: Divides the logits.
            entropy: Also return entropies, in nats.
            requires_grad: Keep the graph, for a loss.

        Raises:
            BatchingClosed: The queue was closed or emptied before the rows were answered.
            BackendError: The backend failed on these rows.
        """
        if requires_grad:
            return self.backend.score(
                batch, starts=starts, temperature=temperature, entropy=entropy, requires_grad=True
            )
        self._check_wait()
        future = self.submit_score(batch, starts=starts, temperature=temperature, entropy=entropy)
        result: Scores = future.result()
        return result

    def submit_generate(self, batch: TokenBatch, params: SamplingParams) -> Future[Generation]:
        """Queue rows; takes what `generate` takes. The future can be awaited through ``asyncio.wrap_future``.

        Raises:
            InvalidParameter: They are nothing of that kind.
            BatchingClosed: The queue is closed.
        """
        check_batch(batch)
        check_params(params)
        # Seeds go with the rows, so requests that differ in nothing else share a batch.
        seeded = batch.seeded(params, secrets.randbits(62))
        return self._submit(_Request("generate", replace(params, seed=None), seeded))

    def submit_score(
        self,
        batch: TokenBatch,
        *,
        starts: Sequence[int] | None = None,
        temperature: float = 1.0,
        entropy: bool = False,
    ) -> Future[Scores]:
        """Queue rows to be scored without gradients; takes what `score` takes.

        Raises:
            InvalidParameter: They are nothing of that kind.
            BatchingClosed: The queue is closed.
        """
        check_batch(batch)
        check_flags(entropy=entropy)
        first = check_scoring(
            batch, starts, temperature
        )  # joined, wrong ones would be those of others' rows
        return self._submit(_Request("score", (temperature, entropy), batch, first))

    async def generate_async(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        """Await what `generate` returns; takes what that takes."""
        import asyncio

        return await asyncio.wrap_future(self.submit_generate(batch, params))

    async def score_async(self, batch: TokenBatch, **options: Any) -> Scores:
        """Await what `score` returns, without gradients; takes what `submit_score` takes."""
        import asyncio

        return await asyncio.wrap_future(self.submit_score(batch, **options))

    def drain(self, *, flush: bool = False) -> None:
        """Empty the queue and wait for what is running.

        Args:
            flush: Run what waits, whatever the batch sizes; otherwise answer it with
                `BatchingClosed`.
        """
        with self._condition:
            waiting, running = list(self._queue), list(self._running)
            if flush:
                for request in waiting:
                    request.hurry = True
            else:
                self._queue.clear()
                self.statistics.requests += len(waiting)
                self.statistics.cancelled += len(waiting)
            self._condition.notify_all()
        answered = [*waiting, *running]
        if not flush:  # not while the queue is held: callbacks run here
            reason = "The batching queue was emptied before the request was answered."
            for request in waiting:
                if request.future.set_running_or_notify_cancel():
                    _answer(request.future.set_exception, BatchingClosed(reason))
        if threading.current_thread() is not self._worker:
            wait([request.future for request in answered])

    def close(self, *, flush: bool = False) -> None:
        """Take no more requests and answer all there are, as `drain` does.

        Args:
            flush: Run what waits; otherwise it is answered with `BatchingClosed`.
        """
        with self._condition:
            self._closed = True
        self.drain(flush=flush)
        with self._condition:
            self._condition.notify_all()
            worker = self._worker
        if worker is not None and worker is not threading.current_thread():
            worker.join()

    def state(self) -> dict[str, Any]:
        """Return sizes, time-out and what is waiting and running now, in requests and rows."""
        with self._condition:
            return {
                "min_batch_size": self.min_batch_size,
                "max_batch_size": self.max_batch_size,
                "timeout": self.timeout,
                "queue_size": len(self._queue),
                "queued_rows": sum(len(request.batch) for request in self._queue),
                "pending_futures": len(self._queue) + len(self._running),
                "processing": bool(self._running),
                "closed": self._closed,
                "statistics": BatchingStatistics(**vars(self.statistics)),
            }

    def _submit(self, request: _Request) -> Future[Any]:
        with self._condition:
            if self._closed:
                raise BatchingClosed("The batching worker is closed and takes no more requests.")
            self._queue.append(request)
            if self._worker is None:
                self._worker = threading.Thread(
                    target=self._work, name="antiphon-batching", daemon=True
                )
                self._worker.start()
            self._condition.notify_all()
        return request.future

    def _check_wait(self) -> None:
        if threading.current_thread() is self._worker:
            raise BackendError(
                "A callback runs in the batching worker's own thread, which would wait for itself; use submit_generate "
                "or submit_score there."
            )

    def _work(self) -> None:
        """Run batches until there is nothing to do for a while."""
        while True:
            with self._condition:
                batch = self._next()
                if batch is None:
                    self._worker = None
                    return
                self._running = batch
            try:
                self._run(batch)
            finally:
                with self._condition:
                    self._running = []
                    self._condition.notify_all()

    def _next(self) -> list[_Request] | None:
        """Wait for a batch and take it out of the queue; None where the worker can go."""
        idle_since = time.monotonic()
        while True:
            now = time.monotonic()
            due: float | None = None
            for request in self._leaders():
                group = [other for other in self._queue if other.shares_batch(request)]
                rows = sum(len(other.batch) for other in group)
                deadline = request.since + self.timeout
                hurry = self._closed or any(other.hurry for other in group)
                if hurry or rows >= self.min_batch_size or now >= deadline:
                    return self._take(group, now)
                due = deadline if due is None else min(due, deadline)
            if due is None and (self._closed or now - idle_since >= _IDLE_SECONDS):
                return None
            # A lock can't wait for ever: an infinite time-out is looked at again after an hour.
            self._condition.wait(_IDLE_SECONDS if due is None else min(due - now, 3600.0))

    def _leaders(self) -> list[_Request]:
        """Return the oldest request of each group, oldest first."""
        leaders: list[_Request] = []
        for request in self._queue:
            if not any(request.shares_batch(leader) for leader in leaders):
                leaders.append(request)
        return leaders

    def _take(self, group: list[_Request], now: float) -> list[_Request]:
        taken: list[_Request] = []
        rows = 0
        for request in group:
            size = len(request.batch)
            if taken and self.max_batch_size is not None and rows + size > self.max_batch_size:
                break
            taken.append(request)
            rows += size
        chosen = set(map(id, taken))
        self._queue = deque(request for request in self._queue if id(request) not in chosen)
        for request in taken:
            waited = now - request.since
            self.statistics.waited += waited
            self.statistics.longest_wait = max(self.statistics.longest_wait, waited)
        return taken

    def _run(self, batch: list[_Request]) -> None:
        wanted = [request for request in batch if request.future.set_running_or_notify_cancel()]
        with self._condition:
            self.statistics.requests += len(batch)
            self.statistics.cancelled += len(batch) - len(wanted)
        if not wanted:
            return
        try:
            results = self._compute(wanted)
        except BaseException as error:  # whatever it is belongs to the callers: the worker goes on
            if len(wanted) == 1:
                self._fail(wanted[0], error)
                return
            # Find out whose error it is: everyone gets his own result or his own error.
            for request in wanted:
                try:
                    result = self._compute([request])[0]
                except BaseException as own:  # as above
                    self._fail(request, own)
                else:
                    _answer(request.future.set_result, result)
            return
        for request, result in zip(wanted, results, strict=True):
            _answer(request.future.set_result, result)

    def _fail(self, request: _Request, error: BaseException) -> None:
        with self._condition:
            self.statistics.failed += 1
        _answer(request.future.set_exception, error)

    def _compute(self, requests: list[_Request]) -> list[Any]:
        first = requests[0]
        joined = TokenBatch.cat([request.batch for request in requests])
        sizes = [len(request.batch) for request in requests]
        if first.kind == "generate":
            params: SamplingParams = first.settings
            n = params.num_return_sequences
            made = self._in_parts(
                len(joined), lambda part: self.backend.generate(joined[part], params), n
            )
            generation = Generation.cat(made)
            return [generation.take(begin, end, n) for begin, end in _spans(sizes)]
        temperature, entropy = first.settings
        starts = [start for request in requests for start in request.starts or ()]
        scored = self._in_parts(
            len(joined),
            lambda part: self.backend.score(
                joined[part], starts=starts[part], temperature=temperature, entropy=entropy
            ),
        )
        scores = Scores(
            [row for part in scored for row in part.log_probs],
            [row for part in scored for row in part.entropies or ()] if entropy else None,
            scored[-1].weight_version,
        )
        return [scores.take(begin, end) for begin, end in _spans(sizes)]

    def _in_parts(
        self, rows: int, run: Callable[[slice], _Result], samples: int = 1
    ) -> list[_Result]:
        """Run rows in parts of at most ``max_batch_size``; only one request alone can be above it.

        Raises:
            BackendError: There are not ``samples`` results for each row.
        """
        step = self.max_batch_size or max(1, rows)
        results = []
        for begin in range(0, max(1, rows), step):
            end = min(rows, begin + step)
            with self._condition:
                self.statistics.batches += 1
                self.statistics.largest = max(self.statistics.largest, end - begin)
            result = run(slice(begin, end))
            made, due = len(result.log_probs), (end - begin) * samples
            if made != due:
                raise BackendError(
                    f"{self.backend.name} returned {made} rows for {due}; none was given to anybody."
                )
            results.append(result)
            with self._condition:
                self.statistics.rows += end - begin
        return results


def _answer(settle: Callable[[Any], None], value: Any) -> None:
    """Answer a future, whatever its callbacks do."""
    try:
        settle(value)
    except (
        BaseException
    ):  # of a callback (a future logs what is an Exception itself): the other callers wait
        _log.exception("A callback of a batching request failed.")


def _after_fork() -> None:
    """In the child there is no worker, and nobody who would let the queue go."""
    for batcher in list(_batchers):
        batcher._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _spans(sizes: Sequence[int]) -> list[tuple[int, int]]:
    spans, begin = [], 0
    for size in sizes:
        spans.append((begin, begin + size))
        begin += size
    return spans
