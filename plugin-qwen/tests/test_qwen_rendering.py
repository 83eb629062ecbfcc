"""Texts that people got wrong elsewhere, letter by letter."""

from __future__ import annotations

from typing import Any

import antiphon
import pytest
from antiphon_qwen.families import FAMILIES

TEMPLATES = {family.name: family.load_template() for family in FAMILIES}
CREATED = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "<|im_end|>\n"
)


def render(name: str, messages: list[dict[str, Any]], **kwargs: Any) -> str:
    return antiphon.render(messages, chat_template=TEMPLATES[name], **kwargs).text


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


def test_the_mask_is_the_answer_and_its_end_token() -> None:
    rendering = antiphon.render(
        [user("Name a colour."), assistant("Blue.")], chat_template=TEMPLATES["qwen2.5"]
    )
    assert rendering.text == (
        f"{CREATED}<|im_start|>user\nName a colour.<|im_end|>\n"
        "<|im_start|>assistant\nBlue.<|im_end|>\n"
    )
    [turn] = rendering.turns
    assert rendering.text[turn.start : turn.end] == "Blue.<|im_end|>"


def test_no_header_is_in_a_turn() -> None:
    messages = [user("hi"), assistant("yo"), user("again"), assistant("ok")]
    for name, template in TEMPLATES.items():
        rendering = antiphon.render(messages, chat_template=template, enable_thinking=False)
        turns = [rendering.text[turn.start : turn.end] for turn in rendering.turns]
        expected = ["yo<|im_end|>", "ok<|im_end|>"]
        if name == "qwen1.5":
            continue  # its last message has no end token, see below
        if "thinking" in name:
            expected[-1] = "\n</think>\n\nok<|im_end|>"
        assert turns == expected, name


def test_an_earlier_turn_of_qwen15_has_its_end_token() -> None:
    messages = [user("hi"), assistant("yo"), user("again"), assistant("ok")]
    rendering = antiphon.render(messages, chat_template=TEMPLATES["qwen1.5"])
    turns = [rendering.text[turn.start : turn.end] for turn in rendering.turns]
    assert turns == ["yo<|im_end|>", "ok"]


def test_an_empty_answer_is_its_end_token() -> None:
    for name in ("qwen2", "qwen2.5", "qwen3-instruct-2507", "qwen3-coder"):
        rendering = antiphon.render([user("a"), assistant("")], chat_template=TEMPLATES[name])
        assert [rendering.text[turn.start : turn.end] for turn in rendering.turns] == ["<|im_end|>"]


def test_reasoning_is_dropped_once_another_question_follows() -> None:
    first = [user("q1"), assistant("<think>\nr1\n</think>\n\nans1")]
    assert render("qwen3", first) == (
        "<|im_start|>user\nq1<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nr1\n</think>\n\nans1<|im_end|>\n"
    )
    assert render("qwen3", [*first, user("q2")]) == (
        "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\nans1<|im_end|>\n"
        "<|im_start|>user\nq2<|im_end|>\n"
    )


def test_a_tool_result_is_no_question() -> None:
    messages = [
        user("q"),
        assistant("", reasoning_content="r1", tool_calls=[call("f", x=1)]),
        {"role": "tool", "content": "1"},
        assistant("done", reasoning_content="r2"),
    ]
    assert render("qwen3", messages) == (
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nr1\n</think>\n\n<tool_call>\n"
        '{"name": "f", "arguments": {"x": 1}}\n</tool_call><|im_end|>\n<|im_start|>user\n'
        "<tool_response>\n1\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\nr2\n"
        "</think>\n\ndone<|im_end|>\n"
    )


def test_a_closing_tag_without_an_opening_one_gives_one_block() -> None:
    sampled = "2+2 equals 4.\n</think>\n\nThe answer is 4."
    for name in ("qwen3.5", "qwen3-thinking-2507"):
        text = render(name, [user("What is 2+2?"), assistant(sampled)])
        assert text.endswith(
            "assistant\n<think>\n2+2 equals 4.\n</think>\n\nThe answer is 4.<|im_end|>\n"
        )
        assert text.count("<think>") == text.count("</think>") == 1


