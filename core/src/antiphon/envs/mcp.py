"""Tools of MCP servers: listed, called and answered through the ``mcp`` package.

A session with a server begins with the tools that are asked for and ends with the environment. It
lives in an event loop on a thread of its own, so calls may come from any thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from antiphon.envs.loops import LoopThread, TookTooLong
from antiphon.envs.tools import Tool, ToolTransform
from antiphon.errors import EnvError, InvalidParameter, ToolError

if TYPE_CHECKING:
    import mcp

_GRACE = 10.0  # seconds for a session to end; the package ends the server's process within 7


class MCPConnection:
    """A session with an MCP server, and its tools.

    A server that has ended is started again by the next call; the call during which it ended is
    told so. What the server writes to its standard error is kept and shown where it does not start.

    Args:
        server: How to reach it: a command line as a list, a mapping with ``command`` and perhaps
            ``args``, ``env`` and ``cwd``, a URL (streamable HTTP), or anything else that
            ``mcp.Client`` takes. A process gets none of this one's environment but what finding
            programs needs.
        name: What it is called in errors.
        timeout: Seconds that a call may take; the server is told to give it up then.
        start_timeout: Seconds until it must have told its tools.

    Raises:
        EnvError: The ``mcp`` package is not installed.
        InvalidParameter: ``server`` says no way to reach one.
    """

    def __init__(
        self,
        server: Any,
        *,
        name: str = "mcp",
        timeout: float = 30.0,
        start_timeout: float = 30.0,
    ) -> None:
        _package()
        if timeout <= 0 or start_timeout <= 0:
            raise InvalidParameter("An MCP server needs timeouts above 0.")
        self.server = _reachable(server, name)
        self.name = name
        self.timeout, self.start_timeout = timeout, start_timeout
        self._loop = LoopThread(f"antiphon-mcp-{name}")
        self._lock = threading.Lock()
        self._session: _Session | None = None
        self._process = 0

    def __getstate__(self) -> dict[str, Any]:
        live = ("_lock", "_session", "_process")
        return {key: value for key, value in self.__dict__.items() if key not in live}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._session, self._process = None, 0

    def tools(self, *, prefix: str = "") -> list[Tool]:
        """Return the server's tools; the session begins here.

        Args:
            prefix: Put before their names, where those of two servers are the same.

        Raises:
            EnvError: The server can't be reached or does not tell its tools.
        """
        found = []
        for tool in self._open().tools:
            inner = {
                "name": prefix + tool.name,
                "description": tool.description or "",
                "parameters": dict(tool.input_schema),
            }
            schema = {"type": "function", "function": inner}
            found.append(Tool(prefix + tool.name, _Call(self, tool.name), schema))
        return found

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool and return what it says.

        Args:
            name: The tool's name on the server.
            arguments: By name, as JSON has them.

        Raises:
            ToolError: The tool failed, took too long, or the server is gone.
        """
        try:
            session = self._open()
        except EnvError as error:
            raise ToolError(str(error)) from error
        try:
            # The package ends the call by itself; the longer time is for a loop that is stuck.
            result = self._loop.run(session.call(name, arguments), self.timeout + _GRACE)
        except TookTooLong as error:
            raise ToolError(self._late()) from error
        except concurrent.futures.CancelledError as error:
            raise ToolError(f"the MCP server {self.name!r} was closed during the call.") from error
        except Exception as error:
            # Of the package, of the transport below it, or of what the server sent.
            raise ToolError(self._reason(session, error)) from error
        text = _result_text(result)
        if result.is_error:
            raise ToolError(text or "the tool failed and does not say why.")
        return text

    def close(self) -> None:
        """End the session and the server's process. A later call begins a new one."""
        with self._lock:
            if self._process == os.getpid() and self._session is not None:
                self._session.end()
            self._session = None
        self._loop.close()

    def _open(self) -> _Session:
        """Return the session, begun anew where there is none or the server has ended."""
        with self._lock:
            session = self._session if self._process == os.getpid() else None
            if session is None or not session.usable:
                if session is not None:
                    session.end()
                session = _Session(self.server, self.timeout)
                self._process = os.getpid()
                self._begin(session)
                self._session = session
            return session

    def _begin(self, session: _Session) -> None:
        serving = self._loop.start(session.serve())
        try:
            session.ready.result(self.start_timeout)
        except concurrent.futures.TimeoutError as error:
            serving.cancel()
            concurrent.futures.wait([serving], _GRACE)
            raise EnvError(
                f"The MCP server {self.name!r} did not tell its tools within {self.start_timeout:g} "
                f"seconds{session.last_words()}; give it more time, or see whether it runs."
            ) from error
        except Exception as error:  # of the package, of the transport, or of the process
            raise EnvError(
                f"The MCP server {self.name!r} can't be used: {_words(error)}{session.last_words()}; "
                "see whether its command or address is right."
            ) from error

    def _late(self) -> str:
        return f"the tool took more than {self.timeout:g} seconds."

    def _reason(self, session: _Session, error: Exception) -> str:
        import mcp_types

        code = getattr(error, "code", None)
        if code == mcp_types.REQUEST_TIMEOUT:
            return self._late()
        if code == mcp_types.CONNECTION_CLOSED:
            session.usable = False
            return f"the MCP server {self.name!r} has ended; the next call starts it anew."
        return _words(error)


