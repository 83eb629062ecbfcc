"""A port of this machine for a server that a test starts."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """Hold a port that nobody listens at: connections are refused, and nobody else is given it.

    A server that lets its address be reused, as those of the tests do, can listen there meanwhile. A port
    that was merely free a moment ago goes to whoever asks next, and servers take long to start.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):  # what vLLM sets too; not on Windows
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
