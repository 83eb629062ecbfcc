"""What a Qwen model writes is read as what it is: the faults that people met elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from antiphon.families import ModelFamily
from antiphon.reading import parse, parse_response
from antiphon.reading.reader import read_response, unparse
from antiphon_qwen.families import FAMILIES

BY_NAME = {family.name: family for family in FAMILIES}
OPENED = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n"
CLOSED = OPENED + "\n</think>\n\n"


def calls_of(message: dict[str, Any]) -> list[tuple[str, Any]]:
    calls = message["tool_calls"] or []
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


@pytest.mark.parametrize("name", ["qwen3-thinking-2507", "qwen3.5", "qwen3.6", "qwq"])
def test_a_completion_starts_inside_the_reasoning_that_its_prompt_opened(name: str) -> None:
    sampled = "2+2 equals 4.\n</think>\n\nThe answer is 4.<|im_end|>"
    for prompt in (OPENED, None):
        message = parse_response(sampled, prompt=prompt, family=BY_NAME[name])
        assert message["reasoning_content"] == "2+2 equals 4."
        assert message["content"] == "The answer is 4."
        assert message["is_complete"]


def test_reasoning_that_was_cut_off_is_no_answer() -> None:
    message = parse_response("<think>\nFirst I compute", family=BY_NAME["qwen3"])
    assert message["reasoning_content"] == "First I compute"
    assert not message["content"]
    assert not message["is_complete"]


@pytest.mark.parametrize("name", ["qwen3", "qwen3.5", "qwen3.5-nothink"])
def test_text_after_an_empty_block_in_the_prompt_is_content(name: str) -> None:
    message = parse_response("First I compute", prompt=CLOSED, family=BY_NAME[name])
    assert message["content"] == "First I compute"
    assert not message["reasoning_content"]
    assert not message["is_complete"]


def test_only_a_leading_block_is_reasoning() -> None:
    sampled = "<think>\nr\n</think>\n\nWrite `<think>` before and `</think>` after.<|im_end|>"
    message = parse_response(sampled, family=BY_NAME["qwen3"])
    assert message["reasoning_content"] == "r"
    assert message["content"] == "Write `<think>` before and `</think>` after."


@pytest.mark.parametrize("name", ["qwen2.5", "qwen3", "qwen3-instruct-2507", "qwen3-vl"])
def test_a_closing_tag_in_an_argument_does_not_end_the_call(name: str) -> None:
    sampled = (
        '<tool_call>\n{"name": "note", "arguments": {"text": "close with </tool_call> please"}}\n'
        "</tool_call><|im_end|>"
    )
    message = parse_response(sampled, family=BY_NAME[name])
    assert calls_of(message) == [("note", {"text": "close with </tool_call> please"})]
    assert not message["content"]


@pytest.mark.parametrize("name", ["qwen2.5", "qwen3"])
def test_a_call_that_was_cut_off_is_kept_as_its_text(name: str) -> None:
    sampled = (
        '<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "b", "arguments": {"q": "unfin'
    )
    reading = read_response(sampled, family=BY_NAME[name])
    whole, cut = reading.message["tool_calls"]
    assert whole["function"] == {"name": "a", "arguments": {}}
    assert whole["status"] == "ok"
    assert cut["status"] == "incomplete"
    assert sampled.endswith(cut["raw"])
    assert not reading.message["is_complete"]
    assert unparse(reading) == sampled


@pytest.mark.parametrize("name", ["qwen3-coder", "qwen3-coder-next", "qwen3.5", "qwen3.6"])
def test_just_one_line_end_on_each_side_of_a_parameter_is_the_formats(name: str) -> None:
    sampled = (
        "<tool_call>\n<function=edit>\n<parameter=new>\n    if ok:\n        run()\n\n</parameter>\n"
        "</function>\n</tool_call><|im_end|>"
    )
    message = parse_response(sampled, prompt=CLOSED, family=BY_NAME[name])
    assert calls_of(message) == [("edit", {"new": "    if ok:\n        run()\n"})]


@pytest.mark.parametrize("name", ["qwen3-coder", "qwen3.6"])
def test_a_value_that_is_not_of_its_type_stays_text(name: str) -> None:
    sampled = (
        "<tool_call>\n<function=log>\n<parameter=day>\n2026-01-15\n</parameter>\n</function>\n"
        "</tool_call>"
    )
    tools = [{"name": "log", "parameters": {"properties": {"day": {"type": "integer"}}}}]
    message = parse_response(sampled, prompt=CLOSED, family=BY_NAME[name], tools=tools)
    assert calls_of(message) == [("log", {"day": "2026-01-15"})]


def test_the_types_of_parameters_come_from_the_tools() -> None:
    sampled = (
        "<tool_call>\n<function=f>\n<parameter=n>\n3\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n"
        "<parameter=s>\n3\n</parameter>\n</function>\n</tool_call><|im_end|>"
    )
    properties = {"n": {"type": "integer"}, "b": {"type": "boolean"}, "s": {"type": "string"}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": properties}}}]  # fmt: skip
    family = BY_NAME["qwen3-coder"]
    typed = parse_response(sampled, family=family, tools=tools)
    assert calls_of(typed) == [("f", {"n": 3, "b": True, "s": "3"})]
    assert calls_of(parse_response(sampled, family=family)) == [
        ("f", {"n": "3", "b": "True", "s": "3"})
    ]


def test_a_call_of_another_dialect_is_not_taken_for_an_answer() -> None:
    sampled = (
        "<tool_call>\n<function=bash>\n<parameter=command>\nls -la\n</parameter>\n</function>\n"
        "</tool_call>"
    )
    right = parse_response(sampled, family=BY_NAME["qwen3-coder"])
    assert calls_of(right) == [("bash", {"command": "ls -la"})]
    [flagged] = parse_response(sampled, family=BY_NAME["qwen3"])["tool_calls"]
    assert flagged["status"] == "malformed"
    assert flagged["raw"] == sampled


@pytest.mark.parametrize("end", ["<|im_end|>", "<|endoftext|>"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_each_end_token_completes_a_turn(family: ModelFamily, end: str) -> None:
    message = parse_response(f"ok{end}", prompt=CLOSED, family=family)
    assert message["content"] == "ok"
    assert message["is_complete"]
    assert not parse_response("ok", prompt=CLOSED, family=family)["is_complete"]


@pytest.mark.parametrize("name", ["qwen2.5", "qwen2.5-base", "qwen2.5-math", "qwen2", "qwen1.5"])
def test_the_system_text_that_the_template_makes_up_is_nobodys_message(name: str) -> None:
    import antiphon

    family = BY_NAME[name]
    question = {"role": "user", "content": "a"}
    told = {"role": "system", "content": "Be brief."}
    template = family.load_template()
    for messages in ([question], [told, question]):
        text = antiphon.render(messages, chat_template=template, add_generation_prompt=True).text
        assert parse(text, family=family) == messages


def test_a_completions_white_space_is_kept() -> None:
    for name in ("qwen2.5", "qwen3-instruct-2507"):
        message = parse_response("    return x\n<|im_end|>", family=BY_NAME[name])
        assert message["content"] == "    return x\n"


@pytest.mark.parametrize("family", ["qwen2.5", "qwen3"])
def test_a_tool_message_that_another_stack_wrote_under_its_own_role_is_one(family):
    text = (
        "<|im_start|>system\nYou use tools.<|im_end|>\n<|im_start|>assistant\nLet me see.\n<tool_call>\n"
        '{"name": "add", "arguments": {"a": 2}}\n</tool_call>\n<|im_end|>\n<|im_start|>tool\n4<|im_end|>\n'
        "<|im_start|>assistant\nThe result is"
    )
    messages = parse(text, family=family)
    assert [m["role"] for m in messages] == ["system", "assistant", "tool", "assistant"]
    assert messages[1]["content"] == "Let me see."
    assert messages[2]["content"] == "4"
