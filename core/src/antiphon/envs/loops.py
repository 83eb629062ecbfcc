"""An asyncio event loop on a thread of its own, for what must be awaited from plain code."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TookTooLong(Exception):
    """A coroutine did not end in time; told apart from a time-out that it raises itself."""


class LoopThread:
    """Runs coroutines, in one loop, for callers on any thread.

    The loop starts with the first coroutine. In a forked process the parent's loop does not run; a
    new one starts there. It can be pickled: the copy has no loop yet.

    Args:
        name: The thread's name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._process = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return (LoopThread, (self.name,))

    def start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begin a coroutine; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._running_loop())

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine and return what it returns.

        Raises:
            TookTooLong: It took more than ``timeout`` seconds; it is cancelled.
        """
        future = self.start(coroutine)
        try:
            if not concurrent.futures.wait([future], timeout).done:
                raise TookTooLong(f"more than {timeout} seconds")
            return future.result()
        finally:
            future.cancel()  # nothing where it has ended

    def close(self) -> None:
        """Cancel what runs, end the loop, and wait for its thread."""
        with self._lock:
            thread, loop, stop = self._thread, self._loop, self._stop
            self._thread = self._loop = self._stop = None
            if thread is None or loop is None or stop is None or self._process != os.getpid():
                return
        loop.call_soon_threadsafe(stop.set)
        thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                ready: concurrent.futures.Future[Any] = concurrent.futures.Future()
                self._thread = threading.Thread(
                    target=asyncio.run, args=(_until_stopped(ready),), name=self.name, daemon=True
                )
                self._thread.start()
                self._loop, self._stop = ready.result()
                self._process = os.getpid()
            return self._loop


async def _until_stopped(ready: concurrent.futures.Future[Any]) -> None:
    stop = asyncio.Event()
    ready.set_result((asyncio.get_running_loop(), stop))
    await stop.wait()
