"""Hypothesis strategies: messages, conversations, hostile text, and ways to split a stream."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from antiphon.testing.scenarios import Message, hostile_texts

#: What markup, templates and tokenizers stumble over.
_FRAGMENTS = (
    "",
    " ",
    "\n",
    "\n\n",
    "\t",
    "word",
    "Größe",
    "数学",
    "🙂",
    "{{ x }}",
    "{% y %}",
    "</think>",
    "<think>",
    '{"name": "f"}',
    "<tool_call>",
    "[INST]",
    "\\n",
    "'",
    '"',
    "<",
    "é",
)
_NAMES = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)


def texts(*, markers: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    """Texts; with ``markers`` also such that spell out control tokens."""
    pieces = st.sampled_from((*_FRAGMENTS, *markers))
    letters = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)
    return st.lists(st.one_of(pieces, letters), max_size=5).map("".join)


def plain_texts() -> st.SearchStrategy[str]:
    """Texts that no dialect takes for markup and no template trims."""
    word = st.sampled_from(("word", "Größe", "数学", "🙂", "a-b", "12"))
    return st.lists(word, min_size=1, max_size=4).map(" ".join)


def hostile(markers: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Texts that try to end a turn or to begin another."""
    return st.one_of(st.sampled_from(hostile_texts(markers)), texts(markers=markers))


def arguments() -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of calls."""
    leaves = st.one_of(
        st.none(), st.booleans(), st.integers(-(10**6), 10**6), plain_texts(), texts()
    )
    values = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=2),
        max_leaves=4,
    )
    return st.dictionaries(_NAMES, values, max_size=3)


def messages(role: str, contents: st.SearchStrategy[str]) -> st.SearchStrategy[Message]:
    """Messages of one role."""
    return contents.map(lambda content: {"role": role, "content": content})


def conversations(
    contents: st.SearchStrategy[str] | None = None,
    answers: st.SearchStrategy[str] | None = None,
    *,
    system: bool = False,
) -> st.SearchStrategy[list[Message]]:
    """Conversations that alternate between user and assistant.

    Args:
        contents: What messages say; plain texts by default.
        answers: What the assistant says, where that is something else.
        system: Whether some begin with a system message.
    """
    said = plain_texts() if contents is None else contents
    pair = st.tuples(
        messages("user", said), messages("assistant", said if answers is None else answers)
    )
    pairs = st.lists(pair, min_size=1, max_size=3)

    def joined(parts: tuple[list[Message], list[tuple[Message, Message]]]) -> list[Message]:
        first, rest = parts
        return [*first, *(message for both in rest for message in both)]

    begins = st.lists(messages("system", said), max_size=1) if system else st.just([])
    return st.tuples(begins, pairs).map(joined)


def splits(text: str) -> st.SearchStrategy[list[str]]:
    """Ways to cut a text into bits, as a stream brings them."""
    places = st.lists(st.integers(0, len(text)), max_size=6).map(sorted)

    def cut(at: list[int]) -> list[str]:
        edges = [0, *at, len(text)]
        return [text[a:b] for a, b in pairwise(edges)]

    return places.map(cut)
