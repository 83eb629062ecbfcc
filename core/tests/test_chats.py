"""Messages in and out, without tensors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from antiphon import History
from antiphon.conversations.chats import (
    map_chats,
    openai_messages,
    stored_call,
    stored_message,
)
from antiphon.conversations.dataset_rows import row_messages
from antiphon.errors import InvalidMessage


def test_a_plain_message_keeps_role_and_content() -> None:
    assert stored_message({"role": "user", "content": "hi"}) == {
        "role": "user",
        "content": "hi",
        "is_complete": True,
    }


def test_keys_whose_value_is_none_are_as_good_as_absent() -> None:
    message = {"role": "user", "content": "hi", "tool_calls": None, "name": None, "weight": None}
    assert stored_message(message) == stored_message({"role": "user", "content": "hi"})


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content", "thinking"])
def test_reasoning_has_several_names(key: str) -> None:
    assert stored_message({"role": "assistant", "content": "4", key: "2+2"})["reasoning"] == "2+2"


@pytest.mark.parametrize(
    "call",
    [
        {"name": "f", "arguments": {"x": 1}},
        {"name": "f", "arguments": '{"x": 1}'},
        {"name": "f", "parameters": {"x": 1}},
        {"function": {"name": "f", "arguments": {"x": 1}}},
        {"type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}, "id": None},
        {"function": {"name": "f", "arguments": {"x": 1}}, "status": "ok"},
    ],
)
def test_every_form_of_a_call_becomes_the_openai_form(call: dict[str, object]) -> None:
    assert stored_call(call) == {
        "type": "function",
        "function": {"name": "f", "arguments": {"x": 1}},
    }


@pytest.mark.parametrize("arguments", ["[1]", "not json", '"text"', "{", ""])
def test_arguments_that_are_no_json_object_stay_raw(arguments: str) -> None:
    assert stored_call({"name": "f", "arguments": arguments})["function"]["arguments"] == arguments


def test_a_call_keeps_its_id_and_what_is_wrong_with_it() -> None:
    call = {
        "id": "call_1",
        "function": {"name": "f", "arguments": "{"},
        "status": "malformed",
        "raw": "f({",
    }
    assert stored_call(call) == {
        "type": "function",
        "id": "call_1",
        "function": {"name": "f", "arguments": "{"},
        "status": "malformed",
        "raw": "f({",
    }


def test_the_older_function_call_is_a_tool_call() -> None:
    message = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "f", "arguments": "{}"},
    }
    assert stored_message(message)["tool_calls"][0]["function"] == {"name": "f", "arguments": {}}


def test_unknown_keys_are_kept_and_handed_out_again() -> None:
    message = {"role": "user", "content": "hi", "prefix": True}
    assert openai_messages([stored_message(message)]) == [message]


def test_parts_lose_the_none_values_that_columns_fill_in() -> None:
    parts = [
        {"type": "text", "text": "a", "image": None},
        {"type": "image", "image": "u", "text": None},
        "b",
    ]
    assert stored_message({"role": "user", "content": parts})["content"] == [
        {"type": "text", "text": "a"},
        {"type": "image", "image": "u"},
        {"type": "text", "text": "b"},
    ]


def test_sharegpt_turns_are_messages() -> None:
    turns = [
        {"from": "system", "value": "s"},
        {"from": "human", "value": "q"},
        {"from": "gpt", "value": "a"},
        {"from": "function_call", "value": '{"name": "f", "arguments": {"x": 1}}'},
        {"from": "observation", "value": "r"},
    ]
    messages = openai_messages(stored_message(turn) for turn in turns)
    assert [message["role"] for message in messages] == [
        "system",
        "user",
        "assistant",
        "assistant",
        "tool",
    ]
    assert messages[3]["tool_calls"][0]["function"]["arguments"] == {"x": 1}


@pytest.mark.parametrize(
    "row",
    [
        {
            "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
            "id": 7,
        },
        {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
        {"prompt": "q", "completion": "a"},
        {
            "prompt": [{"role": "user", "content": "q"}],
            "completion": [{"role": "assistant", "content": "a"}],
        },
    ],
)
def test_rows_of_data_sets_are_conversations(row: dict[str, object]) -> None:
    messages, depth = map_chats(row, openai_messages)
    assert depth == 0
    assert messages == [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def test_one_tool_message_with_several_responses_becomes_one_for_each() -> None:
    stored = stored_message({"role": "tool", "content": None, "tool_responses": ["1", {"x": 2}]})
    assert openai_messages([stored]) == [
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": '{"x": 2}'},
    ]


def test_a_cut_off_message_says_so_and_a_whole_one_does_not() -> None:
    stored = [
        stored_message({"role": "assistant", "content": "a", "is_complete": c})
        for c in (False, True)
    ]
    assert openai_messages(stored) == [
        {"role": "assistant", "content": "a", "is_complete": False},
        {"role": "assistant", "content": "a"},
    ]


def test_placeholders_do_not_come_out() -> None:
    assert openai_messages([stored_message({"role": "<none>"})]) == []


@pytest.mark.parametrize(
    ("chats", "said"),
    [
        (
            [
                [{"role": "user", "content": "a"}],
                [{"role": "user", "content": "a"}, {"role": "user"}],
            ],
            "conversation 1: message 1",
        ),
        ([{"role": "user", "content": "a"}, "b"], "message 1: a message must be a mapping"),
        ([[{"role": None, "content": "a"}]], "conversation 0: message 0: a message needs a role"),
        ([[{"role": "user", "content": 3}]], "content must be a string or a list of parts"),
        ([[{"role": "user", "content": "a", "name": 3}]], "name must be a string"),
        (
            [[{"role": "assistant", "content": "", "tool_calls": [{"arguments": {}}]}]],
            "needs the name",
        ),
        ([[{"role": "assistant", "content": "", "tool_calls": "f()"}]], "must be a list of calls"),
        ([{"messages": None, "text": "x"}], "conversation 0: the row holds a text, not messages"),
        ([{"messages": "[{"}], "conversation 0: the messages are a string that is not JSON"),
        ([{"messages": "hello"}], "conversation 0: expected a list of messages, got str"),
        ([[{"from": "martian", "value": "x"}]], "unknown speaker 'martian'"),
        ("text", "expected a list"),
        ({"role": "user", "content": "x"}, "got one message"),
        (
            [[{"role": "user", "content": "a"}], [[{"role": "user", "content": "a"}]]],
            "different depths",
        ),
    ],
)
def test_bad_input_is_named(chats: object, said: str) -> None:
    with pytest.raises(InvalidMessage, match=said.replace("(", r"\(")):
        map_chats(chats, list)


def test_messages_of_a_row_may_stand_there_as_json() -> None:
    messages = [{"role": "user", "content": "[1]"}, {"role": "assistant", "content": "x"}]
    assert row_messages({"messages": json.dumps(messages)}) == messages
    assert row_messages({"prompt": "[1]", "completion": "x"}) == messages


TIDE = {"name": "tide", "arguments": {"port": "Brest"}}
TWO = [TIDE, {"name": "tide", "arguments": {"port": "Cork"}}]


def turns(*said: str) -> list[dict[str, str]]:
    return [
        {"from": name, "value": value} for name, value in zip(said[::2], said[1::2], strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "value", "calls", "thought"),
    [
        ("function_call", json.dumps(TIDE), [TIDE], None),
        ("Tool_Call", json.dumps(TIDE), [TIDE], None),
        ("function_call", json.dumps(TWO), TWO, None),
        ("function_call", json.dumps({**TIDE, "arguments": json.dumps(TIDE["arguments"])}), [TIDE], None),
        ("function_call", "<think>\nWhich port?\n</think>\n" + json.dumps(TIDE), [TIDE], "Which port?"),
        ("function_call", json.dumps([{"type": "function", "function": TIDE}]), [TIDE], None),
    ],
)  # fmt: skip
def test_sharegpt_turns_that_call_are_calls(
    name: str, value: str, calls: list[Any], thought: str | None
) -> None:
    row = turns("human", "Tide?", name, value, "observation", "4 m", "gpt", "Four.")
    _, message, result, _ = History.from_chats(row).to_chats()
    assert [call["function"] for call in message["tool_calls"]] == calls
    assert message.get("reasoning_content") == thought
    assert "content" not in message
    assert result == {"role": "tool", "content": "4 m"}


@pytest.mark.parametrize("value", ["tide(Brest)", "5", "[]", '{"port": "Brest"}', "[5]", ""])
def test_a_turn_that_is_said_to_call_and_does_not_is_refused(value: str) -> None:
    with pytest.raises(InvalidMessage, match=r"message 1: .*is no call as JSON"):
        History.from_chats(turns("human", "Tide?", "function_call", value))


@pytest.mark.parametrize("key", ["system", "system_prompt"])
def test_a_system_text_beside_the_messages_is_the_first_of_them(key: str) -> None:
    asked = turns("human", "Tide?", "gpt", "Four.")
    led = History.from_chats([{"conversations": asked, key: "Be brief."}]).to_chats()[0]
    assert led[0] == {"role": "system", "content": "Be brief."}
    assert led[1:] == History.from_chats(asked).to_chats()
    odd = [{"role": np.array([1, 2]), "content": "a"}]
    with pytest.raises(InvalidMessage, match="message 1: a message needs a role"):
        History.from_chats({"messages": odd, key: "Be brief."})
    for own in ({key: ""}, {key: None}, {key: 5}):
        assert History.from_chats({"conversations": asked, **own}).to_chats() == led[1:]
    with_own = [*turns("system", "Be long."), *asked]
    found = History.from_chats({"conversations": with_own, key: "Be brief."}).to_chats()
    assert found == [{"role": "system", "content": "Be long."}, *led[1:]]


@pytest.mark.parametrize(
    "row",
    [
        {"question": "a", "answer": "b"},
        {"query": "a", "answers": "[]", "tools": "[]"},
        {"id": "0", "data": ["q", "a"]},
        {"contents": [{"role": "user", "parts": [{"text": "a"}]}]},
        {"input": {"messages": []}, "preferred_output": []},
    ],
)
def test_a_row_without_messages_is_told_by_its_keys(row: dict[str, Any]) -> None:
    for chats in (row, [row]):
        with pytest.raises(InvalidMessage, match=f"the row has none of .*{next(iter(row))}"):
            History.from_chats(chats)


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_what_can_not_be_written_nested_or_copied_is_refused_all_the_same() -> None:
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    empty = torch.zeros(2, device="meta")
    wrong: list[Any] = [Unspeakable(), deep, np.array([1, 2]), np.array(3), torch.tensor(1), empty]
    for value in wrong:
        for chats in (
            value,
            [value],
            [[value]],
            [{"role": value, "content": "a"}],
            {"messages": value},
        ):
            with pytest.raises(InvalidMessage):
                History.from_chats(chats)
        with pytest.raises(InvalidMessage, match="unknown speaker"):
            History.from_chats([{"from": value, "value": "a"}])
    with pytest.raises(InvalidMessage, match="list of ids"):
        History.from_chats([{"role": "assistant", "content": "a", "token_ids": empty}])
    for value in (deep, (each for each in [1]), json):
        with pytest.raises(InvalidMessage, match="can't be copied"):
            History.from_chats([{"role": "user", "content": "a", "note": value}]).to_chats()


def test_arrays_of_messages_are_taken_as_lists() -> None:
    """As pandas reads them from Parquet."""
    asked = np.array([{"role": "user", "content": "a"}], dtype=object)
    said = np.array([{"role": "assistant", "content": "b"}], dtype=object)
    whole = [*asked, *said]
    rows = [{"messages": np.array(whole, dtype=object)}, {"prompt": asked, "completion": said}]
    assert History.from_chats(rows).to_chats() == [whole, whole]
