"""Tools in conversations: Python functions that a model calls, and what it is told of them.

A call is answered by a tool message. Whatever goes wrong (an unknown tool, arguments that don't
fit, an exception, a time-out) is a tool message too: the model may try again, the run goes on.
"""

from __future__ import annotations

import concurrent.futures
import enum
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from tensordict import TensorDictBase

from antiphon.envs.chat import ChatEnv
from antiphon.envs.tasks import Message
from antiphon.envs.transformed import Transform, TransformedEnv
from antiphon.errors import EnvError, InvalidParameter
from antiphon.reading.schema import first_problem

Schema = dict[str, Any]
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


@dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    Attributes:
        name: The name it is called by.
        function: Takes the arguments by name; what it returns is told as text (JSON where it is no
            string).
        schema: The OpenAI-style schema, as templates take it.
    """

    name: str
    function: Callable[..., Any]
    schema: Schema

    @classmethod
    def from_function(cls, function: Callable[..., Any], name: str | None = None) -> Tool:
        """Return the tool of a function with type hints and a Google-style docstring.

        Raises:
            InvalidParameter: A parameter has no type hint, or one that JSON has no form for.
        """
        name = name or function.__name__
        return cls(name, function, function_schema(function, name))

    @property
    def parameters(self) -> Schema:
        """The JSON Schema of the arguments."""
        found: Schema = self.schema["function"]["parameters"]
        return found


def function_schema(function: Callable[..., Any], name: str | None = None) -> Schema:
    """Return the OpenAI-style schema of a function, from its signature and docstring.

    Raises:
        InvalidParameter: A parameter has no type hint, or one that JSON has no form for.
    """
    name = name or function.__name__
    hints = typing.get_type_hints(function)
    summary, described = _docstring(inspect.getdoc(function) or "")
    properties: Schema = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidParameter(
                f"The tool {name!r} takes *{parameter.name}; a tool's parameters must be named."
            )
        if parameter.name not in hints:
            raise InvalidParameter(
                f"The parameter {parameter.name!r} of the tool {name!r} has no type hint; add one."
            )
        try:
            schema = type_schema(hints[parameter.name])
        except InvalidParameter as error:
            raise InvalidParameter(
                f"The parameter {parameter.name!r} of the tool {name!r}: {error}"
            ) from None
        if parameter.name in described:
            schema["description"] = described[parameter.name]
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        properties[parameter.name] = schema
    parameters: Schema = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    inner = {"name": name, "description": summary, "parameters": parameters}
    return {"type": "function", "function": inner}


def type_schema(hint: Any) -> Schema:
    """Return the JSON Schema of a type hint.

    Raises:
        InvalidParameter: JSON has no form for it.
    """
    if hint is Any:
        return {}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return type_schema(arguments[0])
    if origin is Literal:
        return {"enum": list(arguments)}
    if inspect.isclass(hint) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if origin in (Union, types.UnionType):
        return {"anyOf": [type_schema(part) for part in arguments]}
    if hint in (list, Sequence) or origin in (list, Sequence, typing.get_origin(Sequence[int])):
        return {"type": "array", **({"items": type_schema(arguments[0])} if arguments else {})}
    if hint in (dict, Mapping) or origin in (dict, typing.get_origin(Mapping[str, int])):
        if arguments and arguments[0] is not str:
            raise InvalidParameter("the keys of a mapping must be strings in JSON.")
        values = {"additionalProperties": type_schema(arguments[1])} if arguments else {}
        return {"type": "object", **values}
    if typing.is_typeddict(hint):
        fields = {key: type_schema(kind) for key, kind in typing.get_type_hints(hint).items()}
        return {"type": "object", "properties": fields, "required": sorted(hint.__required_keys__)}
    raise InvalidParameter(f"JSON has no form for the type {hint!r}.")


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the text before the sections, and what the ``Args`` section says of each parameter."""
    summary, _, rest = re.sub(r"\n[ \t]*(?=\w+:[ \t]*\n)", "\n\0", "\n" + text).partition("\0")
    described: dict[str, str] = {}
    for section in ("\0" + rest).split("\0"):
        head, _, body = section.partition("\n")
        if head.strip() not in ("Args:", "Arguments:", "Parameters:"):
            continue
        name = ""
        for line in inspect.cleandoc("\n" + body).splitlines():
            entry = re.match(r"(\w+)\s*(?:\([^)]*\))?:\s*(.*)", line)
            if entry:
                name = entry[1]
                described[name] = entry[2]
            elif name and line.strip():
                described[name] += " " + line.strip()
    return " ".join(summary.split()), described


