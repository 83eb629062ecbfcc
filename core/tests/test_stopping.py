"""Which ids end an answer."""

from __future__ import annotations

from antiphon.generation.stopping import find_end_ids


class Tokenizer:
    eos_token_id = 7

    def get_vocab(self):
        return {"<|im_end|>": 3, "<|im_start|>": 4, "a": 5}


def test_declared_ids_and_the_tokenizers_own_are_joined():
    assert find_end_ids(None, None, 2, [3, 4]) == {2, 3, 4}
    assert find_end_ids(Tokenizer(), None, [1]) >= {1, 7}


def test_nothing_known_is_no_ids():
    assert find_end_ids(None, None) == frozenset()
