"""What a template can't have printed is content in a whole conversation, so that it renders to what was read."""

from __future__ import annotations

import itertools
import json
from typing import Any

import antiphon
import pytest
import reading_grammars
from antiphon.errors import FamilyNotFound
from antiphon.reading import Grammar, parse, parse_response, read_response, stream_parser, unparse
from antiphon.reading.infer import infer_grammar
from antiphon.registry import get_family
from reading_tokenizers import load_tokenizer

Message = dict[str, Any]
QUESTION = {"role": "user", "content": "q"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}


def again(name: str, messages: list[Message], **options: Any) -> tuple[str, str, list[Message]]:
    """Return a rendering, what is read from it rendered again, and the messages that were read."""
    try:
        family = get_family(name)
    except FamilyNotFound as error:
        pytest.skip(f"the distribution that brings {name} is not installed: {error}")
    grammar = family.load_grammar()
    assert isinstance(grammar, Grammar)
    options |= {"chat_template": family.load_template(), "eos_token": grammar.end_tokens[0]}
    options |= {"bos_token": grammar.bos, "date_string": "26 Jul 2024"}
    text = antiphon.render(messages, **options).text
    read = parse(text, family=grammar)
    return text, antiphon.render(read, **options).text, read


HERMES = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
XML = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
FENCED = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
    '{"a": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
NAMED = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>"
    '{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
DSML = (
    '\n\n<｜DSML｜{block}>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">x'
    "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜{block}>"
)
WHOLE = {
    "qwen2.5": HERMES,
    "qwen3": HERMES,
    "qwq": HERMES,
    "qwen3-coder": XML,
    "qwen3.5": XML,
    "deepseek-v2.5": FENCED,
    "deepseek-v3": FENCED,
    "deepseek-r1": FENCED,
    "deepseek-r1-0528": FENCED,
    "deepseek-v3.1": NAMED,
    "deepseek-v3.2": DSML.replace("{block}", "function_calls"),
    "deepseek-v4": DSML.replace("{block}", "tool_calls"),
    "falcon3": HERMES,
    "falcon-h1": HERMES,
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("behind", [" behind", "\nbehind", "</tool_call>"])
def test_a_whole_call_with_a_text_behind_it_is_content(name: str, behind: str) -> None:
    content = f"One {WHOLE[name]}{behind}"
    text, second, read = again(name, [QUESTION, {"role": "assistant", "content": content}])
    assert second == text
    assert read[1]["content"] == content
    assert "tool_calls" not in read[1]
    assert [call["function"]["name"] for call in read[1]["unparsed_calls"]] == ["f"]
    # As a completion it is a call, with the text around it.
    reasoned = get_family(name).load_grammar().reasoning
    before = "r\n</think>\n\n" if reasoned is not None and reasoned.opened == "always" else ""
    message = parse_response(before + content, family=name)
    assert [call["status"] for call in message["tool_calls"]] == ["ok"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("qwen3", '<tool_call>\n{"arguments": {"a": 1}, "name": "f"}\n</tool_call>'),
        ("qwen3", '<tool_call>\n{"name": "f", "parameters": {"a": 1}}\n</tool_call>'),
        ("qwen2.5", '<tool_call>\n{"name": "f", "arguments": {"a": "\\u00e9"}}\n</tool_call>'),
        ("llama3.1", '{"name": "f", "arguments": {"a": 1}}'),
        ("llama3.1", '<|python_tag|>{"name": "f", "parameters": {"a": 1}}'),
        ("llama3.1", "<|python_tag|>print(1)"),
        ("llama3.1", '<|python_tag|>f.call(a="1")'),
        ("llama3.1", '{"name": "f", "parameters": {}}\n{"name": "f", "parameters": {}}'),
        ("deepseek-r1", f"{FENCED}{FENCED}"),
        ("llama4", "[f(a=1)]"),
        ("llama4", '{"name": "f", "parameters": {"a": 1}}'),
        ("falcon3", HERMES),
        ("falcon-h1", HERMES),
    ],
)
def test_a_call_as_the_template_never_prints_one_is_content(name: str, content: str) -> None:
    text, second, read = again(name, [QUESTION, {"role": "assistant", "content": content}])
    assert second == text
    assert read[1]["content"] == content
    assert {call["status"] for call in read[1]["unparsed_calls"]} == {"ok"}