def test_neighbouring_results_share_a_turn() -> None:
    messages = [
        user("q"),
        assistant("", tool_calls=[call("f"), call("g")]),
        {"role": "tool", "content": "r1"},
        {"role": "tool", "content": "r2"},
    ]
    results = "<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2\n</tool_response>"
    assert render("qwen3-instruct-2507", messages) == (
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
        '{"name": "f", "arguments": {}}\n</tool_call>\n<tool_call>\n'
        '{"name": "g", "arguments": {}}\n'
        f"</tool_call><|im_end|>\n<|im_start|>user\n{results}<|im_end|>\n"
    )
    assert render("qwen3-coder", messages).endswith(f"<|im_start|>user\n{results}\n<|im_end|>\n")


@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {}])
def test_a_message_that_only_calls_renders_alike_however_it_says_so(
    content: dict[str, Any],
) -> None:
    messages = [
        user("a"),
        {"role": "assistant", "tool_calls": [call("f", x=1)], **content},
        {"role": "tool", "content": "1"},
    ]
    rest = (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
        '{"name": "f", "arguments": {"x": 1}}\n</tool_call><|im_end|>\n<|im_start|>user\n'
        "<tool_response>\n1\n</tool_response><|im_end|>\n"
    )
    assert render("qwen3", messages) == rest
    assert render("qwen2.5", messages) == CREATED + rest


def test_the_first_revision_refuses_null_content() -> None:
    messages = [user("a"), assistant(None, tool_calls=[call("f", x=1)])]
    with pytest.raises(antiphon.errors.TemplateRefused):
        render("qwen3-first", messages)


def test_arguments_keep_their_letters() -> None:
    messages = [user("a"), assistant("", tool_calls=[call("f", city="Zürich", e="🦙")])]
    for name in ("qwen2.5", "qwen3"):
        assert '{"name": "f", "arguments": {"city": "Zürich", "e": "🦙"}}' in render(name, messages)


def test_white_space_at_the_edges_is_the_templates_matter() -> None:
    messages = [user("  indented question\n"), assistant("\n    return x\n")]
    assert render("qwen2.5", messages).endswith(
        "user\n  indented question\n<|im_end|>\n<|im_start|>assistant\n\n    return x\n<|im_end|>\n"
    )
    assert render("qwen3", messages).endswith("</think>\n\n    return x\n<|im_end|>\n")
    assert render("qwen3.5", messages).endswith("</think>\n\nreturn x<|im_end|>\n")


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("qwen3-coder", ("True", "None", "[true, null]")),
        ("qwen3.5", ("True", "None", "[true, null]")),
        ("qwen3-coder-next", ("true", "null", "[true, null]")),
        ("qwen3.6", ("true", "null", "[true, null]")),
    ],
)
def test_values_are_written_in_the_dialects_own_way(
    name: str, written: tuple[str, str, str]
) -> None:
    arguments = {"b": True, "n": None, "l": [True, None]}
    text = render(name, [user("a"), assistant("", tool_calls=[call("f", **arguments)])])
    for key, value in zip(arguments, written, strict=True):
        assert f"<parameter={key}>\n{value}\n</parameter>\n" in text


def test_images_are_counted_over_the_whole_conversation() -> None:
    image = {"type": "image"}
    messages = [
        {"role": "user", "content": [image, {"type": "text", "text": "A"}]},
        assistant("ok"),
        {"role": "user", "content": [image, {"type": "video"}]},
    ]
    shown = "<|vision_start|><|image_pad|><|vision_end|>"
    for name in ("qwen2.5-vl", "qwen3-vl", "qwen3.5"):
        text = render(name, messages, add_vision_id=True)
        assert f"user\nPicture 1: {shown}A<|im_end|>" in text
        assert (
            f"user\nPicture 2: {shown}Video 1: <|vision_start|><|video_pad|><|vision_end|>" in text
        )
