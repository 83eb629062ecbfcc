"""Judging arguments by JSON Schemas, and the schemas themselves.

jsonschema judges where it is installed (``antiphon[tools]``); without it, that the arguments are an
object with the required keys is all that is checked. Nothing is ever fetched for a schema.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

_KEPT: dict[str, tuple[Any, str]] = {}
_MAX_KEPT = 256


def schema_problem(schema: Any) -> str:
    """Return why a schema can't judge arguments, or "".

    Args:
        schema: A tool's ``parameters``.
    """
    if not isinstance(schema, Mapping):
        return f"it is not a JSON Schema but {schema!r}"
    return _judge(schema)[1]


def first_problem(arguments: Any, schema: Mapping[str, Any]) -> str:
    """Return what a JSON Schema holds against some arguments, or "".

    Raises:
        ValueError: The schema can't judge them.
    """
    if not isinstance(arguments, dict):
        return "the arguments are not an object"
    validator, fault = _judge(schema)
    if fault:
        raise ValueError(fault)
    if validator is None:
        required = schema.get("required")
        for key in required if isinstance(required, (list, tuple)) else ():
            if key not in arguments:
                return f"{key!r} is a required property"
        return ""
    try:
        problems = sorted(
            validator.iter_errors(arguments), key=lambda error: list(map(str, error.path))
        )
    except Exception as error:
        # The schema comes from outside and may be broken in any way.
        raise ValueError(_said(error)) from error
    if not problems:
        return ""
    where = "/".join(map(str, problems[0].path))
    return f"{where}: {problems[0].message}" if where else str(problems[0].message)


def _said(error: Exception) -> str:
    """Return in a few words what is wrong with a schema."""
    if isinstance(error, RecursionError):
        return "its references go round in a circle"
    return str(getattr(error, "message", error)).partition("\n")[0]


def _judge(schema: Mapping[str, Any]) -> tuple[Any, str]:
    """Return what judges by a schema (None where jsonschema is not installed) and what is wrong
    with the schema; found out once.
    """
    key = json.dumps(schema, sort_keys=True, default=repr)
    kept = _KEPT.get(key)
    if kept is not None:
        return kept
    try:
        validator = _new_validator(schema)
        if validator is not None:
            # Some faults (endless references) show only when something is judged.
            list(validator.iter_errors({}))
        made = validator, ""
    except Exception as error:
        # The schema comes from outside and may be broken in any way.
        made = None, _said(error)
    if len(_KEPT) >= _MAX_KEPT:
        _KEPT.clear()
    _KEPT[key] = made
    return made


def _new_validator(schema: Mapping[str, Any]) -> Any:
    try:
        jsonschema = importlib.import_module("jsonschema")
        referencing = importlib.import_module("referencing")
    except ImportError:
        return None
    plain = json.loads(json.dumps(schema)) or {"type": "object"}
    kind = jsonschema.validators.validator_for(plain, default=jsonschema.Draft202012Validator)
    kind.check_schema(plain)
    # With a registry of its own jsonschema looks nothing up elsewhere.
    registry = referencing.jsonschema.EMPTY_REGISTRY
    validator = kind(plain, registry=registry)
    if not any(key in ("$id", "id") for key, _ in _members(plain)):
        resource = referencing.Resource.from_contents(
            plain, default_specification=referencing.jsonschema.DRAFT202012
        )
        resolver = registry.with_resource("", resource).resolver()
        for key, value in _members(plain):
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                try:
                    resolver.lookup(value)
                except referencing.exceptions.Unresolvable:
                    raise ValueError(f"it refers to {value!r}, which is not in it") from None
    return validator


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key of a JSON value with what it holds."""
    if isinstance(value, Mapping):
        for key, held in value.items():
            yield key, held
            yield from _members(held)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _members(item)
