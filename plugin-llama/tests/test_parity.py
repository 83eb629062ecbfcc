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
from antiphon_llama.families import FAMILIES
from parity_helpers import PLAIN_CASES, WEATHER, asks, call, compare, official

pytest.importorskip("transformers", reason="transformers renders the official templates")

BY_NAME = {family.name: family for family in FAMILIES}
NAMES = list(BY_NAME)
TOKENS = {
    "llama2": {"bos_token": "<s>", "eos_token": "</s>"},
    "codellama": {"bos_token": "<s>", "eos_token": "</s>"},
}
LLAMA3_TOKENS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}


# Conversations written for what the templates read


def part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


HANDWRITTEN: dict[str, tuple[list[dict[str, Any]], Any, dict[str, Any]]] = {
    **PLAIN_CASES,
    "no messages but tools": ([{"role": "system", "content": "s"}], [WEATHER], {}),
    "tools in the system turn": (
        [{"role": "system", "content": "s"}, *asks()],
        [WEATHER, WEATHER],
        {"tools_in_user_message": False},
    ),
    "tools in no turn": (asks(), [WEATHER], {"tools_in_user_message": False}),
    "tools_in_user_message None": (asks(), [WEATHER], {"tools_in_user_message": None}),
    "custom tools win": (asks(), [WEATHER], {"custom_tools": [{"name": "other"}]}),
    "custom tools None": (asks(), [WEATHER], {"custom_tools": None}),
    "a date": (asks(), None, {"date_string": "01 Jan 2025"}),
    "no date": (asks(), None, {"date_string": None}),
    "built-in tools": (asks(), None, {"builtin_tools": ["code_interpreter", "brave_search"]}),
    "built-in call": (
        asks(
            {
                "role": "assistant",
                "tool_calls": [call("brave_search", {"query": 'a "b"', "n": "2"})],
            }
        ),
        None,
        {"builtin_tools": ["brave_search"]},
    ),
    "built-in call, number": (
        asks({"role": "assistant", "tool_calls": [call("brave_search", {"n": 2})]}),
        None,
        {"builtin_tools": ["brave_search"]},
    ),
    "built-in call, arguments as text": (
        asks({"role": "assistant", "tool_calls": [call("brave_search", '{"n": 2}')]}),
        None,
        {"builtin_tools": ["brave_search"]},
    ),
    "other call beside built-in tools": (
        asks({"role": "assistant", "tool_calls": [call("weather", {"city": "Köln"})]}),
        [WEATHER],
        {"builtin_tools": ["brave_search"]},
    ),
    "two calls": (
        asks({"role": "assistant", "content": "", "tool_calls": [call("a", {}), call("b", {})]}),
        None,
        {},
    ),
    "no calls": (asks({"role": "assistant", "content": "x", "tool_calls": []}), None, {}),
    "calls None": (asks({"role": "assistant", "content": "x", "tool_calls": None}), None, {}),
    "a call without arguments": (
        asks({"role": "assistant", "tool_calls": [{"function": {"name": "a"}}]}),
        None,
        {},
    ),
    "a flat call": (
        asks({"role": "assistant", "tool_calls": [{"name": "a", "arguments": {}}]}),
        None,
        {},
    ),
    "a user's call": (
        asks({"role": "user", "content": "x", "tool_calls": [call("a", {})]}),
        None,
        {},
    ),
    "results": (
        asks(
            {"role": "tool", "content": 'a "b"\n'},
            {"role": "ipython", "content": {"a": ["é"]}},
            {"role": "tool", "content": 3},
            {"role": "tool", "content": None},
            {"role": "tool", "content": [{"type": "text", "text": "t"}]},
        ),
        None,
        {},
    ),
    "a result without content": (asks({"role": "tool"}), None, {}),
    "images": (
        [
            {
                "role": "system",
                "content": [{"type": "text", "text": " s "}, {"type": "text", "text": "t"}],
            },
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " what? "}]},
            {"role": "assistant", "content": [{"type": "text", "text": "that"}, {"type": "audio"}]},
        ],
        None,
        {},
    ),
    "images under tools": ([{"role": "user", "content": [{"type": "image"}]}], [WEATHER], {}),
    "a call after an image": (
        asks({"role": "assistant", "content": [{"type": "image"}], "tool_calls": [call("a", {})]}),
        None,
        {},
    ),
    "stray roles at second places": (
        asks({"role": "tool", "content": "x"}, {"role": "user", "content": "y"}),
        None,
        {},
    ),
    "the system's text is False": ([{"role": "system", "content": False}, *asks()], None, {}),
}


@pytest.mark.parametrize("name", NAMES)
def test_corpus_renders_as_officially(name: str) -> None:
    for template in official(name):
        compared = same_on_corpus(name, template, TOKENS.get(name, LLAMA3_TOKENS))
        assert compared.accepted >= 60


@pytest.mark.parametrize("case", HANDWRITTEN)
@pytest.mark.parametrize("name", NAMES)
def test_handwritten_conversations_render_as_officially(name: str, case: str) -> None:
    messages, tools, variables = HANDWRITTEN[case]
    given = {**TOKENS.get(name, LLAMA3_TOKENS), **variables}
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
    answers = {
        "llama2": " Mars has two moons: Phobos and Deimos. </s>",
        "codellama": " Mars has two moons: Phobos and Deimos. </s>",
        "llama4": "Mars has two moons: Phobos and Deimos.<|eot|>",
    }
    case = next(case for case in corpus() if case.id == "system-one-turn")
    for family in FAMILIES:
        tokens = TOKENS.get(family.name, LLAMA3_TOKENS)
        conversation = Conversation(case.messages, None, tokens)
        expected = answers.get(family.name, "Mars has two moons: Phobos and Deimos.<|eot_id|>")
        assert marked_by_transformers(family.load_template(), conversation) == [expected]


def test_generation_tags_mark_calls() -> None:
    case = next(case for case in corpus() if case.id == "tool-round")
    printed = '{"name": "get_weather", "parameters": {"city": "Oslo"}}'
    for name, marked in {
        "llama3.1": f"{printed}<|eot_id|>",
        "llama3.2": f"{printed}<|eot_id|>",
        "llama4": f"<|python_start|><|python_end|>{printed}<|eot|>",
    }.items():
        conversation = Conversation(case.messages, case.tools, LLAMA3_TOKENS)
        assert marked_by_transformers(BY_NAME[name].load_template(), conversation)[0] == marked


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_digests_are_those_of_all_templates_that_print_the_same(family: Any) -> None:
    assert equal_templates(family) == set(family.digests)