class _Session:
    """One connection: opened, used and closed by one task, as its package wants it."""

    def __init__(self, server: Any, timeout: float) -> None:
        self.ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.usable = True
        self.tools: list[Any] = []
        self._server, self._timeout = server, timeout
        self._errors: IO[str] = tempfile.TemporaryFile(  # noqa: SIM115 (closed with the session)
            "w+", encoding="utf-8", errors="replace"
        )
        self._client: mcp.Client | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Event | None = None
        self._over = threading.Event()

    async def serve(self) -> None:
        """Hold the connection until `end`."""
        package = _package()
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        server = self._server
        if isinstance(server, package.StdioServerParameters):
            server = package.stdio_client(server, errlog=self._errors)
        try:
            async with package.Client(server, read_timeout_seconds=self._timeout) as client:
                self._client = client
                self.tools = await _listed(client)
                self.ready.set_result(None)
                await self._closing.wait()
        except BaseException as error:
            # Handed to the one who waits; cancelling too, which then goes on as it must.
            if not self.ready.done():
                self.ready.set_exception(_first(error))
            if not isinstance(error, Exception):
                raise
        finally:
            self.usable = False
            self._over.set()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> mcp.types.CallToolResult:
        assert self._client is not None
        return await self._client.call_tool(name, dict(arguments))

    def end(self) -> None:
        """Close the connection and wait until that is done."""
        if self._loop is not None and self._closing is not None and not self._over.is_set():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._over.wait(_GRACE)
        self._errors.close()

    def last_words(self) -> str:
        """Return the end of what the server wrote to its standard error, as part of a sentence."""
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read()[-4000:].splitlines() if line.strip()]
        self._errors.close()
        return f" (it said: {lines[-1][-300:]})" if lines else ""


@dataclass(frozen=True)
class _Call:
    """A tool of a server as a function."""

    server: MCPConnection
    name: str

    def __call__(self, /, **arguments: Any) -> str:
        return self.server.call(self.name, arguments)


class MCPToolTransform(ToolTransform):
    """Runs the calls of answers on MCP servers; see `ToolTransform` for what becomes of them.

    Args:
        servers: By name how to reach each server, or an `MCPConnection`; see there.
        tools: Functions and `Tool` objects beside them.
        prefix: Whether tools are named ``server_tool``; needed where two servers have tools of one
            name.
        timeout: Seconds that a call may take.
        start_timeout: Seconds until a server must have told its tools.
        workers: How many calls run side by side.
        max_output: Characters that a result may have.

    Raises:
        EnvError: A server can't be used, or the ``mcp`` package is not installed.
    """

    def __init__(
        self,
        servers: Mapping[str, Any],
        *,
        tools: Iterable[Callable[..., Any] | Tool] = (),
        prefix: bool = False,
        timeout: float = 30.0,
        start_timeout: float = 30.0,
        workers: int = 8,
        max_output: int = 20_000,
    ) -> None:
        self.servers = [
            server
            if isinstance(server, MCPConnection)
            else MCPConnection(server, name=name, timeout=timeout, start_timeout=start_timeout)
            for name, server in servers.items()
        ]
        try:
            found = [
                tool
                for server in self.servers
                for tool in server.tools(prefix=f"{server.name}_" if prefix else "")
            ]
            super().__init__(
                [*tools, *found], timeout=timeout, workers=workers, max_output=max_output
            )
        except BaseException:  # an interrupt too: no server is left running, and the error goes on
            self._close_servers()
            raise

    def close(self) -> None:
        super().close()
        self._close_servers()

    def _close_servers(self) -> None:
        for server in self.servers:
            server.close()


def _package() -> Any:
    try:
        import mcp
    except ImportError as error:
        raise EnvError(
            "MCP tools need the mcp package: run `pip install antiphon[mcp]`."
        ) from error
    return mcp


def _reachable(server: Any, name: str) -> Any:
    """Return what ``mcp.Client`` takes."""
    package = _package()
    if isinstance(server, Mapping):
        if isinstance(server.get("url"), str):
            return server["url"]
        if not isinstance(server.get("command"), str):
            raise InvalidParameter(
                f"The MCP server {name!r} has neither 'command' nor 'url'; say how to reach it."
            )
        known = {key: server[key] for key in ("command", "args", "env", "cwd") if key in server}
        return package.StdioServerParameters(**known)
    if isinstance(server, Sequence) and not isinstance(server, (str, bytes)):
        if not server or not all(isinstance(part, str) for part in server):
            raise InvalidParameter(
                f"The command line of the MCP server {name!r} must hold strings."
            )
        return package.StdioServerParameters(command=server[0], args=list(server[1:]))
    return server


async def _listed(client: mcp.Client) -> list[Any]:
    found: list[Any] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return found


def _result_text(result: mcp.types.CallToolResult) -> str:
    """Return a result as text; what is no text is named."""
    parts = []
    for block in result.content:
        if block.type == "text":
            parts.append(block.text)
        elif block.type == "image" or block.type == "audio":  # noqa: PLR1714 (types are narrowed by this)
            parts.append(f"[{block.type} {block.mime_type}]")
        elif block.type == "resource_link":
            parts.append(f"[resource {block.uri}]")
        else:
            text = getattr(block.resource, "text", None)
            parts.append(f"[resource {block.resource.uri}]" if text is None else text)
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


def _first(error: BaseException) -> BaseException:
    """Return the error itself, where task groups have wrapped it."""
    inner = getattr(error, "exceptions", None)
    return _first(inner[0]) if inner else error


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text.rstrip(".")