@pytest.mark.parametrize(
    "content", ["<|python_end|>", "<|python_start|>a<|python_end|>b", "a<|python_start|>"]
)
def test_markers_around_contents_are_content_where_no_call_follows(content: str) -> None:
    text, second, read = again("llama4", [QUESTION, {"role": "assistant", "content": content}])
    assert second == text
    assert read[1] == {"role": "assistant", "content": content}


@pytest.mark.parametrize(
    "name", ["deepseek-r1", "deepseek-v3.1", "deepseek-v4", "qwen3", "qwen3-coder"]
)
@pytest.mark.parametrize("content", ["`", "Like `x`", "so: ```"])
def test_a_content_that_ends_in_a_backtick_hides_no_call(name: str, content: str) -> None:
    arguments: Any = {"a": "1"}
    if name in ("deepseek-r1", "deepseek-v3.1"):
        arguments = json.dumps(arguments)
    call = {**CALL, "function": {"name": "f", "arguments": arguments}}
    answer = {"role": "assistant", "content": content, "tool_calls": [call]}
    text, second, read = again(name, [QUESTION, answer])
    assert second == text
    assert read[1]["content"] == content
    assert len(read[1]["tool_calls"]) == 1


def test_a_call_in_another_white_space_is_a_call() -> None:
    text = (
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nHm.\n\n<tool_call>"
        '{"name":"f", "arguments":{"a": 1}}</tool_call>\n<|im_end|>\n'
    )
    message = parse(text, family="qwen3" if is_installed("qwen3") else hermes_grammar())[1]
    assert message["content"].strip() == "Hm."
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["f"]


def is_installed(name: str) -> bool:
    try:
        get_family(name)
    except FamilyNotFound:
        return False
    return True


def hermes_grammar() -> Grammar:
    return reading_grammars.QWEN3


def test_arguments_as_text_in_another_spelling_come_back_as_that_text() -> None:
    arguments = '{"a":1,"b":[ ]}'
    call = {**CALL, "function": {"name": "f", "arguments": arguments}}
    messages = [QUESTION, {"role": "assistant", "content": "", "tool_calls": [call]}]
    text, second, read = again("qwen3", messages)
    assert second == text
    assert read[1]["tool_calls"][0]["function"]["arguments"] == arguments


def test_built_in_calls_that_are_announced_are_calls() -> None:
    function = {"name": "brave_search", "arguments": {"query": "x"}}
    messages = [
        QUESTION,
        {"role": "assistant", "content": "", "tool_calls": [{**CALL, "function": function}]},
    ]
    text, second, read = again("llama3.1", messages, builtin_tools=["brave_search"])
    assert second == text
    assert read[1]["tool_calls"][0]["function"] == function


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("qwen2.5", "<tool_call>"),
        ("qwen2.5", "x <tool_call>\n"),
        ("qwen3", "<tool_call>\n{}\n</tool_call>"),
        ("qwen3", "<tool_call>1</tool_call> x"),
        ("qwen3-coder", "x <function=</function>"),
        ("qwen3.5", "<function=</function>"),
        ("deepseek-r1-0528", "<｜tool▁call▁begin｜>x<｜tool▁call▁end｜>"),
        ("deepseek-v3.1", "<｜tool▁call▁begin｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
        ("deepseek-v3.2", "x<｜DSML｜function_calls>"),
        ("deepseek-v4", "<｜DSML｜tool_calls>"),
    ],
)
@pytest.mark.parametrize("thought", ["", "r"])
def test_markers_that_lead_to_no_call_stand_in_the_content_before_one(
    name: str, content: str, thought: str
) -> None:
    function = {"name": "f", "arguments": {}}
    if name in ("deepseek-r1-0528", "deepseek-v3.1"):
        function["arguments"] = "{}"
    answer = {
        "role": "assistant",
        "content": content,
        "tool_calls": [{**CALL, "function": function}],
    }
    if thought:
        answer["reasoning_content"] = thought
    text, second, read = again(name, [QUESTION, answer])
    assert second == text
    assert read[1]["content"] == content
    assert [call["function"] for call in read[1]["tool_calls"]] == [function]


