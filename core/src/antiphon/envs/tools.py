"""Tools in conversations: Python functions that a model calls, and what it is told of them.

A call is answered by a tool message. Whatever goes wrong (an unknown tool, arguments that don't
fit, an exception, a time-out) is a tool message too: the model may try again, the run goes on.
"""

from __future__ import annotations

import inspect
import json
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensordict import TensorDictBase

from antiphon.envs.chat import ChatEnv
from antiphon.envs.loops import LoopThread, TookTooLong
from antiphon.envs.tasks import Message
from antiphon.envs.tool_schemas import Schema, converted, function_schema, type_hints
from antiphon.envs.transformed import Transform, TransformedEnv
from antiphon.errors import EnvError, InvalidParameter, ToolError
from antiphon.reading.judging import first_problem


@dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    Attributes:
        name: The name it is called by.
        function: Takes the arguments by name; may be ``async``. What it returns is told as text:
            strings as they are, bytes as UTF-8, all else as JSON. `ToolError` is told as it is.
        schema: The OpenAI-style schema, as templates take it.
    """

    name: str
    function: Callable[..., Any]
    schema: Schema

    @classmethod
    def from_function(cls, function: Callable[..., Any], name: str | None = None) -> Tool:
        """Return the tool of a function with type hints and a Google-style docstring.

        Args:
            function: What is called; asynchronous ones are awaited.
            name: What models call it; the function's own name if None.

        Raises:
            InvalidParameter: A parameter has no type hint, or one that JSON has no form for.
        """
        schema = function_schema(function, name)
        return cls(schema["function"]["name"], function, schema)

    @property
    def parameters(self) -> Schema:
        """The JSON Schema of the arguments."""
        found: Schema = self.schema["function"]["parameters"]
        return found

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as the function takes them.

        Raises:
            TypeError: The function does not take these.
        """
        inspect.signature(self.function).bind(**arguments)
        hints = type_hints(self.function)
        return {key: converted(value, hints.get(key)) for key, value in arguments.items()}


class ToolBox:
    """Runs the calls of messages; any number of threads may use one.

    Types of arguments are checked where ``jsonschema`` is installed (``antiphon[tools]``).

    Args:
        tools: Functions or `Tool` objects.
        timeout: Seconds that a call may take, from its own beginning. An ``async`` function is
            cancelled then; another one is left to itself, since a thread can't be ended.
        workers: How many calls of one `answer` run side by side.
        max_output: Characters that a result may have; what is longer is cut, and says so.
    """

    def __init__(
        self,
        tools: Iterable[Callable[..., Any] | Tool],
        *,
        timeout: float = 30.0,
        workers: int = 8,
        max_output: int = 20_000,
    ) -> None:
        if timeout <= 0 or workers < 1 or max_output < 1:
            raise InvalidParameter(
                "Tools need a timeout above 0, at least one worker, and room for output."
            )
        made = [t if isinstance(t, Tool) else Tool.from_function(t) for t in tools]
        self.tools = {tool.name: tool for tool in made}
        if len(self.tools) < len(made):
            names = sorted(t.name for t in made)
            double = next(name for name in names if names.count(name) > 1)
            raise InvalidParameter(f"Two tools are named {double!r}; rename one.")
        self.timeout = timeout
        self.workers = workers
        self.max_output = max_output
        self._loop = LoopThread("antiphon-async-tools")

    @property
    def schemas(self) -> list[Schema]:
        """The schemas, for ``template_kwargs={"tools": ...}``."""
        return [tool.schema for tool in self.tools.values()]

    def answer(self, messages: Sequence[Message]) -> list[list[Message]]:
        """Return for each message the tool messages that answer its calls; all run side by side."""
        calls = [call for message in messages for call in message.get("tool_calls") or ()]
        told = iter(zip(calls, self._run([self._prepare(call) for call in calls]), strict=True))
        return [
            [_tool_message(*next(told)) for _ in message.get("tool_calls") or ()]
            for message in messages
        ]

    def _prepare(self, call: Any) -> tuple[Tool, dict[str, Any]] | str:
        """Return the tool with its arguments, or why the call can't be made."""
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            return "the call can't be read: it names no function"
        if call.get("status") in ("malformed", "incomplete", "foreign"):
            return f"the call can't be read: {call.get('problem') or call['status']}"
        name = function.get("name")
        tool = self.tools.get(str(name))
        if tool is None:
            return f"there is no tool {name!r}; there are {', '.join(self.tools) or 'none'}"
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments) if arguments.strip() else {}
            except ValueError as error:
                return f"the arguments are no JSON: {error}"
        arguments = {} if arguments is None else arguments
        problem = first_problem(arguments, tool.parameters)
        if problem:
            return f"the arguments don't fit: {problem}"
        try:
            return tool, tool.bind(arguments)
        except TypeError as error:
            return f"the arguments don't fit: {error}"

    def _run(self, calls: Sequence[tuple[Tool, dict[str, Any]] | str]) -> list[str]:
        """Make the calls, at most ``workers`` at a time, and return what is told of each."""
        told = [f"Error: {call}." if isinstance(call, str) else "" for call in calls]
        waiting = deque((n, call) for n, call in enumerate(calls) if not isinstance(call, str))
        finished: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        running: dict[int, float] = {}  # until when
        while waiting or running:
            while waiting and len(running) < self.workers:
                number, (tool, arguments) = waiting.popleft()
                running[number] = time.monotonic() + self.timeout
                # A daemon: a call that hangs keeps neither a place nor the process.
                threading.Thread(
                    target=lambda n, t, a: finished.put((n, self._told(t, a))),
                    args=(number, tool, arguments),
                    name=f"antiphon-tool-{tool.name}",
                    daemon=True,
                ).start()
            try:
                left = min(running.values()) - time.monotonic()
                number, text = finished.get(timeout=max(left, 0.0))
            except queue.Empty:
                now = time.monotonic()
                for number in [n for n, until in running.items() if until <= now]:
                    del running[number]
                    told[number] = self._late()
            else:
                if running.pop(number, None) is not None:  # else it was given up already
                    told[number] = text
        return told

    def _told(self, tool: Tool, arguments: dict[str, Any]) -> str:
        """Make a call and return what is told of it."""
        try:
            result = tool.function(**arguments)
            if inspect.iscoroutine(result):
                try:
                    result = self._loop.run(result, self.timeout)
                except TookTooLong:
                    return self._late()
            text = result_text(result)
        except ToolError as error:
            text = f"Error: {error}"
        except BaseException as error:
            # A tool is foreign code and may raise anything; SystemExit too must not end a run.
            text = f"Error: {type(error).__name__}: {_words(error)}"
        text = text.encode("utf-8", "replace").decode()  # no tokenizer takes lone surrogates
        if len(text) > self.max_output:
            left_out = len(text) - self.max_output
            text = f"{text[: self.max_output]}\n[{left_out} more characters left out]"
        return text

    def _late(self) -> str:
        return f"Error: the tool took more than {self.timeout:g} seconds."

    def close(self) -> None:
        """Cancel ``async`` calls; other calls that run are left to themselves."""
        self._loop.close()


