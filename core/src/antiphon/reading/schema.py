"""Tools as they bear on reading: they type the arguments of formats that write bare text, and
judge calls.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from antiphon.reading.call_params import python_or_json
from antiphon.reading.call_parts import Call
from antiphon.reading.scan import Invalid, decode_json

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def index_tools(tools: Iterable[Any] | None) -> dict[str, Mapping[str, Any]] | None:
    """Return each tool's parameter schema by name; None where no tools are given."""
    if tools is None:
        return None
    found: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
            schema = inner.get("parameters")
            found[inner["name"]] = schema if isinstance(schema, Mapping) else {}
    return found or None


def settle(call: Call, tools: Mapping[str, Mapping[str, Any]] | None) -> None:
    """Type the bare arguments of a call and judge it by the tools, in place."""
    if call.status != "ok":
        return
    schema = (tools or {}).get(call.name or "")
    if call.untyped and isinstance(call.arguments, dict):
        typed = (
            call.form is not None
            and call.form.form.param is not None
            and call.form.form.param.typed
        )
        properties = schema.get("properties") if schema else None
        for key in call.untyped:
            known = properties.get(key) if isinstance(properties, Mapping) else None
            value = call.arguments[key]
            if isinstance(known, Mapping):
                call.arguments[key] = coerce(value, known, schema)
            elif typed:
                call.arguments[key] = _json_unless_string(value)
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
    problem = first_problem(arguments, schema)
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
        return None if "null" in types and text in ("null", "None") else text
    if not types:
        return text
    try:
        value = python_or_json(text.strip())
    except Invalid:
        return text
    return value if any(_is_type(value, name) for name in types) else text


def first_problem(arguments: Any, schema: Mapping[str, Any]) -> str:
    """Return what a JSON Schema holds against some arguments, or "".

    jsonschema judges where it is installed; without it, that the arguments are an object with the
    required keys is all that is checked.
    """
    if not isinstance(arguments, dict):
        return "the arguments are not an object"
    try:
        jsonschema = importlib.import_module("jsonschema")
    except ImportError:
        required = schema.get("required")
        for key in required if isinstance(required, (list, tuple)) else ():
            if key not in arguments:
                return f"{key!r} is a required property"
        return ""
    try:
        plain = dict(schema) if schema else {"type": "object"}
        kind = jsonschema.validators.validator_for(plain, default=jsonschema.Draft202012Validator)
        problems = sorted(
            kind(plain).iter_errors(arguments), key=lambda error: list(map(str, error.path))
        )
    except Exception:
        # The schema comes from outside and may be broken in any way; that is not the call's fault, and reading
        # never raises.
        return ""
    if not problems:
        return ""
    where = "/".join(map(str, problems[0].path))
    return f"{where}: {problems[0].message}" if where else str(problems[0].message)
