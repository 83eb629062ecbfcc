# ruff: noqa: E501 - templates and lists stand on one line each
"""A sampled token is never encoded again."""

from __future__ import annotations

import math
from typing import Any

import antiphon
import pytest
from antiphon.errors import InvalidMessage, RenderError, TokenizerMismatch, TurnRewritten
from hypothesis import given, settings
from hypothesis import strategies as st
from rendering_helpers import TOKENIZERS, hub_templates, tokenizer

USER = {"role": "user", "content": "hi"}
PLAIN = "Qwen-Qwen2.5-7B-Instruct"


def start(
    name: str = "qwen3", template: str = PLAIN, messages: Any = (USER,)
) -> antiphon.TokenizedRendering:
    """Render a prompt."""
    own = tokenizer(name)
    return antiphon.render(
        list(messages), own, chat_template=hub_templates()[template], add_generation_prompt=True
    ).tokenize()


def test_ids_that_encode_otherwise_stay_as_they_were_sampled() -> None:  # case drift-01
    prompt = start()
    own = tokenizer("qwen3")
    sampled = [383, 75, 385]
    assert own.encode(own.decode(sampled)) != sampled
    answer = {
        "role": "assistant",
        "content": "hello",
        "token_ids": sampled,
        "log_probs": [-1.0, -2.0, -3.0],
    }
    item = antiphon.extend(prompt, [answer, USER], add_generation_prompt=True)
    end = own.convert_tokens_to_ids("<|im_end|>")
    size = len(prompt)
    assert item.input_ids[: size + 4] == [*prompt.input_ids, *sampled, end]
    assert item.assistant_mask[size : size + 4] == [
        True,
        True,
        True,
        False,
    ]  # the end token was not sampled
    assert sum(item.assistant_mask) == 3
    assert item.log_probs is not None
    assert item.log_probs[size : size + 3] == [-1.0, -2.0, -3.0]
    assert all(math.isnan(p) for i, p in enumerate(item.log_probs) if not size <= i < size + 3)
    assert item.message_index[size : size + 3] == [1, 1, 1]
    assert own.decode(item.input_ids) == item.rendering.text
    assert item.breaks == []


def test_a_sampled_end_token_is_not_doubled() -> None:
    prompt = start()
    own = tokenizer("qwen3")
    for end in ("<|im_end|>", "<|endoftext|>"):
        sampled = own.encode("hello" + end)
        item = antiphon.extend(
            prompt, [{"role": "assistant", "content": "hello", "token_ids": sampled}, USER]
        )
        assert item.input_ids[: len(prompt) + len(sampled)] == [*prompt.input_ids, *sampled]
        following = item.input_ids[len(prompt) + len(sampled) :]
        assert own.decode(following).startswith("\n<|im_start|>user")


