"""Reading Falcon text back: what was rendered comes back, and what models write is understood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import antiphon
import pytest
from antiphon.errors import AntiphonError
from antiphon_falcon.families import FAMILIES

CORPUS = Path(__file__).parents[3] / "core" / "tests" / "data" / "conversations.jsonl"
NAMES = [family.name for family in FAMILIES]
TOKENS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|endoftext|>"}
PRINTED_ROLES = {
    "falcon": {"system", "user", "assistant"},
    "falcon-11b": {"system", "user", "assistant"},
    "falcon3": {"system", "user", "assistant"},
    "falcon-h1": {"system", "user", "assistant", "tool"},
    "falcon-mamba": {"system", "user", "assistant", "tool"},
}


@pytest.fixture(scope="session")
def corpus() -> list[dict[str, Any]]:
    if not CORPUS.is_file():
        pytest.skip(f"the corpus is not at {CORPUS}")
    return [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()]


def render(name: str, messages: Any, tools: Any = None, **variables: Any) -> str:
    return antiphon.render(messages, family=name, tools=tools, **{**TOKENS, **variables}).text


def printed(name: str, message: dict[str, Any]) -> dict[str, Any]:
    """Return what a dialect prints of a message."""
    content = message["content"]
    if name == "falcon":
        content = content.strip()
        if message["role"] != "system":
            content = content.replace("\n\n", "\n")
    return {"role": message["role"], "content": content}


def can_express(name: str, messages: list[dict[str, Any]]) -> bool:
    """Tell whether a dialect prints every message, and all of it."""
    return (
        all(message["role"] in PRINTED_ROLES[name] for message in messages)
        and not any("tool_calls" in message for message in messages)
        and not (name == "falcon-h1" and any(m["role"] == "system" for m in messages[1:]))
    )


def test_an_empty_answer_of_falcon_is_no_generation_prompt():
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]
    assert antiphon.parse(render("falcon", messages), family="falcon") == messages
    text = render("falcon", messages[:1], add_generation_prompt=True)
    assert antiphon.parse(text, family="falcon") == messages[:1]


def plain(corpus: list[dict[str, Any]], name: str) -> list[tuple[dict[str, Any], str]]:
    """Return the conversations without tools that a dialect accepts, with their text."""
    rendered = []
    for entry in corpus:
        if entry.get("tools"):
            continue
        try:
            rendered.append((entry, render(name, entry["messages"], **entry["kwargs"])))
        except AntiphonError:
            continue
    return rendered


@pytest.mark.parametrize("name", NAMES)
def test_what_was_rendered_comes_back(name, corpus):
    compared = 0
    for entry, text in plain(corpus, name):
        typed = "<|im_start|>" in str(entry["messages"])
        if not can_express(name, entry["messages"]) or (typed and "<|im_start|>" in text):
            continue  # Only ids tell a marker that somebody typed from one of the template's.
        expected = [printed(name, message) for message in entry["messages"]]
        if name == "falcon":
            expected = [m for m in expected if m["role"] != "system" or m["content"]]
        assert antiphon.parse(text, family=name) == expected, entry["id"]
        compared += 1
    assert compared >= 19


@pytest.mark.parametrize("name", NAMES)
def test_what_was_read_renders_to_the_same_text(name, corpus):
    compared = 0
    for entry, text in plain(corpus, name):
        if name == "falcon-h1" and entry["id"] == "control-tokens-in-user":
            continue  # The typed system turn is dropped when it is rendered again.
        again = render(name, antiphon.parse(text, family=name), **entry["kwargs"])
        assert again == text, entry["id"]
        compared += 1
    assert compared >= 19


def test_rounds_of_tools_of_falcon_3_render_to_the_same_text(corpus):
    compared = 0
    for entry in corpus:
        if not entry.get("tools"):
            continue
        text = render("falcon3", entry["messages"], entry["tools"], **entry["kwargs"])
        messages = antiphon.parse(text, family="falcon3")
        assert render("falcon3", messages, entry["tools"], **entry["kwargs"]) == text, entry["id"]
        compared += 1
    assert compared >= 12


@pytest.mark.parametrize("content", ["", None])
def test_with_tools_an_answer_that_says_nothing_has_no_header(content):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    question, answer = {"role": "user", "content": "a"}, {"role": "assistant", "content": content}
    for messages in ([question, answer], [answer, question, answer, answer, question]):
        text = render("falcon3", messages, tools)
        read = antiphon.parse(text, family="falcon3")
        assert [message["role"] for message in read] == [message["role"] for message in messages]
        assert render("falcon3", read, tools) == text


@pytest.mark.parametrize("name", ["falcon", "falcon-11b", "falcon-mamba"])
def test_tools_that_are_not_printed_do_not_matter(name, corpus):
    conversation = next(entry for entry in corpus if entry["id"] == "tools-system-prompt")
    text = render(name, conversation["messages"], conversation["tools"])
    assert antiphon.parse(text, family=name) == conversation["messages"]


def test_the_tools_of_falcon_3_are_not_part_of_the_system_text(corpus):
    for case in ("tools-prompt", "tools-system-prompt"):
        conversation = next(entry for entry in corpus if entry["id"] == case)
        text = render("falcon3", conversation["messages"], conversation["tools"])
        assert antiphon.parse(text, family="falcon3") == conversation["messages"]


def test_calls_after_a_text_of_falcon_3_come_back(corpus):
    conversation = next(entry for entry in corpus if entry["id"] == "tool-call-with-content")
    text = render("falcon3", conversation["messages"], conversation["tools"])
    answer = antiphon.parse(text, family="falcon3")[-1]
    [call] = answer["tool_calls"]
    assert answer["content"] == "Let me check that."
    assert call["function"] == {"name": "get_weather", "arguments": {"city": "Oslo"}}
    assert (call["id"], call["status"]) == ("call00001", "ok")


def test_calls_without_a_text_of_falcon_3_come_back(corpus):
    conversation = next(entry for entry in corpus if entry["id"] == "tool-call")
    text = render("falcon3", conversation["messages"], conversation["tools"])
    assert antiphon.parse(text, family="falcon3")[-1]["tool_calls"]


def test_the_tools_of_falcon_h1_are_not_part_of_the_system_text(corpus):
    conversation = next(entry for entry in corpus if entry["id"] == "tools-system-prompt")
    text = render("falcon-h1", conversation["messages"], conversation["tools"])
    assert antiphon.parse(text, family="falcon-h1") == conversation["messages"]


@pytest.mark.parametrize(
    "text",
    [
        '\n<tool_call>\n[\n  {"name": "f", "arguments": {"a": 1}},\n  {"name": "g", "arguments": {}}\n]'
        "\n</tool_call><|endoftext|>",
        '<tool_call>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]</tool_call>'
        "<|endoftext|>",
    ],
)
def test_a_list_of_calls_of_falcon_3_is_read(text):
    message = antiphon.parse_response(text, family="falcon3")
    calls = [(call["function"]["name"], call["status"]) for call in message["tool_calls"]]
    assert calls == [("f", "ok"), ("g", "ok")]
    assert message["content"] is None
    assert message["is_complete"]


def test_a_call_of_falcon_h1_is_read():
    text = '<tool_call>\n{"arguments": {"a": 1}, "name": "f"}\n</tool_call><|im_end|>'
    message = antiphon.parse_response(text, family="falcon-h1")
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("falcon", "<|endoftext|>"),
        ("falcon-11b", "<|endoftext|>"),
        ("falcon3", "<|endoftext|>"),
        ("falcon-h1", "<|im_end|>"),
        ("falcon-mamba", "<|im_end|>"),
    ],
)
def test_the_end_token_ends_an_answer(name, end):
    message = antiphon.parse_response(f"Paris{end}", family=name)
    assert (message["content"], message["is_complete"]) == ("Paris", True)


def test_the_space_before_an_answer_of_falcon_is_not_its_own():
    prompt = render("falcon", [{"role": "user", "content": "a"}], add_generation_prompt=True)
    message = antiphon.parse_response(" Paris", prompt=prompt, family="falcon")
    assert message["content"].strip() == "Paris"


def test_a_tool_s_header_is_not_taken_for_that_of_an_empty_answer_further_on() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": ""},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": ""},
    ]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    rendering = antiphon.render(messages, family="falcon3", tools=[tool], **TOKENS)
    last = rendering.turns[-1]
    assert rendering.text[last.start : last.end].strip() == "<|endoftext|>"
