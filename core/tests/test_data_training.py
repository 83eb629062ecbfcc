"""Rows of a data set as samples: forms, None-valued keys, masks, truncation, refusals."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from antiphon.data import Note, SampleOptions, TrainOn, conversation_of, make_samples
from antiphon.errors import InvalidData, InvalidMessage, InvalidParameter
from rendering_helpers import hub_templates, tokenizer

CHATML = SampleOptions(family="chatml")
QUESTION = {"role": "user", "content": "How deep is the lake?"}
ANSWER = {"role": "assistant", "content": "Ninety metres."}
LONG = [
    QUESTION,
    ANSWER,
    {"role": "user", "content": "And the other?"},
    {**ANSWER, "content": "Ten."},
]


def trained(sample: Any) -> str:
    """Return the text of the tokens that are trained."""
    chosen = [token for token, m in zip(sample.input_ids, sample.mask, strict=True) if m]
    return str(tokenizer("qwen3").decode(chosen))


def samples(rows: list[Any], options: SampleOptions = CHATML, **more: Any) -> Any:
    return make_samples(enumerate(rows), tokenizer("qwen3"), options, **more)


def test_sharegpt_and_openai_rows_give_the_same_sample() -> None:
    speakers = {"user": "human", "assistant": "gpt"}
    turns = [{"from": speakers[m["role"]], "value": m["content"]} for m in LONG]
    forms = [{"messages": LONG}, {"conversations": turns}, LONG]
    made = samples(forms).samples
    assert [s._replace(row=0) for s in made] == [made[0]] * 3
    assert trained(made[0]) == "Ninety metres.<|im_end|>Ten.<|im_end|>"


@pytest.mark.parametrize(
    "template",
    ["meta-llama-Llama-3.1-8B-Instruct", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B@56a144"],
)
def test_keys_that_arrow_filled_with_none_are_as_good_as_absent(template: str) -> None:
    options = SampleOptions(chat_template=hub_templates()[template], padded=True)
    padded = [
        {**QUESTION, "tool_calls": None, "name": None},
        {**ANSWER, "tool_calls": None, "name": None},
    ]
    empty = [QUESTION, {**ANSWER, "tool_calls": []}]
    made = samples([{"messages": m} for m in (padded, empty, LONG[:2])], options)
    assert not made.notes
    assert len({tuple(s.input_ids) for s in made.samples}) == 1


def test_none_is_dropped_from_tool_schemas_and_from_arrows_call_arguments_only() -> None:
    call = {"function": {"name": "find", "arguments": {"a": 1, "b": None}}, "id": None}
    row = {
        "messages": [QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}],
        "tools": [
            {
                "type": "function",
                "function": {"name": "find", "parameters": {"x": None, "y": {"z": None}}},
            }
        ],
    }
    padded, plain = conversation_of(row, padded=True), conversation_of(row)
    assert padded.tools == [
        {"type": "function", "function": {"name": "find", "parameters": {"y": {}}}}
    ]
    assert padded.messages[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    assert plain.messages[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1, "b": None}


def test_tools_may_be_json_text() -> None:
    assert conversation_of({"messages": LONG, "tools": '[{"name": "f"}]'}).tools == [{"name": "f"}]
    with pytest.raises(InvalidMessage, match="not JSON"):
        conversation_of({"messages": LONG, "tools": "f(x)"})


@pytest.mark.parametrize(
    ("train_on", "text"),
    [
        (TrainOn(), "Ninety metres.<|im_end|>Ten.<|im_end|>"),
        (TrainOn("last-turn"), "Ten.<|im_end|>"),
        (TrainOn(roles=("user",)), "How deep is the lake?And the other?"),
        (
            TrainOn(roles=("user", "assistant")),
            "How deep is the lake?Ninety metres.<|im_end|>And the other?Ten.<|im_end|>",
        ),
        (TrainOn(messages=(1,)), "Ninety metres.<|im_end|>"),
        (TrainOn(marked_by="train"), "Ninety metres.<|im_end|>"),
    ],
)
def test_a_mask_is_on_what_is_asked_for(train_on: TrainOn, text: str) -> None:
    row = [*LONG[:3], {**LONG[3], "train": False}]
    (sample,) = samples([row], SampleOptions(family="chatml", train_on=train_on)).samples
    assert trained(sample) == text


def test_a_split_conversation_trains_each_message_once() -> None:
    # Qwen3's own template prints an empty reasoning block in front of the last answer only.
    template = hub_templates()["Qwen-Qwen3-0.6B@a55ee1"]
    both = SampleOptions(chat_template=template, train_on=TrainOn(roles=("user", "assistant")))
    made = samples([LONG], both)
    assert [note.what for note in made.notes] == ["split"]
    assert "message 1" in made.notes[0].reason
    texts = [trained(s) for s in made.samples]
    assert len(texts) == 2
    for words in ("How deep", "Ninety", "And the other", "Ten."):
        assert sum(words in text for text in texts) == 1
    last = samples([LONG], SampleOptions(chat_template=template, train_on=TrainOn("last-turn")))
    assert len(last.samples) == 1
    assert not last.notes


def test_truncation_keeps_ids_mask_and_messages_together() -> None:
    (whole,) = samples([LONG]).samples
    for long, kept in (("cut-right", slice(0, 24)), ("cut-left", slice(-24, None))):
        made = samples([LONG], SampleOptions(family="chatml", max_length=24, long=long))  # type: ignore[arg-type]
        (cut,) = made.samples
        assert cut.input_ids == whole.input_ids[kept]
        assert cut.mask == whole.mask[kept]
        assert cut.message_index == whole.message_index[kept]
        assert made.notes == [Note(0, "truncated", "longer than max_length 24")]
    refused = samples([LONG], SampleOptions(family="chatml", max_length=24, long="refuse"))
    assert not refused.samples
    assert "longer than max_length 24" in refused.notes[0].reason


def test_a_sample_whose_trained_tokens_were_all_cut_off_is_refused() -> None:
    made = samples([LONG], SampleOptions(family="chatml", max_length=5))
    assert not made.samples
    assert made.notes == [
        Note(0, "refused", "nothing that is to be trained lies within max_length 5")
    ]


def test_refused_rows_are_recorded_and_the_others_go_on() -> None:
    rows: list[Any] = [
        [],
        {"text": "hello"},
        "hello",
        [{"content": "no role"}],
        [QUESTION],
        [QUESTION, {"role": "assistant", "content": 5}],
        [{"from": "martian", "value": "hi"}],
        QUESTION,
        LONG,
        [QUESTION, {"role": "assistant", "content": "\ud800"}],
    ]
    made = samples(rows)
    assert [s.row for s in made.samples] == [8]
    assert [note.row for note in made.notes] == [0, 1, 2, 3, 4, 5, 6, 7, 9]
    assert all(note.what == "refused" and note.reason for note in made.notes)
    assert "empty" in made.notes[0].reason
    assert "message 0" in made.notes[3].reason
    assert "no message of it is to be trained" in made.notes[4].reason
    with pytest.raises(InvalidData, match="Row 1 is refused"):
        make_samples([(1, rows[1])], tokenizer("qwen3"), CHATML, strict=True)


def test_sampled_ids_are_never_encoded_again() -> None:
    # "Ninety" in single bytes: no encoder gives these ids.
    own = tokenizer("qwen3")
    ids = [token for letter in "Ninety." for token in own.encode(letter)]
    row = [QUESTION, {"role": "assistant", "content": "Ninety.", "token_ids": ids}]
    (sample,) = samples([row]).samples
    masked = [t for t, m in zip(sample.input_ids, sample.mask, strict=True) if m]
    assert masked == ids


def test_an_end_token_that_a_cut_off_answer_lacks_is_not_trained() -> None:
    (sample,) = samples([[QUESTION, {**ANSWER, "is_complete": False}]]).samples
    assert trained(sample) == "Ninety metres."


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="max_length"):
        SampleOptions(max_length=0)
    with pytest.raises(InvalidParameter, match="every-turn"):
        TrainOn("first-turn")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="role"):
        TrainOn(roles=())


USER_AND_ANSWER = LONG[:2]
ASKED, SAID = QUESTION["content"], ANSWER["content"]
PICTURE = {"type": "image_url", "image_url": {"url": "u"}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}


def columns(messages: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {key: [message[key] for message in messages] for key in ("role", "content")}


@pytest.mark.parametrize(
    "row",
    [
        {"conversations": [{"from": "Human", "value": ASKED}, {"from": "GPT", "value": SAID}]},
        {"conversations": [{"from": "human", "text": ASKED}, {"from": "ai", "text": SAID}]},
        {"conversations": [{"role": m["role"], "value": m["content"]} for m in USER_AND_ANSWER]},
        {"conversations": [{"from": "user", "content": ASKED}, {"from": "bot", "value": SAID, "weight": None}]},
        {"messages": columns(USER_AND_ANSWER)},
        {"messages": [], "conversations": USER_AND_ANSWER},
        {"messages": [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in USER_AND_ANSWER]},
        {"messages": [{**m, "content": [m["content"][:4], m["content"][4:]]} for m in USER_AND_ANSWER]},
        {"messages": USER_AND_ANSWER, "tools": "null"},
        {"messages": USER_AND_ANSWER, "tools": "[]"},
        {"messages": USER_AND_ANSWER, "chat_template_kwargs": "{}"},
        {"prompt": ASKED, "completion": SAID},
    ],
)  # fmt: skip
def test_rows_of_many_makes_say_the_same(row: Any) -> None:
    (one,) = samples([{"messages": USER_AND_ANSWER}]).samples
    made = samples([row])
    assert not made.notes
    assert made.samples == [one]


def test_calls_may_be_json_text() -> None:
    calling = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    written = {**calling, "tool_calls": json.dumps([CALL])}
    template = SampleOptions(chat_template=hub_templates()["Qwen-Qwen2.5-7B-Instruct"])
    made = samples([[QUESTION, calling], [QUESTION, written]], template).samples
    assert made[0].input_ids == made[1].input_ids


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([QUESTION, {"role": "assistant", "content": None}], "message 1: .* neither content nor"),
        ([{"from": "human", "value": None}, ANSWER], "message 0: .* neither content nor"),
        ([QUESTION, {"role": "gpt", "content": "x"}], r"\(its roles: user, gpt\)"),
        ({"messages": {"role": ["user"], "content": []}}, "columns of equal length"),
        ({"messages": {"role": "user", "content": "x"}}, "expected a list of messages, got dict"),
        ([QUESTION, {**ANSWER, "token_ids": "x"}], "message 1: token_ids must be a list"),
        ([QUESTION, {**ANSWER, "token_ids": [1.5]}], "message 1: token_ids must be a list"),
        ([QUESTION, {**ANSWER, "token_ids": [-1]}], "message 1: token_ids hold -1"),
        ([QUESTION, {**ANSWER, "token_ids": [1, 10**9]}], "message 1 was sampled as the id 1000000000"),
        ([QUESTION, {**ANSWER, "tool_calls": "f()"}], "message 1: tool_calls must be"),
        ({"messages": LONG, "chat_template_kwargs": {"messages": []}}, "sets messages, which is no"),
        ({"messages": LONG, "chat_template_kwargs": '{"add_generation_prompt": true}'}, "sets add_generation"),
        ({"messages": LONG, "chat_template_kwargs": "x"}, "chat_template_kwargs is a string that is not JSON"),
        ([{"role": "user", "content": [PICTURE]}, ANSWER], "message 0 holds 'image_url', .* takes text alone"),
    ],
)  # fmt: skip
def test_a_row_that_can_not_be_meant_is_refused_with_its_reason(row: Any, reason: str) -> None:
    made = samples([LONG, row, LONG])
    assert [s.row for s in made.samples] == [0, 2]
    (note,) = made.notes
    assert (note.row, note.what) == (1, "refused")
    assert re.search(reason, note.reason), note.reason
    assert "antiphon." not in note.reason


def test_settings_that_are_no_template_variables_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="add_generation_prompt is no template variable"):
        SampleOptions(variables={"add_generation_prompt": True})


def test_contents_in_parts_are_text_to_every_template() -> None:
    """A template that takes strings alone would print the list as Python does, or refuse it."""
    compared = 0
    for name, source in list(hub_templates().items())[::12]:
        options = SampleOptions(chat_template=source)
        plain = samples([USER_AND_ANSWER], options)
        parted = [
            {**m, "content": [{"type": "text", "text": m["content"]}]} for m in USER_AND_ANSWER
        ]
        made = samples([parted], options)
        if not plain.samples:
            continue
        assert trained(made.samples[0]).endswith(trained(plain.samples[0])[-20:]), name
        text = tokenizer("qwen3").decode(made.samples[0].input_ids)
        assert ASKED in text, name
        assert "'text'" not in text, name
        compared += 1
    assert compared > 45