@pytest.mark.parametrize(
    "name", ["deepseek-v3", "deepseek-r1", "deepseek-r1-0528", "deepseek-v3.1"]
)
def test_the_opener_of_a_block_is_data_in_arguments(name: str) -> None:
    function = {
        "name": "f",
        "arguments": json.dumps({"a": "<｜tool▁calls▁begin｜>" * 2}, ensure_ascii=False),
    }
    content = None if name == "deepseek-v3" else ""
    answer = {
        "role": "assistant",
        "content": content,
        "tool_calls": [{**CALL, "function": function}] * 2,
    }
    text, second, read = again(name, [QUESTION, answer])
    assert second == text
    assert [call["function"] for call in read[1]["tool_calls"]] == [function] * 2


PARTS = {
    "qwen2.5": ("<tool_call>", "<tool_call>\n", "{", '"}}', "</tool_call>"),
    "qwen3-coder": ("</parameter>", "<parameter=b>", "</function>", "</tool_call>", "<function=g>"),
    "qwen3.5": ("</parameter>", "<parameter=b>", "</function>", "</tool_call>", "<function=g>"),
    "deepseek-r1-0528": ("<｜tool▁call▁begin｜>", "\n```", "<｜tool▁call▁end｜>", "{"),
    "deepseek-v3.1": ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "{"),
    "deepseek-v3.2": ("</｜DSML｜parameter>", "<｜DSML｜invoke name=", "</｜DSML｜invoke>"),
}
"""Parts of calls that somebody may write in a content or an argument, by the dialect that has them."""


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_calls_in_contents_and_arguments_cut_no_call(name: str) -> None:
    """What is a call just as the template prints one is that call, whatever stands before it or in it."""
    is_text = name in ("deepseek-r1-0528", "deepseek-v3.1")
    for parts in itertools.product(PARTS[name], repeat=2):
        said = f"a{''.join(parts)}"
        arguments: Any = {"a": f"{said}z", "c": said}
        function = {"name": "f", "arguments": json.dumps(arguments) if is_text else arguments}
        calls = [{**CALL, "function": function}] * 2
        for content in ("a", said):
            answer = {"role": "assistant", "content": content, "tool_calls": calls}
            text, second, read = again(name, [QUESTION, answer])
            assert second == text
            assert read[1]["content"] == content
            assert [call["function"] for call in read[1]["tool_calls"]] == [function] * 2


@pytest.mark.parametrize("name", ["qwq", "deepseek-v3.1"])
def test_a_closer_of_reasoning_in_an_argument_closes_nothing_that_a_content_opened(
    name: str,
) -> None:
    arguments: Any = {"a": "</think>"}
    function = {"name": "f", "arguments": json.dumps(arguments) if name != "qwq" else arguments}
    calls = [{**CALL, "function": function}]
    answer = {"role": "assistant", "content": "<think>", "tool_calls": calls}
    text, second, read = again(name, [QUESTION, answer])
    assert second == text
    assert (read[1]["content"], len(read[1]["tool_calls"])) == ("<think>", 1)


# Reasoning


@pytest.mark.parametrize("name", ["qwen3", "qwen3-thinking-2507", "qwen3.5"])
@pytest.mark.parametrize("thought", ["</think>", "a </think> b", "a\n</think>\nb", "</think>\n\nb"])
@pytest.mark.parametrize("content", ["", "x", "x <tool_call>", "x</think>y"])
def test_reasoning_may_hold_the_marker_that_closes_it(
    name: str, thought: str, content: str
) -> None:
    for calls in ({}, {"tool_calls": [CALL]}):
        answer = {"role": "assistant", "content": content, "reasoning_content": thought, **calls}
        text, second, read = again(name, [QUESTION, answer])
        assert second == text
        assert (read[1]["reasoning_content"], read[1]["content"]) == (thought, content)


