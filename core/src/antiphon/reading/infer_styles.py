"""Telling in which style a template writes a call, from one with known words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from antiphon.reading.grammar import CallForm, ValueForm
from antiphon.reading.infer_params import Located, bracket_form, param_form
from antiphon.reading.infer_shown import ARGUMENTS, IDS, NAME, NAMED_IDS, Unreadable
from antiphon.reading.literals import python_value
from antiphon.reading.scan import Invalid, decode_json_at

_BRACKETS = re.compile(r"[\[{]")


def call_form(body: str, call_id: str) -> Located:
    """Return the style of the call and where its core stands: without openers and closers."""
    found = _find_json(body, NAME, ARGUMENTS)
    if found is not None:
        return found
    name = body.find(NAME)
    if name < 0:
        raise Unreadable("the name is not printed")
    arguments = _find_arguments(body, name + len(NAME), ARGUMENTS)
    if arguments is not None:
        start, end, values = arguments
        form = replace(_named(body, name, start, call_id), values=values)
        return form, name - len(form.name_prefix), end
    made = bracket_form(body, name, NAME, ARGUMENTS)
    if made is not None:
        return made
    made = param_form(body, name, NAME, ARGUMENTS)
    if made is not None:
        return made
    raise Unreadable("neither JSON nor one argument after the other")


def _named(body: str, name: int, arguments: int, call_id: str) -> CallForm:
    between = body[name + len(NAME) : arguments]
    if body[:name].endswith("functions.") and between.startswith(":0"):
        return CallForm(
            "named", name_closer=between[2:], name_prefix="functions.", named_by_id=True
        )
    if call_id in between:
        opener, _, closer = between.partition(call_id)
        return CallForm("named", name_closer=closer, id_opener=opener)
    if NAME in between:
        raise Unreadable("the name is printed twice")
    return CallForm("named", name_closer=between)


def core_span(
    form: CallForm, body: str, name: str, arguments: dict[str, Any], pos: int
) -> tuple[int, int] | None:
    """Return where a call's core stands in a body, at or after a position."""
    if form.style == "json":
        found = _find_json(body, name, arguments, pos)
        return (found[1], found[2]) if found else None
    at = body.find(name, pos)
    if at < 0:
        return None
    if form.style == "named" and form.values != "braces":
        span = _find_arguments(body, at + len(name), arguments)
        if span is None:
            return None
        start = at
        if form.name_prefix and body[:at].endswith(form.name_prefix):
            start = at - len(form.name_prefix)
        return start, span[1]
    made = (
        param_form(body, at, name, arguments)
        if form.style == "params"
        else bracket_form(body, at, name, arguments)
    )
    return (made[1], made[2]) if made else None


def _equal(value: Any, arguments: dict[str, Any]) -> bool:
    """Whether a value is the arguments, or JSON text of them."""
    if isinstance(value, str):
        read = decode_json_at(value, 0)
        value = read[0] if read else None
    return bool(value == arguments)


def _find_json(
    body: str, name: str, arguments: dict[str, Any], pos: int = 0
) -> tuple[CallForm, int, int] | None:
    """Find a JSON object or list that holds the whole call."""
    for found in _BRACKETS.finditer(body, pos):
        read = decode_json_at(body, found.start())
        if read is None:
            continue
        value, end = read
        listed = isinstance(value, list)
        item = value[0] if listed and value else value
        if not isinstance(item, dict):
            continue
        for wrapper in (None, *item):
            inner = item if wrapper is None else item[wrapper]
            if not isinstance(inner, dict):
                continue
            names = [key for key, held in inner.items() if held == name]
            holding = [key for key, held in inner.items() if _equal(held, arguments)]
            if names and holding:
                form = CallForm(
                    "json",
                    listed=listed,
                    name_keys=(names[0],),
                    argument_keys=(holding[0],),
                    wrapper_keys=(wrapper,) if wrapper else (),
                    id_keys=tuple(
                        key for key, held in (inner | item).items() if held in (*IDS, *NAMED_IDS)
                    )
                    or ("id",),
                )
                return form, found.start(), end
    return None


def _find_arguments(
    body: str, pos: int, arguments: dict[str, Any]
) -> tuple[int, int, ValueForm] | None:
    """Find the arguments as one JSON object, or a Python one, after a name."""
    for found in re.compile(r"\{").finditer(body, pos):
        read = decode_json_at(body, found.start())
        if read is not None and read[0] == arguments:
            return found.start(), read[1], "json"
        try:
            literal = python_value(body, found.start())
        except Invalid:
            continue
        if literal is not None and literal[0] == arguments:
            return found.start(), literal[1], "python"
    return None