def result_text(result: Any) -> str:
    """Return what a tool returned as the text that a model is told."""
    if isinstance(result, str):
        return result
    if isinstance(result, (bytes, bytearray)):
        return result.decode("utf-8", "replace")
    try:
        return json.dumps(result, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # odd keys, circles, too deep
        return str(result)


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception of a tool may fail at that too
        return "(it can't be shown)"


def _tool_message(call: Any, text: str) -> Message:
    message: Message = {"role": "tool", "content": text}
    if isinstance(call, Mapping):
        function = call.get("function")
        if isinstance(function, Mapping) and function.get("name"):
            message["name"] = function["name"]
        if call.get("id"):
            message["tool_call_id"] = call["id"]
    return message


class ReplyTransform(Transform):
    """Base class of transforms that answer a model in place of the task, in rows that go on."""

    def replies(self, messages: Sequence[Message]) -> list[list[Message]]:
        """Return for each answer the messages that follow it; none leaves the row to the task."""
        raise NotImplementedError(f"{type(self).__name__} has no replies: write it.")

    def set_container(self, container: TransformedEnv) -> None:
        if not isinstance(container.base_env, ChatEnv):
            raise EnvError(
                f"{type(self).__name__} works on a ChatEnv, not on {type(container.base_env).__name__}."
            )
        super().set_container(container)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        assert self.container is not None
        env: ChatEnv = self.container.base_env  # type: ignore[assignment]
        done: Any = next_tensordict.get("done")
        going = [row for row, flag in enumerate(done.reshape(-1).tolist()) if not flag]
        if not going:
            return next_tensordict
        chats = env.conversations(tensordict)
        found = self.replies([chats[row][-1] for row in going])
        replies = {row: reply for row, reply in zip(going, found, strict=True) if reply}
        if replies and self._follows_another():
            # What another transform has answered stays: results of calls, then output of code.
            for row, chat in enumerate(env.mode.standing(next_tensordict)):
                if row in replies:
                    before = [m for m in chat[len(chats[row]) :] if m.get("role") == "tool"]
                    replies[row] = [*before, *replies[row]]
        return env.reply(tensordict, next_tensordict, replies)

    def _follows_another(self) -> bool:
        assert self.container is not None
        parts = self.container.transform.transforms
        own = next(place for place, part in enumerate(parts) if part is self)
        return any(isinstance(part, ReplyTransform) for part in parts[:own])


class ToolTransform(ReplyTransform):
    """Runs the tool calls of answers; their results are the next messages.

    A row whose answer holds calls gets their results in place of the task's reply, and no reward
    for that answer. The schemas reach the template of the environment's own prompts; a wrapper in
    history mode renders itself and needs them too (``template_kwargs={"tools":
    transform.schemas}``).

    Args:
        tools: Functions with type hints, or `Tool` objects.
        timeout: Seconds that a call may take.
        workers: How many calls run side by side.
        max_output: Characters that a result may have.
    """

    def __init__(
        self,
        tools: Iterable[Callable[..., Any] | Tool],
        *,
        timeout: float = 30.0,
        workers: int = 8,
        max_output: int = 20_000,
    ) -> None:
        super().__init__()
        self.box = ToolBox(tools, timeout=timeout, workers=workers, max_output=max_output)

    @property
    def schemas(self) -> list[Schema]:
        """The schemas of the tools."""
        return self.box.schemas

    def set_container(self, container: TransformedEnv) -> None:
        if any(isinstance(part, ToolTransform) for part in container.transform if part is not self):
            raise EnvError(
                "The environment has a ToolTransform already, which answers every call; give all "
                "tools to one (MCPToolTransform takes functions too)."
            )
        super().set_container(container)
        prompter: Any = getattr(container.base_env.mode, "prompter", None)  # type: ignore[attr-defined]
        if prompter is not None and prompter.tools is None:
            prompter.tools = self.schemas

    def replies(self, messages: Sequence[Message]) -> list[list[Message]]:
        return self.box.answer(messages)

    def close(self) -> None:
        self.box.close()
