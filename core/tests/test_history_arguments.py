"""What is no message, number, shape, device or switch is refused in a sentence of our own, wherever it is passed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from antiphon import History, add_chat_template, extend, render, render_batch, training_samples
from antiphon.errors import AntiphonError, InvalidMessage, PluginError
from container_tokenizers import small_tokenizer
from tensordict import TensorDict

CHAT = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]
NO_NUMBERS = (None, 1.5, "x", [], {}, (None,), torch.zeros(2), object(), TensorDict())
NO_SWITCHES = (1.5, "x", [], {}, torch.zeros(2), object(), TensorDict(batch_size=(2,)))


def histories() -> list[History]:
    """A message, a conversation, a ragged batch, none, one without messages, and one that lost all of them."""
    return [
        History(role="user", content="a"),
        History.from_chats(CHAT),
        History.from_chats([CHAT, CHAT[:1]]),
        History.from_chats([]),
        History.from_chats([[]]),
        History.from_chats(CHAT)[:0],
    ]


def refused(call: Any, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(AntiphonError, match=r"\w+ .*\w"):
        call(*args, **kwargs)


@pytest.mark.parametrize("wrong", NO_NUMBERS, ids=lambda value: type(value).__name__)
def test_dimensions_and_counts_are_whole_numbers(wrong: Any) -> None:
    for history in histories()[1:]:
        refused(history.extend, history, dim=wrong, inplace=False)
        refused(history.flatten, wrong)
        refused(history.flatten, 0, wrong)
        refused(history.unbind, wrong)
        refused(history.fork, wrong)
        if wrong is not None:
            refused(history.fork, 1, wrong)
    refused(histories()[1].append, histories()[0], dim=wrong, inplace=False)
    refused(histories()[1].fork, 1, -1)


@pytest.mark.parametrize("wrong", NO_NUMBERS, ids=lambda value: type(value).__name__)
def test_shapes_are_whole_numbers(wrong: Any) -> None:
    if not isinstance(wrong, (list, dict)):  # no dimensions: a shape
        refused(History.default_spec, wrong)
    for history in histories()[1:3]:
        refused(history.reshape, wrong)
        refused(history.view, 1, wrong)
    if isinstance(wrong, (float, str, tuple, torch.Tensor)):
        refused(History, role="user", content="a", batch_size=wrong)


@pytest.mark.parametrize("wrong", NO_SWITCHES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "name",
    [
        *("add_generation_prompt", "continue_final_message", "tokenize", "padding", "truncation"),
        *("return_dict", "return_assistant_tokens_mask", "return_tensors", "max_length"),
        *("chat_template_name",),
    ],
)
def test_options_of_rendering_are_what_they_are_said_to_be(name: str, wrong: Any) -> None:
    for history in histories():
        refused(
            history.apply_chat_template,
            **{"tokenizer": small_tokenizer(), "tokenize": True, name: wrong},
        )


def test_a_length_to_cut_to_is_not_negative() -> None:
    refused(histories()[1].apply_chat_template, tokenizer=small_tokenizer(), max_length=-1)


def test_truncation_goes_by_the_names_that_transformers_has_for_it() -> None:
    chat = histories()[1]
    lengths = {
        name: chat.apply_chat_template(
            tokenizer=small_tokenizer(), tokenize=True, truncation=name, max_length=5
        ).shape[-1]
        for name in (True, "longest_first", "only_first", False, "do_not_truncate")
    }
    assert lengths[True] == lengths["longest_first"] == lengths["only_first"] == 5
    assert lengths[False] == lengths["do_not_truncate"] > 5


def test_no_conversations_are_padded_to_no_rows() -> None:
    for padding in (True, "longest"):
        ids = histories()[3].apply_chat_template(
            tokenizer=small_tokenizer(), tokenize=True, padding=padding
        )
        assert (ids.shape, ids.dtype) == ((0, 0), torch.int64)
    none = histories()[3].apply_chat_template(
        tokenizer=small_tokenizer(), tokenize=True, padding="max_length", max_length=7
    )
    assert none.shape == (0, 7)


@pytest.mark.parametrize(
    "name",
    ["role", "is_complete", "tool_calls", "tool_responses", "log_probs", "token_ids", "extra"],
)
@pytest.mark.parametrize(
    "wrong",
    [torch.zeros(2, 2), TensorDict(batch_size=(2,)), object()],
    ids=["tensor", "td", "object"],
)
def test_fields_of_messages_are_what_they_are_said_to_be(name: str, wrong: Any) -> None:
    if isinstance(wrong, TensorDict) or name not in ("is_complete", "log_probs", "token_ids"):
        refused(History, **{"role": "user", "content": "a", name: wrong})
    if not isinstance(wrong, torch.Tensor) and name not in ("is_complete", "extra"):
        refused(History.from_chats, [{"role": "user", "content": "a", name: wrong}])


def test_messages_have_a_role_in_batches_too() -> None:
    refused(History, content=["a", "b"], batch_size=2)
    refused(History, content="a")


def test_a_device_that_is_not_there_is_named() -> None:
    for wrong in ("no such device", 1.5, [], TensorDict()):
        refused(History, role="user", content="a", device=wrong)


def test_templates_are_texts_and_their_names_strings() -> None:
    for wrong in (5, [], {}, object(), torch.zeros(2)):
        refused(History.from_text, "a", chat_template=wrong)
        refused(History.from_text, "a", chat_template_name=wrong)
        with pytest.raises(PluginError, match="must be a list of strings"):
            add_chat_template(
                "wrongly-keyed", "{{ messages[0].content }}", model_family_keywords=[wrong]
            )


def test_a_batch_or_a_message_where_one_conversation_belongs_is_told_apart() -> None:
    message, _, batch, *_ = histories()
    for wrong, what in ((batch, "a batch of 2 conversations"), (message, "one message")):
        with pytest.raises(InvalidMessage, match=what):
            render(wrong, small_tokenizer())
        with pytest.raises(InvalidMessage, match=what):
            training_samples(wrong, small_tokenizer())
        refused(extend, None, wrong, tokenizer=small_tokenizer())


def test_half_a_surrogate_pair_is_named_wherever_it_stands() -> None:
    for role, content in (("user", "a\ud800"), ("us\ud800er", "a")):
        chat = [{"role": role, "content": content}]
        refused(render(chat, small_tokenizer()).tokenize)
        refused(
            History.from_chats(chat).apply_chat_template, tokenizer=small_tokenizer(), tokenize=True
        )


def test_documents_and_lengths_are_such() -> None:
    for wrong in (5, "text", {"title": "a"}, ["a"]):
        refused(render, CHAT, small_tokenizer(), documents=wrong)
    for wrong in (-1, "x", 1.5, [], True):
        refused(render_batch, [CHAT], tokenizer=small_tokenizer(), max_length=wrong)
