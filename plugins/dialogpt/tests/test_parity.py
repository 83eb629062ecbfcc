"""Our template against the official one: the same text, and refused where it refuses."""

from __future__ import annotations

import pytest
from antiphon.testing import corpus
from antiphon.testing.odd_conversations import Conversation
from antiphon.testing.parity import (
    equal_templates,
    marked_by_transformers,
    same_at_random,
    same_on,
    same_on_corpus,
)
from antiphon_dialogpt.families import DIALOGPT
from parity_helpers import official as official_templates

pytest.importorskip("transformers", reason="transformers renders the official template")

TOKENS = {"eos_token": "<|endoftext|>"}


@pytest.fixture(scope="module")
def official() -> str:
    return next(official_templates(DIALOGPT))


def test_corpus_renders_as_officially(official: str) -> None:
    compared = same_on_corpus(DIALOGPT, official, TOKENS)
    assert compared.refused == 0


@pytest.mark.parametrize("tokens", [{}, {"eos_token": None}, {"eos_token": ""}])
@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "assistant"}],
        [{"content": None}, {"role": None, "content": 3}],
        [{"role": "user", "content": [{"type": "text", "text": "t"}]}],
    ],
)
def test_odd_messages_and_tokens_render_as_officially(messages, tokens, official: str) -> None:
    assert same_on(DIALOGPT, official, [Conversation(messages, None, tokens)]).accepted == 1


def test_random_conversations_render_as_officially(official: str) -> None:
    assert same_at_random(DIALOGPT, official, count=400).accepted > 350


def test_generation_tags_mark_the_answers_and_their_end_tokens() -> None:
    case = next(case for case in corpus() if case.id == "system-one-turn")
    conversation = Conversation(case.messages, None, TOKENS)
    marked = marked_by_transformers(DIALOGPT.load_template(), conversation)
    assert marked == ["Mars has two moons: Phobos and Deimos.<|endoftext|>"]


@pytest.mark.slow
def test_digests_are_those_of_all_templates_that_print_the_same() -> None:
    assert equal_templates(DIALOGPT) == set(DIALOGPT.digests)
