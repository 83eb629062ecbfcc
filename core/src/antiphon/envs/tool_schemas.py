"""The OpenAI-style schema of a Python function, and its arguments as the function takes them."""

from __future__ import annotations

import enum
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from antiphon.errors import InvalidParameter

Schema = dict[str, Any]
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def function_schema(function: Callable[..., Any], name: str | None = None) -> Schema:
    """Return the OpenAI-style schema of a function, from its signature and docstring.

    Args:
        function: Its parameters have type hints; a Google-style docstring describes them.
        name: In place of the function's own name.

    Raises:
        InvalidParameter: A parameter has no type hint, one that JSON has no form for, or can't be
            given by name.
    """
    name = name or getattr(function, "__name__", "")
    if not name:
        raise InvalidParameter(f"A tool needs a name, and {function!r} has none; give it one.")
    hints = type_hints(function)
    summary, described = _docstring(inspect.getdoc(function) or "")
    properties: Schema = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidParameter(
                f"The parameter {str(parameter)!r} of the tool {name!r} can't be given by name; a "
                "tool's parameters must be named."
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
        else:
            default = parameter.default
            default = default.value if isinstance(default, enum.Enum) else default
            if type(default) in (str, int, float, bool):
                schema["default"] = default
        properties[parameter.name] = schema
    parameters: Schema = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    inner = {"name": name, "description": summary, "parameters": parameters}
    return {"type": "function", "function": inner}


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return a function's type hints, resolved; those of ``__call__`` for other callables.

    Raises:
        InvalidParameter: A hint names a type that is not there.
    """
    target: Any = function.func if isinstance(function, functools.partial) else function
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target)
    except NameError as error:
        raise InvalidParameter(
            f"The type hints of the tool {getattr(function, '__name__', function)!r} can't be "
            f"resolved: {error}; define or import that type where the function is."
        ) from error


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
        schema = type_schema(arguments[0])
        words = [word for word in arguments[1:] if isinstance(word, str)]
        return {**schema, "description": words[0]} if words else schema
    if origin is Literal:
        return _one_of(list(arguments))
    if inspect.isclass(hint) and issubclass(hint, enum.Enum):
        return _one_of([member.value for member in hint])
    if origin in (Union, types.UnionType):
        parts = [type_schema(part) for part in arguments]
        if all(part.keys() == {"type"} and isinstance(part["type"], str) for part in parts):
            return {"type": [part["type"] for part in parts]}
        return {"anyOf": parts}
    if hint in (list, Sequence) or origin in (list, typing.get_origin(Sequence[int])):
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


def _one_of(values: list[Any]) -> Schema:
    kinds = {_PLAIN.get(type(value)) for value in values}
    if None in kinds:
        other = next(value for value in values if type(value) not in _PLAIN)
        raise InvalidParameter(f"JSON has no form for the value {other!r}.")
    return {"type": kinds.pop(), "enum": values} if len(kinds) == 1 else {"enum": values}


def converted(value: Any, hint: Any) -> Any:
    """Return a JSON value as a function with that hint takes it: enum members, and 3.0 as 3."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return converted(value, arguments[0])
    if inspect.isclass(hint) and issubclass(hint, enum.Enum):
        return next((member for member in hint if member.value == value), value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if origin in (Union, types.UnionType):
        if type(value) in arguments:
            return value
        tried = (converted(value, part) for part in arguments)
        return next((new for new in tried if new is not value), value)
    if isinstance(value, list) and arguments:
        return [converted(item, arguments[0]) for item in value]
    if isinstance(value, dict) and len(arguments) == 2:
        return {key: converted(item, arguments[1]) for key, item in value.items()}
    return value


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