@pytest.mark.parametrize("name", ["qwen3", "qwen3-thinking-2507", "qwen3.5"])
@pytest.mark.parametrize(
    "block", ["<think></think>", "<think>\n</think>\n\n", "<think>\n\n</think>"]
)
@pytest.mark.parametrize("content", ["", "x"])
def test_an_empty_block_as_the_template_prints_none_is_content(
    name: str, block: str, content: str
) -> None:
    """Behind the last question too, where the field is there and empty."""
    answer = {"role": "assistant", "content": block + content, "reasoning_content": ""}
    for messages in ([QUESTION, answer], [QUESTION, answer, answer], [QUESTION, answer, QUESTION]):
        text, second, read = again(name, [dict(message) for message in messages])
        assert second == text
        assert read[1]["content"].rstrip() == (block + content).rstrip()


@pytest.mark.parametrize("name", ["qwen3", "qwen3.5"])
def test_what_closes_a_block_is_no_content_before_a_broken_call(name: str) -> None:
    content = "<function=" if name == "qwen3.5" else "<tool_call>"
    answer = {"role": "assistant", "content": content, "reasoning_content": "r"}
    text, second, read = again(name, [QUESTION, answer])
    assert second == text
    assert (read[1]["content"], read[1]["reasoning_content"]) == (content, "r")


@pytest.mark.parametrize("name", ["qwq", "deepseek-v3.1", "deepseek-r1"])
@pytest.mark.parametrize(
    "behind", ["<think>", "<think>x", "<think>x</think>", "<tool_call><think>"]
)
def test_behind_a_block_that_stays_in_the_content_another_one_is_content(
    name: str, behind: str
) -> None:
    answer = {"role": "assistant", "content": f"<think>\na\n</think>\n\n{behind}"}
    text, second, _ = again(name, [QUESTION, answer])
    assert second == text


@pytest.mark.parametrize(
    "content", ["</think>", "</think>x", "<think></think>x", "<think>a</think>x"]
)
def test_an_answer_without_a_header_has_no_block(content: str) -> None:
    """DeepSeek V3.2 prints what says that nothing was thought in the header alone."""
    answer = {"role": "assistant", "content": content}
    for messages in ([answer], [QUESTION, {**answer, "content": "a"}, answer]):
        text, second, read = again("deepseek-v3.2", messages)
        assert second == text
        assert read[-1] == answer


@pytest.mark.parametrize("name", ["qwen3", "qwen3-thinking-2507", "qwen3.5"])
def test_a_block_in_an_earlier_answer_is_its_content(name: str) -> None:
    """The template prints no field there: the block stood in the content, beside a field."""
    answer = {
        "role": "assistant",
        "content": "<think>\nin\n</think>\n\nx",
        "reasoning_content": "out",
    }
    last = {"role": "assistant", "content": "y", "reasoning_content": "r"}
    text, second, read = again(name, [QUESTION, answer, QUESTION, last])
    assert second == text
    assert read[1] == {**answer, "reasoning_content": ""}
    assert read[3] == last


@pytest.mark.parametrize("name", ["qwen3", "qwen3.5", "qwq", "deepseek-v4"])
@pytest.mark.parametrize("thought", [" ", "\n", "\n\n", " \n "])
def test_reasoning_of_white_space_alone_renders_again(name: str, thought: str) -> None:
    for rest in ([], [QUESTION, {"role": "assistant", "content": "y"}]):
        answer = {"role": "assistant", "content": "x", "reasoning_content": thought}
        text, second, _ = again(name, [QUESTION, answer, *rest])
        assert second == text


