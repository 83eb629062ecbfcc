"""Laws of streams, for recorded completions that were damaged, cut anywhere, with and without tools."""

from __future__ import annotations

import itertools
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))  # the tests' own helpers stand beside them
pytest.importorskip("canitoolcall", reason="canitoolcall is not installed")

from antiphon.reading import Grammar, parse_response, stream_parser
from antiphon.reading.compiled import compile_text
from antiphon.reading.scan import WHITE
from canitoolcall.fixtures import Fixture
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading_grammars import ALL
from test_reading_canitoolcall import FAMILIES, fixtures, options_of

JUNK = (
    *(
        '"',
        "'",
        "}",
        "{",
        "]",
        "[",
        ",",
        " ",
        "\n",
        "\r\n",
        "\\",
        "a",
        "é",
        "null",
        "True",
        '{"b": 1}',
    ),
    *("</parameter>", "<parameter=", "</function>", "</tool_call>", "<tool_call>", "</think>"),
    *(
        "</｜DSML｜parameter>",
        "<|im_end|>",
        "<｜end▁of▁sentence｜>",
        '"name": "g"',
        '"arguments": {"b": 2}',
    ),
)
places = st.integers(0, 400)
damages = st.lists(
    st.tuples(places, st.integers(0, 40), st.sampled_from(("", "", *JUNK))), max_size=3
)
cuts = st.lists(st.integers(1, 30), min_size=1, max_size=5)


def damaged(text: str, damage: list[tuple[int, int, str]]) -> str:
    for place, size, junk in damage:
        at = place % (len(text) + 1)
        text = text[:at] + junk + text[at + (0 if junk else size) :]
    return text


def check_stream(text: str, sizes: list[int], options: dict[str, Any]) -> None:
    """Hold a stream to what is read at once, and what it shows to what it reads."""
    parser = stream_parser(**options)
    events, at = [], 0
    for size in itertools.cycle(sizes):
        if at >= len(text):
            break
        events += parser.feed(text[at : at + size])
        at += size
    reading = parser.finish()
    events += reading.last_events
    message = parse_response(text, **options)
    assert reading.message == message
    calls = message["tool_calls"] or []
    names: dict[int, list[str]] = {}
    told: dict[int, str] = {}
    over = Counter(event.number for event in events if event.kind == "call_end")
    for event in events:
        if event.kind == "call":
            names.setdefault(event.number, []).append(event.text)
        elif event.kind == "arguments":
            assert event.number in names
            told[event.number] = told.get(event.number, "") + event.text
    assert over == Counter(range(len(calls)))
    assert set(names) <= set(over)
    for number, call in enumerate(calls):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if call["status"] not in ("ok", "invalid_arguments", "unknown_tool"):
            assert names.get(number, [name]) == [name]
            continue
        assert names[number] == [name]
        made = json.loads(told[number], strict=False)
        assert made == arguments


@pytest.mark.parametrize("family", FAMILIES)
def test_damaged_completions_are_read_alike_in_streams_and_shown_as_they_are_read(
    family: str,
) -> None:
    recorded = [fixture for fixture in fixtures() if fixture.family == family]

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(recorded), damages, cuts, st.booleans())
    def check(
        fixture: Fixture, damage: list[tuple[int, int, str]], sizes: list[int], has_tools: bool
    ) -> None:
        options = options_of(fixture)
        if not has_tools:
            options["tools"] = None
        check_stream(damaged(fixture.raw_output, damage), sizes, options)

    check()


@pytest.mark.parametrize("where", ["content", "reasoning"])
@pytest.mark.parametrize("grammar", ALL, ids=lambda grammar: grammar.name)
def test_no_more_is_kept_back_than_may_begin_a_marker(grammar: Grammar, where: str) -> None:
    """What is kept back is white space that the format may have before a marker, and the beginning of one."""
    if where == "reasoning" and grammar.reasoning is None:
        return
    compiled = compile_text(grammar)
    prefixes = compiled.prefixes if where == "content" else compiled.think_prefixes
    room = max(compiled.max_lead, len(compiled.think_close.lead) if where == "reasoning" else 0)
    pieces = [*sorted(prefixes), "a", "one ", "é", "\n", "\n\n", "  ", "<", "[", "{", "."]

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.sampled_from(pieces), max_size=8).map("".join), cuts)
    def check(text: str, sizes: list[int]) -> None:
        opener = grammar.reasoning.opener if grammar.reasoning and where == "reasoning" else ""
        text = f"A{text}"
        found = parse_response(opener + text, family=grammar)
        read = found["reasoning_content" if where == "reasoning" else "content"] or ""
        if read != text or found["is_complete"]:
            return  # Some of the pieces made a marker together.
        parser = stream_parser(family=grammar)
        parser.feed(opener)
        shown, at = "", 0
        for size in itertools.cycle(sizes):
            if at >= len(text):
                break
            shown += "".join(event.text for event in parser.feed(text[at : at + size]))
            at += size
            kept = text[:at][len(shown) :]
            bare = kept.lstrip(WHITE)
            assert len(kept) - len(bare) <= room
            assert not bare or bare in prefixes

    check()
