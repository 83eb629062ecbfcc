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


@pytest.mark.parametrize("family", ["llama3.1", "llama3.2", "llama4"])
def test_an_answer_that_stands_under_a_user_s_header_has_no_turn(family: str) -> None:
    """With tools, the first message is printed as the user's, whatever its role says."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    messages = [
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "y"},
    ]
    rendering = render(messages, family=family, tools=[tool], bos_token="<s>", date_string="today")
    assert "under the header of the role 'user'" in rendering.unlocated[0]
    assert [turn.message for turn in rendering.turns] == [2]


@pytest.mark.parametrize("family", ["llama3", "llama3.1", "llama4", "chatml"])
def test_the_header_of_a_role_of_another_name_is_no_part_of_the_turn(family: str) -> None:
    messages = [{"role": "model", "content": "x"}, {"role": "user", "content": "q"}]
    rendering = render(messages, family=family, bos_token="<s>", date_string="today")
    [turn] = rendering.turns
    assert rendering.text[turn.start : turn.end].startswith("x<|")
