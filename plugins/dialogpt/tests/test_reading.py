"""Reading DialoGPT's text back."""

from __future__ import annotations

import antiphon
from hypothesis import given, settings
from hypothesis import strategies as st

END = "<|endoftext|>"


def render(messages):
    return antiphon.render(messages, family="dialogpt", eos_token=END).text


def test_speakers_are_told_apart_by_the_order():
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": " hi\n"},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "bye"},
    ]
    assert render(messages) == f"hello{END} hi\n{END}{END}bye{END}"
    assert antiphon.parse(render(messages), family="dialogpt") == messages


def test_a_question_that_waits_for_an_answer_is_one_message():
    messages = [{"role": "user", "content": "hello"}]
    assert antiphon.parse(render(messages), family="dialogpt") == messages


def test_an_answer_ends_with_the_end_token():
    whole = antiphon.parse_response(f"hi{END}", family="dialogpt")
    assert (whole["content"], whole["is_complete"]) == ("hi", True)
    cut = antiphon.parse_response("hi", family="dialogpt")
    assert (cut["content"], cut["is_complete"]) == ("hi", False)


@settings(deadline=None, max_examples=200, derandomize=True, database=None)
@given(st.lists(st.text(max_size=10), max_size=6))
def test_whatever_is_said_comes_back(contents):
    roles = ["user", "assistant"] * 3
    messages = [
        {"role": role, "content": text} for role, text in zip(roles, contents, strict=False)
    ]
    text = render(messages)
    assert antiphon.parse(text, family="dialogpt") == messages
    assert render(antiphon.parse(text, family="dialogpt")) == text
