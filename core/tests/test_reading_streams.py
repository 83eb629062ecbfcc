"""A stream reads what is read at once, and keeps back no more than may still become something else."""

from __future__ import annotations

import pytest
from antiphon.reading import parse_response, stream_parser
from antiphon.reading.grammar import Grammar
from reading_grammars import GLM, LLAMA4, QWEN3, QWEN_XML
from reading_tokenizers import load_tokenizer


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


DAYS = {"name": "weather", "parameters": {"properties": {"days": {"type": "integer"}}}}


@pytest.mark.parametrize(
    ("grammar", "text", "days", "status"),
    [
        (QWEN3, '{{"name": "{name}", "arguments": {{"days": 2}}}}\n</tool_call>', 2, "ok"),
        (
            QWEN3,
            '{{"name": "{name}", "arguments": {{"days": "2"}}}}\n</tool_call>',
            "2",
            "invalid_arguments",
        ),
        (QWEN_XML, "<function={name}>\n<parameter=days>\n2\n</parameter>\n", 2, "ok"),
    ],
)
@pytest.mark.parametrize("name", ["weather", "sing"])
def test_the_event_of_a_finished_call_says_what_the_message_says(
    grammar: Grammar, text: str, days: object, status: str, name: str
) -> None:
    pytest.importorskip("jsonschema", reason="it judges arguments by their types")
    closer = "" if grammar is QWEN3 else "</function>\n</tool_call>"
    stream = stream_parser(family=grammar, tools=[DAYS])
    whole = "<tool_call>\n" + text.format(name=name) + closer
    events = [event for char in whole for event in stream.feed(char)]
    events += stream.finish().last_events
    (call,) = [event.call for event in events if event.kind == "call_end"]
    (told,) = stream.close()["tool_calls"]
    assert call is not None
    assert (call.name, call.arguments, call.status) == (
        name,
        told["function"]["arguments"],
        told["status"],
    )
    if name == "weather":
        assert (call.arguments, call.status) == ({"days": days}, status)
    else:
        assert call.status == "unknown_tool"


@pytest.mark.parametrize("name", ["qwen3", "llama3.1", "deepseek_v3", "gemma3"])
def test_of_ids_only_the_bytes_of_half_a_character_are_kept_back(name: str) -> None:
    tokenizer = load_tokenizer(name)
    grammar = Grammar(name="plain", roles=QWEN3.roles, end_tokens=QWEN3.end_tokens)
    text = "A word, 🧿𓀀 and an end."
    ids = list(tokenizer.encode(text, add_special_tokens=False))
    assert len(ids) > len(text.split())
    halves = 0
    for size in range(1, len(ids) + 1):
        parser = stream_parser(family=grammar, tokenizer=tokenizer)
        shown = "".join(event.text for event in parser.feed(ids[:size]))
        whole = [
            text for n in range(size + 1) if "\ufffd" not in (text := tokenizer.decode(ids[:n]))
        ]
        halves += whole[-1] != tokenizer.decode(ids[:size])
        assert shown == whole[-1]
    assert halves
