"""A stream shows the arguments of a call while the call is written, in every style."""

from __future__ import annotations

import json
from typing import Any

import pytest
from antiphon.reading import parse_response, stream_parser
from antiphon.reading.events import Event
from antiphon.reading.grammar import Grammar
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_grammars import DEEPSEEK_V32, QWEN3, QWEN_XML

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "parameters": {
                "type": "object",
                "properties": {
                    "near": {"type": "integer"},
                    "place": {"type": "string"},
                    "filters": {"type": "array"},
                },
            },
        },
    }
]
XML = (
    "<tool_call>\n<function=find>\n<parameter=near>\n3\n</parameter>\n<parameter=place>\nthe é of\n"
    "two </parameter> lines\n</parameter>\n<parameter=filters>\n[1, {}]\n</parameter>\n</function>\n</tool_call>"
)
TWICE = (
    "<tool_call>\n<function=find>\n<parameter=near>\n3\n</parameter>\n<parameter=near>\n4\n</parameter>\n"
    "</function>\n</tool_call>"
)
BARE = "<tool_call>\n<function=find>\n</function>\n</tool_call>"
OBJECT = '<tool_call>\n<function=find>\n{"near": 3, "place": "x"}\n</function>\n</tool_call>'
DSML = (
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="find">\n<｜DSML｜parameter name="near" string="false">3'
    '</｜DSML｜parameter>\n<｜DSML｜parameter name="place" string="true">x</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
    "</｜DSML｜function_calls>"
)
JSON = '<tool_call>\n{"name": "find", "arguments": {"near": 3, "place": "x"}}\n</tool_call>'
CALLS = [
    (QWEN_XML, XML),
    (QWEN_XML, TWICE),
    (QWEN_XML, BARE),
    (QWEN_XML, OBJECT),
    (QWEN_XML, f"{XML}\n{TWICE}"),
    (DEEPSEEK_V32, DSML),
    (QWEN3, JSON),
]


def shown(events: list[Event]) -> dict[int, str]:
    """The arguments' text that was shown of each call."""
    texts: dict[int, str] = {}
    for event in events:
        if event.kind == "call":
            texts[event.number] = ""
        elif event.kind == "arguments":
            texts[event.number] += event.text
    return texts


@settings(deadline=None)
@given(
    st.sampled_from(CALLS),
    st.lists(st.integers(1, 12), min_size=1),
    st.sampled_from([None, TOOLS]),
)
def test_what_is_shown_of_a_call_is_its_arguments_however_the_text_comes(
    case: tuple[Grammar, str], sizes: list[int], tools: list[Any] | None
) -> None:
    grammar, text = case
    parser = stream_parser(family=grammar, tools=tools)
    events: list[Event] = []
    position = number = 0
    while position < len(text):
        size = sizes[number % len(sizes)]
        events += parser.feed(text[position : position + size])
        position, number = position + size, number + 1
    reading = parser.finish()
    events += reading.last_events
    whole = parse_response(text, family=grammar, tools=tools)
    assert reading.message == whole
    told = [json.loads(shown_text) for shown_text in shown(events).values()]
    assert told == [call["function"]["arguments"] for call in whole["tool_calls"]]


@pytest.mark.parametrize(("grammar", "text"), [(QWEN_XML, XML), (DEEPSEEK_V32, DSML)])
def test_an_argument_is_shown_when_it_is_whole_and_not_with_the_end_of_its_call(
    grammar: Grammar, text: str
) -> None:
    parser = stream_parser(family=grammar, tools=TOOLS)
    before = parser.feed(text[: text.index("place") + 5])
    assert [event.text for event in before if event.kind == "call"] == ["find"]
    assert shown(before) == {0: '{"near": 3'}
