"""The calls that code written for TorchRL's containers makes, as its documentation makes them."""

from __future__ import annotations

import copy
import importlib
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from antiphon import (
    ChatHistory,
    ContentBase,
    History,
    LogProbs,
    Masks,
    Text,
    Tokens,
    add_chat_template,
    remove_chat_template,
)
from container_tokenizers import small_tokenizer
from tensordict import TensorDict, lazy_stack, set_list_to_stack

SHORT = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi there!"}]
LONG = [
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": "What is 2+2?"},
    {"role": "assistant", "content": "It is 4."},
    {"role": "user", "content": "Thanks!"},
    {"role": "assistant", "content": "You're welcome!"},
]


@pytest.fixture(params=[True, False], ids=["list_to_stack", "plain"], autouse=True)
def switch(request: Any) -> Any:
    """TorchRL's code sets this switch for the whole process; nothing here may depend on it."""
    with set_list_to_stack(True) if request.param else nullcontext():
        yield


def tokenizer() -> Any:
    return small_tokenizer()


def members() -> Any:
    """A lazy stack of ChatHistory objects that each hold a batch of one conversation."""
    histories = History.from_chats([SHORT, LONG])
    return lazy_stack([ChatHistory(full=histories[i : i + 1]) for i in range(len(histories))])


def answered() -> Any:
    return ChatHistory(
        prompt=History.from_chats([SHORT[:1]]), full=History.from_chats([SHORT]), batch_size=(1,)
    )


def test_the_names_stand_where_the_table_of_imports_says() -> None:
    table = (Path(__file__).parents[2] / "docs" / "torchrl.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`torchrl.*) \| `(antiphon[a-z.]*)` \|$", table, re.MULTILINE)
    places = {name: place for names, place in rows for name in re.findall(r"`(\w+)`", names)}
    assert {"History", "Masks", "ChatEnv", "RetrieveKL", "LLMCollector"} <= places.keys()
    for name, place in places.items():
        if place in ("antiphon", "antiphon.envs"):
            assert hasattr(importlib.import_module(place), name), (name, place)


# History


def test_a_history_grows_by_append() -> None:
    first = History(role="user", content="a message")
    second = History(role="user", content="another message")
    assert not first.shape
    assert not first.batch_dims
    with pytest.raises(RuntimeError, match="unsqueeze"):
        first.append(second)
    first = first.unsqueeze(0)
    before = first.copy()
    apart = first.append(second, inplace=False)
    assert apart is not first
    assert (first == before).all()
    assert (apart[:-1] == first).all()
    assert first.append(second) is first
    assert first.shape == first._tensordict.shape == (2,)
    assert first.content == ["a message", "another message"]


def test_a_history_grows_by_extend() -> None:
    history = History(role="user", content="a message").unsqueeze(0)
    pair = History(role=["assistant", "user"], content=["one", "two"], batch_size=2)
    assert (pair[0].role, pair[1].content) == ("assistant", "two")
    with pytest.raises(RuntimeError, match="The new history to extend"):
        history.extend(History(role="user", content="x"))
    before = history.copy()
    apart = history.extend(pair, inplace=False)
    assert (history == before).all()
    assert (apart[:-2] == history).all()
    assert history.extend(pair) is history
    assert history.__dict__["_tensordict"].shape == (3,)
    assert history.role == ["user", "assistant", "user"]


def test_a_batch_of_histories_grows_along_time() -> None:
    history = History(role="user", content="a").unsqueeze(0).unsqueeze(0)
    following = History(role="user", content="b").unsqueeze(0)
    before = history.copy()
    assert isinstance(before, History)
    apart = history.append(following, inplace=False, dim=1)
    assert (apart[:, :-1] == history).all()
    assert history.append(following, dim=1) is history
    assert history.batch_size == history._tensordict.shape == (1, 2)
    assert history.content == [["a", "b"]]
    pair = History(role=["assistant", "user"], content=["c", "d"], batch_size=2).unsqueeze(0)
    assert history.extend(pair, dim=1).role == [["user", "user", "assistant", "user"]]


def test_the_spec_of_a_history_makes_and_knows_histories() -> None:
    spec = History.default_spec()
    made = spec.zero()
    assert isinstance(made, History)
    assert spec.is_in(made)
    assert spec.is_in(History(role=["system", "user"], content=["a", "b"], batch_size=2))


