"""One state at a time: what an engine needs that treats all requests under way alike."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

_State = TypeVar("_State")


class Gate(Generic[_State]):
    """Lets requests in that want the engine in one state, in the order in which they come.

    The engine divides all logits by one number, for example (see
    `antiphon_vllm.worker.set_temperature`), so requests at another wait until it is free. To be used
    in one event loop.

    Args:
        state: The engine's at first.
        change: Puts the engine into another.
    """

    def __init__(self, state: _State, change: Callable[[_State], Awaitable[None]]) -> None:
        self._state = state
        self._change = change
        self._inside = 0
        self._turn = asyncio.Lock()  # whoever waits for it is served in order
        self._empty = asyncio.Event()
        self._empty.set()

    @contextlib.asynccontextmanager
    async def at(self, state: _State) -> AsyncIterator[None]:
        """Be inside while the engine is in this state."""
        if state != self._state or self._turn.locked():
            async with self._turn:
                if state != self._state:
                    await self._empty.wait()
                    await self._change(state)
                    self._state = state
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
