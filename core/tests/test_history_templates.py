"""A History through chat templates: `apply_chat_template`, `from_text`, `add_chat_template`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import antiphon
import pytest
import torch
from tensordict import TensorDict, lazy_stack

sys.path.append(str(Path(__file__).parent))  # the tests' own helpers stand beside them

from antiphon.conversations.history import History, add_chat_template, remove_chat_template
from antiphon.conversations.template_forms import call_form
from antiphon.errors import (
    InvalidMessage,
    InvalidParameter,
    PluginConflict,
    PluginError,
    RenderError,
    TemplateInvalid,
)
from container_tokenizers import CHATML, small_tokenizer

CHAT = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi there!"}]
LONG = [{"role": "system", "content": "Be brief."}, *CHAT, {"role": "user", "content": "Bye"}]
TEXT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi there!<|im_end|>\n"


def tokenizer() -> Any:
    return small_tokenizer()


# Texts


def test_one_conversation_is_a_text_and_a_batch_a_list_of_them() -> None:
    one = History.from_chats(CHAT).apply_chat_template(
        tokenizer=tokenizer(), add_generation_prompt=False
    )
    assert one == TEXT
    batch = History.from_chats([[CHAT], [LONG]])
    texts = batch.apply_chat_template(tokenizer=tokenizer(), add_generation_prompt=False)
    assert texts[0] == [TEXT]
    assert len(texts[1]) == 1


def test_the_generation_prompt_is_the_default() -> None:
    text = History.from_chats(CHAT).apply_chat_template(tokenizer=tokenizer())
    assert text == TEXT + "<|im_start|>assistant\n"


def test_the_final_message_can_be_continued() -> None:
    text = History.from_chats(CHAT).apply_chat_template(
        tokenizer=tokenizer(), continue_final_message=True
    )
    assert text == TEXT[: -len("<|im_end|>\n")]


def test_placeholders_are_not_rendered() -> None:
    history = History(role=["user", "<none>"], content=["Hello", ""], batch_size=2)
    assert "<none>" not in history.apply_chat_template(tokenizer=tokenizer())


def test_template_variables_reach_the_template() -> None:
    template = "{{ mood }}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{{ messages[0].content }}"
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    text = History.from_chats(CHAT).apply_chat_template(
        chat_template=template, mood="gay ", tools=[tool]
    )
    assert text == "gay fHello"


def test_a_refusal_names_the_conversation() -> None:
    template = "{% if messages|length > 2 %}{{ raise_exception('too long') }}{% endif %}{{ messages[0].content }}"
    with pytest.raises(RenderError, match="conversation 1"):
        History.from_chats([CHAT, LONG]).apply_chat_template(chat_template=template)


def test_without_a_template_it_is_chatml_with_a_warning() -> None:
    bare = small_tokenizer(template=None)
    with pytest.warns(UserWarning, match="ChatML"):
        text = History.from_chats(CHAT).apply_chat_template(
            tokenizer=bare, add_generation_prompt=False
        )
    assert text == TEXT
    with pytest.warns(UserWarning, match="ChatML"):
        assert History.from_text(text, tokenizer=bare).to_chats() == CHAT


# Tokens


def test_tokens_of_one_conversation_are_a_tensor_of_one_row() -> None:
    ids = History.from_chats(CHAT).apply_chat_template(
        tokenizer=tokenizer(), tokenize=True, add_generation_prompt=False
    )
    assert isinstance(ids, torch.Tensor)
    assert ids.shape[0] == 1
    assert tokenizer().batch_decode(ids) == [TEXT]


def test_tokens_of_a_ragged_batch_are_a_list_and_padded_a_tensor() -> None:
    history = History.from_chats([CHAT, LONG])
    rows = history.apply_chat_template(tokenizer=tokenizer(), tokenize=True)
    assert [row.ndim for row in rows] == [1, 1]
    padded = history.apply_chat_template(tokenizer=tokenizer(), tokenize=True, padding=True)
    assert padded.shape == (2, max(map(len, rows)))
    assert padded[0, : len(rows[0])].tolist() == rows[0].tolist()
    wide = history.apply_chat_template(
        tokenizer=tokenizer(), tokenize=True, padding="max_length", max_length=99
    )
    assert wide.shape == (2, 99)


def test_a_dict_of_one_conversation_has_no_batch() -> None:
    result = History.from_chats(CHAT).apply_chat_template(tokenizer=tokenizer(), return_dict=True)
    assert isinstance(result, TensorDict)
    assert result.batch_size == torch.Size([])
    assert result["input_ids"].shape == result["attention_mask"].shape


def test_masks_of_a_batch_are_read_as_lists() -> None:
    result = History.from_chats([CHAT, LONG]).apply_chat_template(
        tokenizer=tokenizer(), add_generation_prompt=False, return_assistant_tokens_mask=True
    )
    assert result.batch_size == torch.Size([2])
    for ids, mask in zip(
        result.get("input_ids", as_list=True),
        result.get("assistant_masks", as_list=True),
        strict=True,
    ):
        assert tokenizer().decode(ids[mask.bool()]) == "Hi there!<|im_end|>"
    one = History.from_chats([CHAT]).apply_chat_template(
        tokenizer=tokenizer(), return_dict=True, return_assistant_tokens_mask=True
    )
    assert one["assistant_masks"].shape[0] == 1


def test_padding_shows_in_the_attention_mask_on_the_tokenizers_side() -> None:
    history = History.from_chats([CHAT, LONG])
    lengths = [len(r) for r in history.apply_chat_template(tokenizer=tokenizer(), tokenize=True)]
    result = history.apply_chat_template(
        tokenizer=tokenizer(), padding=True, return_dict=True, return_assistant_tokens_mask=True
    )
    assert result["attention_mask"].sum(-1).tolist() == lengths
    assert bool(result["attention_mask"][0, 0])
    assert result["assistant_masks"][0, lengths[0] :].sum() == 0


def test_truncation_cuts_ids_and_masks_alike() -> None:
    result = History.from_chats([CHAT, LONG]).apply_chat_template(
        tokenizer=tokenizer(),
        truncation=True,
        max_length=7,
        return_assistant_tokens_mask=True,
    )
    assert [len(row) for row in result.get("input_ids", as_list=True)] == [7, 7]
    assert [len(row) for row in result.get("assistant_masks", as_list=True)] == [7, 7]


def test_numpy_on_request_and_nothing_else() -> None:
    history = History.from_chats(CHAT)
    result = history.apply_chat_template(
        tokenizer=tokenizer(), return_tensors="np", return_dict=True
    )
    assert type(result["input_ids"]).__module__ == "numpy"
    with pytest.raises(InvalidParameter, match="'tf'"):
        history.apply_chat_template(tokenizer=tokenizer(), return_tensors="tf")
    with pytest.raises(InvalidParameter, match="needs a tokenizer"):
        history.apply_chat_template(chat_template=CHATML, tokenize=True)
    with pytest.raises(InvalidParameter, match="max_length"):
        history.apply_chat_template(tokenizer=tokenizer(), tokenize=True, padding="max_length")
    with pytest.raises(InvalidParameter, match="padding must be"):
        history.apply_chat_template(tokenizer=tokenizer(), tokenize=True, padding="all")


def test_a_processor_renders_and_encodes_by_itself() -> None:
    class Processor:
        image_processor = object()

        def apply_chat_template(self, conversation: Any, tokenize: bool, **options: Any) -> Any:
            assert conversation[0] == {"role": "user", "content": [{"type": "image", "url": "u"}]}
            if not tokenize:
                return "text"
            return {"input_ids": torch.tensor([[1, 2]]), "pixel_values": torch.zeros(3, 4)}

    history = History.from_chats([{"role": "user", "content": [{"type": "image", "url": "u"}]}])
    assert history.apply_chat_template(tokenizer=Processor(), tokenize=False) == "text"
    result = history.apply_chat_template(tokenizer=Processor(), tokenize=True, return_dict=True)
    assert result["input_ids"].tolist() == [1, 2]
    assert result["pixel_values"].shape == (3, 4)


# Call arguments


def test_each_template_gets_arguments_in_its_form() -> None:
    head = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
    as_json = head + "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    joined = head + "{{ '' + c.function.arguments }}{% endfor %}{% endfor %}"
    printed = head + "{{ c.function.arguments }}{% endfor %}{% endfor %}"
    assert [call_form(t).arguments for t in (as_json, joined, printed)] == [
        "mapping",
        "string",
        "string",
    ]
    call = {"name": "f", "arguments": {"x": "é"}}
    history = History.from_chats(
        [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [call]}]
    )
    for template in (as_json, joined, printed):
        assert history.apply_chat_template(chat_template=template) == 'f{"x": "é"}'


def test_a_message_that_only_calls_is_rendered_by_every_template() -> (
    None
):  # cases args-01, args-03
    call = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    shown = set()
    for message in ({"content": None}, {}, {"content": ""}):
        for arguments in ({"x": 1}, '{"x": 1}'):
            own = {**call, "function": {"name": "f", "arguments": arguments}}
            chat = [
                {"role": "user", "content": "a"},
                {"role": "assistant", "tool_calls": [own], **message},
            ]
            history = History.from_chats(chat)
            texts = [
                history.apply_chat_template(chat_template=template, tokenize=False)
                for template in (
                    "{% for m in messages %}{% if m.content is none %}{{ m.tool_calls[0].function.arguments + '' }}"
                    "{% endif %}{% endfor %}",
                    "{% for m in messages %}{{ m.content + '' }}{% for c in m.tool_calls or [] %}"
                    "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}",
                )
            ]
            shown.add(tuple(texts))
    assert shown == {('{"x": 1}', 'a{"x": 1}')}


# Reading back


def test_from_text_reads_one_text_or_lists() -> None:
    assert History.from_text(TEXT, chat_template_name="chatml_format").to_chats() == CHAT
    batch = History.from_text([[TEXT], [TEXT + TEXT]], tokenizer=tokenizer())
    assert batch.batch_size == torch.Size([2, 1, -1])
    assert batch.to_chats() == [[CHAT], [CHAT + CHAT]]
    assert History.from_text(TEXT, chat_template=CHATML).to_chats() == CHAT


@pytest.mark.parametrize("cut", [10, 14])
def test_a_cut_off_text_has_an_incomplete_last_message(cut: int) -> None:
    history = History.from_text(TEXT[:-cut], chat_template_name="chatml_format")
    assert history.is_complete == [True, False]
    assert history.role == ["user", "assistant"]


# Templates at run time


@pytest.fixture
def added() -> Iterator[list[str]]:
    names: list[str] = []
    yield names
    for name in names:
        remove_chat_template(name)


BRACKETS = (
    "{% for message in messages %}{% if message.role == 'user' %}[USER] {{ message.content }}"
    "{% else %}{% generation %}[ASSISTANT] {{ message.content }}{% endgeneration %}{% endif %}{% endfor %}"
)


def test_an_added_template_is_known_by_its_name_and_by_model_names(added: list[str]) -> None:
    seen: list[str] = []

    def parser(text: str) -> History:
        seen.append(text)
        parts = re.findall(r"\[(USER|ASSISTANT)\] ([^\[]*)", text)
        return lazy_stack([History(role=role.lower(), content=content) for role, content in parts])

    add_chat_template(
        "brackets-a", BRACKETS, inverse_parser=parser, model_family_keywords=["Brackety"]
    )
    added.append("brackets-a")
    history = History.from_chats([CHAT])
    text = history.apply_chat_template(chat_template_name="brackets-a")
    assert text == ["[USER] Hello[ASSISTANT] Hi there!"]
    parsed = History.from_text(text, chat_template_name="brackets-a")
    assert seen == text
    assert parsed.role == history.role
    assert parsed.content == history.content

    named = small_tokenizer(True)
    before = named.name_or_path
    named.name_or_path = "someone/brackety-7b"
    try:
        assert history.apply_chat_template(tokenizer=named) == text
        assert History.from_text(text, tokenizer=named).content == history.content
    finally:
        named.name_or_path = before


def test_what_cannot_work_is_rejected_with_the_reason(added: list[str]) -> None:
    with pytest.raises(TemplateInvalid):
        add_chat_template("broken", "{% for m in messages %}")
    with pytest.raises(PluginError, match="does not print what the assistant says"):
        add_chat_template("mute", "{{ messages[0].content }}")
    with pytest.raises(PluginError, match="does not render a question and an answer"):
        add_chat_template("refusing", "{{ raise_exception('no') }}")
    with pytest.raises(PluginError, match="empty keyword"):
        add_chat_template("greedy", CHATML, model_family_keywords=[" "])
    with pytest.raises(PluginError, match="list of strings"):
        add_chat_template("letters", CHATML, model_family_keywords="qwen")
    with pytest.raises(PluginConflict):
        add_chat_template("chatml", CHATML)
    add_chat_template("twice", CHATML)
    added.append("twice")
    add_chat_template("twice", CHATML)
    with pytest.raises(PluginConflict):
        add_chat_template("twice", BRACKETS)


def test_a_history_renders_on_templates_that_take_strings_and_on_those_that_take_parts() -> None:
    as_strings = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    as_parts = "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    parts = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in said]
    for template in (as_strings, as_parts):
        for chats in (said, parts):
            text = antiphon.render(History.from_chats(chats), chat_template=template).text
            assert text == "<user>a<assistant>b"
    picture = [{"role": "user", "content": [{"type": "image", "image": "x.png"}]}]
    with pytest.raises(InvalidMessage, match="message 0 holds 'image'"):
        antiphon.render(History.from_chats(picture), chat_template=as_strings)