def test_a_template_that_drops_reasoning_breaks_and_says_so() -> None:  # cases think-01, drift-04
    template = "Qwen-Qwen3-0.6B@a55ee1"
    own = tokenizer("qwen3")
    prompt = start(template=template)
    sampled = own.encode("<think>\nr1\n</think>\n\nans<|im_end|>")
    answer = {
        "role": "assistant",
        "content": "ans",
        "reasoning_content": "r1",
        "token_ids": sampled,
    }
    kept = antiphon.extend(prompt, [answer, USER], add_generation_prompt=True)
    (found,) = kept.breaks
    assert (found.message, found.was, found.now) == (
        1,
        "<think>\nr1\n</think>\n\nans<|im_end|>",
        "ans<|im_end|>",
    )
    assert own.decode(kept.input_ids) == kept.rendering.text
    assert not any(kept.assistant_mask)
    with pytest.raises(TurnRewritten, match="message 1"):
        antiphon.extend(prompt, [answer, USER], add_generation_prompt=True, on_break="raise")
    split = antiphon.extend(prompt, [answer, USER], add_generation_prompt=True, on_break="split")
    assert split.starts_anew
    appended = antiphon.extend(
        prompt, [answer, USER], add_generation_prompt=True, on_break="append"
    )
    assert appended.input_ids[: len(prompt) + len(sampled)] == [*prompt.input_ids, *sampled]
    assert own.decode(appended.input_ids[len(prompt) + len(sampled) :]) == (
        "\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert sum(appended.assistant_mask) == len(sampled)
    # A tool result is no new question: reasoning stays, and so do the ids.
    tool = antiphon.extend(
        prompt, [answer, {"role": "tool", "content": "1"}], add_generation_prompt=True
    )
    assert tool.breaks == []
    assert tool.input_ids[: len(prompt) + len(sampled)] == [*prompt.input_ids, *sampled]


def test_a_prompt_that_opens_reasoning_keeps_what_it_opened() -> None:  # case think-05
    template = "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B@56a144"
    own = tokenizer("deepseek_v3")
    prompt = start("deepseek_v3", template)
    assert prompt.rendering.text.endswith("<think>\n")
    sampled = own.encode("r\n</think>\n\nb<｜end▁of▁sentence｜>", add_special_tokens=False)
    answer = {"role": "assistant", "content": "<think>\nr\n</think>\n\nb", "token_ids": sampled}
    item = antiphon.extend(prompt, [answer, USER], add_generation_prompt=True)
    assert item.breaks == []
    assert item.input_ids[: len(prompt) + len(sampled)] == [*prompt.input_ids, *sampled]
    assert item.message_index[len(prompt) : len(prompt) + len(sampled)] == [1] * len(sampled)


def test_an_empty_block_that_the_model_never_wrote_breaks_nothing() -> None:
    """Qwen3 shows one in front of the last turn only; the call was sampled without it, and spaced otherwise."""
    own = tokenizer("qwen3")
    prompt = start(template="Qwen-Qwen3-0.6B@a55ee1")
    sampled = own.encode('<tool_call>\n{"name":"f","arguments":{"a":1}}\n</tool_call><|im_end|>')
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    answer = {"role": "assistant", "content": "", "tool_calls": [call], "token_ids": sampled}
    tool = {"role": "tool", "content": "12"}
    item = antiphon.extend(prompt, [answer, tool], add_generation_prompt=True)
    second = antiphon.extend(item, [answer, tool], add_generation_prompt=True)
    assert item.breaks == second.breaks == []
    assert second.input_ids[: len(item) + len(sampled)] == [*item.input_ids, *sampled]


TEMPLATES = [
    "Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B@a55ee1", "Qwen-Qwen3-4B-Thinking-2507", "Qwen-Qwen3-Coder-30B-A3B-Instruct",
    "Qwen-Qwen3.5-0.8B", "meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct", "microsoft-MAI-DS-R1",
    "NousResearch-Meta-Llama-3-8B-Instruct", "deepseek-ai-DeepSeek-V2.5", "ByteDance-Seed-academic-ds-9B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B@56a144", "tencent-DeepSeek-V3.1-Terminus-W4AFP8", "unsloth-gpt-oss-20b",
    "unsloth-gemma-3-270m-it", "zai-org-GLM-4.5-Air", "zai-org-GLM-4-9B-0414", "moonshotai-Kimi-K2-Instruct-0905",
    "mistralai-Mistral-7B-Instruct-v0.3", "mistralai-Mistral-Small-24B-Instruct-2501", "microsoft-Phi-3.5-mini-instruct",
    "microsoft-Phi-4-mini-reasoning", "HuggingFaceTB-SmolVLM-Synthetic", "01-ai-Yi-1.5-9B-Chat", "Apertus-8B-Instruct",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "LiquidAI-LFM2-350M-PII-Extract-JP", "MiniMaxAI-MiniMax-Text-01-hf",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "OpenLLM-France-Luciole-23B-Instruct-1.1", "PleIAs-Monad", "PrimeIntellect-INTELLECT-3.1",
    "Salesforce-Llama-xLAM-2-8b-fc-r", "allenai-tmax-sft-8b", "arcee-ai-AFM-4.5B", "inclusionAI-Ring-2.5-1T",
    "llm-jp-llm-jp-3-1.8b-instruct", "microsoft-DialoGPT-medium", "nvidia-Llama-3.1-Nemotron-Nano-8B-v1", "openbmb-MiniCPM4.1-8B",
    "optimum-intel-internal-testing-tiny-random-ArceeForCausalLM", "spitfire4794-supra-arith", "tencent-Youtu-VL-4B-Instruct",
    "tiiuae-Falcon-H1-0.5B-Instruct", "tiiuae-Falcon3-7B-Instruct", "tiiuae-falcon-11B", "trl-internal-testing-tiny-Llama4ForCausalLM",
    "upstage-Solar-Open-100B", "upstage-SOLAR-10.7B-Instruct-v1.0", "unsloth-r1-1776", "zonzonzik-NMC-heretic-2-heretic",
    "GigaChat3-10B-A1.8B",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_random_ids_come_back_in_every_later_prompt(data: st.DataObject) -> None:
    """Malformed calls, half characters, markers, nothing, no end token: whatever was sampled stays."""
    own = tokenizer(data.draw(st.sampled_from(TOKENIZERS), "tokenizer"))
    name = data.draw(st.sampled_from(TEMPLATES), "template")
    special = {k: v for k, v in own.special_tokens_map.items() if isinstance(v, str)}
    try:
        item = antiphon.render(
            [USER], own, chat_template=hub_templates()[name], add_generation_prompt=True
        ).tokenize()
    except RenderError:
        return
    assert special or item.input_ids
    for _ in range(data.draw(st.integers(1, 6), "turns")):
        ids = data.draw(
            st.lists(
                st.integers(0, len(own) - 1) | st.sampled_from(sorted(own.all_special_ids)),
                max_size=12,
            ),
            "sampled",
        )
        ids = [i for i in ids if own.convert_ids_to_tokens(i) is not None]
        content = own.decode(ids, skip_special_tokens=True)
        answer: dict[str, Any] = {
            "role": "assistant",
            "content": content,
            "token_ids": ids,
            "log_probs": [-0.5] * len(ids),
        }
        if data.draw(st.booleans(), "reasoning"):
            answer |= {"content": "done", "reasoning_content": content}
        following = data.draw(
            st.sampled_from(
                [{"role": "user", "content": "go on"}, {"role": "tool", "content": "12"}]
            ),
            "next",
        )
        before = item
        try:
            item = antiphon.extend(item, [answer, following], add_generation_prompt=True)
        except RenderError:
            return
        message = len(before.rendering.messages)
        if not item.breaks:
            assert item.input_ids[: len(before) + len(ids)] == [*before.input_ids, *ids]
            assert item.assistant_mask[len(before) : len(before) + len(ids)] == [True] * len(ids)
            assert item.message_index[len(before) : len(before) + len(ids)] == [message] * len(ids)
        else:
            for kept in item.sampled.values():
                assert item.input_ids[kept.start : kept.end] == kept.ids
        assert len(item.message_index) == len(item) == len(item._mask)
        assert item.log_probs is None or len(item.log_probs) == len(item)


def test_a_conversation_can_begin_with_what_was_sampled_before() -> None:
    own = tokenizer("qwen3")
    answer = {"role": "assistant", "content": "hello", "token_ids": [383, 75, 385]}
    item = antiphon.extend(
        None,
        [USER, answer, USER, answer, USER],
        tokenizer=own,
        chat_template=hub_templates()[PLAIN],
        add_generation_prompt=True,
    )
    assert list(item.sampled) == [1, 3]
    for own_turn in item.sampled.values():
        assert item.input_ids[own_turn.start : own_turn.end] == [383, 75, 385]
    assert sum(item.assistant_mask) == 6


def test_what_does_not_fit_is_refused() -> None:
    prompt = start()
    with pytest.raises(InvalidMessage, match="2 token_ids and 1 log_probs"):
        antiphon.extend(
            prompt, [{"role": "assistant", "content": "x", "token_ids": [1, 2], "log_probs": [0.0]}]
        )
    with pytest.raises(TokenizerMismatch, match="another tokenizer"):
        antiphon.extend(prompt, [USER], tokenizer=tokenizer("llama3"))
    with pytest.raises(InvalidMessage, match="tools"):
        antiphon.extend(prompt, [USER], tools=[])
    with pytest.raises(TokenizerMismatch, match="needs a tokenizer"):
        antiphon.extend(None, [USER])
    with pytest.raises(InvalidMessage, match="on_break"):
        antiphon.extend(prompt, [USER], on_break="maybe")  # type: ignore[arg-type]
