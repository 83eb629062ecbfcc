"""Calls in a format that the grammar in force does not read: they stay content, and are told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import antiphon
import pytest
from antiphon.reading import (
    Grammar,
    parse,
    parse_response,
    read_response,
    stream_parser,
    unparse,
)
from antiphon.reading.foreign import calls_in
from antiphon.reading.infer import infer_grammar
from antiphon.registry import families
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_grammars import ALL, DEEPSEEK_V3, LLAMA3, LLAMA4, QWEN3
from reading_tokenizers import load_tokenizer

CALLS = {
    "Qwen3-Coder": (
        "<tool_call>\n<function=f>\n<parameter=a>\nls -la\n</parameter>\n</function>\n</tool_call>"
    ),
    "Hermes": '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
    "Hermes, broken": '<tool_call>\n{"name": "f", "arguments": {"a": }\n</tool_call>',
    "GLM": "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    "Llama 3": '{"name": "f", "parameters": {"a": 1}}',
    "Llama 3, tagged": '<|python_tag|>{"name": "f", "parameters": {"a": 1}}',
    "Llama 3, built in": '<|python_tag|>f.call(query="x")',
    "Llama's functions": '<function=f>{"a": 1}</function>',
    "Llama 4": "[f(a=1)]",
    "Llama 4, marked": "<|python_start|>f(a=1)<|python_end|>",
    "Mistral": '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]',
    "Mistral, later": '[TOOL_CALLS]f[ARGS]{"a": 1}',
    "Mistral, between": '[TOOL_CALLS]f{"a": 1}',
    "DeepSeek V3": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        '{"a": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    "DSML": (
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">x'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
    ),
    "invoke": (
        '<function_calls>\n<invoke name="f">\n<parameter name="a">x</parameter>\n</invoke>\n'
        "</function_calls>"
    ),
    "harmony": (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'
    ),
    "Kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        '{"a": 1}<|tool_call_end|><|tool_calls_section_end|>'
    ),
    "Gemma": '<|tool_call>call:f{a:<|"|>x<|"|>}<tool_call|>',
    "any marker": '<TOOLCALL>[{"name": "f", "arguments": {"a": 1}}]</TOOLCALL>',
    "any marker, Python": "<|tool_call_start|>[f(a=1)]<|tool_call_end|>",
}
BROUGHT_BY = {
    "Qwen3-Coder": "qwen3-coder",
    "Hermes": "qwen3",
    "Hermes, broken": "qwen3",
    "DeepSeek V3": "deepseek-v3",
    "DSML": "deepseek-v3.2",
}
"""Formats that core does not know by itself, and a family that has them."""


def is_known(name: str) -> bool:
    return name not in BROUGHT_BY or BROUGHT_BY[name] in {family.name for family in families()}


def needs(name: str) -> None:
    if not is_known(name):
        pytest.skip(
            f"the distribution that brings {BROUGHT_BY[name]} is not installed; tests-cross has it"
        )


FOREIGN = [
    (grammar, name)
    for grammar in ALL
    for name in CALLS
    # What a grammar reads, or knows for its own and finds malformed, is not foreign.
    if not any(
        part and part in CALLS[name] for form in grammar.calls for part in form.opener.split("\n")
    )
    and not (grammar is LLAMA3 and name.startswith("Llama 3"))
    and not (grammar is LLAMA4 and name.startswith("Llama"))
]


@pytest.mark.parametrize(
    ("grammar", "name"), FOREIGN, ids=lambda value: getattr(value, "name", value)
)
def test_a_call_in_another_format_stays_content_and_is_told(grammar: Grammar, name: str) -> None:
    needs(name)
    end = grammar.end_tokens[0]
    for before in ("", "Let me look.\n\n"):
        if before and name in ("Llama 3", "Llama 4", "Llama 3, tagged", "Llama 3, built in"):
            continue  # these are calls only where nothing else stands
        text = before + CALLS[name]
        reading = read_response(text + end, family=grammar)
        message = reading.message
        assert message["content"] == text
        (call,) = message["tool_calls"]
        assert call["status"] == "foreign"
        assert call["raw"] in text
        assert call["function"]["arguments"] is None
        assert repr(grammar.name) in call["problem"]
        assert unparse(reading) == text + end
        for size in (1, 4):
            parser = stream_parser(family=grammar)
            for start in range(0, len(text + end), size):
                parser.feed((text + end)[start : start + size])
            found = parser.finish()
            assert found.message == message
            told = [event.call for event in found.last_events if event.kind == "call_end"]
            assert [each.status for each in told if each] == ["foreign"]


def test_a_call_in_another_format_of_its_own_marker_is_malformed_and_says_whose_it_is() -> None:
    needs("Qwen3-Coder")
    (call,) = parse_response(CALLS["Qwen3-Coder"], family=QWEN3)["tool_calls"]
    assert call["status"] == "malformed"
    assert "qwen3-coder" in call["problem"]


def test_every_registered_format_is_known() -> None:
    """A call as any installed family writes it is told under every grammar that does not know it."""
    needs("Qwen3-Coder")
    written = 0
    for family in families():
        grammar = family.load_grammar()
        if grammar is None or not grammar.calls:
            continue
        arguments: Any = {"a": "x y"}
        if grammar.arguments == "string":
            arguments = json.dumps(arguments)
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        asked = [{"role": "user", "content": "q"}]
        answer = {"role": "assistant", "content": grammar.empty_content, "tool_calls": [call]}
        rendering = antiphon.render(
            [*asked, answer], chat_template=family.load_template(), eos_token=grammar.end_tokens[0]
        )
        turn = rendering.turns[-1]
        text = rendering.text[turn.start : turn.end].removesuffix(grammar.end_tokens[0])
        if not text:
            continue  # Falcon-H1's template prints no calls
        found, *others = calls_in(text, Grammar("plain", ()))
        assert others == []
        assert (found.name, found.status) == ("f", "foreign"), family.name
        written += 1
    assert written


@pytest.mark.parametrize(
    "text",
    [
        "Write `<tool_call>` before the call and `</tool_call>` after it.",
        "The [TOOL_CALLS] token comes first, <|python_tag|> is another, <function=NAME> a third.",
        'As JSON: {"name": "f", "parameters": {"a": 1}}.',
        '{"name": "Ada", "age": 36}',
        '{"name": "f", "description": "d", "parameters": {"a": 1}}',
        '{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}',
        '<tools>\n{"type": "function", "function": {"name": "f", "parameters": {"type": "object", '
        '"properties": {}}}}\n</tools>',
        f"Qwen3-Coder writes:\n```\n{CALLS['Qwen3-Coder']}\n```\nso the shell runs.",
        f"Mistral writes `{CALLS['Mistral, later']}`.",
        "[f(x), g(y)]",
        "[1, 2, 3]",
        "print(end='') and f(a=1)",
        "<ul><li>f(a=1)</li></ul>",
        'if (a < b) { return [x["name"]]; }',
        "\\boxed{42} and \\frac{1}{2}, so <b>42</b>.",
    ],
)
def test_an_answer_about_calls_is_an_answer(text: str) -> None:
    for grammar in (QWEN3, DEEPSEEK_V3, Grammar("plain", ())):
        assert calls_in(text, grammar) == []


def test_without_a_marker_only_the_name_of_a_tool_makes_a_call() -> None:
    tools = [{"name": "f", "parameters": {}}]
    for name, count in (("f", 1), ("Ada", 0)):
        text = f'{{"name": "{name}", "arguments": {{"a": 1}}}}<|im_end|>'
        message = parse_response(text, family=QWEN3, tools=tools)
        assert len(message["tool_calls"] or ()) == count
        marked = parse_response(f"<call>{text}", family=QWEN3, tools=tools)
        assert [call["status"] for call in marked["tool_calls"]] == ["foreign"]


def test_a_call_that_is_cut_off_is_told() -> None:
    needs("Qwen3-Coder")
    text = CALLS["Qwen3-Coder"].partition("</parameter>")[0]
    (call,) = parse_response(text, family=LLAMA3)["tool_calls"]
    assert (call["function"]["name"], call["status"], call["raw"]) == ("f", "foreign", text)
    assert parse_response(f"{text}<|eot_id|>", family=LLAMA3)["tool_calls"] is None


def test_a_call_in_another_format_at_the_end_of_reasoning_is_told() -> None:
    prompt = "<|im_start|>assistant\n<think>\n"
    for behind, count in (("", 1), ("\n", 1), (" or so", 0)):
        text = f"I could run it. {CALLS['invoke']}{behind}"
        message = parse_response(text, prompt=prompt, family=QWEN3)
        assert message["reasoning_content"] == text
        assert len(message["tool_calls"] or ()) == count


def test_an_inferred_grammar_tells_calls_of_other_formats() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}"
        "<call>{{ c.function.name }}:{{ c.function.arguments|tojson }}</call>{% endfor %}<|end|>"
        "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    grammar = infer_grammar(template)
    for name, text in CALLS.items():
        message = parse_response(f"{text}<|end|>", prompt="<|assistant|>", family=grammar)
        if name == "harmony" or not is_known(name):
            continue  # it holds the end token of this grammar, or nobody here writes so
        assert message["content"] == text
        assert [call["status"] for call in message["tool_calls"]] == ["foreign"]


def test_a_call_that_an_inferred_grammar_is_known_not_to_read_is_told() -> None:
    grammar = Grammar("inferred", ALL[0].roles, end_tokens=("<|im_end|>",), unread=("<|odd|>",))
    message = parse_response("Look: <|odd|>f 1<|im_end|>", family=grammar)
    assert message["content"] == "Look: <|odd|>f 1"
    (call,) = message["tool_calls"]
    assert (call["status"], call["raw"]) == ("foreign", "<|odd|>f 1")


def test_its_own_call_in_plain_text_is_told_from_ids() -> None:
    needs("Hermes")
    tokenizer = load_tokenizer("qwen3")
    # Piece by piece: in one piece the tokenizer would make control tokens of the markers.
    pieces = CALLS["Hermes"].replace("_", "\0_").split("\0")
    ids = [index for piece in pieces for index in tokenizer.encode(piece)]
    message = parse_response([*ids, 151645], tokenizer=tokenizer, family=QWEN3)
    assert message["content"] == CALLS["Hermes"]
    (call,) = message["tool_calls"]
    assert call["status"] == "foreign"
    assert "plain text" in call["problem"]


def test_in_a_conversation_the_content_stays_and_the_message_says_so() -> None:
    text = f"<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n{CALLS['invoke']}<|im_end|>\n"
    message = parse(text, family=QWEN3)[1]
    assert message["content"] == CALLS["invoke"]
    assert "tool_calls" not in message
    assert [call["status"] for call in message["unparsed_calls"]] == ["foreign"]


def test_a_message_with_a_foreign_call_renders_to_the_text_that_was_read() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}</call>{% endfor %}<|end|>"
        "{% endfor %}"
    )
    message = parse_response(CALLS["invoke"], family=QWEN3)
    assert message["tool_calls"][0]["status"] == "foreign"
    rendering = antiphon.render([message], chat_template=template)
    assert rendering.text == f"<|assistant|>{CALLS['invoke']}<|end|>"


def test_solutions_of_word_problems_are_answers() -> None:
    path = os.environ.get("ANTIPHON_GSM8K")
    if path is None or not Path(path).exists():
        pytest.skip("no file of GSM8K at hand (ANTIPHON_GSM8K)")
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        assert calls_in(json.loads(line)["answer"], QWEN3) == []


SIGNS = st.sampled_from((*"<>[]{}()\"'`|/\\=:,. \nabF01_-é｜", "<b>", "the", "f(", "a=1", "```"))


@settings(max_examples=300, deadline=None)
@given(st.lists(SIGNS, max_size=60).map("".join))
def test_random_text_without_a_known_marker_is_no_call(text: str) -> None:
    assert all(call.name and f"{call.name}(" in text for call in calls_in(text, QWEN3))
