"""Every template gives the official text, and refuses where the official template refuses."""

from __future__ import annotations

from random import Random
from typing import Any

import deepseek_oracle as oracle
import pytest
from antiphon import render
from antiphon.testing import corpus
from antiphon.testing.odd_conversations import Conversation, odd_conversation, vocabulary_of
from antiphon.testing.parity import (
    equal_templates,
    marked_by_transformers,
    same_at_random,
    same_on_corpus,
    transformers_text,
)
from antiphon.testing.scenarios import with_arguments
from antiphon_deepseek.families import FAMILIES
from hypothesis import given, settings
from hypothesis import strategies as st
from parity_helpers import official

pytest.importorskip("transformers", reason="transformers renders the official templates")

TOKENS = {"bos_token": oracle.BOS, "eos_token": oracle.EOS}
# The others are known by digests that they share with these, or have a Python encoder for an official text.
OWN = [family for family in FAMILIES if family.digests]
own = pytest.mark.parametrize("family", OWN, ids=lambda family: family.name)
every = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def test_every_dialect_of_the_design_has_an_official_template() -> None:
    assert len(OWN) == len(FAMILIES) - 3


@own
def test_every_corpus_conversation_has_the_official_text(family: Any) -> None:
    for template in official(family):
        for variables in ({}, {"thinking": True}, {"thinking": False, "enable_thinking": True}):
            compared = same_on_corpus(family, template, {**TOKENS, **variables})
            assert compared.accepted >= 60


@own
def test_odd_conversations_have_the_official_text_or_are_refused_alike(family: Any) -> None:
    for template in official(family):
        compared = same_at_random(family, template, count=400, seed=family.name)
        assert compared.accepted > 100
        assert compared.refused > 0


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0), family=st.sampled_from(OWN))
def test_any_conversation_has_the_official_text_or_is_refused_alike(seed: int, family: Any) -> None:
    for template in official(family):
        given = odd_conversation(Random(seed), vocabulary_of(template))
        found = transformers_text(family.load_template(), given)
        assert found == transformers_text(template, given)


@every
def test_the_engine_renders_each_template_as_transformers_does(family: Any) -> None:
    random, template = Random(family.name), family.load_template()
    words = vocabulary_of(template)
    rendered = 0
    for _ in range(150):
        given = odd_conversation(random, words)
        expected = transformers_text(template, given)
        if expected is None:
            continue
        found = render(given.messages, chat_template=template, tools=given.tools, **given.variables)
        assert found.text == expected
        rendered += 1
    assert rendered > 30


@pytest.mark.slow
@own
def test_digests_are_those_of_all_templates_that_print_the_same(family: Any) -> None:
    assert equal_templates(family) == set(family.digests)


# --- Generation tags --------------------------------------------------------------------------------------


def added_turn(family, messages, index, variables):
    """Return the turn of a message as what it adds to the prompt before it; None where it adds otherwise."""
    template = family.load_template()
    before = oracle.render(template, messages[:index], **variables, add_generation_prompt=True)
    after = oracle.render(template, messages[: index + 1], **variables)
    if before is None or after is None or not after.startswith(before):
        return None
    turn = after[len(before) :]
    ends = [turn.rfind(token) + len(token) for token in family.end_tokens if token in turn]
    return turn[: max(ends)] if ends else turn


# The prover's prompt stands at the end of every conversation, so that no rendering extends another.
STABLE = [family for family in FAMILIES if family.name != "deepseek-prover"]


@pytest.mark.parametrize("family", STABLE, ids=lambda family: family.name)
def test_generation_tags_enclose_exactly_what_the_model_generates(family):
    compared = 0
    form = "mapping" if family.arguments == "mapping" else "string"
    for case in corpus():
        messages = with_arguments(case.messages, form)
        for variables in ({}, {"thinking": True}):
            for index, message in enumerate(messages):
                if message["role"] != "assistant":
                    continue
                turn = added_turn(family, messages, index, variables)
                if turn is None:
                    continue
                given = Conversation(messages[: index + 1], None, {**TOKENS, **variables})
                marked = marked_by_transformers(family.load_template(), given)
                assert (marked or [""])[-1] == turn, (case.id, index)
                compared += 1
    assert compared >= 8


def test_the_mask_of_transformers_covers_turns_and_nothing_else():
    template = next(f for f in FAMILIES if f.name == "deepseek-v3.1").load_template()
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d"},
    ]
    marked = marked_by_transformers(template, Conversation(messages, None, TOKENS))
    assert marked == [f"b{oracle.EOS}", f"d{oracle.EOS}"]
