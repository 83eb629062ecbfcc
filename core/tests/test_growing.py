"""A conversation that grows is rendered as it would be anew; only its new messages are traced."""

from __future__ import annotations

from typing import Any

import antiphon
import pytest
from antiphon import History
from antiphon.engine import remembered
from antiphon.engine.growing import GrowingRenderer
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_helpers import byte_tokenizer

REWRITES = (
    "{% for m in messages %}[{{ m.role }}] "
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('|')[-1] }}{% else %}{{ m.content }}{% endif %}"
    "{{ '' if loop.last and not add_generation_prompt else '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]), "content": st.text("ab|\n ", max_size=5)}
    ),
    min_size=1,
    max_size=6,
)


@pytest.fixture(autouse=True)
def _forget() -> None:
    remembered.forget()


def _data(rendering: antiphon.engine.rendering.Rendering) -> tuple[Any, ...]:
    tokens = rendering.tokenize(byte_tokenizer())
    return (
        rendering.text,
        rendering.spans,
        rendering.turns,
        rendering.unlocated,
        rendering.dropped,
        tokens.input_ids,
        tokens.message_index,
    )


@settings(deadline=None, max_examples=60)
@given(MESSAGES, st.booleans())
def test_what_has_grown_is_what_would_be_rendered_anew(
    messages: list[dict[str, str]], prompted: bool
) -> None:
    remembered.forget()
    options: dict[str, Any] = {"chat_template": REWRITES, "add_generation_prompt": prompted}
    growing = GrowingRenderer(None, **options)
    grown = [_data(growing(messages[:count])) for count in range(1, len(messages) + 1)]
    for count, found in enumerate(grown, 1):
        remembered.forget()
        assert found == _data(antiphon.render(messages[:count], **options))


def test_earlier_messages_are_shared_with_the_rendering_before() -> None:
    growing = GrowingRenderer(None, chat_template=REWRITES)
    messages = [{"role": "user", "content": f"question {i}"} for i in range(4)]
    first = growing(messages[:1])
    assert not GrowingRenderer(None, chat_template=REWRITES, x=1).knows(messages[:2])
    assert growing.knows(messages[:2])
    second = growing(messages[:3])  # by an answer and what follows it
    assert second.messages[0] is first.messages[0]
    third = growing(messages)
    assert all(a is b for a, b in zip(second.messages, third.messages, strict=False))


def test_an_edited_beginning_is_no_beginning() -> None:
    growing = GrowingRenderer(None, chat_template=REWRITES)
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    growing(messages[:1])
    edited = [{"role": "user", "content": "A"}, messages[1]]
    assert growing(edited).text == "[user] A\n[assistant] b"


def test_templates_that_ask_for_the_date_are_rendered_anew() -> None:
    template = "{{ strftime_now('%Y') }}" + REWRITES
    growing = GrowingRenderer(None, chat_template=template)
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    growing(messages[:1])
    assert not growing.knows(messages)


@pytest.mark.parametrize("prompted", [False, True])
def test_a_history_gives_the_same_ids_and_masks_however_it_came_to_its_length(
    prompted: bool,
) -> None:
    tokenizer = byte_tokenizer()
    chats = [
        [
            {"role": ("user", "assistant")[i % 2], "content": f"message {i} of {c}\n"}
            for i in range(7)
        ]
        for c in range(3)
    ]
    options: dict[str, Any] = {
        "tokenizer": tokenizer,
        "chat_template_name": "chatml_format",
        "add_generation_prompt": prompted,
        "return_assistant_tokens_mask": True,
    }
    history = History.from_chats([chat[:1] for chat in chats])
    found = [history.apply_chat_template(**options)]
    for count in range(1, 7):
        history = history.append(History.from_chats([[chat[count]] for chat in chats])[:, 0])
        found.append(history.apply_chat_template(**options))
    for count, grown in enumerate(found, 1):
        remembered.forget()
        anew = History.from_chats([chat[:count] for chat in chats]).apply_chat_template(**options)
        for a, b in zip(grown, anew, strict=True):
            assert a["input_ids"].tolist() == b["input_ids"].tolist()
            assert a["assistant_masks"].tolist() == b["assistant_masks"].tolist()
