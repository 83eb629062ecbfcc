"""Arguments of a wrong type are refused in a sentence, before anything is lost by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import antiphon
import pytest
import torch
from antiphon.drift import drift_of
from antiphon.errors import (
    AntiphonError,
    FamilyNotFound,
    InvalidData,
    InvalidMessage,
    InvalidParameter,
    NoHistory,
    NoTokenizer,
    StreamMisused,
    TemplateRefused,
    ToolSchemaInvalid,
)
from antiphon.reading.schema import index_tools
from antiphon.testing import StandInTokenizer

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
TOKENIZER = StandInTokenizer(["<|im_start|>", "<|im_end|>"])
PROMPT = antiphon.render(
    CHAT[:1], TOKENIZER, family="chatml", add_generation_prompt=True
).tokenize()

CALLS: dict[str, Callable[[Any], Any]] = {
    "render": lambda it: antiphon.render(it, TOKENIZER, family="chatml"),
    "render, tokenizer": lambda it: antiphon.render(CHAT, it or 5),
    "render, family": lambda it: antiphon.render(CHAT, TOKENIZER, family=it or 5),
    "render, tools": lambda it: antiphon.render(CHAT, family="chatml", tools=it or 5),
    "render_batch": lambda it: antiphon.render_batch(it, TOKENIZER, family="chatml"),
    "training_samples": lambda it: antiphon.training_samples(it, TOKENIZER, family="chatml"),
    "extend": lambda it: antiphon.extend(PROMPT, it),
    "extend, token_ids": lambda it: antiphon.extend(
        PROMPT, [{"role": "assistant", "content": "x", "token_ids": it or 5}]
    ),
    "parse": lambda it: antiphon.parse(it, tokenizer=TOKENIZER, family="chatml"),
    "parse_response": lambda it: antiphon.parse_response(it, tokenizer=TOKENIZER, family="chatml"),
    "stream_parser": lambda it: antiphon.stream_parser(tokenizer=TOKENIZER, family="chatml").feed(
        it
    ),
    "parse, tools": lambda it: index_tools(it or 5),
    "detect_family": antiphon.detect_family,
    "media_expansions": lambda it: antiphon.media_expansions(it, "<image>", images=[1]),
    "History.from_text": lambda it: antiphon.History.from_text(it, chat_template_name="chatml"),
    "SamplingParams, stop": lambda it: antiphon.SamplingParams(stop_sequences=it or 5),
    "SamplingParams, ends": lambda it: antiphon.SamplingParams(end_token_ids=it or 0.5),
    "ChatEnv, batch_size": lambda it: antiphon.ChatEnv(batch_size=it or 0.5),
    "ChatEnv, max_turns": lambda it: antiphon.ChatEnv(max_turns=it or 0.5),
    "TransformedEnv": antiphon.TransformedEnv,
    "TransformedEnv, transform": lambda it: antiphon.TransformedEnv(antiphon.ChatEnv(), it or 5),
}


@pytest.mark.parametrize("wrong", [None, 0.5, object()], ids=["None", "number", "object"])
@pytest.mark.parametrize("name", CALLS)
def test_wrong_types_are_refused_in_a_sentence(name: str, wrong: Any) -> None:
    with pytest.raises(AntiphonError) as told:
        CALLS[name](wrong)
    assert len(str(told.value)) > 20


@pytest.mark.parametrize("wrong", ["one text", {"role": "user"}])
def test_one_thing_is_not_taken_for_a_list_of_its_parts(wrong: Any) -> None:
    for name in ("render", "render_batch", "training_samples", "extend"):
        with pytest.raises(AntiphonError, match=r"list of|has no role|a str"):
            CALLS[name](wrong)


def test_a_token_that_nobody_named_is_told_with_the_remedy() -> None:
    with pytest.raises(AntiphonError, match=r"tokenizer, or bos_token=… as a template variable"):
        antiphon.render(CHAT, chat_template="{{ bos_token + messages[0].content }}")


def _sampled(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "x", **fields}


def _closed() -> Any:
    stream = antiphon.stream_parser(tokenizer=TOKENIZER, family="chatml")
    stream.close()
    return stream


WRONG: dict[str, tuple[Callable[[], Any], type[AntiphonError], str]] = {
    "ids without a tokenizer": (
        lambda: antiphon.parse([1, 2], family="chatml"),
        NoTokenizer,
        "give tokenizer=",
    ),
    "a stream of ids without a tokenizer": (
        lambda: antiphon.stream_parser(family="chatml").feed([1]),
        NoTokenizer,
        "give tokenizer=",
    ),
    "a stream of ids with a tokenizer's name": (
        lambda: antiphon.stream_parser(family="chatml", tokenizer="qwen").feed([1]),
        NoTokenizer,
        "give tokenizer=, not 'qwen'",
    ),
    "no log-probs for a distribution": (
        lambda: antiphon.LogProbDistribution(None),
        InvalidParameter,
        "The log_probs must be a tensor, not NoneType",
    ),
    "no logits for a distribution": (
        lambda: antiphon.LLMMaskedCategorical(None),
        InvalidParameter,
        "The logits must be a tensor, not NoneType",
    ),
    "a number for tools": (
        lambda: antiphon.parse("x", family="chatml", tools=5),
        ToolSchemaInvalid,
        "Tools are a list",
    ),
    "ids to text without a tokenizer": (
        lambda: antiphon.Tokens(prompt=torch.ones(1, 2, dtype=torch.long), batch_size=(1,)).to_text(
            None
        ),
        NoTokenizer,
        "give it, not None",
    ),
    "messages to append": (
        lambda: antiphon.History.from_chats(CHAT).append(CHAT),
        NoHistory,
        "History.from_chats",
    ),
    "messages to extend by": (
        lambda: antiphon.History.from_chats(CHAT).extend(CHAT),
        NoHistory,
        "History.from_chats",
    ),
    "a list for a template's name": (
        lambda: antiphon.remove_chat_template([]),
        FamilyNotFound,
        "no chat template named []",
    ),
    "a closed stream": (lambda: _closed().feed("x"), StreamMisused, "needs a new parser"),
    "ids that are dicts": (
        lambda: antiphon.parse_response([{}], tokenizer=TOKENIZER, family="chatml"),
        InvalidData,
        "whole numbers, not {}",
    ),
    "ids that are strings": (
        lambda: antiphon.parse_response(["x"], tokenizer=TOKENIZER, family="chatml"),
        InvalidData,
        "whole numbers, not 'x'",
    ),
    "ids that are fractions in a stream": (
        lambda: antiphon.stream_parser(tokenizer=TOKENIZER, family="chatml").feed([1.5]),
        InvalidData,
        "whole numbers, not 1.5",
    ),
    "rows of ids beside ids": (
        lambda: antiphon.parse_response([[1], 2], tokenizer=TOKENIZER, family="chatml"),
        InvalidData,
        "whole numbers, not [1]",
    ),
    "sampled ids that are text": (
        lambda: antiphon.History.from_chats([[CHAT[0], _sampled(token_ids="x")]]),
        InvalidMessage,
        "message 1: token_ids",
    ),
    "sampled ids below zero": (
        lambda: antiphon.extend(PROMPT, [_sampled(token_ids=[5, -100]), CHAT[0]]),
        InvalidMessage,
        "Message 1 has token_ids with -100, which is no token id",
    ),
    "log-probs that are text": (
        lambda: antiphon.extend(PROMPT, [_sampled(token_ids=[5], log_probs=["x"])]),
        InvalidMessage,
        "Message 1 has log_probs that are no list of numbers",
    ),
    "stored ids below zero": (
        lambda: drift_of({"input_ids": [-100, 5], "text": "hi"}, TOKENIZER),
        InvalidData,
        "-100 is no token id",
    ),
    "a text to go on from": (
        lambda: antiphon.extend("hi", [CHAT[0]]),
        InvalidMessage,
        "call rendering.tokenize() first",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_are_told_as_what_they_are(case: str) -> None:
    call, error, words = WRONG[case]
    with pytest.raises(error) as raised:
        call()
    assert words in str(raised.value)


def test_a_tensor_of_one_id_is_read() -> None:
    one, many = torch.tensor(40), torch.tensor([40])
    read = [
        antiphon.parse_response(ids, tokenizer=TOKENIZER, family="chatml") for ids in (one, many)
    ]
    assert read[0] == read[1]


@pytest.mark.parametrize(
    ("template", "content", "words"),
    [
        ("{{ messages[0].content + 1 }}", "x", "'str' and 'int'"),
        ("{{ messages[0].content + 'x' }}", {"a": 1}, "'dict' and 'str'"),
        ("{{ messages[0].content.x.y }}", [1], "'list object' has no attribute 'x'"),
    ],
)
def test_what_a_template_could_not_do_is_told_without_our_own_classes(
    template: str, content: Any, words: str
) -> None:
    with pytest.raises(TemplateRefused) as raised:
        antiphon.render([{"role": "user", "content": content}], chat_template=template)
    assert "Traced" not in str(raised.value)
    assert words in str(raised.value)
