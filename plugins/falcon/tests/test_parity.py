"""Our templates against the official ones: the same text, and refused where they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from antiphon.testing import corpus
from antiphon.testing.odd_conversations import Conversation
from antiphon.testing.parity import (
    equal_templates,
    marked_by_transformers,
    same_at_random,
    same_on_corpus,
)
from antiphon_falcon.families import FAMILIES
from parity_helpers import PLAIN_CASES, WEATHER, asks, call, compare, official

pytest.importorskip("transformers", reason="transformers renders the official templates")

BY_NAME = {family.name: family for family in FAMILIES}
NAMES = list(BY_NAME)
TOKENS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|endoftext|>"}


# Conversations written for what the templates read

HANDWRITTEN: dict[str, tuple[list[dict[str, Any]], Any, dict[str, Any]]] = {
    **PLAIN_CASES,
    "no messages but tools": ([], [WEATHER], {"add_generation_prompt": True}),
    "system only, tools": ([{"role": "system", "content": " s "}], [WEATHER], {}),
    "tools": ([{"role": "system", "content": "s"}, *asks()], [WEATHER, WEATHER], {}),
    "no system, tools": (asks(), [WEATHER], {"add_generation_prompt": True}),
    "calls alone": (
        asks(
            {"role": "assistant", "content": "", "tool_calls": [call("a", {}), call("b", {"x": 1})]}
        ),
        [WEATHER],
        {},
    ),
    "calls after text": (
        asks({"role": "assistant", "content": "so", "tool_calls": [call("a", '{"é": 1}')]}),
        [WEATHER],
        {"add_generation_prompt": True},
    ),
    "calls without tools": (
        asks({"role": "assistant", "content": "so", "tool_calls": [call("a", {})]}),
        None,
        {},
    ),
    "calls without content": (
        asks({"role": "assistant", "content": None, "tool_calls": [call("a", {})]}),
        [WEATHER],
        {},
    ),
    "no calls": (asks({"role": "assistant", "content": "x", "tool_calls": []}), [WEATHER], {}),
    "results": (
        asks({"role": "tool", "content": "r"}, {"role": "assistant", "content": "x"}),
        [WEATHER],
        {},
    ),
    "results without tools": (asks({"role": "tool", "content": "r"}), None, {}),
    "a result that is a mapping": (asks({"role": "tool", "content": {"r": 1}}), [WEATHER], {}),
    "no content, tools": (asks({"role": "assistant"}), [WEATHER], {}),
    "blank lines": (asks({"role": "assistant", "content": "a\n\nb\n\n\nc\r\n\r\nd\n\n"}), None, {}),
    "stray roles at second places": (
        asks({"role": "tool", "content": "x"}, {"role": "user", "content": "y"}),
        None,
        {"add_generation_prompt": True},
    ),
    "a later system message": (
        asks({"role": "system", "content": "x"}, {"role": "user", "content": "y"}),
        [WEATHER],
        {"add_generation_prompt": True},
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_corpus_renders_as_officially(name: str) -> None:
    for template in official(name):
        compared = same_on_corpus(name, template, TOKENS)
        assert compared.accepted >= 60


@pytest.mark.parametrize("case", HANDWRITTEN)
@pytest.mark.parametrize("name", NAMES)
def test_handwritten_conversations_render_as_officially(name: str, case: str) -> None:
    messages, tools, variables = HANDWRITTEN[case]
    given = {**TOKENS, **variables}
    compare(name, [Conversation(messages, tools, given)])


@pytest.mark.parametrize("name", NAMES)
def test_without_special_tokens_it_refuses_or_prints_as_the_official_template_does(
    name: str,
) -> None:
    messages = asks({"role": "assistant", "content": "x"})
    tokens = ({}, {"bos_token": None}, {"eos_token": None}, {"bos_token": "<s>"})
    compare(name, (Conversation(messages, None, each) for each in tokens))


@pytest.mark.parametrize("name", NAMES)
def test_random_conversations_render_as_officially(name: str) -> None:
    for template in official(name):
        compared = same_at_random(name, template, count=400, seed=name)
        assert compared.accepted >= 80
        assert compared.refused >= 10


def test_generation_tags_mark_the_answers_and_their_end_tokens() -> None:
    answer = "Mars has two moons: Phobos and Deimos."
    marked = {
        "falcon": f" {answer}",
        "falcon-11b": answer,
        "falcon3": f"{answer}<|endoftext|>",
        "falcon-h1": f"{answer}<|im_end|>",
        "falcon-mamba": f"{answer}<|im_end|>",
    }
    case = next(case for case in corpus() if case.id == "system-one-turn")
    for family in FAMILIES:
        conversation = Conversation(case.messages, None, TOKENS)
        found = marked_by_transformers(family.load_template(), conversation)
        assert found == [marked[family.name]]


def test_generation_tags_mark_calls() -> None:
    case = next(case for case in corpus() if case.id == "tool-round")
    conversation = Conversation(case.messages, case.tools, TOKENS)
    first, _ = marked_by_transformers(BY_NAME["falcon3"].load_template(), conversation)
    assert first.startswith("\n<tool_call>\n[")
    assert first.endswith("]\n</tool_call><|endoftext|>")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_digests_are_those_of_all_templates_that_print_the_same(family: Any) -> None:
    assert equal_templates(family) == set(family.digests)
