"""Ids stand only for what they were sampled as: edits and other tokenizers are noticed wherever they happen."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import antiphon
import pytest
import torch
from antiphon import ChatHistory, History
from antiphon.engine.sampled import attach
from antiphon.errors import TokenizerMismatch, TurnRewritten
from container_tokenizers import small_tokenizer
from tensordict import TensorDict, lazy_stack

USER = {"role": "user", "content": "How many moons has Mars?"}


def sampled(content: str = "two moons", **fields: Any) -> dict[str, Any]:
    """A sampled answer whose ids nobody would encode: one token for each byte."""
    own = small_tokenizer()
    ids = [own.convert_tokens_to_ids(own.tokenize(c)[0]) for c in content]
    ids.append(own.convert_tokens_to_ids("<|im_end|>"))
    message = {"role": "assistant", "content": content, **fields}
    return attach(message, ids, [-1.0] * len(ids), own)


def encoded(history: History) -> Any:
    """The one row of a conversation's tokens, with what broke."""
    chat = ChatHistory(full=history, batch_size=())
    return chat.encode(small_tokenizer()).rows["full"][0]


def holds(row: Any, ids: list[int]) -> bool:
    return any(row.ids[i : i + len(ids)] == ids for i in range(len(row.ids)))


def edit_field(history: History) -> History:
    history[1].content = "three moons"
    return history


def edit_chats(history: History) -> History:
    chats = history.to_chats()
    chats[1]["content"] = "three moons"
    return History.from_chats(chats)


def edit_pickled(history: History) -> History:
    return edit_field(pickle.loads(pickle.dumps(history)))


def edit_fork(history: History) -> History:
    branch = history.fork(2)
    branch = branch.append(History(role="user", content="sure?"), inplace=False)
    return edit_field(branch)


def edit_branch(history: History) -> History:
    return edit_field(history.fork(2, n=2)[1])


def edit_json(history: History) -> History:
    chats = json.loads(json.dumps(history.to_chats()))
    chats[1]["content"] = "three moons"
    return History.from_chats(chats)


def edit_deepcopy(history: History) -> History:
    return edit_field(copy.deepcopy(history))


def edit_stacked(history: History) -> History:
    return edit_field(lazy_stack([history, history.clone()])[0])


def edit_by_tensordict(history: History) -> History:
    td = TensorDict(history=history, batch_size=())
    td["history"][1].content = "three moons"
    return td["history"]


EDITS = [
    edit_field,
    edit_chats,
    edit_pickled,
    edit_fork,
    edit_branch,
    edit_json,
    edit_deepcopy,
    edit_stacked,
    edit_by_tensordict,
]


@pytest.mark.parametrize(
    ("edit", "marked"),
    [(edit, True) for edit in EDITS]
    # Plain messages without a mark: nothing says what they said before.
    + [(edit, False) for edit in EDITS if edit not in (edit_chats, edit_json)],
)
def test_an_edited_answer_loses_its_ids_and_says_so(
    edit: Callable[[History], History], marked: bool
) -> None:
    answer = sampled()
    if not marked:  # from elsewhere
        del answer["sampled_as"]
    history = History.from_chats([USER, answer])
    kept = encoded(history)
    assert holds(kept, answer["token_ids"])
    assert kept.breaks == []
    row = encoded(edit(history))
    assert not holds(row, answer["token_ids"])
    assert "three moons" in small_tokenizer().decode(row.ids)
    (found,) = row.breaks
    assert (found.message, found.edited) == (1, True)
    assert found.was == "two moons<|im_end|>"
    assert found.now == "three moons<|im_end|>"
    assert row.log_probs is None or all(map(math.isnan, row.log_probs))
    assert not any(row.mask())


def test_memmap_keeps_the_mark(tmp_path: Path) -> None:
    answer = sampled()
    history = History.from_chats([[USER, answer]])
    history.memmap(str(tmp_path))
    loaded = History.load_memmap(str(tmp_path))
    assert loaded.to_chats()[0][1]["sampled_as"] == answer["sampled_as"]
    chats = loaded.to_chats()[0]
    chats[1]["content"] = "none"
    assert encoded(History.from_chats(chats)).breaks[0].edited


