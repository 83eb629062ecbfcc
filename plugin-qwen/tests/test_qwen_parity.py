"""Our templates give the official text, or refuse, on every conversation."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from antiphon.testing.odd_conversations import odd_conversation, vocabulary_of
from antiphon.testing.parity import (
    equal_templates,
    same_at_random,
    same_on,
    same_on_corpus,
    transformers_text,
)
from antiphon_qwen.families import FAMILIES
from hypothesis import given, settings
from hypothesis import strategies as st
from parity_helpers import official

pytest.importorskip("transformers", reason="transformers renders the official templates")

families = pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])


@families
def test_the_text_of_the_corpus_is_the_official_one(family: Any) -> None:
    for template in official(family):
        assert same_on_corpus(family, template).accepted >= 60


@families
def test_the_text_of_random_conversations_is_the_official_one(family: Any) -> None:
    for template in official(family):
        compared = same_at_random(family, template, count=400, seed=family.name)
        assert compared.accepted > 100, "the random conversations are too odd to show much"
        assert compared.refused > 0, "the random conversations are too tame to show a refusal"


@families
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0))
def test_no_conversation_tells_our_template_from_the_official_one(family: Any, seed: int) -> None:
    for template in official(family):
        words = vocabulary_of(template)
        same_on(family, template, [odd_conversation(Random(seed), words)])


def test_no_two_dialects_render_all_conversations_alike() -> None:
    rng, words = Random(0), vocabulary_of(*(family.load_template() for family in FAMILIES))
    conversations = [odd_conversation(rng, words) for _ in range(300)]
    texts: dict[tuple[str | None, ...], list[str]] = {}
    for family in FAMILIES:
        template = family.load_template()
        rendered = tuple(transformers_text(template, each) for each in conversations)
        texts.setdefault(rendered, []).append(family.name)
    assert [names for names in texts.values() if len(names) > 1] == []


@pytest.mark.slow
@families
def test_digests_are_those_of_all_templates_that_print_the_same(family: Any) -> None:
    assert equal_templates(family) == set(family.digests)
