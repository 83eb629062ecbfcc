"""One state at a time (temperatures here), in the order of coming; nobody waits for ever."""

from __future__ import annotations

import asyncio
import random

import pytest
from antiphon_vllm.async_gate import Gate


class Engine:
    """Knows who is inside, and at what temperature it stands."""

    def __init__(self):
        self.gate = Gate(1.0, self.change)
        self.temperature, self.inside, self.changes, self.order = 1.0, 0, 0, []

    async def change(self, temperature):
        assert self.inside == 0
        await asyncio.sleep(0)
        self.temperature = temperature
        self.changes += 1

    async def ask(self, temperature, steps=3):
        async with self.gate.at(temperature):
            self.order.append(temperature)
            self.inside += 1
            for _ in range(steps):
                assert self.temperature == temperature
                await asyncio.sleep(0)
            self.inside -= 1


def test_all_inside_have_the_engines_temperature():
    async def run():
        engine, drawn = Engine(), random.Random(0)
        await asyncio.gather(
            *(engine.ask(drawn.choice([0.5, 1.0]), drawn.randrange(9)) for _ in range(200))
        )
        assert engine.inside == 0

    asyncio.run(run())


def test_equal_temperatures_go_in_together_and_nothing_is_set():
    async def run():
        engine = Engine()
        tasks = [asyncio.create_task(engine.ask(1.0, 10)) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert engine.inside == 5
        await asyncio.gather(*tasks)
        assert engine.changes == 0

    asyncio.run(run())


def test_whoever_came_first_goes_first():
    async def run():
        engine = Engine()
        await asyncio.gather(*(engine.ask(t) for t in (1.0, 0.5, 1.0, 1.0)))
        assert engine.order == [1.0, 0.5, 1.0, 1.0]
        assert engine.changes == 2

    asyncio.run(run())


def test_whoever_gives_up_waiting_holds_up_nobody():
    async def run():
        engine = Engine()
        inside = asyncio.create_task(engine.ask(1.0, 50))
        await asyncio.sleep(0)
        given_up = asyncio.create_task(engine.ask(0.5))
        after = asyncio.create_task(engine.ask(1.0))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(inside, after)
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert engine.order == [1.0, 1.0]

    asyncio.run(run())


def test_alone_means_that_nobody_is_inside():
    async def run():
        engine = Engine()
        inside = asyncio.create_task(engine.ask(1.0, 20))
        await asyncio.sleep(0)
        async with engine.gate.alone():
            assert inside.done()
            waiting = asyncio.create_task(engine.ask(1.0))
            for _ in range(5):
                await asyncio.sleep(0)
            assert engine.inside == 0
        await waiting

    asyncio.run(run())