def test_a_stack_of_messages_is_rendered_and_encoded() -> None:
    roles = ("system", "user", "assistant")
    history = torch.stack([History(role=role, content=f"of {role}") for role in roles])
    own = tokenizer()
    text = history.apply_chat_template(tokenizer=own, add_generation_prompt=False)
    assert isinstance(text, str)
    ids = history.apply_chat_template(tokenizer=own, tokenize=True, add_generation_prompt=False)
    assert isinstance(ids, torch.Tensor)
    assert own.batch_decode(ids) == [text]
    asking = history.apply_chat_template(tokenizer=own, add_generation_prompt=True)
    assert asking == text + "<|im_start|>assistant\n"
    assert History.from_text(text, tokenizer=own).content == history.content
    masked = history.apply_chat_template(
        tokenizer=own,
        add_generation_prompt=False,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    assert own.decode(masked["input_ids"][masked["assistant_masks"].bool()]) == (
        "of assistant<|im_end|>"
    )
    only = history[torch.tensor([role == "assistant" for role in history.role])]
    assert only.content == ["of assistant"]


def test_chatml_is_read_by_the_name_that_code_for_torchrl_uses() -> None:
    stack = torch.stack([History(role=m["role"], content=m["content"]) for m in LONG])
    text = stack.apply_chat_template(tokenizer=tokenizer(), add_generation_prompt=False)
    read = stack._inv_chatml(text)
    assert (read.role, read.content) == (stack.role, stack.content)


def test_a_batch_is_masked_with_its_batch_dimension() -> None:
    result = History.from_chats([SHORT]).apply_chat_template(
        tokenizer=tokenizer(),
        chat_template_name="chatml_format",
        add_generation_prompt=False,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    assert result["assistant_masks"].shape[0] == 1
    assert result["assistant_masks"].sum() > 0


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\nThat.<|im_end|>", [1, 1]),
        ("<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\nThat", [1, 0]),
        ("<|im_start|>assistant\nLet me help", [0]),
        ("<|im_start|>system\n<|im_end|>\n<|im_start|>user\n<|im_end|>", [1, 1]),
    ],
)
def test_a_text_says_which_messages_are_complete(text: str, complete: list[int]) -> None:
    history = History.from_text(text, chat_template_name="chatml_format")
    assert history.is_complete == [bool(flag) for flag in complete]
    assert len(history.role) == len(history.content) == len(complete)


def test_a_template_of_ones_own_is_chosen_by_the_model_s_name_and_read_by_its_parser() -> None:
    read = []

    def parser(text: str) -> History:
        read.append(text)
        pairs = re.findall(r"\[(USER|ASSISTANT)\] (.*?)(?=\[|$)", text, re.DOTALL)
        return lazy_stack([History(role=r.lower(), content=c.strip()) for r, c in pairs])

    template = (
        "{% for message in messages %}{% if message['role'] == 'user' %}[USER] {{ message['content'] }}\n"
        "{% else %}{% generation %}[ASSISTANT] {{ message['content'] }}{% endgeneration %}\n"
        "{% endif %}{% endfor %}"
    )
    add_chat_template("bracketed", template, parser, ["bracket"])
    try:
        own = copy.deepcopy(tokenizer())
        own.name_or_path = "lab/Bracket-1B"
        history = History.from_chats([SHORT])
        (text,) = history.apply_chat_template(tokenizer=own, add_generation_prompt=False)
        assert text.startswith("[USER] Hello")
        again = History.from_text([text], chat_template_name="bracketed")
        assert read == [text]
        assert again.content == history.content
        assert again.role == history.role
    finally:
        remove_chat_template("bracketed")


def test_content_may_be_a_stack_of_parts() -> None:
    parts = lazy_stack(
        [
            ContentBase(type="text", text="Look at this."),
            ContentBase(type="image", url="https://example.org/a.png"),
        ]
    )
    one = ContentBase(type="text", text="Go on.", batch_size=1)
    history = lazy_stack(
        [History(role="assistant", content=one), History(role="user", content=parts)]
    )
    assert [part["type"] for part in history.to_chats()[1]["content"]] == ["text", "image"]
    assert history.to_chats()[0]["content"][0]["text"] == "Go on."