@pytest.mark.parametrize(
    "change",
    [
        {"content": [{"type": "text", "text": "two moons"}]},
        {"name": "astronomer"},
        {"weight": 0.5},
        {"tool_calls": None},
        {"is_complete": False},
    ],
)
def test_what_does_not_change_what_is_said_keeps_the_ids(change: dict[str, Any]) -> None:
    answer = sampled() | change
    row = encoded(History.from_chats([USER, answer]))
    assert row.breaks == []
    assert holds(row, answer["token_ids"])


CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": None}}}


@pytest.mark.parametrize(
    "call",
    [
        {"name": "add", "arguments": {"a": 1}},
        {"id": "call1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
        {"function": {"name": "add", "arguments": {"b": None, "a": 1}}, "status": "ok"},
    ],
)
def test_a_call_is_the_same_in_every_form(call: dict[str, Any]) -> None:
    answer = sampled("text", tool_calls=[CALL])
    from antiphon.engine.sampled import sampled_of

    own = sampled_of({**answer, "tool_calls": [call]})
    assert own is not None
    assert not own.edited
    other = {"name": "add", "arguments": {"a": 2}}
    own = sampled_of({**answer, "tool_calls": [other]})
    assert own is not None
    assert own.edited


def test_new_ids_for_a_new_text_are_believed() -> None:
    first, second = sampled(), sampled("three moons")
    changed = {**first, "content": "three moons", "token_ids": second["token_ids"]}
    changed["log_probs"] = second["log_probs"]
    row = encoded(History.from_chats([USER, changed]))
    assert row.breaks == []
    assert holds(row, second["token_ids"])


def test_extend_notices_an_edit_of_plain_messages() -> None:
    own = small_tokenizer()
    prompt = antiphon.render([USER], own, add_generation_prompt=True).tokenize()
    answer = sampled() | {"content": "no moon"}
    item = antiphon.extend(prompt, [answer, USER], add_generation_prompt=True)
    assert [b.edited for b in item.breaks] == [True]
    assert own.decode(item.input_ids) == item.rendering.text
    assert item.sampled == {}
    with pytest.raises(TurnRewritten, match="Message 1 was edited after it was sampled"):
        antiphon.extend(prompt, [answer, USER], on_break="raise")
    with pytest.raises(TurnRewritten, match="edited"):
        antiphon.extend(None, [USER, answer], tokenizer=own, on_break="raise")
    assert antiphon.extend(None, [USER, answer], tokenizer=own, on_break="split").starts_anew


def test_ids_without_a_mark_stand_for_what_their_message_says_when_it_is_found() -> None:
    own = small_tokenizer()
    ids = own.encode("<s>two  moons\n<|im_end|>", add_special_tokens=False)
    prompt = antiphon.render([USER], own, add_generation_prompt=True).tokenize()
    answer = {"role": "assistant", "content": "parsed otherwise", "token_ids": ids}
    item = antiphon.extend(prompt, [answer])
    assert item.input_ids[len(prompt) :][: len(ids)] == ids
    history = History.from_chats([USER, answer])
    assert history.to_chats() == [USER, answer]  # the mark is the History's own
    history[1].content = "edited"
    chats = history.to_chats()
    assert encoded(History.from_chats(chats)).breaks[0].edited


def test_sampled_ids_of_another_tokenizer_are_refused() -> None:
    other = copy.deepcopy(small_tokenizer())
    other.add_tokens(["moons"])
    history = History.from_chats([[USER], [USER, sampled()]])
    chat = ChatHistory(full=history, batch_size=(2,))
    with pytest.raises(TokenizerMismatch, match=r"conversation 1: .*#\w+\) than this one \(.*#\w+"):
        chat.to_tokens(other)
    with pytest.raises(TokenizerMismatch):
        chat.to_text(other)
    plain = ChatHistory(full=history.without_sampled(), batch_size=(2,))
    tokens = plain.to_tokens(other)
    assert torch.is_tensor(tokens.get("full", as_list=True)[1])
    assert all("token_ids" not in m for m in history[1].without_sampled().to_chats())
    assert "token_ids" not in history[1, 1].without_sampled().to_chats()
    # The same tokenizer loaded again, under another name, with padding switched on, is the same.
    again = copy.deepcopy(small_tokenizer())
    again.name_or_path = "elsewhere/same"
    again(["a", "b c"], padding=True)
    assert chat.to_tokens(again).batch_size == (2,)


def test_a_row_of_a_data_set_whose_answer_was_edited_is_refused() -> None:
    from antiphon.data import SampleOptions, make_samples

    edited = sampled() | {"content": "no moon"}
    rows = [{"messages": [USER, answer]} for answer in (sampled(), edited)]
    made = make_samples(enumerate(rows), small_tokenizer(), SampleOptions())
    assert [s.row for s in made.samples] == [0]
    (note,) = made.notes
    assert (note.row, note.what) == (1, "refused")
    assert "message 1 was edited after its ids were sampled" in note.reason


def test_training_samples_train_what_was_sampled() -> None:
    own = small_tokenizer()
    answer = sampled()
    other = {"role": "assistant", "content": "sure"}
    conversation = [USER, answer, USER, other]
    for messages in (conversation, History.from_chats(conversation)):
        (item,) = antiphon.training_samples(messages, own)
        start = item.sampled[1].start
        ids = answer["token_ids"]
        assert item.input_ids[start : start + len(ids)] == ids
        assert item.assistant_mask[start : start + len(ids)] == [True] * len(ids)
        assert item.log_probs is not None
        assert item.log_probs[start : start + len(ids)] == answer["log_probs"]
        assert sum(item.assistant_mask) == len(ids) + len(own.tokenize("sure<|im_end|>"))
        assert own.decode(item.input_ids) == item.rendering.text
        assert item.breaks == []
    (item,) = antiphon.training_samples([USER, answer | {"content": "no moon"}, USER, other], own)
    assert [(b.message, b.edited) for b in item.breaks] == [(1, True)]
    assert sum(item.assistant_mask) == len(own.tokenize("sure<|im_end|>"))


def test_training_samples_of_a_template_that_drops_reasoning_train_every_sampled_turn() -> None:
    """Qwen3 rewrites the first turn once a second question comes: two samples, each with its own sampled ids."""
    from rendering_helpers import hub_templates, tokenizer

    own = tokenizer("qwen3")
    turns = []
    for thought, said in (("r1", "one"), ("r2", "two")):
        ids = own.encode(f"<think>\n{thought}\n</think>\n\n{said}<|im_end|>")
        message = {"role": "assistant", "content": said, "reasoning_content": thought}
        turns.append(attach(message, ids, [-0.5] * len(ids), own))
    samples = antiphon.training_samples(
        [USER, turns[0], USER, turns[1]],
        own,
        chat_template=hub_templates()["Qwen-Qwen3-0.6B@a55ee1"],
    )
    assert [s.breaks for s in samples] == [[], []]
    for sample, turn in zip(samples, turns, strict=True):
        trained = [t for t, m in zip(sample.input_ids, sample.assistant_mask, strict=True) if m]
        assert trained == turn["token_ids"]


def test_training_samples_behind_a_prompt_that_opens_reasoning_hold_the_sampled_ids() -> None:
    from rendering_helpers import hub_templates, tokenizer

    own = tokenizer("deepseek_v3")
    template = hub_templates()["deepseek-ai-DeepSeek-R1-Distill-Qwen-32B@56a144"]
    ids = own.encode("r\n</think>\n\nb<｜end▁of▁sentence｜>", add_special_tokens=False)
    answer = attach({"role": "assistant", "content": "<think>\nr\n</think>\n\nb"}, ids)
    (sample,) = antiphon.training_samples([USER, answer], own, chat_template=template)
    prompt = antiphon.render([USER], own, chat_template=template, add_generation_prompt=True)
    assert sample.input_ids == prompt.tokenize().input_ids + ids
    assert [t for t, m in zip(sample.input_ids, sample.assistant_mask, strict=True) if m] == ids
    assert sample.breaks == []
