"""Telling how a template spells a call argument by argument, from one call with known words."""

from __future__ import annotations

import itertools
from typing import Any

from antiphon.reading.grammar import CallForm, ParamForm
from antiphon.reading.infer_turns import whole_start
from antiphon.reading.literals import braces_value, python_call
from antiphon.reading.probing import common_prefix, common_suffix
from antiphon.reading.scan import WHITE, Invalid

Located = tuple[CallForm, int, int]
"""A form, and where the call's core begins and ends: the literals around it are not in the form."""


class _Argument:
    """Where a key and its value stand."""

    def __init__(self, key: int, key_end: int, value: int, value_end: int, is_text: bool) -> None:
        self.key = key
        self.key_end = key_end
        self.value = value
        self.value_end = value_end
        self.is_text = is_text


def _spellings(value: Any) -> tuple[str, ...]:
    if isinstance(value, bool):
        return ("true", "True") if value else ("false", "False")
    return (str(value),)


def _locate(body: str, pos: int, arguments: dict[str, Any]) -> list[_Argument] | None:
    """Find each key and the value after it, in the order in which they stand."""
    found = []
    for key, value in arguments.items():
        at = body.find(key, pos)
        if at < 0:
            return None
        places = [
            (place, text)
            for text in _spellings(value)
            if (place := body.find(text, at + len(key))) >= 0
        ]
        if not places:
            return None
        place, text = min(places)
        found.append(_Argument(at, at + len(key), place, place + len(text), isinstance(value, str)))
    found.sort(key=lambda item: item.key)
    for one, two in itertools.pairwise(found):
        if one.value_end > two.key:
            return None
    return found


def bracket_form(body: str, name: int, label: str, arguments: dict[str, Any]) -> Located | None:
    """Recognise a Python call or Gemma's braces at a name."""
    end = name + len(label)
    if body[end : end + 1] == "(":
        try:
            read = python_call(body, name)
        except Invalid:
            return None
        if read is None or read[1] != arguments:
            return None
        if body[name - 1 : name] == "[" and body[read[2] : read[2] + 1] in ("]", ","):
            close = body.find("]", read[2])
            return CallForm("pythonic", listed=True), name - 1, close + 1
        return CallForm("pythonic"), name, read[2]
    found = _locate(body, end, arguments)
    if found is None:
        return None
    text = next(item for item in found if item.is_text)
    if not body[text.key_end : text.value].lstrip(WHITE).startswith(":"):
        return None
    quote = body[text.key_end : text.value].lstrip(WHITE)[1:].strip(WHITE)
    brace = body.find("{", end)
    if not quote or brace < 0 or brace > found[0].key:
        return None
    try:
        value = braces_value(body, brace, quote)
    except Invalid:
        return None
    if value is None or value[0] != arguments:
        return None
    form = CallForm("named", values="braces", quote=quote, name_closer=body[end:brace])
    return form, name, value[1]


def param_form(body: str, name: int, label: str, arguments: dict[str, Any]) -> Located | None:
    """Recognise arguments that are spelled one after the other at a name."""
    end = name + len(label)
    found = _locate(body, end, arguments)
    if found is None or len(found) < 3:
        return None
    first = body[end : found[0].key]
    betweens = [body[one.value_end : two.key] for one, two in itertools.pairwise(found)]
    tail = body[found[-1].value_end :]
    heads = {item.is_text: body[item.key_end : item.value] for item in found}
    quoted = False
    flag_closer = ""
    key_closer = heads[False]
    if heads[True] != heads[False]:
        if heads[True] == heads[False] + '"':
            quoted = True
        else:
            key_closer = common_prefix([heads[True], heads[False]])
            flag_closer = common_suffix(
                [heads[True][len(key_closer) :], heads[False][len(key_closer) :]]
            )
            if not key_closer or not flag_closer:
                return None
            # The flag's quotes are the literals': a common letter of two flags is not.
            key_closer = key_closer[: key_closer.rfind('"') + 1] or key_closer
            at = flag_closer.find('"')
            flag_closer = flag_closer[at:] if at >= 0 else flag_closer
    if quoted:
        texts = []
        for item, between in zip(found, betweens, strict=False):
            if item.is_text and not between.startswith('"'):
                return None
            texts.append(between[1:] if item.is_text else between)
        betweens = texts
        tail = tail[1:] if found[-1].is_text else tail
    opener = whole_start(common_suffix([first, *betweens]), [first, *betweens])
    closer = common_prefix([between[: len(between) - len(opener)] for between in betweens] + [tail])
    if not opener.strip(WHITE) or not closer.strip(WHITE):
        return None
    param = ParamForm(opener, key_closer, closer, flag_closer=flag_closer, quoted=quoted)
    form = CallForm("params", name_closer=first[: len(first) - len(opener)], param=param)
    # The core ends where the last argument's closer does.
    last = found[-1].value_end + len(closer) + (1 if quoted and found[-1].is_text else 0)
    return form, name, last