# Conversions


def test_histories_become_text() -> None:
    own = tokenizer()
    single = ChatHistory(full=History.from_chats([SHORT]), batch_size=(1,)).to_text(own)
    assert isinstance(single, Text)
    assert isinstance(single.full, list)
    assert "Hi there!" in single.full[0]
    batch = members().to_text(own)
    assert "Hello" in batch.full[0][0]
    assert "You are brief." in batch.full[1][0]
    parts = answered().to_text(own)
    assert parts.full[0] == parts.prompt[0] + parts.response[0]


def test_histories_become_tokens() -> None:
    own = tokenizer()
    tokens = members().to_tokens(own)
    assert isinstance(tokens, Tokens)
    assert tokens.batch_size == (2,)
    assert tokens.get("full", as_nested_tensor=True) is not None
    assert not any(tokens.padded)
    parts = answered().to_tokens(own)
    prompt, response, full = (
        parts._tensordict.get(name, as_list=True)[0] for name in ("prompt", "response", "full")
    )
    assert len(full) == len(prompt) + len(response)
    assert parts[0].padded is False


def test_nested_stacks_keep_their_batch_size() -> None:
    own = tokenizer()
    nested = lazy_stack([members(), members()])
    for made in (nested.to_text(own), nested.to_tokens(own), nested.to_text(own).to_history(own)):
        assert made.batch_size == (2, 2)


def test_tokens_and_texts_become_histories_again() -> None:
    own = tokenizer()
    for chat in (members(), answered()):
        for made in (chat.to_tokens(own), chat.to_text(own)):
            again = made.to_history(own)
            assert isinstance(again, ChatHistory)
            assert again.batch_size == chat.batch_size
            assert again.full.without_sampled().to_chats() == chat.full.to_chats()


def test_padded_tokens_that_nothing_describes_are_refused() -> None:
    own = tokenizer()
    tokens = Tokens(full=torch.ones(1, 4, dtype=torch.int64), padded=True, batch_size=(1,))
    with pytest.raises(ValueError, match="padded tokens"):
        tokens.to_text(own)


def test_texts_become_tokens() -> None:
    own = tokenizer()
    tokens = Text(full=["Hello, how are you?"]).to_tokens(own)
    assert isinstance(tokens, Tokens)
    assert isinstance(tokens.full, torch.Tensor)
    assert tokens.padded is False
    text = Text._from_tensordict(TensorDict(batch_size=(2,)).to_lazystack(0))
    with text.view(-1) as flat:
        flat.full = ["Hello, how are you?", "I'm doing great!"]
    assert text.to_tokens(own).get("full", as_list=True)[1].numel() > 0
    parts = Text(prompt=["Hello"], response=[", you"], full=["Hello, you"]).to_tokens(own)
    assert parts.full[0].tolist() == [*parts.prompt[0].tolist(), *parts.response[0].tolist()]


@pytest.mark.parametrize("cls", [Tokens, Masks, LogProbs, Text, ChatHistory])
def test_every_container_has_a_spec_for_all_and_for_some_of_its_keys(cls: Any) -> None:
    names = ("all_attention_mask",) if cls is Masks else ("full",)
    every, some = cls.default_spec(shape=(2,)), cls.default_spec(shape=(2,), keys=names)
    assert set(some.keys()) == set(names) < set(every.keys())
    assert every.shape == (2,)


def test_containers_nest_move_and_index_as_entries_of_a_tensordict() -> None:
    chat = members()
    td = TensorDict(history=chat, tokens=chat.to_tokens(tokenizer()), batch_size=(2,))
    moved = td.to("cpu")
    assert moved["tokens"].device == torch.device("cpu")
    assert td["history", "full"].batch_size[:2] == (2, 1)
    assert isinstance(td[0]["tokens"], Tokens)
    rows = td.get(("tokens", "full"), as_list=True)
    dense = td.get(("tokens", "full"), as_padded_tensor=True, padding_value=0)
    assert dense.shape[0] == len(rows) == 2
    assert (td.clone()["history"].full.to_chats()) == chat.full.to_chats()
