"""Arguments of a wrong type are refused in a sentence, before anything is lost by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import antiphon
import pytest
from antiphon.errors import AntiphonError
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
