"""`Traced` gives the text that ``str`` gives, and never a wrong origin."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import pytest
from antiphon.engine.json_text import dump_json
from antiphon.engine.provenance import (
    Traced,
    concat,
    join,
    percent_format,
    replace,
    spans_of,
    traced_whole,
)
from antiphon.engine.rendering import render
from antiphon.engine.tracing import trace
from hypothesis import given
from hypothesis import strategies as st

LETTERS = st.text(alphabet="ab \n\tßİ.", max_size=12)
LEFT, RIGHT = (0, ("content",)), (1, ("content",))


@st.composite
def mixed(draw: st.DrawFn) -> str:
    """A text of scaffold and of two messages; a letter says where it is from: upper case, digits, or neither."""
    parts = draw(
        st.lists(
            st.tuples(st.sampled_from("slr"), st.text(alphabet="aeiou \n", max_size=4)), max_size=5
        )
    )
    return concat(
        [
            text
            if kind == "s"
            else traced_whole(text.upper(), LEFT)
            if kind == "l"
            else traced_whole(text.replace("a", "1").replace("e", "2"), RIGHT)
            for kind, text in parts
        ]
    )


def origins_hold(text: str) -> bool:
    """Whether no character that is recognisably of one origin has another."""
    for start, end, origin in spans_of(text):
        part = str.__getitem__(text, slice(start, end))
        if origin == RIGHT and any(c.isupper() for c in part):
            return False
        if origin == LEFT and any(c.isdigit() or c.islower() for c in part):
            return False
    spans = spans_of(text)
    return all(a[1] <= b[0] for a, b in itertools.pairwise(spans)) and all(
        0 <= s[0] < s[1] <= len(text) for s in spans
    )


OPERATIONS: dict[str, Any] = {
    "strip": lambda s: s.strip(),
    "strip letters": lambda s: s.strip("Aa1 "),
    "lstrip": lambda s: s.lstrip(),
    "rstrip": lambda s: s.rstrip("\n"),
    "slice": lambda s: s[1:-1],
    "step": lambda s: s[::2],
    "reverse": lambda s: s[::-1],
    "replace": lambda s: s.replace("A", "xx"),
    "replace all": lambda s: s.replace("", "-"),
    "replace once": lambda s: s.replace("a", "", 1),
    "prefix": lambda s: s.removeprefix("A"),
    "suffix": lambda s: s.removesuffix("a"),
    "add": lambda s: "<" + s + ">" + s,
    "multiply": lambda s: s * 2,
    "iterate": lambda s: "".join(list(s)),
}


@pytest.mark.parametrize("name", OPERATIONS)
@given(text=mixed())
def test_operations_give_what_str_gives_and_keep_origins(name: str, text: str) -> None:
    operation = OPERATIONS[name]
    result = operation(text)
    assert result == operation("".join(text))
    assert origins_hold(result)


SPLITS: dict[str, Any] = {
    "split": lambda s: s.split(),
    "split at": lambda s: s.split("a"),
    "split once": lambda s: s.split("A", 1),
    "rsplit": lambda s: s.rsplit(None, 1),
    "rsplit at": lambda s: s.rsplit("a", 1),
    "splitlines": lambda s: s.splitlines(),
    "keepends": lambda s: s.splitlines(True),
    "partition": lambda s: s.partition("a"),
    "rpartition": lambda s: s.rpartition("A"),
}


@pytest.mark.parametrize("name", SPLITS)
@given(text=mixed())
def test_splits_give_what_str_gives_and_keep_origins(name: str, text: str) -> None:
    result = SPLITS[name](text)
    assert list(result) == list(SPLITS[name]("".join(text)))
    assert all(origins_hold(part) for part in result)


@given(text=mixed(), other=mixed(), pieces=st.lists(mixed(), max_size=4))
def test_functions_keep_all_origins(text: str, other: str, pieces: list[str]) -> None:
    plain, plain_other, plain_pieces = "".join(text), "".join(other), ["".join(p) for p in pieces]
    assert join(text, pieces) == plain.join(plain_pieces)
    assert origins_hold(join(text, pieces))
    assert replace(text, "a", other) == plain.replace("a", plain_other)
    assert origins_hold(replace(text, "a", other))
    assert percent_format("%s-%s%%", (text, other)) == f"{plain}-{plain_other}%"
    assert origins_hold(percent_format("%s-%s", (text, other)))


@given(text=LETTERS)
def test_case_changes_give_what_str_gives(text: str) -> None:
    traced = traced_whole(text, LEFT)
    for name in ("lower", "upper", "title", "capitalize", "swapcase", "casefold"):
        result = getattr(traced, name)()
        assert result == getattr(text, name)()
        assert sum(end - start for start, end, _ in spans_of(result)) in (0, len(result))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(value=VALUES, ascii_=st.booleans(), indent=st.none() | st.integers(0, 3), sort=st.booleans())
def test_json_is_what_json_gives(value: Any, ascii_: bool, indent: int | None, sort: bool) -> None:
    options = {"ensure_ascii": ascii_, "indent": indent, "sort_keys": sort}
    result = dump_json(trace({"arguments": value}, 3), **options)
    assert result == json.dumps({"arguments": value}, **options)
    assert sum(end - start for start, end, _ in spans_of(result)) == len(result)


def test_json_tells_arguments_apart() -> None:
    message = {
        "tool_calls": [{"function": {"name": "f", "arguments": {"city": "Oslo", "days": 2}}}]
    }
    result = dump_json(
        trace(message, 1)["tool_calls"][0]["function"]["arguments"], ensure_ascii=False
    )
    by_field = {result[start:end]: origin[1][3:] for start, end, origin in spans_of(result)}
    assert by_field["Oslo"] == ("arguments", "city")
    assert by_field["city"] == ("arguments", "city")


def test_a_traced_string_is_a_string() -> None:
    text = traced_whole("Ünïcode", LEFT)
    assert isinstance(text, str)
    assert hash(text) == hash("Ünïcode")
    assert {"Ünïcode": 1}[text] == 1
    assert str(text) is text
    with pytest.raises(TypeError, match="indices"):
        text["content"]  # type: ignore[index]
    with pytest.raises(TypeError):
        text + 1  # type: ignore[operator]
    copy = pickle.loads(pickle.dumps(text))
    assert isinstance(copy, Traced)
    assert spans_of(copy) == spans_of(text)


def test_whatever_is_not_json_becomes_its_type_name() -> None:
    class Image:
        pass

    assert trace({"content": [{"image": Image()}]}, 0)["content"][0]["image"] == "<Image>"


def test_what_is_encoded_and_decoded_again_keeps_its_origin() -> None:
    for expression, whole in (
        ("m.content.encode('utf-8').decode('utf-8')", True),
        ("m.content.encode('ascii', 'ignore').decode()", True),
        ("m.content.encode()", False),
    ):
        template = "{% for m in messages %}[" + "{{ " + expression + " }}]{% endfor %}"
        rendering = render([{"role": "user", "content": "né<b>"}], chat_template=template)
        (span,) = rendering.spans
        assert (span.message, span.start, span.end) == (0, 1, len(rendering.text) - 1)
        assert (rendering.text[1:-1] in ("né<b>", "n<b>")) is whole
