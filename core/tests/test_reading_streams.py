"""A stream reads what is read at once, and keeps back no more than may still become something else."""

from __future__ import annotations

import pytest
from antiphon.reading import parse_response, stream_parser
from antiphon.reading.grammar import Grammar
from reading_grammars import GLM, LLAMA4


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (GLM, "<tool_call>f<arg_key>city\n</arg_key>\n<arg_value>Oslo</arg_value></tool_call>"),
        (GLM, "<tool_call>f<arg_key>city\ntwo</arg_key>\n<arg_value>Oslo</arg_value></tool_call>"),
        (LLAMA4, '<|python_start|>[f{"b": 1}(a=1)]<|python_end|>'),
        (LLAMA4, '<|python_start|>["name": f(a=1)]<|python_end|>'),
        (LLAMA4, "[Åsa(a=1)]"),
        (LLAMA4, "[Åsa(a=1"),
    ],
)
def test_a_stream_of_single_characters_gives_what_reading_at_once_gives(
    grammar: Grammar, text: str
) -> None:
    parser = stream_parser(family=grammar)
    for char in text:
        parser.feed(char)
    assert parser.close() == parse_response(text, family=grammar)


@pytest.mark.parametrize("text", ["[Hello, Åsa", "[1, 2", "{x", "[ ", "{ a"])
def test_content_that_is_no_call_is_not_kept_to_the_end_for_its_bracket(text: str) -> None:
    parser = stream_parser(family=LLAMA4)
    events = [event for char in f"{text} and more" for event in parser.feed(char)]
    assert "".join(event.text for event in events) == f"{text} and more"
