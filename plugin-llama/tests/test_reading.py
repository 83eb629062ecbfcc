"""Reading Llama text back: what was rendered comes back, and what models write is understood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import antiphon
import pytest
from antiphon.errors import AntiphonError
from antiphon_llama.families import FAMILIES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CORPUS = Path(__file__).parents[2] / "core" / "tests" / "data" / "conversations.jsonl"
NAMES = [family.name for family in FAMILIES]
LLAMA3 = ["llama3.1", "llama3.2"]
TOKENS = {
    "llama2": {"bos_token": "<s>", "eos_token": "</s>"},
    "codellama": {"bos_token": "<s>", "eos_token": "</s>"},
}
LLAMA3_TOKENS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
CALLING = [*LLAMA3, "llama4"]


@pytest.fixture(scope="session")
def corpus() -> list[dict[str, Any]]:
    if not CORPUS.is_file():
        pytest.skip(f"the corpus is not at {CORPUS}")
    return [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()]


def render(name: str, messages: Any, tools: Any = None, **variables: Any) -> str:
    variables = {**TOKENS.get(name, LLAMA3_TOKENS), **variables}
    return antiphon.render(messages, family=name, tools=tools, **variables).text


def read(name: str, text: str) -> list[dict[str, Any]]:
    """Return what stands in a text, in the form in which templates take messages."""
    messages = antiphon.parse(text, family=name)
    for message in messages:
        for call in message.get("tool_calls") or ():
            assert call.pop("status") == "ok"
    return messages


def printed(name: str, message: dict[str, Any]) -> dict[str, Any]:
    """Return what a dialect prints of a message."""
    role = "tool" if message["role"] in ("tool", "ipython") else message["role"]
    content = message.get("content") or ""
    calls = message.get("tool_calls")
    if name == "llama4" and isinstance(content, list):
        content = "".join(part["text"] for part in content)
    if name in LLAMA3 and calls:
        content = ""
    elif role != "tool" and name != "llama4":
        content = content.strip()
    kept: dict[str, Any] = {"role": role, "content": content}
    if calls:
        kept["tool_calls"] = [
            {"type": "function", "function": dict(call["function"])} for call in calls
        ]
    return kept


def can_express(name: str, messages: list[dict[str, Any]]) -> bool:
    """Tell whether nothing but trimming and unprinted fields is lost on a conversation."""
    if name not in CALLING and any("tool_calls" in message for message in messages):
        return False
    return name == "llama4" or all(isinstance(m.get("content", ""), str | None) for m in messages)


def renderings(name, corpus):
    """Yield each conversation that the dialect takes, and its text."""
    for entry in corpus:
        try:
            text = render(name, entry["messages"], entry.get("tools"), **entry["kwargs"])
        except AntiphonError:
            continue
        yield entry, text


@pytest.mark.parametrize("name", NAMES)
def test_what_was_rendered_comes_back(name, corpus):
    compared = 0
    for entry, text in renderings(name, corpus):
        if not can_express(name, entry["messages"]):
            continue
        expected = [printed(name, message) for message in entry["messages"]]
        if name in LLAMA3:
            expected = [m for m in expected if m["role"] != "system" or m["content"]]
        if name == "llama4" and expected[0]["role"] == "system":
            expected[0]["content"] = expected[0]["content"].strip()
        if name in TOKENS and expected[0]["role"] == "system":
            # The system text stands in the user's turn, whose ends are trimmed, not its own.
            expected[0]["content"] = entry["messages"][0]["content"]
            expected[1]["content"] = entry["messages"][1]["content"].rstrip()
        assert read(name, text) == expected, entry["id"]
        compared += 1
    assert compared >= (19 if name in ("llama2", "codellama") else 20)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_read_renders_to_the_same_text(name, corpus):
    compared = 0
    for entry, text in renderings(name, corpus):
        again = render(name, read(name, text), entry.get("tools"), **entry["kwargs"])
        assert again == text, entry["id"]
        compared += 1
    assert compared >= 27


# What only some conversations have

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "d", "parameters": {"type": "object"}},
}


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def calling(name: str, arguments: Any, content: str = "") -> dict[str, Any]:
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


@pytest.mark.parametrize("name", LLAMA3)
def test_the_dates_are_not_stored_and_not_printed_twice(name):
    for system in ([], [{"role": "system", "content": "Be brief."}]):
        messages = [*system, user("a")]
        text = render(name, messages, date_string="01 Jan 2025")
        assert read(name, text) == messages
        assert text.count("Cutting Knowledge Date") == 1
        assert render(name, read(name, text), date_string="01 Jan 2025") == text


def test_the_default_date_of_llama_31_is_fixed():
    text = render("llama3.1", [user("a")])
    assert text == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\na<|eot_id|>"
    )


def test_built_in_calls_come_back():
    messages = [user("a"), calling("brave_search", {"query": "Köln", "page": "2"})]
    text = render("llama3.1", messages, builtin_tools=["brave_search"])
    assert text.endswith('<|python_tag|>brave_search.call(query="Köln", page="2")<|eom_id|>')
    assert read("llama3.1", text) == messages


def test_quotes_that_built_in_calls_do_not_escape_come_back():
    messages = [user("a"), calling("brave_search", {"query": 'say "hi"', "b": 'c\\n", d'})]
    text = render("llama3.1", messages, builtin_tools=["brave_search"])
    assert read("llama3.1", text) == messages


def test_calls_beside_built_in_tools_come_back():
    messages = [user("a"), calling("weather", {"city": "Köln"})]
    variables = {"tools": [WEATHER], "builtin_tools": ["brave_search", "code_interpreter"]}
    text = render("llama3.1", messages, **variables)
    assert text.endswith("<|eom_id|>")
    assert read("llama3.1", text) == messages


@pytest.mark.parametrize("name", CALLING)
def test_tools_in_the_first_user_turn_are_not_part_of_it(name):
    messages = [user("a question"), {"role": "assistant", "content": "b"}, user("c")]
    assert read(name, render(name, messages, [WEATHER, WEATHER])) == messages


@pytest.mark.parametrize("name", CALLING)
@pytest.mark.parametrize("text", ["{", '{"a": 1}', "{}\n\nx", "[{}]"])
def test_a_question_in_braces_behind_the_tools_is_no_tool(name, text):
    messages = [user(text), {"role": "assistant", "content": "b"}]
    assert read(name, render(name, messages, [WEATHER, WEATHER])) == messages


def test_the_parts_of_a_llama_4_message_become_its_text():
    messages = [user("a"), calling("f", {"x": 1}, content="So: ")]
    text = render("llama4", messages)
    assert "<|python_start|>So: <|python_end|>" in text
    assert read("llama4", text) == messages


def test_several_calls_of_llama_4_come_back():
    message = calling("f", {"x": 1})
    message["tool_calls"] += calling("g", {})["tool_calls"]
    text = render("llama4", [user("a"), message])
    assert read("llama4", text) == [user("a"), message]


def test_the_system_text_of_llama_2_comes_out_of_the_first_user_turn():
    messages = [
        {"role": "system", "content": " rules\n"},
        user("a"),
        {"role": "assistant", "content": "b"},
        user("c"),
    ]
    text = render("llama2", messages)
    assert text == "<s>[INST] <<SYS>>\n rules\n\n<</SYS>>\n\na [/INST] b </s><s>[INST] c [/INST]"
    assert read("llama2", text) == messages


def test_results_that_are_json_come_back_as_text():
    messages = [user("a"), {"role": "tool", "content": '{"t": "é\\n"}'}]
    assert read("llama3.1", render("llama3.1", messages)) == messages


# Completions


def answer(name: str, text: str) -> dict[str, Any]:
    message = antiphon.parse_response(text, family=name)
    return {
        "content": message.get("content") or "",
        "calls": [
            (call["function"]["name"], call["function"]["arguments"], call["status"])
            for call in message.get("tool_calls") or ()
        ],
        "complete": message["is_complete"],
    }


@pytest.mark.parametrize("name", LLAMA3)
def test_a_call_with_nested_arguments_is_read_whole(name):
    text = (
        '{"name": "predict", "parameters": {"record": {"age": {"years": 42}, "zip": "n/a"}}}'
        "<|eot_id|>"
    )
    arguments = {"record": {"age": {"years": 42}, "zip": "n/a"}}
    assert answer(name, text) == {
        "content": "",
        "calls": [("predict", arguments, "ok")],
        "complete": True,
    }


@pytest.mark.parametrize("name", LLAMA3)
def test_braces_in_strings_do_not_end_a_call(name):
    text = (
        '<|python_tag|>{"name": "search", "parameters": '
        '{"filters": {"year": 2020}, "q": "}{"}}<|eom_id|>'
    )
    arguments = {"filters": {"year": 2020}, "q": "}{"}
    assert answer(name, text)["calls"] == [("search", arguments, "ok")]
    assert answer(name, text)["content"] == ""


@pytest.mark.parametrize("name", LLAMA3)
def test_the_key_arguments_is_read_like_parameters(name):
    text = '{"name": "f", "arguments": {"a": 1}}<|eot_id|>'
    assert answer(name, text)["calls"] == [("f", {"a": 1}, "ok")]


@pytest.mark.parametrize("name", LLAMA3)
def test_a_sampled_built_in_call_is_read(name):
    text = '<|python_tag|>brave_search.call(query="x")<|eom_id|>'
    assert answer(name, text)["calls"] == [("brave_search", {"query": "x"}, "ok")]


@pytest.mark.parametrize("name", LLAMA3)
def test_code_behind_the_python_tag_is_a_call_of_the_interpreter(name):
    text = "<|python_tag|>import math\nprint(math.pi)<|eom_id|>"
    arguments = {"code": "import math\nprint(math.pi)"}
    assert answer(name, text)["calls"] == [("code_interpreter", arguments, "ok")]


@pytest.mark.parametrize("name", ["llama3.1", "llama3.2", "llama4"])
def test_an_object_with_a_name_and_nothing_else_is_no_call(name):
    text = '{"name": "Alice"}'
    messages = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": text}]
    assert antiphon.parse(render(name, messages), family=name)[-1]["content"] == text
    assert antiphon.parse_response(text, family=name).get("tool_calls") is None


def test_nested_lists_in_a_pythonic_call_of_llama_4_are_read():
    text = '[rewrite(queries=["red shoes, size 9", "boots"], top_k=3)]<|eot|>'
    arguments = {"queries": ["red shoes, size 9", "boots"], "top_k": 3}
    assert answer("llama4", text) == {
        "content": "",
        "calls": [("rewrite", arguments, "ok")],
        "complete": True,
    }


@pytest.mark.parametrize(
    "text", ["[a list, not a call]<|eot|>", "[f(x) is a call in prose]<|eot|>"]
)
def test_a_list_that_is_no_call_of_llama_4_stays_content(text):
    assert answer("llama4", text) == {
        "content": text.removesuffix("<|eot|>"),
        "calls": [],
        "complete": True,
    }


@pytest.mark.parametrize("name", LLAMA3)
@pytest.mark.parametrize("end", ["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"])
def test_every_end_token_ends_the_turn_and_what_follows_is_not_part_of_it(name, end):
    assert answer(name, f"Paris{end}and more") == {
        "content": "Paris",
        "calls": [],
        "complete": True,
    }


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_without_an_end_token_is_not_complete(name):
    assert answer(name, "Par") == {"content": "Par", "calls": [], "complete": False}


@pytest.mark.parametrize("name", CALLING)
def test_a_call_that_is_cut_off_is_neither_content_nor_a_good_call(name):
    cut = answer(name, '{"name": "f", "parameters": {"a": 1')
    assert cut["content"] == ""
    assert [status for _, _, status in cut["calls"]] == ["incomplete"]
    assert not cut["complete"]


# Laws

HOSTILE = st.sampled_from(
    [
        "<|eot_id|>",
        "<|start_header_id|>system<|end_header_id|>\n\n",
        "<|python_tag|>",
        "<|eom_id|>",
        "<|im_end|>",
        "</s>",
        "[/INST]",
        '{"name": "f", "parameters": {',
        "}}",
        '"',
        "\\",
        "\n\n",
        " ",
        "é🚀",
    ]
)
SAFE = st.text(max_size=12)
LAWS = settings(
    deadline=None,
    max_examples=150,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("name", CALLING)
@LAWS
@given(
    arguments=st.dictionaries(
        SAFE, SAFE | HOSTILE | st.integers() | st.lists(SAFE | HOSTILE, max_size=3), max_size=3
    ),
    result=SAFE | st.lists(HOSTILE, max_size=4).map("".join),
)
def test_arguments_and_results_come_back_whatever_they_hold(name, arguments, result):
    messages = [user("a"), calling("f", arguments), {"role": "tool", "content": result}, user("b")]
    text = render(name, messages, [WEATHER])
    if any(marker in result + str(arguments) for marker in ("<|eot_id|>", "<|start_header_id|>")):
        # Only ids tell a marker that somebody typed from one of the template's.
        return
    assert read(name, text) == messages
    assert render(name, read(name, text), [WEATHER]) == text


@pytest.mark.parametrize("name", NAMES)
@LAWS
@given(text=st.lists(SAFE | HOSTILE, max_size=8).map("".join))
def test_reading_never_raises_and_keeps_every_character(name, text):
    antiphon.parse(text, family=name)
    from antiphon.reading import read_response, unparse

    assert unparse(read_response(text, family=name)) == text


@pytest.mark.parametrize("name", NAMES)
@LAWS
@given(text=st.lists(SAFE | HOSTILE, max_size=6).map("".join), data=st.data())
def test_any_split_of_a_stream_gives_the_one_shot_result(name, text, data):
    parser = antiphon.stream_parser(family=name)
    at = 0
    while at < len(text):
        size = data.draw(st.integers(1, len(text) - at))
        parser.feed(text[at : at + size])
        at += size
    assert parser.close() == antiphon.parse_response(text, family=name)


def test_a_pythonic_call_of_llama_4_between_python_markers_is_read():
    text = '<|python_start|>[f(a=1), g(b="x")]<|python_end|><|eot|>'
    assert answer("llama4", text) == {
        "content": "",
        "calls": [("f", {"a": 1}, "ok"), ("g", {"b": "x"}, "ok")],
        "complete": True,
    }


def test_a_result_in_parts_comes_back_in_parts():
    messages = [user("a"), {"role": "tool", "content": [{"type": "text", "text": "t"}]}]
    assert read("llama3.1", render("llama3.1", messages)) == messages
