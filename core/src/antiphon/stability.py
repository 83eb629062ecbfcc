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

from antiphon.environment import compile_template

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


class _Words(NamedTuple):
    """The strings of a template: all of them, and those that it may look for inside a text, with their pattern."""

    every: frozenset[str]
    inside: tuple[str, ...]
    pattern: re.Pattern[str]


def shape_of(messages: Sequence[Any], template: str) -> tuple[Hashable, ...]:
    """Return the shape of each message of a conversation, as ``template`` may see it."""
    words = _words(template)
    return tuple(_shape(message, words) for message in messages)


def _shape(value: Any, words: _Words) -> Hashable:
    if isinstance(value, str):
        text = "".join((value,))  # a plain string: its methods are the quick ones
        head, tail = len(text) - len(text.lstrip()), len(text.rstrip())
        stripped = text[head:tail]
        found: Hashable = None
        if any(map(text.__contains__, words.inside)):
            edges = tuple(
                (text.startswith(w), text.endswith(w), stripped.startswith(w), stripped.endswith(w))
                for w in words.inside
                if w in text
            )
            plain = frozenset(w for w in words.inside if w.isidentifier() and w in text)
            found = (plain, tuple(words.pattern.findall(text)), edges)
        return (
            text if text in words.every else None,
            bool(stripped),
            text[:head],
            text[tail:],
            found,
        )
    if isinstance(value, dict):
        return tuple(
            (key, str(item) if key in _VERBATIM else _shape(item, words))
            for key, item in value.items()
        )
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *(_shape(item, words) for item in value))
    return (type(value).__name__, repr(value))


def _called(node: nodes.Call | nodes.Filter | nodes.Test) -> str | None:
    if not isinstance(node, nodes.Call):
        return node.name
    return getattr(node.node, "attr", None) or getattr(node.node, "name", None)


@functools.lru_cache(maxsize=256)
def _words(template: str) -> _Words:
    tree = compile_template(template).environment.parse(template)
    every = {c.value for c in tree.find_all(nodes.Const) if isinstance(c.value, str)}
    inside: set[str] = set()
    for node in tree.find_all((nodes.Compare, nodes.Call, nodes.Filter, nodes.Test)):
        # Names of roles and fields are compared with whole values; a text is looked through by ``in``, or by what
        # takes the string as an argument.
        if isinstance(node, nodes.Compare):
            parts = [node.expr] if any(o.op in ("in", "notin") for o in node.ops) else []
        elif _called(node) in _PRINTING:
            parts = []
        else:
            parts = list(node.args)
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
    return _Words(frozenset(every), ordered, pattern)
