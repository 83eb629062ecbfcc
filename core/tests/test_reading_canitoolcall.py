"""canitoolcall's recorded completions: one-shot and under each of its streaming strategies.

They are read from ids where a real tokenizer at hand reproduces the recorded ids, and from text
in every case.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))  # the tests' own helpers stand beside them
canitoolcall = pytest.importorskip("canitoolcall", reason="canitoolcall is not installed")

from antiphon.reading import parse_response, stream_parser  # noqa: E402
from canitoolcall.checks import case_status, run_checks  # noqa: E402
from canitoolcall.chunking import DEFAULT_STRATEGIES, split  # noqa: E402
from canitoolcall.fixtures import Fixture, load_fixtures  # noqa: E402
from canitoolcall.results import Observation, ParsedToolCall, ParseResult, Status  # noqa: E402
from reading_grammars import (  # noqa: E402
    DEEPSEEK_V3,
    DEEPSEEK_V4,
    DEEPSEEK_V31,
    DEEPSEEK_V32,
    DEEPSEEK_V41,
    LLAMA3,
    LLAMA4,
    QWEN3,
    QWEN_XML,
)
from reading_tokenizers import load_tokenizer  # noqa: E402

FAMILIES = ("qwen3-hermes", "qwen3-xml", "deepseek", "llama")
GRAMMARS = {
    "Qwen3-Coder": QWEN_XML,
    "Qwen3.": QWEN_XML,
    "Qwen3": QWEN3,
    "Llama-3": LLAMA3,
    "Llama-4": LLAMA4,
    "DeepSeek-V3-0324": DEEPSEEK_V3,
    "DeepSeek-V3.1": DEEPSEEK_V31,
    "DeepSeek-V3.2": DEEPSEEK_V32,
    "DeepSeek-V4.1": DEEPSEEK_V41,
    "DeepSeek-V4": DEEPSEEK_V4,
}
TOKENIZERS = {
    "Qwen3": "qwen3",
    "Llama-3": "llama3.1",
    "DeepSeek-V3-0324": "deepseek_v3",
    "DeepSeek-V4": "deepseek_v4",
}
PROMPTS = {
    "qwen3-hermes": "<|im_start|>assistant\n",
    "qwen3-xml": "<|im_start|>assistant\n",
    "llama": None,
    "deepseek": "<｜Assistant｜></think>",
}


def by_prefix(table: dict[str, Any], fixture: Fixture) -> Any:
    """Return the entry of the longest prefix of a fixture's model."""
    name = fixture.reference_model.partition("/")[2]
    found = [key for key in table if name.startswith(key)]
    return table[max(found, key=len)] if found else None


@cache
def fixtures() -> tuple[Fixture, ...]:
    """Return the fixtures of the four families, recorded ones and all."""
    return tuple(load_fixtures(families=FAMILIES))


def result(message: dict[str, Any]) -> ParseResult:
    """Return a message as canitoolcall has it: calls that are none stay out."""
    calls = tuple(
        ParsedToolCall(call["function"]["name"], json.dumps(call["function"]["arguments"]))
        for call in message["tool_calls"] or ()
        if call["status"] in ("ok", "unknown_tool", "invalid_arguments")
    )
    return ParseResult(message["content"], message["reasoning_content"], calls)


def streamed(fixture: Fixture, pieces: Iterator[Any], **options: Any) -> ParseResult:
    """Read a stream; its events must add up to its result."""
    parser = stream_parser(**options)
    texts = {"content": "", "reasoning": ""}
    shown: dict[int, list[str]] = {}
    events = [event for piece in pieces for event in parser.feed(piece)]
    message = parser.close()
    reading = parser.finish()
    events += reading.last_events
    for event in events:
        if event.kind in texts:
            texts[event.kind] += event.text
        elif event.kind == "call":
            shown[event.number] = [event.text, ""]
        elif event.kind == "arguments":
            shown[event.number][1] += event.text
    assert texts["content"] == (message["content"] or "")
    assert texts["reasoning"] == (message["reasoning_content"] or "")
    for index, call in enumerate(message["tool_calls"] or ()):
        if call["status"] == "ok":
            assert shown[index][0] == call["function"]["name"]
            json.loads(shown[index][1])
    return result(message)


def observe(fixture: Fixture, whole: Any, units: list[Any], special: set[Any], **options: Any):
    """Read a fixture once and under each strategy."""
    streams = {}
    for strategy in DEFAULT_STRATEGIES:
        groups = split(units, strategy, special)
        pieces = ["".join(group) if isinstance(group[0], str) else group for group in groups]
        streams[strategy.id] = streamed(fixture, iter(pieces), **options)
    return Observation(nonstream=result(parse_response(whole, **options)), streams=streams)


def options_of(fixture: Fixture) -> dict[str, Any]:
    prompt = fixture.generation_prompt or PROMPTS[fixture.family]
    return {"prompt": prompt, "family": by_prefix(GRAMMARS, fixture), "tools": fixture.tools}


def failures(fixture: Fixture, observation: Observation) -> list[str]:
    rows = run_checks(fixture, None, observation)
    assert case_status(rows) is not Status.ERROR
    return [
        f"{row.check} {row.strategy}: {row.detail}" for row in rows if row.status is Status.FAIL
    ]


@pytest.mark.parametrize("fixture", fixtures(), ids=lambda fixture: fixture.id)
def test_completion_from_text(fixture: Fixture) -> None:
    observation = observe(
        fixture, fixture.raw_output, list(fixture.raw_output), set(), **options_of(fixture)
    )
    assert failures(fixture, observation) == []


@pytest.mark.parametrize("fixture", fixtures(), ids=lambda fixture: fixture.id)
def test_completion_from_ids(fixture: Fixture) -> None:
    name = by_prefix(TOKENIZERS, fixture)
    if name is None or fixture.output_token_ids is None:
        pytest.skip("no tokenizer at hand writes these ids")
    tokenizer = load_tokenizer(name)
    ids = list(fixture.output_token_ids)
    if tokenizer.decode(ids, skip_special_tokens=False) != fixture.raw_output:
        pytest.skip("the tokenizer at hand is another revision: these ids are not its own")
    special = set(tokenizer.get_added_vocab().values())
    options = options_of(fixture) | {"tokenizer": tokenizer}
    assert failures(fixture, observe(fixture, ids, ids, special, **options)) == []


def test_enough_completions_are_read_from_ids() -> None:
    """The skips above are the exception."""
    reproduced = 0
    for fixture in fixtures():
        name = by_prefix(TOKENIZERS, fixture)
        if name is not None and Path(__file__).exists() and fixture.output_token_ids is not None:
            tokenizer = load_tokenizer(name)
            text = tokenizer.decode(list(fixture.output_token_ids), skip_special_tokens=False)
            reproduced += text == fixture.raw_output
    assert reproduced >= 100
