"""History as people use it: every public call, ragged and not."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import tensordict
import torch
from antiphon.conversations.history import Content, ContentBase, History
from antiphon.errors import ContainerError, InvalidMessage
from tensordict import LazyStackedTensorDict, TensorDict, lazy_stack

QUESTION = {"role": "user", "content": "How many moons has Mars?"}
ANSWER = {"role": "assistant", "content": "Two."}
CALL = {
    "role": "assistant",
    "tool_calls": [
        {"type": "function", "function": {"name": "count", "arguments": {"of": "Mars"}}}
    ],
}
RESULT = {"role": "tool", "content": "2", "name": "count", "tool_call_id": "call_1"}
SHORT = [QUESTION, ANSWER]
LONG = [
    {"role": "system", "content": "Be brief."},
    QUESTION,
    CALL,
    RESULT,
    {**ANSWER, "reasoning_content": "Two?"},
]


def ragged() -> Any:
    return History.from_chats([SHORT, LONG])


def level() -> Any:
    return History.from_chats([SHORT, SHORT])


# Lists in and out


def test_one_conversation_has_one_dimension() -> None:
    history = History.from_chats(LONG)
    assert history.shape == (5,)
    assert history.role == ["system", "user", "assistant", "tool", "assistant"]
    assert history.to_chats() == LONG


def test_conversations_of_different_lengths_are_a_ragged_batch() -> None:
    history = ragged()
    assert history.batch_size == torch.Size([2, -1])
    assert history.role[0] == ["user", "assistant"]
    assert history[1, 3].tool_call_id == "call_1"
    assert history.to_chats() == [SHORT, LONG]


def test_a_field_that_one_message_has_is_a_key_of_the_batch() -> None:
    history = ragged()
    assert history.reasoning == [[None, None], [None, None, None, None, "Two?"]]
    assert history[0].tool_calls == [None, None]


def test_a_field_that_no_message_has_is_none() -> None:
    assert level().tool_calls is None
    assert level()[0, 0].name is None


def test_deeper_lists_are_more_dimensions() -> None:
    history = History.from_chats([[SHORT, LONG], [LONG, LONG]])
    assert history.batch_size == torch.Size([2, 2, -1])
    assert history.to_chats() == [[SHORT, LONG], [LONG, LONG]]


def test_no_conversations_are_an_empty_batch() -> None:
    history = History.from_chats([])
    assert history.batch_size == torch.Size([0, 0])
    assert history.to_chats() == []
    assert len(history) == 0
    assert history.extend(ragged(), inplace=False).to_chats() == [SHORT, LONG]


def test_empty_conversations_keep_their_place() -> None:
    history = History.from_chats([[], SHORT, []])
    assert history.batch_size == torch.Size([3, -1])
    assert history.role == [[], ["user", "assistant"], []]
    assert history.to_chats() == [[], SHORT, []]
    assert History.from_chats([[]]).batch_size == torch.Size([1, 0])


def test_what_comes_out_goes_in_again() -> None:
    chats = [SHORT, [*LONG, {"role": "assistant", "content": "cut", "is_complete": False}]]
    assert History.from_chats(History.from_chats(chats).to_chats()).to_chats() == chats


def test_writing_into_what_came_out_does_not_change_the_history() -> None:
    history = ragged()
    chats = history.to_chats()
    chats[1][2]["tool_calls"][0]["function"]["arguments"]["of"] = "Venus"
    assert history.to_chats() == [SHORT, LONG]


def test_the_row_and_the_message_are_named() -> None:
    with pytest.raises(InvalidMessage, match="conversation 1: message 0"):
        History.from_chats([SHORT, [{"content": "who?"}]])


def test_a_history_is_taken_as_it_is() -> None:
    history = ragged()
    assert History.from_chats(history) is history


# Construction


def test_one_message_has_no_dimension() -> None:
    message = History(role="user", content="hi")
    assert message.shape == ()
    assert message.role == "user"
    assert message.is_complete is True
    assert message.to_chats() == {"role": "user", "content": "hi"}


def test_lists_with_a_batch_size_are_messages() -> None:
    history = History(role=["assistant", "user"], content=["a", "b"], batch_size=2)
    assert history[0].role == "assistant"
    assert history[1].content == "b"


def test_lists_without_a_batch_size_are_messages_too() -> None:
    history = History(role=["assistant", "user"], content=["a", "b"])
    assert history.batch_size == torch.Size([2])
    nested = History(role=[["user"], ["user"]], content=[["a"], ["b"]])
    assert nested.batch_size == torch.Size([2, 1])


def test_one_value_stands_for_all_messages_of_a_batch() -> None:
    assert History(role="user", content=["a", "b"], batch_size=(2,)).role == ["user", "user"]


def test_a_list_of_calls_belongs_to_its_message() -> None:
    message = History(role="assistant", content="", tool_calls=[{"name": "f", "arguments": "{}"}])
    assert message.tool_calls == [{"type": "function", "function": {"name": "f", "arguments": {}}}]


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_no_switch_of_tensordict_matters(mode: bool) -> None:
    with tensordict.set_list_to_stack(mode):
        history = History(role=["a", "b"], content=["x", "y"], batch_size=2)
        assert history.role == ["a", "b"]
        call = History(role="assistant", content="", tool_calls=[{"name": "f", "arguments": {}}])
        assert call.tool_calls[0]["function"]["name"] == "f"
        batch = ragged()
        batch.append(History(role=["user", "user"], content=["m", "n"], batch_size=2))
        assert batch.to_chats()[0][-1] == {"role": "user", "content": "m"}
        assert batch[:, -1].content == ["m", "n"]


def test_wrong_lengths_and_fields_are_errors() -> None:
    with pytest.raises(ContainerError, match="content has 3 values for a batch of 2"):
        History(role=["a", "b"], content=["x", "y", "z"], batch_size=2)
    with pytest.raises(TypeError, match="no field rule"):
        History(role="user", content="x", rule="typo")


def test_content_may_be_parts() -> None:
    parts = [
        {"type": "text", "text": "Look:"},
        {"type": "image", "url": "https://example.com/a.png"},
    ]
    history = History.from_chats([[{"role": "user", "content": parts}, ANSWER]])
    assert history[0, 0].content == parts
    assert history.content == [[parts, "Two."]]
    assert history.to_chats() == [[{"role": "user", "content": parts}, ANSWER]]


def test_content_objects_stay_objects() -> None:
    assert ContentBase is Content
    text = Content(type="text", text="Hello")
    image = Content(type="image", url="https://example.com/a.png")
    assert (text.type, text.text, text.url) == ("text", "Hello", None)
    both = lazy_stack([text, image])
    assert both.shape == (2,)
    assert both.type == ["text", "image"]
    first = History(role="assistant", content=Content(type="text", text="See", batch_size=1))
    second = History(role="user", content=both)
    history = lazy_stack([first, second])
    assert history.shape == (2,)
    assert history[1].content[1].url == "https://example.com/a.png"
    parts = [
        {"type": "text", "text": "Hello"},
        {"type": "image", "url": "https://example.com/a.png"},
    ]
    assert history.to_chats() == [
        {"role": "assistant", "content": [{"type": "text", "text": "See"}]},
        {"role": "user", "content": parts},
    ]
    grown = history.append(History(role="user", content="and text"), inplace=False)
    assert grown.to_chats()[1:] == [
        {"role": "user", "content": parts},
        {"role": "user", "content": "and text"},
    ]
    assert History.from_chats([{"role": "user", "content": both}]).to_chats()[0]["content"] == parts


# Growing


def test_append_out_of_place_leaves_the_history() -> None:
    history = History(role="user", content="a").unsqueeze(0)
    before = history.copy()
    grown = history.append(History(role="user", content="b"), inplace=False)
    assert grown is not history
    assert (history == before).all()
    assert (grown[:-1] == history).all()


def test_append_in_place_changes_the_object() -> None:
    history = History(role="user", content="a").unsqueeze(0)
    assert history.append(History(role="user", content="b")) is history
    assert history.shape == (2,)
    assert history.content == ["a", "b"]


def test_append_and_extend_along_time_of_a_batch() -> None:
    history = History(role="user", content="a").unsqueeze(0).unsqueeze(0)
    history.append(History(role="user", content="b").unsqueeze(0), dim=1)
    more = History(role=["assistant", "user"], content=["c", "d"], batch_size=2).unsqueeze(0)
    grown = history.extend(more, inplace=False, dim=1)
    assert history.shape == (1, 2)
    assert grown.shape == (1, 4)
    assert (grown[:, :-2] == history).all()
    assert grown.content == [["a", "b", "c", "d"]]


def test_a_ragged_batch_can_be_appended_to() -> None:
    history = ragged()
    history.append(History(role=["user", "user"], content=["m", "n"], batch_size=2))
    assert history.to_chats() == [
        [*SHORT, {"role": "user", "content": "m"}],
        [*LONG, {"role": "user", "content": "n"}],
    ]


def test_a_ragged_batch_can_be_extended_either_way() -> None:
    assert ragged().extend(level(), dim=0).to_chats() == [SHORT, LONG, SHORT, SHORT]
    assert ragged().extend(ragged(), dim=-1).to_chats() == [SHORT + SHORT, LONG + LONG]


def test_conversations_can_be_appended_along_the_batch() -> None:
    assert ragged().append(History.from_chats(SHORT), dim=0).to_chats() == [SHORT, LONG, SHORT]


def test_a_message_may_bring_a_new_field() -> None:
    history = History.from_chats(SHORT)
    history.append(History(role="tool", content="2", tool_call_id="c"))
    assert history.tool_call_id == [None, None, "c"]
    assert history.to_chats()[-1] == {"role": "tool", "content": "2", "tool_call_id": "c"}


def test_a_copy_does_not_grow_with_the_original() -> None:
    history = ragged()
    copy, row = history.copy(), history[0]
    history.append(History(role=["user"] * 2, content=["m", "n"], batch_size=2))
    assert copy.to_chats() == [SHORT, LONG]
    assert row.to_chats() == SHORT


def test_growing_errors_say_what_does_not_fit() -> None:
    message, history = History(role="user", content="a"), ragged()
    with pytest.raises(RuntimeError, match="unsqueeze"):
        message.append(message)
    with pytest.raises(RuntimeError, match="unsqueeze"):
        message.extend(message)
    with pytest.raises(RuntimeError, match="The new history to append"):
        history.append(message)
    with pytest.raises(RuntimeError, match="The new history to extend"):
        history.extend(History.from_chats(SHORT))
    with pytest.raises(ContainerError, match="2 conversations, what is added to it has 3"):
        history.append(History(role=["user"] * 3, content=["a"] * 3, batch_size=3))
    with pytest.raises(ContainerError, match="no dimension 2"):
        history.extend(history, dim=2)
    with pytest.raises(ContainerError, match="locked"):
        history.lock_().append(History(role=["user"] * 2, content=["a"] * 2, batch_size=2))


def test_fork_shares_the_beginning() -> None:
    history = History.from_chats(LONG)
    branches = history.fork(2, n=3)
    assert branches.shape == (3, 2)
    branches = branches.append(History(role=["user"] * 3, content=["a", "b", "c"], batch_size=3))
    assert branches[:, -1].content == ["a", "b", "c"]
    assert history.to_chats() == LONG
    assert history.fork(-1).to_chats() == LONG[:-1]
    assert ragged().fork(1).to_chats() == [SHORT[:1], LONG[:1]]
    ids = {"role": "assistant", "content": "x", "token_ids": [1, 2], "log_probs": [-1.0, -2.0]}
    forked = History.from_chats([QUESTION, ids]).fork(2, n=2)
    assert (
        forked[0]._tensordict.folded_cells[1]["token_ids"]
        is forked[1]._tensordict.folded_cells[1]["token_ids"]
    )


# As tensordict data


def test_indexing() -> None:
    history = ragged()
    assert history[0].to_chats() == SHORT
    assert history[1, -1].content == "Two."
    assert history[:, 0].role == ["user", "system"]
    assert history[..., -1].content == ["Two.", "Two."]
    assert history[:, :1].to_chats() == [SHORT[:1], LONG[:1]]
    assert history[torch.tensor([1, 0])].to_chats() == [LONG, SHORT]
    assert history[torch.tensor([False, True])].to_chats() == [LONG]
    one = history[1]
    assert one[torch.tensor([role == "assistant" for role in one.role])].to_chats() == [
        LONG[2],
        LONG[4],
    ]
    assert [row.to_chats() for row in history] == [SHORT, LONG]


def test_a_message_that_was_taken_out_is_the_stored_one() -> None:
    history = level()
    history[0, 1].content = "Three."
    assert history.content == [
        ["How many moons has Mars?", "Three."],
        ["How many moons has Mars?", "Two."],
    ]
    assert history.to_chats()[0][1]["content"] == "Three."


def test_setting_a_field_of_a_conversation() -> None:
    history = level()
    history[0].content = ["p", "q"]
    assert history.content[0] == ["p", "q"]


def test_stacking() -> None:
    short, long = History.from_chats(SHORT), History.from_chats(LONG)
    assert lazy_stack([short, long]).to_chats() == [SHORT, LONG]
    assert torch.stack([short, short]).to_chats() == [SHORT, SHORT]
    assert torch.stack([ragged(), ragged()]).to_chats() == [[SHORT, LONG], [SHORT, LONG]]
    messages = [History(role="user", content=str(i)) for i in range(3)]
    assert torch.stack(messages).content == ["0", "1", "2"]
    assert lazy_stack(messages).to_chats() == [
        {"role": "user", "content": str(i)} for i in range(3)
    ]
    with pytest.raises(RuntimeError, match="devices"):
        lazy_stack([short, short.to("meta")])


def test_cat_unsqueeze_squeeze_unbind() -> None:
    history = ragged()
    assert torch.cat([history, history], 0).to_chats() == [SHORT, LONG, SHORT, LONG]
    assert torch.cat([history[0], history[1]], 0).to_chats() == SHORT + LONG
    assert history.unsqueeze(0).to_chats() == [[SHORT, LONG]]
    assert history.unsqueeze(0).squeeze(0).to_chats() == [SHORT, LONG]
    assert [row.to_chats() for row in history.unbind(0)] == [SHORT, LONG]
    assert [part.to_chats() for part in history.split(1)] == [[SHORT], [LONG]]
    with pytest.raises(ContainerError, match="ragged"):
        history.unbind(1)


def test_reshape_flattens_a_ragged_batch_without_losing_messages() -> None:
    history = ragged()
    assert history.is_ragged
    assert history.numel() == 7
    assert history.reshape(-1).to_chats() == SHORT + LONG
    assert history.view(-1).shape == (7,)
    assert history.flatten().to_chats() == SHORT + LONG
    four = History.from_chats([SHORT, LONG, SHORT, LONG])
    assert four.reshape(2, 2, -1).to_chats() == [[SHORT, LONG], [SHORT, LONG]]
    assert four.reshape(2, 2, -1).flatten(0, 1).to_chats() == four.to_chats()
    with pytest.raises(ContainerError, match=r"cannot have the shape \[2, 7\]"):
        four.reshape(2, 7)
    assert level().reshape(-1).to_chats() == SHORT + SHORT
    assert level().reshape(4).reshape(2, 2).to_chats() == [SHORT, SHORT]


def test_clone_and_equality() -> None:
    history = ragged()
    assert (history == history.clone()).all()
    other = History.from_chats([SHORT, [*LONG[:-1], {**LONG[-1], "content": "Three."}]])
    assert not (history == other).all()
    assert not history.is_empty()
    assert History.from_chats([[]]).is_empty()


def test_devices() -> None:
    history = ragged()
    assert history.device is None
    moved = history.to("cpu")
    assert moved.device == torch.device("cpu")
    assert moved.to_chats() == history.to_chats()
    assert history.to("meta").clear_device_().device is None
    message = History(role=["user", "user"], content=["m", "n"], batch_size=2, device="cpu")
    assert history.append(message, inplace=False).device is None
    assert moved.append(message.clone().clear_device_(), inplace=False).device == torch.device(
        "cpu"
    )


def test_pickle() -> None:
    history = pickle.loads(pickle.dumps(ragged()))
    assert isinstance(history, History)
    assert history.to_chats() == [SHORT, LONG]


def test_memmap(tmp_path: Path) -> None:
    ragged().memmap(tmp_path)
    assert History.load_memmap(tmp_path).to_chats() == [SHORT, LONG]


def test_inside_a_tensordict() -> None:
    data = TensorDict({"reward": torch.zeros(2)}, batch_size=[2])
    data["history", "prompt"] = ragged()
    assert data["history", "prompt", "role"][0] == ["user", "assistant"]
    assert data[0]["history", "prompt"].to_chats() == SHORT
    stacked = lazy_stack([data, data])
    assert stacked["history", "prompt"].to_chats() == [[SHORT, LONG], [SHORT, LONG]]
    assert data.clone()["history", "prompt"].to_chats() == [SHORT, LONG]
    assert data.to("cpu")["history", "prompt"].to_chats() == [SHORT, LONG]
    assert torch.cat([data, data])["history", "prompt"].to_chats() == [SHORT, LONG, SHORT, LONG]


def test_keys_and_dicts() -> None:
    history = level()
    assert set(history.keys()) == {"role", "content", "is_complete"}
    assert history.get("role") == [["user", "assistant"]] * 2
    assert history.to_dict()["content"] == [["How many moons has Mars?", "Two."]] * 2
    assert history[0].tolist() == [{**m, "is_complete": True} for m in SHORT]
    assert history.to_tensordict()["role"] == [["user", "assistant"]] * 2
    assert history.select("role").role == [["user", "assistant"]] * 2
    assert "role" in str(history)


def test_reading_does_not_unfold() -> None:
    history = ragged()
    assert isinstance(history._tensordict, LazyStackedTensorDict)
    (
        history.role,
        history.to_chats(),
        history.clone(),
        history[:, :1],
        list(history.keys()),
    )
    assert all(row.folded_cells is not None for row in history._tensordict.tensordicts)


# Specs


def test_default_spec() -> None:
    history = History(role=["system", "user"], content=["s", "u"])
    spec = history.default_spec()
    zero = spec.zero()
    assert isinstance(zero, History)
    assert spec.is_in(zero)
    assert spec.is_in(history)
    assert History.default_spec(shape=(2, -1)).is_in(ragged())
    assert not spec.is_in(TensorDict(batch_size=[2]))


def test_one_message_can_be_given_any_number_of_dimensions() -> None:
    message = History(role="assistant", content="Hi")
    assert message.view(1, 1).to_chats() == [[{"role": "assistant", "content": "Hi"}]]
    assert message.reshape(-1).batch_size == (1,)
    assert message.view(1, 1, 1).batch_size == (1, 1, 1)
    assert message.reshape(()).batch_size == ()
    with pytest.raises(ContainerError, match="1 messages cannot have the shape"):
        message.view(2)
    prompt = History.from_chats([[{"role": "user", "content": "Hello"}]])
    full = prompt.extend(message.view(1, 1), dim=-1)
    assert full is prompt
    assert full.role == [["user", "assistant"]]


def test_an_empty_text_is_one_conversation_without_messages() -> None:
    read = History.from_text("", chat_template_name="chatml_format")
    assert (read.shape, read.to_chats()) == ((0,), [])
    batch = History.from_text(["", ""], chat_template_name="chatml_format")
    assert (batch.shape, batch.to_chats()) == ((2, 0), [[], []])
