"""Tools as they bear on reading: they type the arguments of formats that write bare text, and
judge calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from antiphon.errors import ToolSchemaInvalid
from antiphon.reading.call_params import python_or_json
from antiphon.reading.call_parts import Call
from antiphon.reading.compiled import CompiledCall
from antiphon.reading.judging import first_problem, schema_problem
from antiphon.reading.scan import WHITE, Invalid, decode_json

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


_NULL = ("null", "None")


def tool_list(tools: Iterable[Any] | None) -> list[Any] | None:
    """Return tools as a list, which can be walked more than once; None where no tools are given.

    Raises:
        ToolSchemaInvalid: What was given is no list of tools.
    """
    if tools is None:
        return None
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        raise ToolSchemaInvalid(
            f"Tools are a list of JSON schemas or functions, not {type(tools).__name__}."
        )
    return list(tools)


def index_tools(tools: Iterable[Any] | None) -> dict[str, Mapping[str, Any]] | None:
    """Return each tool's parameter schema by name; None where no tools are given.

    Raises:
        ToolSchemaInvalid: A tool has no name, or its parameters are no JSON Schema that can judge
            calls.
    """
    listed = tool_list(tools)
    if listed is None:
        return None
    found: dict[str, Mapping[str, Any]] = {}
    for number, given in enumerate(listed):
        tool = _function_tool(given) if callable(given) else given
        if isinstance(tool, Mapping) and tool.get("type", "function") != "function":
            continue  # what a server brings along itself; no call names it
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise ToolSchemaInvalid(
                f"Tool {number} has no name ({given!r:.80}), so no call can be told to be its; give "
                "tools as render takes them."
            )
        schema = inner.get("parameters")
        schema = {} if schema is None else schema
        problem = schema_problem(schema)
        if problem:
            raise ToolSchemaInvalid(
                f"The parameters of the tool {inner['name']!r} can't judge its calls: {problem}; "
                "correct its JSON Schema."
            )
        found[inner["name"]] = schema
    return found or None


def _function_tool(function: Any) -> Mapping[str, Any]:
    """Return the schema of a function, as rendering shows it."""
    from antiphon.engine.source import tool_schema

    schema: Mapping[str, Any] = tool_schema(function)
    return schema


_JSON_WORDS = ("true", "false", "null", "NaN", "Infinity")
_JSON_FIRST = "{[-0123456789"


def is_text(start: str, key: str, form: CompiledCall, schema: Mapping[str, Any] | None) -> bool:
    """Whether bare text is a string, as `typed` has it, whatever follows what there is of it."""
    known = _schema_of(key, schema)
    if known is not None:
        types = allowed_types(known, schema)
        if not types or types == {"string"}:
            return True
        return "string" in types and not (
            "null" in types and any(word.startswith(start) for word in _NULL)
        )
    param = form.form.param
    if param is None or not param.typed:
        return True
    bare = start.strip(WHITE)
    return (
        bare != ""
        and bare[0] not in _JSON_FIRST
        and not any(word.startswith(bare) for word in _JSON_WORDS)
    )


def _schema_of(key: str, schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the schema of a parameter; None where it is not known."""
    properties = schema.get("properties") if schema else None
    known = properties.get(key) if isinstance(properties, Mapping) else None
    return known if isinstance(known, Mapping) else None


def typed(text: str, key: str, form: CompiledCall | None, schema: Mapping[str, Any] | None) -> Any:
    """Return the bare text of an argument as what the tool's schema, or else the format, says it is."""
    known = _schema_of(key, schema)
    if known is not None:
        return coerce(text, known, schema)
    param = None if form is None else form.form.param
    return _json_unless_string(text) if param is not None and param.typed else text


def settle(call: Call, tools: Mapping[str, Mapping[str, Any]] | None) -> None:
    """Type the bare arguments of a call and judge it by the tools, in place."""
    if call.status != "ok":
        return
    schema = (tools or {}).get(call.name or "")
    if call.untyped and isinstance(call.arguments, dict):
        for key in call.untyped:
            call.arguments[key] = typed(call.arguments[key], key, call.form, schema)
        call.untyped = frozenset()
    if isinstance(call.arguments, str):
        try:
            value = decode_json(call.arguments)
        except Invalid:
            value = None
        if not isinstance(value, dict):
            call.status, call.problem = "malformed", "the arguments are not an object"
            return
    if tools is None:
        return
    if schema is None:
        call.status = "unknown_tool"
        call.problem = f"no tool is named {call.name!r}"
        return
    arguments = call.arguments
    if isinstance(arguments, str):
        with contextlib.suppress(Invalid):
            arguments = decode_json(arguments)
    try:
        problem = first_problem(arguments, schema)
    except ValueError as error:
        # A fault of the schema that no look at the schema alone shows: not the call's.
        call.status = "unchecked"
        call.problem = f"the tool's schema can't judge the arguments: {error}"
        return
    if problem:
        call.status = "invalid_arguments"
        call.problem = problem


def _json_unless_string(text: str) -> Any:
    try:
        value = decode_json(text)
    except Invalid:
        return text
    return text if isinstance(value, str) else value


def allowed_types(
    schema: Mapping[str, Any], root: Mapping[str, Any] | None, depth: int = 0
) -> set[str]:
    """Return the types that a schema allows; empty where it does not say."""
    if depth > 8:
        return set()
    found: set[str] = set()
    kind = schema.get("type")
    if isinstance(kind, str):
        found.add(kind)
    elif isinstance(kind, (list, tuple)):
        found |= {item for item in kind if isinstance(item, str)}
    if not found:
        for key in ("anyOf", "oneOf", "allOf"):
            options = schema.get(key)
            for option in options if isinstance(options, (list, tuple)) else ():
                if isinstance(option, Mapping):
                    found |= allowed_types(option, root, depth + 1)
    if not found and isinstance(schema.get("$ref"), str) and root is not None:
        target: Any = root
        for part in schema["$ref"].lstrip("#/").split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        if isinstance(target, Mapping):
            found |= allowed_types(target, root, depth + 1)
    if not found:
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        for value in values if isinstance(values, (list, tuple)) else ():
            found |= {name for name in _TYPES if _is_type(value, name)}
    if not found and isinstance(schema.get("properties"), Mapping):
        found.add("object")
    if not found and "items" in schema:
        found.add("array")
    if schema.get("nullable") is True:
        found.add("null")
    return found


def _is_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(name, ()))


def coerce(text: str, schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """Return bare text as the type that its schema asks for; the text itself where it does not
    fit.
    """
    types = allowed_types(schema, root)
    if "string" in types:
        return None if "null" in types and text in _NULL else text
    if not types:
        return text
    try:
        value = python_or_json(text.strip())
    except Invalid:
        return text
    return value if any(_is_type(value, name) for name in types) else text
