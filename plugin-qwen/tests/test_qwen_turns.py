"""The generation tags stand around exactly what the model writes."""

from __future__ import annotations

from typing import Any

import pytest
from antiphon.families import ModelFamily
from antiphon_qwen.families import FAMILIES
from qwen_conversations import Conversation

utils = pytest.importorskip(
    "transformers.utils.chat_template_utils", reason="transformers knows the tags"
)
OPENED = ("", "<think>\n", "<think>\n\n</think>\n\n")
families = pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])


def tagged(family: ModelFamily, conversation: Conversation) -> tuple[str, list[tuple[int, int]]]:
    """Return the text and the spans that the tags mark."""
    messages, tools, kwargs = conversation
    texts, spans = utils.render_jinja_template(
        [messages],
        tools=tools,
        chat_template=family.load_template(),
        return_assistant_tokens_mask=True,
        **kwargs,
    )
    return texts[0], spans[0]


@families
def test_each_tagged_turn_begins_after_the_header_and_ends_with_the_end_token(
    family: ModelFamily, corpus: dict[str, Conversation]
) -> None:
    headers = tuple("<|im_start|>assistant\n" + opened for opened in OPENED)
    shown = 0
    for name, conversation in corpus.items():
        try:
            text, spans = tagged(family, conversation)
        except Exception:  # what the template refuses is the parity tests' matter
            continue
        roles = [message["role"] for message in conversation[0]]
        assert len(spans) == roles.count("assistant"), name
        for start, end in spans:
            assert text[:start].endswith(headers), name
            if family.name == "qwen1.5" and end == len(text):
                continue  # its last message has no end token
            assert text[start:end].endswith("<|im_end|>"), name
            assert text[end] == "\n", name
            shown += 1
    assert shown > 15


@families
def test_a_tagged_turn_stands_after_the_prompt_that_asked_for_it(
    family: ModelFamily, corpus: dict[str, Conversation]
) -> None:
    """Wherever the prompt is a prefix of the conversation, the turn is what was added to it."""
    compared = 0
    for name, (messages, tools, kwargs) in corpus.items():
        if messages[-1]["role"] != "assistant":
            continue
        options: dict[str, Any] = {**kwargs, "add_generation_prompt": True}
        try:
            text, spans = tagged(
                family, (messages, tools, {**kwargs, "add_generation_prompt": False})
            )
            prompt, _ = tagged(family, (messages[:-1], tools, options))
        except Exception:  # as above
            continue
        if text.startswith(prompt):
            start, end = spans[-1]
            assert start == len(prompt), name
            assert text[end:] in ("", "\n"), name
            compared += 1
    assert compared > 1


@pytest.mark.parametrize(
    ("name", "kwargs", "turn"),
    [
        ("qwen3", {}, "<think>\nr\n</think>\n\nb<|im_end|>"),
        ("qwen3", {"enable_thinking": False}, "<think>\nr\n</think>\n\nb<|im_end|>"),
        ("qwen3-thinking-2507", {}, "r\n</think>\n\nb<|im_end|>"),
        ("qwen3.5", {}, "r\n</think>\n\nb<|im_end|>"),
        ("qwen3.5", {"enable_thinking": False}, "<think>\nr\n</think>\n\nb<|im_end|>"),
        ("qwen3.5-nothink", {}, "<think>\nr\n</think>\n\nb<|im_end|>"),
        ("qwen3.5-nothink", {"enable_thinking": True}, "r\n</think>\n\nb<|im_end|>"),
    ],
)
def test_the_reasoning_block_that_the_prompt_opens_is_prompt(
    name: str, kwargs: dict[str, Any], turn: str
) -> None:
    family = next(family for family in FAMILIES if family.name == name)
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "r"},
    ]
    text, [(start, end)] = tagged(family, (messages, None, kwargs))
    assert text[start:end] == turn


@pytest.mark.parametrize("name", ["qwen3", "qwen3.5", "qwen3.5-nothink", "qwen3.6"])
def test_the_empty_block_of_a_prompt_with_thinking_off_is_prompt(name: str) -> None:
    family = next(family for family in FAMILIES if family.name == name)
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    text, [(start, end)] = tagged(family, (messages, None, {"enable_thinking": False}))
    assert text[start:end] == "b<|im_end|>"
    assert text[:start].endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
