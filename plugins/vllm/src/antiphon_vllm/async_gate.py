"""One temperature at a time: what an engine that divides all its logits by one number needs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable


class TemperatureGate:
    """Lets requests of one temperature in at a time, in the order in which they come.

    The engine divides all logits by one number (see `antiphon_vllm.worker.set_temperature`), so
    requests at another wait until it is free. To be used in one event loop.

    Args:
        change: Sets the engine's number.
    """

    def __init__(self, change: Callable[[float], Awaitable[None]]) -> None:
        self._change = change
        self._temperature = 1.0
        self._inside = 0
        self._turn = asyncio.Lock()  # whoever waits for it is served in order
        self._empty = asyncio.Event()
        self._empty.set()

    @contextlib.asynccontextmanager
    async def at(self, temperature: float) -> AsyncIterator[None]:
        """Be inside at this temperature."""
        if temperature != self._temperature or self._turn.locked():
            async with self._turn:
                if temperature != self._temperature:
                    await self._empty.wait()
                    await self._change(temperature)
                    self._temperature = temperature
                self._enter()
        else:
            self._enter()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Wait until nobody is inside, and let nobody in."""
        async with self._turn:
            await self._empty.wait()
            yield

    def _enter(self) -> None:
        self._inside += 1
        self._empty.clear()
