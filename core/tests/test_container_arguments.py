"""What is no container, tokenizer, size or mask is refused in a sentence of our own; a batch of nothing is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from antiphon import ChatHistory, History, LogProbs, Masks, Text, Tokens
from antiphon.errors import AntiphonError, ContainerError
from container_tokenizers import small_tokenizer
from tensordict import TensorDict

CHAT = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]
CONTAINERS = (Text, Tokens, Masks, LogProbs, ChatHistory)
NONSENSE = (5, 1.5, "x", [1], {"a": 1}, object(), torch.zeros(3), TensorDict(batch_size=(2,)))
named = pytest.mark.parametrize("wrong", NONSENSE, ids=lambda value: type(value).__name__)


def refused(call: Any, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(AntiphonError, match=r"\w+ .*\w"):
        call(*args, **kwargs)


def chat() -> ChatHistory:
    prompt = History.from_chats([CHAT[:1], CHAT[:1]])
    return ChatHistory(prompt=prompt, full=History.from_chats([CHAT, CHAT]), batch_size=(2,))


@pytest.mark.parametrize("cls", CONTAINERS)
def test_batch_sizes_devices_and_keys_of_containers_are_such(cls: Any) -> None:
    for wrong in (1.5, "x", ["x"], object(), TensorDict(batch_size=(2,))):
        refused(cls, batch_size=wrong)
        refused(cls, device=wrong)
        refused(cls.default_spec, wrong)
        refused(cls.default_spec, (2,), wrong)
    assert cls(batch_size=2, device="cpu").batch_size == cls(batch_size=[2]).batch_size == (2,)
    assert cls(device="cpu").device == torch.device("cpu")


@named
def test_texts_are_texts_and_equally_many(wrong: Any) -> None:
    if not isinstance(wrong, (str, TensorDict)):
        for text in (Text(full=[wrong]), Text(full=["a", wrong])):
            refused(text.to_tokens, small_tokenizer())
            refused(text.to_history, small_tokenizer())
    refused(Text(prompt=["a", "b"], full=["ab"]).to_tokens, small_tokenizer())
    refused(Text(full=[["a"], "b"]).to_tokens, small_tokenizer())
    refused(Text().to_tokens, small_tokenizer())


def test_options_of_encoding_texts_are_what_they_are_said_to_be() -> None:
    text = Text(full=["How many moons has Mars?"])
    for name in ("padding", "truncation", "add_special_tokens"):
        for wrong in ("x", [], torch.zeros(2), TensorDict(batch_size=(2,))):
            refused(text.to_tokens, small_tokenizer(), **{name: wrong})
    for wrong in (-1, 1.5, "x", [], torch.zeros(2)):
        refused(text.to_tokens, small_tokenizer(), truncation=True, max_length=wrong)


@named
def test_what_is_padded_says_with_what_where_and_to_which_size(wrong: Any) -> None:
    encoded = chat().encode(small_tokenizer())
    tokens, masks = encoded.tokens(), encoded.masks()
    refused(tokens.pad, float("nan"))
    refused(tokens.pad, 2**70)
    refused(tokens.pad, 0, sizes={"prompt": -1})
    refused(tokens.pad, 0, side=wrong)
    refused(masks.pad, side=wrong)
    refused(masks.pad, like=wrong)
    if not isinstance(wrong, (int, float)):
        refused(tokens.pad, wrong)
        refused(tokens.pad, 0, sizes={"prompt": wrong})
    if not isinstance(wrong, (dict, TensorDict)):
        refused(tokens.pad, 0, sizes=wrong)
    padded = Tokens(full=tokens.pad(0).full, padded=True, batch_size=(2,))
    refused(padded.unpad, wrong)
    refused(padded.to_text, small_tokenizer(), masks=wrong)
    refused(padded.to_text, small_tokenizer(), wrong)
    refused(tokens.to_history, small_tokenizer(), log_probs=wrong)


def test_a_mask_of_other_rows_is_refused() -> None:
    tokens = chat().to_tokens(small_tokenizer()).pad(0)
    dense = Tokens(full=tokens.full, padded=True, batch_size=(2,))
    with pytest.raises(ContainerError, match="full has 2 rows, and the mask is of 3"):
        dense.unpad(torch.ones(3, tokens.full.shape[-1]))


def test_what_is_not_padded_is_unpadded_as_it_is() -> None:
    encoded = chat().encode(small_tokenizer())
    for container in (encoded.tokens(), encoded.masks(), encoded.log_probs()):
        assert container.unpad() is container


def test_containers_of_no_rows_are_converted_to_containers_of_no_rows() -> None:
    none = Text(full=[])
    assert none.to_tokens(small_tokenizer()).full.shape == (0, 0)
    for size in ((), (0,)):
        empty = ChatHistory(full=History.from_chats([]), batch_size=size)
        assert empty.to_tokens(small_tokenizer()).get("full").shape == (0, 0)
        assert empty.to_masks(small_tokenizer()).get("all_assistant_mask").shape == (0, 0)


def test_tensors_without_dimensions_or_data_are_no_rows_and_no_masks() -> None:
    one = torch.tensor(1)
    refused(Tokens(full=one).to_text, small_tokenizer())
    refused(Tokens(full=one).pad, 0)
    refused(LogProbs(full=one).pad)
    tokens = chat().to_tokens(small_tokenizer())
    for mask in (one, torch.zeros(2, 3, device="meta")):
        refused(Tokens(full=torch.ones(2, 3, dtype=torch.long), batch_size=(2,)).unpad, mask)
        refused(tokens.unpad, one)
    none = Tokens(full=torch.ones(2, 0, dtype=torch.long), batch_size=(2,))
    rows = none.unpad(torch.zeros(2, 0)).get("full", as_list=True)
    assert [row.tolist() for row in rows] == [[], []]
