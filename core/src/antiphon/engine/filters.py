"""Operators, methods and filters of chat templates, with origins and within bounds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jinja2
from jinja2 import filters, nodes

from antiphon.engine import limits
from antiphon.engine.json_text import dump_json
from antiphon.engine.provenance import (
    Traced,
    coarse,
    concat,
    join,
    percent_format,
    recased,
    replace,
    text_of,
)
from antiphon.engine.safe_text import SafeTraced, escape, is_safe, mark_safe, plain, unmarked

WIDENING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})


# Operators


def multiply(left: Any, right: Any) -> Any:
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, (str, list, tuple)) and isinstance(times, int):
            limits.check_size(len(sequence) * max(times, 0))
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    return left * right


def power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int) and right > 0:
        _check_bits(left.bit_length() * right)
    return left**right


def _check_bits(bits: int) -> None:
    """Refuse numbers of more than some hundred thousand digits: one product of such takes seconds."""
    limits.check_size(bits * 16)


def modulo(left: Any, right: Any) -> Any:
    if not isinstance(left, str):
        return left % right
    check_format(left)
    return left % right if isinstance(left, SafeTraced) else percent_format(left, right)


def check_format(template: str) -> None:
    """Refuse a width that alone would build too much text."""
    digits = ""
    for character in template:
        digits = digits + character if character.isdigit() else ""
        if len(digits) > 6:
            limits.check_size(int(digits[:18]))


# Methods


def own_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Leave out what generated code passes along for functions that take the context."""
    if kwargs:
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
    return kwargs


def call_str(method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    text, name = method.__self__, method.__name__
    if name == "join" and len(args) == 1:
        return join(text, args[0])
    if name == "replace":
        _check_replace(text, args)
        if len(args) > 1 and isinstance(args[1], Traced):
            return replace(text, *args, **kwargs)
    elif name in WIDENING:
        check_width(text, args)
    return method(*args, **kwargs)


def check_width(text: str, args: tuple[Any, ...]) -> None:
    if args and isinstance(args[0], int):
        limits.check_size(args[0] if args[0] > len(text) else 0)


def _check_replace(text: str, args: tuple[Any, ...]) -> None:
    if (
        len(args) > 1
        and isinstance(args[0], str)
        and isinstance(args[1], str)
        and len(args[1]) > len(args[0])
    ):
        limits.check_size(len(text) + str.count(text, args[0]) * len(args[1]))


# Filters


def _tojson(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if isinstance(indent, int):
        limits.check_size(indent * 1000)
    return dump_json(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


@jinja2.pass_eval_context
def _join(
    context: nodes.EvalContext, value: Any, d: str = "", attribute: str | int | None = None
) -> str:
    if attribute is not None:
        value = map(filters.make_attrgetter(context.environment, attribute), value)
    pieces = [text_of(item) for item in value]
    separator = text_of(d)
    limits.check_size(sum(map(len, pieces)) + len(separator) * len(pieces))
    if context.autoescape and any(map(is_safe, (separator, *pieces))):
        return escape(separator).join(pieces)
    return join(unmarked(separator), pieces)


@jinja2.pass_eval_context
def _replace(
    context: nodes.EvalContext, s: Any, old: Any, new: Any, count: int | None = None
) -> str:
    text, old, new = text_of(s), text_of(old), text_of(new)
    _check_replace(text, (old, new))
    count = -1 if count is None else count
    if not context.autoescape:
        return replace(unmarked(text), unmarked(old), unmarked(new), count)
    return (escape(text) if is_safe(old) or is_safe(new) else text).replace(old, new, count)


def _indent(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    margin = width if isinstance(width, str) else " " * min(width, limits.MIN_SIZE)
    text = concat((s, "\n"))  # Jinja's own: without it splitlines would drop a last empty line
    lines = text.splitlines()
    limits.check_size(len(text) + len(margin) * len(lines))
    if blank:
        result = join("\n" + margin, lines)
    else:
        result = join(
            "\n", [lines[0], *(concat((margin, line)) if line else line for line in lines[1:])]
        )
    result = concat((margin, result)) if first else result
    return mark_safe(result) if is_safe(s) else result


def _title(s: Any) -> str:
    return recased(text_of(s), filters.do_title(s))


def _coarse_filter(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that can't be followed: its result is traced where all its text has one origin."""

    @functools.wraps(function)
    def filter_(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not isinstance(result, str):
            return result
        made = coarse(plain(result), *args, *kwargs.values())
        return mark_safe(made) if is_safe(result) else made

    return filter_


def _center(value: str, width: int = 80) -> str:
    limits.check_size(width)
    return text_of(value).center(width)


def _format(value: str, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        return filters.do_format(value, *args, **kwargs)  # raises
    return str(modulo(text_of(value), kwargs or args))


def _list(value: Any) -> list[Any]:
    if isinstance(value, str):
        limits.step(len(value))
    return list(limits.watched(value))


def _reverse(value: Any) -> Any:
    return value[::-1] if isinstance(value, Traced) else filters.do_reverse(value)


def _forceescape(value: Any) -> str:
    return escape(unmarked(mark_safe(value)) if is_safe(value) else text_of(value))


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    return filters.do_items(value)


FILTERS: dict[str, Callable[..., Any]] = {
    "tojson": _tojson,
    "join": _join,
    "replace": _replace,
    "indent": _indent,
    "title": _title,
    "center": _center,
    "format": _format,
    "safe": mark_safe,
    "escape": escape,
    "e": escape,
    "forceescape": _forceescape,
    "string": text_of,
    "list": _list,
    "reverse": _reverse,
    "striptags": _coarse_filter(filters.do_striptags),
    "pprint": _coarse_filter(filters.do_pprint),
    "wordwrap": _coarse_filter(filters.do_wordwrap),
    "urlize": _coarse_filter(filters.do_urlize),
    "xmlattr": _coarse_filter(filters.do_xmlattr),
    "urlencode": _coarse_filter(filters.do_urlencode),
}