@pytest.mark.parametrize(
    "content", ["<think>\nr\n</think>\n\n", "<think>\nr\n</think>", "\n", "a</think>\n"]
)
def test_an_earlier_answer_that_only_reasoned_and_called_renders_again(content: str) -> None:
    """Of its content QwQ's template prints a line break alone."""
    answer = {"role": "assistant", "content": content, "tool_calls": [CALL]}
    result = {"role": "tool", "content": "r", "tool_call_id": "c1"}
    text, second, read = again("qwq", [QUESTION, answer, result, QUESTION])
    assert second == text
    assert json.dumps(read[1]["tool_calls"][0]["function"]["arguments"]) == '{"a": 1}'


# Turns that end in plain text

WORDED = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}"
    "<call>{{ c.function.name }}:{{ c.function.arguments|tojson }}</call>{% endfor %}[end]\n"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.mark.parametrize("behind", ["", "\n", "\n[user]more[end]\n"])
def test_a_turn_that_no_token_ends_ends_with_the_words_that_end_it(behind: str) -> None:
    grammar = infer_grammar(WORDED)
    assert grammar.end_tokens == ()
    for body, count in (("Hi.", 0), ('Hi.<call>f:{"a": "[end]"}</call>', 1)):
        text = f"{body}[end]{behind}"
        reading = read_response(text, prompt="[user]q[end]\n[assistant]", family=grammar)
        assert reading.message["content"] == "Hi."
        assert reading.message["is_complete"]
        assert len(reading.message["tool_calls"] or ()) == count
        assert unparse(reading) == text
        for size in (1, 2, 7):
            parser = stream_parser(prompt="[user]q[end]\n[assistant]", family=grammar)
            shown = []
            for start in range(0, len(text), size):
                shown += parser.feed(text[start : start + size])
            assert parser.close() == reading.message
            assert "".join(event.text for event in shown if event.kind == "content") == "Hi."
    cut = parse_response("Hi.[en", family=grammar)
    assert (cut["content"], cut["is_complete"]) == ("Hi.[en", False)


def test_words_that_end_a_turn_are_data_inside_a_call_from_ids_too() -> None:
    tokenizer = load_tokenizer("qwen3")
    grammar = infer_grammar(
        WORDED.replace("<call>", "<tool_call>").replace("</call>", "</tool_call>")
    )
    text = 'Hi.<tool_call>f:{"a": "x [end] y"}</tool_call>[end]'
    ids = tokenizer.encode(text, add_special_tokens=False)
    message = parse_response(ids, tokenizer=tokenizer, family=grammar)
    parser = stream_parser(tokenizer=tokenizer, family=grammar)
    for index in ids:
        parser.feed(index)
    assert parser.close() == message
    assert message["tool_calls"][0]["function"]["arguments"] == {"a": "x [end] y"}
    assert message["is_complete"]


def test_a_block_that_stays_in_the_content_is_text_from_ids_too() -> None:
    tokenizer = load_tokenizer("qwen3")
    answer = "<think>r</think>x <tool_call>"
    text = f"<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"
    for family in (reading_grammars.QWEN3, reading_grammars.QWEN_XML):
        read = parse(tokenizer.encode(text), tokenizer=tokenizer, family=family)
        assert read == parse(text, family=family)
        assert read[1]["content"] == answer


def test_no_control_token_is_a_part_of_a_calls_name() -> None:
    """From ids as from text."""
    tokenizer = load_tokenizer("deepseek_v3")
    opener = "<｜tool▁call▁begin｜>"
    for text in (
        f"{opener * 2}g<｜tool▁sep｜>{{}}<｜tool▁call▁end｜>",
        f"{opener}<think>g<｜tool▁sep｜>{{}}",
    ):
        whole = f"<｜tool▁calls▁begin｜>{text}<｜end▁of▁sentence｜>"
        ids = tokenizer.encode(whole)
        ids = ids[1:] if tokenizer.decode(ids[:1]).startswith("<｜begin") else ids
        grammar = reading_grammars.DEEPSEEK_V31
        found = parse_response(ids, tokenizer=tokenizer, family=grammar)
        assert found == parse_response(whole, family=grammar)
        assert all("<" not in (call["function"]["name"] or "") for call in found["tool_calls"])
