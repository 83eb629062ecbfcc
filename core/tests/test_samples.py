"""Training samples show each turn in the context that the model has at inference, and there are as few as can be."""

from __future__ import annotations

import itertools
from typing import Any

import antiphon
import pytest
from antiphon.errors import MaskUnavailable, RenderError
from rendering_helpers import corpus, hub_templates, tokenizer

CHOICES = [
    ("qwen3", None),
    ("qwen3", "Qwen-Qwen2.5-7B-Instruct"),
    ("qwen3", "Qwen-Qwen3-0.6B@a55ee1"),
    ("qwen3", "Qwen-Qwen3-4B-Thinking-2507"),
    ("qwen3", "Qwen-Qwen3-Coder-30B-A3B-Instruct"),
    ("llama3", "meta-llama-Llama-3.1-8B-Instruct"),
    ("gemma3", None),
    ("gptoss", None),
    ("deepseek_v3", None),
    ("deepseek_v3", "microsoft-MAI-DS-R1"),
    ("deepseek_v3", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B@56a144"),
    ("deepseek_v3", "tencent-DeepSeek-V3.1-Terminus-W4AFP8"),
]


@pytest.mark.parametrize(("name", "template"), CHOICES)
def test_each_turn_stands_behind_exactly_its_prompt(name: str, template: str | None) -> None:
    own = tokenizer(name)
    source = hub_templates()[template] if template else None
    turns = 0
    for conversation in corpus():
        messages = conversation["messages"]
        kwargs = {k: v for k, v in conversation["kwargs"].items() if k != "add_generation_prompt"}
        options: dict[str, Any] = {
            "tools": conversation.get("tools"),
            "chat_template": source,
            **kwargs,
        }
        try:
            samples = antiphon.training_samples(messages, own, **options)
        except RenderError:
            continue
        prompts = {}
        for index, message in enumerate(messages):
            if message["role"] == "assistant" and index:
                try:
                    prompt = antiphon.render(
                        messages[:index], own, add_generation_prompt=True, **options
                    )
                except RenderError:
                    continue
                prompts[index] = prompt.tokenize().input_ids
        trained = []
        for sample in samples:
            mask = sample.assistant_mask
            for place, (before, here) in enumerate(zip([False, *mask], mask, strict=False)):
                if here and not before:
                    found = [
                        i for i, prompt in prompts.items() if sample.input_ids[:place] == prompt
                    ]
                    first = (
                        0 in sample.message_index[place : place + 8]
                        and messages[0]["role"] == "assistant"
                    )
                    assert found or first, (
                        conversation["id"],
                        own.decode(sample.input_ids[:place]),
                    )
                    trained += found[:1]
        assert len(trained) == len(set(trained)), conversation["id"]
        # Every turn that the template shows is trained somewhere.
        last = max(i for i, m in enumerate(messages) if m["role"] == "assistant") if prompts else -1
        shown = (
            {t.message for t in antiphon.render(messages[: last + 1], own, **options).turns}
            if prompts
            else set()
        )
        assert shown & prompts.keys() <= set(trained), conversation["id"]
        turns += len(trained)
        # No sample could be left out: each trains a turn that no other one shows as generated.
        texts = [own.decode(s.input_ids) for s in samples]
        assert not any(a != b and b.startswith(a) for a in texts for b in texts)
    assert turns > 25


def least(sequences: list[list[int]]) -> int:
    """Return into how few groups sequences go, where each group's are all the beginning of its longest one."""

    def fit(group: list[list[int]]) -> bool:
        longest = max(group, key=len)
        return all(longest[: len(one)] == one for one in group)

    for count in range(1, len(sequences) + 1):
        for places in itertools.product(range(count), repeat=len(sequences)):
            groups = [
                [s for s, place in zip(sequences, places, strict=True) if place == number]
                for number in range(count)
            ]
            if all(map(fit, filter(None, groups))):
                return count
    return 0


@pytest.mark.parametrize("part", range(5))
def test_no_fewer_samples_could_show_every_turn(part: int) -> None:
    """By trying every way of putting turns together; conversations and templates of every kind."""
    names = list(hub_templates())[part * 31 :: 131]
    own = tokenizer(["qwen3", "llama3", "deepseek_v3", "gemma3", "gptoss"][part])
    compared = 0
    for name in names:
        for conversation in corpus()[part % 3 :: 3]:
            messages = conversation["messages"]
            options: dict[str, Any] = {
                "tools": conversation.get("tools"),
                "chat_template": hub_templates()[name],
            }
            try:
                samples = antiphon.training_samples(messages, own, **options)
                masks = [sample.assistant_mask for sample in samples]
            except RenderError:
                continue
            # What is trained of each sample: the ids up to the end of each of its turns.
            shown = []
            for sample, trained in zip(samples, masks, strict=True):
                mask = [*trained, False]
                ends = [i for i, m in enumerate(mask) if not m and i and mask[i - 1]]
                shown += [sample.input_ids[:end] for end in ends]
            if shown and len(shown) <= 6:
                assert len(samples) == least(shown), (name, conversation["id"])
                compared += 1
    assert compared > 20


def test_a_template_that_never_rewrites_gives_one_sample() -> None:
    own = tokenizer("qwen3")
    conversation = next(c for c in corpus() if c["id"] == "three-turns")
    (sample,) = antiphon.training_samples(
        conversation["messages"], own, chat_template=hub_templates()["Qwen-Qwen2.5-7B-Instruct"]
    )
    assert (
        sample.input_ids
        == antiphon.render(
            conversation["messages"], own, chat_template=hub_templates()["Qwen-Qwen2.5-7B-Instruct"]
        )
        .tokenize()
        .input_ids
    )


def test_reasoning_that_the_prompt_opens_is_trained_without_its_opening() -> None:  # case think-05
    own = tokenizer("deepseek_v3")
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<think>\nr\n</think>\n\nb"},
    ]
    (sample,) = antiphon.training_samples(
        messages,
        own,
        chat_template=hub_templates()["deepseek-ai-DeepSeek-R1-Distill-Qwen-32B@56a144"],
    )
    masked = own.decode(
        [t for t, m in zip(sample.input_ids, sample.assistant_mask, strict=True) if m]
    )
    assert masked == "r\n</think>\n\nb<｜end▁of▁sentence｜>"
    assert own.decode(sample.input_ids).endswith("<｜Assistant｜><think>\n" + masked)


@pytest.mark.parametrize("template", ["google-gemma-4-31B-it", "google-gemma-4-26B-A4B-it"])
def test_a_turn_that_is_torn_later_on_is_context_in_the_samples_of_others(template: str) -> None:
    """Gemma 4 prints a call, then its result, then what was said beside the call."""
    own, source = tokenizer("gemma3"), hub_templates()[template]
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": "b"}}}
    messages = [
        {"role": "user", "content": "How deep is it?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "name": "f", "content": "90"},
        {"role": "assistant", "content": "Ninety metres."},
    ]
    for _ in range(2):  # planned, and as its shape is remembered
        samples = antiphon.training_samples(messages, own, chat_template=source)
        masked = [
            own.decode([t for t, m in zip(s.input_ids, s.assistant_mask, strict=True) if m])
            for s in samples
        ]
        assert masked == [
            '<|tool_call>call:f{a:<|"|>b<|"|>}<tool_call|>I look.<|tool_response>',
            "Ninety metres.<turn|>",
        ]
    with pytest.raises(MaskUnavailable, match="message 1 could not be found"):
        _ = antiphon.render(messages, own, chat_template=source).tokenize().assistant_mask
