"""Patterns for a line's own names."""

from __future__ import annotations

import re

import pytest
from antiphon.naming import known_models, own_names

[PATTERN] = own_names("parrot-2", "instruct|chat", org="zoo", without="speaks")


@pytest.mark.parametrize(
    "name",
    [
        "Parrot-2",
        "Parrot-2-7B-Instruct",
        "parrot-2-0.5b_chat-GGUF",
        "Parrot-2-30B-A3B-unsloth-bnb-4bit",
        "Zoo_Parrot-2-7B-Q4_K_M.gguf",
        "Parrot-2-7B-GPTQ-Int4",
        "Parrot-2-7B-1.58bit",
        "Parrot-2-7B-4.0bpw-exl2",
    ],
)
def test_own_names_are_the_line_sizes_own_words_and_packaging(name: str) -> None:
    assert re.search(PATTERN, name, re.IGNORECASE)


@pytest.mark.parametrize(
    "name",
    [
        "Parrot-2.5-7B",
        "Parrot-20-7B",
        "Parrot-2-7B-Uncensored",
        "Parrot-2-7B-Instruct-speaks",
        "Owl-Parrot-2-7B",
        "Parrot-2-Owl-3-merge",
        "Parrot-2-7Bx",
    ],
)
def test_any_other_word_makes_a_name_a_stranger_s(name: str) -> None:
    assert not re.search(PATTERN, name, re.IGNORECASE)


def test_lists_of_known_models_are_read() -> None:
    models = known_models("antiphon", "chatml_models.json")
    assert "NousResearch/Meta-Llama-3-8B-Alternate-Tokenizer" in models["chatml-bos"]
