"""What of a conversation a template may decide by: its shape.

Two conversations of one shape take the same branches of a template, so what was found out about one (that the
template never rewrites what it has printed) holds for the other. A shape keeps roles, fields, numbers, which texts
are empty, their white space at both ends, and every string of the template that a text contains; the words
themselves it leaves out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from jinja2 import nodes

from antiphon.engine.caches import BoundedCache
from antiphon.engine.environment import compile_template

# Control tokens as they look, in the text of a template: a message's own text may begin with what a prompt ends with.
_MARKER = re.compile(r"<[^<>\s]{1,48}>|\[/?[A-Z_]{2,}\]")
_VERBATIM = ("role", "type", "name")
# What takes strings to print, or to complain, and decides nothing by them.
_PRINTING = frozenset(
    (
        "join",
        "replace",
        "format",
        "tojson",
        "default",
        "indent",
        "get",
        "raise_exception",
        "strftime_now",
    )
)


_KEPT_CHARACTERS = 4 * 2**20


def _weigh(text: str, shape: Hashable) -> int:
    return len(text) + 256


_QUIET: Hashable = (None, True, None, None)


class _Words(NamedTuple):
    """The strings of a template: all of them, and those that it may look for inside a text, with their pattern."""

    every: frozenset[str]
    inside: tuple[str, ...]
    by_sign: tuple[tuple[str, tuple[str, ...]], ...]  # those inside, by their first character
    pattern: re.Pattern[str]
    longest: int  # characters of the longest string of the template
    known: BoundedCache[str, Hashable]


def shape_of(messages: Sequence[Any], template: str) -> tuple[Hashable, ...]:
    """Return the shape of each message of a conversation, as ``template`` may see it."""
    words = _words(template)
    texts = [value for message in messages for value in message.values() if isinstance(value, str)]
    whole = "\n".join(texts)
    # Most texts hold none of the template's words, and are looked through together; most words begin with "<".
    loud = any(
        sign in whole and any(map(whole.__contains__, those)) for sign, those in words.by_sign
    )
    return tuple([_shape_of_message(message, words, loud) for message in messages])


def _shape_of_message(message: Any, words: _Words, loud: bool) -> Hashable:
    parts: list[Hashable] = []
    for key, item in message.items():
        parts.append(key)
        if not isinstance(item, str):
            parts.append(_shape(item, words))
        elif key in _VERBATIM:
            parts.append("".join((item,)))
        else:
            parts.append(_text(item, words, loud))
    return tuple(parts)


def _shape(value: Any, words: _Words) -> Hashable:
    if isinstance(value, str):
        shape = words.known.get(value)
        if shape is None:
            shape = _text(value, words, True)
            words.known.put("".join((value,)), shape)
        return shape
    if isinstance(value, dict):
        return tuple(
            (key, str(item) if key in _VERBATIM else _shape(item, words))
            for key, item in value.items()
        )
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *(_shape(item, words) for item in value))
    return (type(value).__name__, repr(value))


def _text(value: str, words: _Words, loud: bool) -> Hashable:
    text = "".join((value,))  # a plain string: its methods are the quick ones
    stripped = text.strip()
    if not loud and len(stripped) == len(text) > words.longest:
        return _QUIET  # what most texts are
    found: Hashable = None
    if loud:
        inside = [word for word in words.inside if word in text]
        if inside:
            edges = tuple(
                (text.startswith(w), text.endswith(w), stripped.startswith(w), stripped.endswith(w))
                for w in inside
            )
            plain = frozenset(word for word in inside if word.isidentifier())
            found = (plain, tuple(words.pattern.findall(text)), edges)
    if len(stripped) == len(text):
        edge = None
    else:
        head = len(text) - len(text.lstrip())
        edge = (text[:head], text[head + len(stripped) :])
    return (text if text in words.every else None, bool(stripped), edge, found)


def _called(node: nodes.Call | nodes.Filter | nodes.Test) -> str:
    """Return the name of a filter, a test, a function or a method."""
    if not isinstance(node, nodes.Call):
        return node.name
    return str(getattr(node.node, "attr", "") or getattr(node.node, "name", ""))


@functools.lru_cache(maxsize=256)
def _words(template: str) -> _Words:
    tree = compile_template(template).environment.parse(template)
    every = {c.value for c in tree.find_all(nodes.Const) if isinstance(c.value, str)}
    inside: set[str] = set()
    parts: list[Any] = []
    for node in tree.find_all((nodes.Compare, nodes.Call, nodes.Filter, nodes.Test)):
        # Names of roles and fields are compared with whole values; a text is looked through by ``in``, or by what
        # takes the string as an argument.
        if isinstance(node, nodes.Compare):
            parts = [node.expr] if any(o.op in ("in", "notin") for o in node.ops) else []
        elif isinstance(node, (nodes.Call, nodes.Filter, nodes.Test)):
            parts = [] if _called(node) in _PRINTING else list(node.args)
        inside.update(
            p.value for p in parts if isinstance(p, nodes.Const) and isinstance(p.value, str)
        )
    for data in tree.find_all(nodes.TemplateData):
        inside.update(_MARKER.findall(data.data))
    for word in every:
        inside.update(_MARKER.findall(word))
    ordered = tuple(sorted((w for w in inside if w.strip()), key=lambda w: (-len(w), w)))
    # The order of markers in a text may matter, that of plain words does not.
    marks = "|".join(re.escape(word) for word in ordered if not word.isidentifier())
    pattern = re.compile(marks or r"(?!)")
    by_sign = tuple(
        (sign, tuple(word for word in ordered if word[0] == sign))
        for sign in sorted({word[0] for word in ordered})
    )
    longest = max(map(len, every), default=0)
    known: BoundedCache[str, Hashable] = BoundedCache(_KEPT_CHARACTERS, _weigh)
    return _Words(frozenset(every), ordered, by_sign, pattern, longest, known)
