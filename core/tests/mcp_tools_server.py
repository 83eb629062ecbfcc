"""A small MCP server with tools that behave and tools that do not, over stdio, or over HTTP on a port."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import anyio
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent

server = MCPServer("tools")
arrived: list[anyio.Event] = []
print("listening", file=sys.stderr, flush=True)


@server.tool()
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def wait(seconds: float) -> str:
    """Wait."""
    await anyio.sleep(seconds)
    return f"waited {seconds:g}"


@server.tool()
async def meet(count: int) -> int:
    """Return when so many calls are here together."""
    arrived.append(anyio.Event())
    if len(arrived) == count:
        for each in arrived:
            each.set()
    await arrived[-1].wait()
    return count


@server.tool()
async def waiting(file: str) -> str:
    """Wait for ever, and say in a file that it has begun."""
    Path(file).touch()
    await anyio.sleep_forever()
    return ""


@server.tool()
def environment() -> list[str]:
    """Name the variables of the environment."""
    return sorted(os.environ)


@server.tool()
def picture() -> Image:
    """Draw."""
    return Image(data=b"png", format="png")


@server.tool()
def echo(text: str, self: str = "") -> str:
    """Say it again."""
    return text + self


@server.tool()
def much(size: int) -> str:
    """Say much."""
    return "x" * size


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("out of order")


@server.tool()
def crash() -> str:
    """Fail at something inside."""
    raise ValueError("inside")


@server.tool()
def refuse() -> CallToolResult:
    """Say that it is an error."""
    return CallToolResult(content=[TextContent(text="not today")], is_error=True)


@server.tool()
def process() -> int:
    """Return the number of the process."""
    return os.getpid()


@server.tool()
def die() -> str:
    """End without a word."""
    os._exit(7)


@server.tool()
def block(seconds: float) -> str:
    """Let nothing else run."""
    time.sleep(seconds)
    return "blocked"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
