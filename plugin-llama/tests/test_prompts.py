"""Completions are read from where their prompt leaves off."""

from __future__ import annotations

import pytest
from antiphon import parse_response, render


@pytest.mark.parametrize("family", ["llama2", "codellama", "llama3.1", "llama4"])
def test_an_answer_to_a_second_question_is_read_like_one_to_the_first(family: str) -> None:
    """Where an answer has no header of its own, the last opener in a prompt may be an earlier answer's."""
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    for count in (1, 3):
        prompt = render(messages[:count], family=family, add_generation_prompt=True, **tokens).text
        answer = {"role": "assistant", "content": "the answer"}
        full = render([*messages[:count], answer], family=family, **tokens).text
        assert full.startswith(prompt)
        read = parse_response(full[len(prompt) :], prompt=prompt, family=family)
        assert read["content"].strip() == "the answer"
        assert read["is_complete"]