class ToolBox:
    """Runs the calls of a message.

    Args:
        tools: Functions or `Tool` objects.
        timeout: Seconds that a call may take. A function that takes longer is left to itself: a
            thread can't be ended.
        workers: How many calls run side by side.
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
        made = [t if isinstance(t, Tool) else Tool.from_function(t) for t in tools]
        self.tools = {tool.name: tool for tool in made}
        if len(self.tools) < len(made):
            names = sorted(t.name for t in made)
            double = next(name for name in names if names.count(name) > 1)
            raise InvalidParameter(f"Two tools are named {double!r}; rename one.")
        self.timeout = timeout
        self.max_output = max_output
        self._pool = concurrent.futures.ThreadPoolExecutor(workers, "antiphon-tool")

    @property
    def schemas(self) -> list[Schema]:
        """The schemas, for ``template_kwargs={"tools": ...}``."""
        return [tool.schema for tool in self.tools.values()]

    def answer(self, messages: Sequence[Message]) -> list[list[Message]]:
        """Return for each message the tool messages that answer its calls; all run side by side."""
        started = [
            [(call, self._start(call)) for call in message.get("tool_calls") or ()]
            for message in messages
        ]
        return [[self._finish(call, run) for call, run in calls] for calls in started]

    def _start(self, call: Mapping[str, Any]) -> concurrent.futures.Future[Any] | str:
        """Begin a call, or return why it can't be."""
        if call.get("status") in ("malformed", "incomplete"):
            return f"the call can't be read: {call.get('problem') or call['status']}"
        function = call.get("function") or {}
        name = function.get("name")
        tool = self.tools.get(str(name))
        if tool is None:
            return f"there is no tool {name!r}; there are {', '.join(self.tools)}"
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError as error:
                return f"the arguments are no JSON: {error}"
        problem = first_problem({} if arguments is None else arguments, tool.parameters)
        if problem:
            return f"the arguments don't fit: {problem}"
        unknown = sorted(set(arguments or {}) - set(tool.parameters["properties"]))
        if unknown:
            return f"{tool.name} has no parameter {unknown[0]!r}"
        return self._pool.submit(tool.function, **(arguments or {}))

    def _finish(
        self, call: Mapping[str, Any], run: concurrent.futures.Future[Any] | str
    ) -> Message:
        if isinstance(run, str):
            text = f"Error: {run}."
        else:
            try:
                text = self._told(run.result(self.timeout))
            except concurrent.futures.TimeoutError:
                run.cancel()
                text = f"Error: the tool took more than {self.timeout:g} seconds."
            except Exception as error:  # a tool is foreign code and may raise anything
                text = f"Error: {type(error).__name__}: {error}"
        message: Message = {"role": "tool", "content": text}
        name = (call.get("function") or {}).get("name")
        if name:
            message["name"] = name
        if call.get("id"):
            message["tool_call_id"] = call["id"]
        return message

    def _told(self, result: Any) -> str:
        text = (
            result
            if isinstance(result, str)
            else json.dumps(result, ensure_ascii=False, default=str)
        )
        if len(text) > self.max_output:
            left_out = len(text) - self.max_output
            text = f"{text[: self.max_output]}\n[{left_out} more characters left out]"
        return text

    def close(self) -> None:
        """Wait for nothing; calls that run are left to themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class ReplyTransform(Transform):
    """Base class of transforms that answer a model in place of the task, in rows that go on."""

    def replies(self, messages: Sequence[Message]) -> list[list[Message]]:
        """Return for each answer the messages that follow it; none leaves the row to the task."""
        raise NotImplementedError

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
        return env.reply(tensordict, next_tensordict, replies)


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
        super().set_container(container)
        prompter: Any = getattr(container.base_env.mode, "prompter", None)  # type: ignore[attr-defined]
        if prompter is not None and prompter.tools is None:
            prompter.tools = self.schemas

    def replies(self, messages: Sequence[Message]) -> list[list[Message]]:
        return self.box.answer(messages)

    def close(self) -> None:
        self.box.close()
