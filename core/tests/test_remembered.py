"""Renderings that are remembered are those that would be made again, and nobody's changes reach them."""

from __future__ import annotations

import antiphon
import pytest
from antiphon.engine import remembered
from rollout_helpers import byte_tokenizer

PRINTS_ALL = "{% for m in messages %}[{{ m.role }}] {{ m | tojson }}\n{% endfor %}{{ extra }}"


@pytest.fixture(autouse=True)
def _forget() -> None:
    remembered.forget()


def _text(message: dict[str, object], **options: object) -> str:
    return antiphon.render([message], chat_template=PRINTS_ALL, **options).text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"n": 1}, {"n": True}),
        ({"n": 0.0}, {"n": -0.0}),
        ({"n": 1}, {"n": 1.0}),
        ({"n": (1, 2)}, {"n": [1, 2, 3]}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"n": None}, {"n": "None"}),
        ({"n": {"1": "x"}}, {"n": {1: "y"}}),
    ],
)
def test_values_that_are_equal_and_print_differently_are_not_taken_for_each_other(
    one: dict[str, object], other: dict[str, object]
) -> None:
    first = _text({"role": "user", **one})
    second = _text({"role": "user", **other})
    remembered.forget()
    assert second == _text({"role": "user", **other})
    assert first != second


def test_variables_and_flags_are_part_of_what_is_remembered() -> None:
    message = {"role": "user", "content": "hi"}
    assert _text(message, extra="a") != _text(message, extra="b")
    assert _text(message, extra=1) != _text(message, extra=True)
    template = "{{ messages[0].content }}{% if add_generation_prompt %}>{% endif %}"
    texts = [
        antiphon.render([message], chat_template=template, add_generation_prompt=flag).text
        for flag in (True, False, True)
    ]
    assert texts == ["hi>", "hi", "hi>"]


def test_changes_of_messages_and_results_reach_no_later_rendering() -> None:
    tokenizer = byte_tokenizer()
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    first = antiphon.render(messages, tokenizer, family="chatml")
    expected = (list(first.spans), list(first.turns), first.text)
    tokens = first.tokenize()
    ids, mask = list(tokens.input_ids), list(tokens.assistant_mask)
    first.spans.clear()
    first.turns.clear()
    tokens.input_ids.clear()
    tokens.assistant_mask.clear()
    messages[1]["content"] = "no"
    assert antiphon.render(messages, tokenizer, family="chatml").text != expected[2]
    messages[1]["content"] = "yes"
    again = antiphon.render(messages, tokenizer, family="chatml")
    assert (again.spans, again.turns, again.text) == expected
    assert (again.tokenize().input_ids, again.tokenize().assistant_mask) == (ids, mask)


def test_a_rendering_of_one_tokenizer_is_not_encoded_with_what_another_one_found() -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    plain = byte_tokenizer()
    other = byte_tokenizer()
    other.add_tokens(["yes"])
    one = antiphon.render(messages, family="chatml").tokenize(plain).input_ids
    two = antiphon.render(messages, family="chatml").tokenize(other).input_ids
    assert one != two


def test_a_template_that_asks_for_the_date_is_rendered_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    template = "{{ strftime_now('%f') }}{{ messages[0].content }}"
    texts = {
        antiphon.render([{"role": "user", "content": "hi"}], chat_template=template).text
        for _ in range(50)
    }
    assert len(texts) > 1


def test_a_message_that_holds_other_objects_is_rendered_each_time() -> None:
    class Text(str):
        __slots__ = ()

    common = remembered.frozen_variables(PRINTS_ALL)
    message = {"role": "user", "content": Text("hi")}
    assert remembered.rendering_key([message], common) is None
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert remembered.rendering_key([{"role": "user", "content": deep}], common) is None
