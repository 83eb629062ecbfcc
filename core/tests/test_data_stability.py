"""A conversation whose shape is known gives the same samples as one that is rendered prefix by prefix."""

from __future__ import annotations

import copy
from typing import Any

import antiphon
import pytest
from antiphon.engine import samples as samples_module
from antiphon.engine.shapes import shape_of
from antiphon.errors import AntiphonError
from rendering_helpers import corpus, hub_templates, tokenizer


def other_words(value: Any) -> Any:
    """Return the same conversation with other words, longer and shorter, in its contents."""
    if isinstance(value, dict):
        return {
            key: item.replace("e", "ee ").replace("a", "") if key == "content" and isinstance(item, str)
            else other_words(item)
            for key, item in value.items()
        }  # fmt: skip
    return [other_words(item) for item in value] if isinstance(value, list) else value


def outcome(messages: Any, own: Any, options: dict[str, Any]) -> Any:
    try:
        made = antiphon.training_samples(messages, own, **options)
        return [(s.input_ids, s.assistant_mask) for s in made]
    except AntiphonError as error:
        return type(error)


@pytest.mark.parametrize("part", range(4))
def test_what_was_found_out_of_one_conversation_holds_for_others_of_its_shape(part: int) -> None:
    own = tokenizer("qwen3")
    names = list(hub_templates())[part * 13 :: 61]
    compared = 0
    for name in names:
        source = hub_templates()[name]
        for conversation in corpus()[part::4]:
            messages = conversation["messages"]
            options = {"tools": conversation.get("tools"), "chat_template": source}
            changed = other_words(copy.deepcopy(messages))
            samples_module._parts.clear()
            alone = outcome(changed, own, options)
            samples_module._parts.clear()
            outcome(messages, own, options)
            assert outcome(changed, own, options) == alone, (name, conversation["id"])
            compared += isinstance(alone, list)
    assert compared > 20


TEMPLATE = (
    "{%- for m in messages %}{{ '<|' + m.role + '|>' }}"
    "{%- if m.role == 'assistant' and 'draft:' in m.content and not loop.last %}{{ '(left out)' }}"
    "{%- else %}{{ m.content }}{% endif %}{{ '<|end|>' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def conversation(answer: str) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "Two"},
        {"role": "assistant", "content": "Yes"},
    ]


def test_a_word_that_the_template_looks_for_makes_another_shape() -> None:
    own = tokenizer("qwen3")
    plain, draft = conversation("a plan"), conversation("draft: a plan")
    assert shape_of(plain, TEMPLATE) == shape_of(conversation("another"), TEMPLATE)
    assert shape_of(plain, TEMPLATE) != shape_of(draft, TEMPLATE)
    for _ in range(2):
        assert len(antiphon.training_samples(plain, own, chat_template=TEMPLATE)) == 1
        assert len(antiphon.training_samples(draft, own, chat_template=TEMPLATE)) == 2


def test_white_space_emptiness_and_numbers_make_other_shapes() -> None:
    texts = ["a", " a", "a ", "a\n", "", "  "]
    assert len({shape_of(conversation(text), TEMPLATE) for text in texts}) == len(texts)
    numbers = [[{"role": "user", "content": "a", "n": n}] for n in (1, 2, True, 1.0)]
    assert len({shape_of(messages, TEMPLATE) for messages in numbers}) == 4
