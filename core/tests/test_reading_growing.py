"""A stream shows the arguments of a call while the call is written, in every style."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from antiphon.reading import parse_response, stream_parser, unparse
from antiphon.reading.events import Event
from antiphon.reading.grammar import CallForm, Grammar
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_grammars import DEEPSEEK_V32, GEMMA, GLM, LLAMA3, LLAMA4, QWEN3, QWEN_XML

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
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
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
LOOSE = (
    '<tool_call>\n<function=find>\n<parameter=place>\r\n\\ "é" </parameter> <parameter=place> x\n\n\r\n'
    "</parameter>\n<parameter=note>\nnul\nNone\n</parameter>\n<parameter=note>\nnull\n</parameter>\n"
    "<parameter=other>\n\n</parameter>\n</function>\n</tool_call>"
)
OPEN = "<tool_call>\n<function=find>\n<parameter=place>\nthe é\n<parameter=note>\nof two\n</function>\n</tool_call>"
LAST = "<tool_call>\n<function=find>\n<parameter=place>\nthe </function é\n\n</parameter>\n</tool_call>"
PAIRS = (
    "<tool_call>find<arg_key>near</arg_key>\n<arg_value>3</arg_value>\n<arg_key>place</arg_key>\n<arg_value>"
    "true north</arg_value>\n<arg_key>note</arg_key>\n<arg_value>null </arg_value></tool_call>"
)
PYTHON = """<|python_start|>[find(near=3, place="x, é"), find(filters=[1])]<|python_end|>"""
BUILTIN = """<|python_tag|>find.call(place="the "é" of")<|eom_id|>"""
TWO = '{"name": "find", "arguments": {"near": 3}}, {"name": "look", "arguments": {"place": "x"}}'
LIST = f"<tool_call>\n[{TWO}]\n</tool_call>"
BEHIND = LIST.replace("[{", "{").replace("}]", "}").replace("}, {", "}\n{")
WRAPPED = '<tool_call>\n{"type": "function", "function": {"name": "find", "arguments": {"near": 3}}}\n</tool_call>'
BRACES = (
    '<|tool_call>call:find{near:3,place:<|"|>the "é" <|of{,: <|"|>,filters:[1,<|"|>x<|"|>],'
    'note:<|"|><|"|>}<tool_call|>'
)
JSON_BRACES = '<|tool_call>call:find{"near": 3, "place": "x"}<tool_call|>'
CALLS = [
    (GEMMA, BRACES),
    (GEMMA, JSON_BRACES),
    (QWEN3, LIST),
    (QWEN3, BEHIND),
    (QWEN3, WRAPPED),
    (QWEN_XML, LOOSE),
    (QWEN_XML, OPEN),
    (QWEN_XML, LAST),
    (GLM, PAIRS),
    (LLAMA4, PYTHON),
    (LLAMA3, BUILTIN),
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


@settings(deadline=None, max_examples=300)
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


@pytest.mark.parametrize(
    ("grammar", "text", "told"),
    [
        (QWEN_XML, XML[: XML.index("é")], '{"near": 3, "place": "the '),
        # What follows a line break may end the value, and what follows a closer may say that it was none.
        (QWEN_XML, XML[: XML.index("two")], '{"near": 3, "place": "the é of'),
        (QWEN_XML, XML[: XML.index("lines") - 1], '{"near": 3, "place": "the é of\\ntwo '),
        (
            QWEN_XML,
            XML[: XML.index("lines") + 1],
            '{"near": 3, "place": "the é of\\ntwo </parameter> l',
        ),
        (
            QWEN_XML,
            XML[: XML.index("1, {}") + 3],
            '{"near": 3, "place": "the é of\\ntwo </parameter> lines"',
        ),
        (QWEN_XML, LOOSE[: LOOSE.index("nul") + 3], None),
        (QWEN_XML, LOOSE[: LOOSE.index("nul") + 5], '"note": "nul\\nN'),
        (DEEPSEEK_V32, DSML[: DSML.index("x</")], '{"near": 3'),
        (DEEPSEEK_V32, DSML[: DSML.index("x</") + 1], '{"near": 3, "place": "x'),
        (DEEPSEEK_V32, DSML[: DSML.index("x</") + 5], '{"near": 3, "place": "x'),
        (GLM, PAIRS[: PAIRS.index("th</") + 2], '{"near": 3, "place": "true north'),
        (GEMMA, BRACES[: BRACES.index("<|of") + 2], '{"near": 3, "place": "the \\"é\\" '),
        (GEMMA, BRACES[: BRACES.index("<|of") + 5], '{"near": 3, "place": "the \\"é\\" <|of{'),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_string_is_shown_while_it_is_written(
    grammar: Grammar, text: str, told: str | None, size: int
) -> None:
    parser = stream_parser(family=grammar, tools=TOOLS)
    events = [
        event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])
    ]
    if told is None:
        assert '"note"' not in shown(events)[0]
    else:
        assert shown(events)[0].endswith(told)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('<|python_tag|>{"name": "find", "parameters": {"near": 3', "incomplete"),
        ('<|python_tag|>{"name": "find", "parameters": {"near": 3,,}}<|eom_id|>', "malformed"),
        ('<|python_tag|>find.call(place="x', "incomplete"),
    ],
)
def test_a_call_that_has_begun_in_one_form_is_none_of_another_form(text: str, status: str) -> None:
    code = CallForm("named", opener="<|python_tag|>", fixed_name="code", fixed_argument="code")
    grammar = replace(LLAMA3, calls=(*LLAMA3.calls[:2], code))
    for size in (1, len(text)):
        parser = stream_parser(family=grammar)
        events = [
            event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])
        ]
        reading = parser.finish()
        assert {event.text for event in events if event.kind == "call"} <= {"find"}
        (call,) = reading.message["tool_calls"]
        assert (call["function"]["name"], call["status"]) == ("find", status)


def test_the_last_of_two_arguments_of_one_name_counts_whatever_their_kinds() -> None:
    text = DSML.replace('"place" string="true">x', '"near" string="false">x').replace(
        'string="false">3', 'string="false">three'
    )
    text = text.replace('string="false">x', 'string="false">4')
    message = parse_response(text, family=DEEPSEEK_V32, tools=TOOLS)
    assert message["tool_calls"][0]["function"]["arguments"] == {"near": 4}


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (QWEN3, LIST),
        (QWEN3, BEHIND),
        (LLAMA4, '<|python_start|>[find(near=3), look(place="x")]<|python_end|>'),
    ],
)
def test_each_of_several_calls_is_shown_when_it_comes(grammar: Grammar, text: str) -> None:
    parser = stream_parser(family=grammar)
    cut = text.index("x")
    first = parser.feed(text[:cut])
    assert [event.text for event in first if event.kind == "call"] == ["find", "look"]
    assert json.loads(shown(first)[0]) == {"near": 3}
    second = parser.feed(text[cut:])
    assert [event.number for event in second if event.kind == "call_end"] == [0, 1]


@pytest.mark.parametrize(
    ("grammar", "text", "statuses"),
    [
        (QWEN3, LIST.replace('{"place"', '"place"'), ["ok", "malformed"]),
        (QWEN3, BEHIND.replace('{"place"', '"place"'), ["ok", "malformed"]),
        (QWEN3, LIST[: LIST.index("x")], ["ok", "incomplete"]),
        (QWEN3, LIST.replace("]", ",]"), ["ok", "ok", "malformed"]),
        (QWEN3, LIST.replace('"x"}', '"x"}, "arguments": {"place": "y"}'), ["ok", "malformed"]),
        (QWEN3, LIST.replace('"x"}', '"x"}, "name": "find"'), ["ok", "malformed"]),
        (QWEN3, LIST.replace('"x"}', '"x", "name": 1, "arguments": {}}'), ["ok", "ok"]),
        (QWEN3, LIST.replace("]", "] and"), ["ok", "malformed"]),
        (
            LLAMA4,
            "<|python_start|>[find(near=3), look(place=x y)]<|python_end|>",
            ["ok", "malformed"],
        ),
        (LLAMA4, "<|python_start|>[find(near=3), look(place='x", ["ok", "incomplete"]),
    ],
)
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_calls_before_a_broken_one_are_kept(
    grammar: Grammar, text: str, statuses: list[str], size: int
) -> None:
    parser = stream_parser(family=grammar)
    for at in range(0, len(text), size):
        parser.feed(text[at : at + size])
    reading = parser.finish()
    calls = reading.message["tool_calls"]
    assert [call["status"] for call in calls] == statuses
    assert [call["function"]["name"] for call in calls][:2] == ["find", "look"]
    assert reading.message == parse_response(text, family=grammar)
    assert unparse(reading) == text
