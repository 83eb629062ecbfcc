"""A loop in a thread of its own: any caller, any way of giving up, and everybody is answered."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from antiphon.errors import BackendError
from antiphon_vllm.async_thread import LoopThread, together


@pytest.fixture
def loop():
    made = LoopThread("under test")
    yield made
    made.close()


async def double(number):
    await asyncio.sleep(0)
    return 2 * number


async def append(values, value):
    values.append(value)


def test_threads_and_other_loops_get_their_own_results(loop):
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda i: loop.run(double(i)), range(100))) == list(range(0, 200, 2))

    async def elsewhere():
        return await asyncio.gather(*(loop.awaited(double(i)) for i in range(50)))

    assert asyncio.run(elsewhere()) == list(range(0, 100, 2))


def test_an_error_reaches_its_caller(loop):
    async def fail():
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        loop.run(fail())
    assert loop.run(double(1)) == 2


def test_cancelling_the_awaiting_task_cancels_the_work(loop):
    begun, given_up = threading.Event(), threading.Event()

    async def work():
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            given_up.set()
            raise

    async def elsewhere():
        task = asyncio.create_task(loop.awaited(work()))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(elsewhere())
    assert given_up.wait(60)


def test_closing_answers_what_is_under_way(loop):
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(loop.run, asyncio.sleep(3600)) for _ in range(4)]
        loop.run(double(1))
        order = []
        loop.close(last=lambda: append(order, "last"))
        assert order == ["last"]
        for each in waiting:
            with pytest.raises(BackendError, match="closed"):
                each.result(60)
    with pytest.raises(BackendError, match="closed"):
        loop.run(double(1))
    loop.close()


def test_what_runs_together_is_in_order_and_fails_together(loop):
    assert loop.run(together(double(i) for i in range(5))) == [0, 2, 4, 6, 8]
    given_up = []

    async def wait():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            given_up.append(True)
            raise

    async def fail():
        await asyncio.sleep(0)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        loop.run(together([wait(), fail(), wait()]))
    assert len(given_up) == 2
