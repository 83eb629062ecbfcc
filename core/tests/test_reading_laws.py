"""Reading and rendering undo each other, for random histories with hostile contents."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from antiphon.engine.rendering import render
from antiphon.errors import FamilyNotFound, GrammarUnavailable, RenderError
from antiphon.reading import (
    Grammar,
    RoleForm,
    read_conversation,
    read_response,
    stream_parser,
    unparse,
)
from antiphon.registry import families, get_family
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from reading_grammars import ALL

FAMILIES = ("qwen2.5", "qwen3", "llama3.1", "deepseek-v3.1", "chatml")
CALLING = ("qwen2.5", "qwen3", "llama3.1", "deepseek-v3.1")
TOKENS = {
    "llama3.1": {"bos_token": "<|begin_of_text|>", "date_string": "26 Jul 2024"},
    "deepseek-v3.1": {"bos_token": "<｜begin▁of▁sentence｜>"},
}
FOREIGN = ("[INST]", "<start_of_turn>", "<|channel|>", "[TOOL_CALLS]", "<arg_key>", "</s>")
SIGNS = (
    "{",
    "}",
    "[",
    "]",
    '"',
    "'",
    "\\",
    "\\n",
    "{{ a }}",
    "{% b %}",
    "&",
    "<",
    ">",
    "null",
    ",",
)
WORDS = ("one", "two", "Ås", "🌸", "\n", "\n\n", " ", "  ", "0", ": ")
OWN = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>", "</tool_response>")
FORMATTED = (*OWN, "<tool_call>\n", "\n</tool_call>", "<｜tool▁sep｜>", '{"name": "f"')

hostile = st.lists(st.sampled_from((*FOREIGN, *SIGNS, *WORDS)), max_size=8).map("".join)
asked = st.lists(st.sampled_from((*FOREIGN, *SIGNS, *WORDS, *OWN)), max_size=8).map("".join)
marked = st.lists(st.sampled_from((*SIGNS, *WORDS, *FORMATTED)), max_size=6).map("".join)
solid = hostile.map(lambda text: f"a{text}z")
arguments = st.dictionaries(
    st.sampled_from(("city", "days", "note")),
    st.one_of(asked, st.integers(-9, 9), st.booleans(), st.none(), st.lists(asked, max_size=2)),
    max_size=3,
)


def options_of(name: str) -> tuple[Any, dict[str, Any]]:
    try:
        family = get_family(name)
    except FamilyNotFound as error:
        pytest.skip(f"the distribution that brings {name} is not installed: {error}")
    return family.load_grammar(), {
        "chat_template": family.load_template(),
        **TOKENS.get(name, {}),
    }


def history(texts: list[str], system: str | None) -> list[dict[str, Any]]:
    """Return a conversation in which question and answer take turns."""
    roles = ("user", "assistant")
    made = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return [*([{"role": "system", "content": system}] if system else []), *made]


def kept(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a rendering can hold of messages, with arguments read."""
    made = []
    for message in messages:
        item = {"role": message["role"], "content": message.get("content") or ""}
        for call in message.get("tool_calls") or ():
            given_ = call["function"]["arguments"]
            read = json.loads(given_) if isinstance(given_, str) else given_
            item.setdefault("calls", []).append((call["function"]["name"], read))
        made.append(item)
    return made


@pytest.mark.parametrize("name", FAMILIES)
def test_random_histories_come_back(name: str) -> None:
    grammar, options = options_of(name)

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(solid, min_size=1, max_size=6), st.one_of(st.none(), solid), asked)
    def check(texts: list[str], system: str | None, question: str) -> None:
        texts[0] = f"a{question}z"
        messages = history(texts, system)
        text = render(messages, **options).text
        assert kept(read_conversation(text, family=grammar).messages) == kept(messages)

    check()


@pytest.mark.parametrize("name", CALLING)
def test_random_calls_come_back(name: str) -> None:
    grammar, options = options_of(name)

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(arguments, solid, solid)
    def check(values: dict[str, Any], result: str, answer: str) -> None:
        shown: Any = json.dumps(values) if grammar.arguments == "string" else values
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": shown}}
        messages = [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": grammar.empty_content, "tool_calls": [call]},
            {"role": "tool", "content": result, "tool_call_id": "c1"},
            {"role": "assistant", "content": answer},
        ]
        text = render(messages, **options).text
        assert kept(read_conversation(text, family=grammar).messages) == kept(messages)

    check()


DECLARED = [family.name for family in families() if family.grammar]
"""Every installed dialect that declares how it is read."""


def again(
    name: str, messages: list[dict[str, Any]], prompt: bool = False
) -> tuple[str, str] | None:
    """Return a rendering, and what is read from it rendered again; None where the template refuses the messages.

    Where the last message is an answer some templates print no prompt for another, but close that answer if they are
    asked to.
    """
    family = get_family(name)
    grammar, template = family.load_grammar(), family.load_template()
    assert grammar is not None
    options = {
        "chat_template": template,
        "bos_token": grammar.bos or "<s>",
        "eos_token": grammar.end_tokens[0],
        "date_string": "26 Jul 2024",
    }
    if grammar.arguments == "string":
        for message in messages:
            for call in message.get("tool_calls", ()):
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    try:
        text = render(messages, add_generation_prompt=prompt, **options).text
    except RenderError:
        return None
    found = read_conversation(text, family=grammar)
    ends = bool(found.messages) and found.messages[-1]["role"] == "assistant"
    asked = prompt if ends else found.prompted
    return text, render(found.messages, add_generation_prompt=asked, **options).text


@pytest.mark.parametrize("name", DECLARED)
def test_what_is_read_renders_to_the_same_text(name: str) -> None:
    """Answers may hold the markers of reasoning and of calls that are none.

    A question that begins with a result's marker is a result, as far as text can tell; from ids it is told apart.

    A whole call in an answer's text is read as a call, as a model may have written it, if it stands
    behind all text: with another white space than the template's it renders as the template writes calls.
    """

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(marked, min_size=1, max_size=5), st.booleans())
    def check(texts: list[str], prompt: bool) -> None:
        renderings = again(name, history(texts, None), prompt)
        assume(renderings is not None)
        assert len(set(renderings)) == 1

    check()


BITS = st.sampled_from(
    (*SIGNS, *WORDS, *FORMATTED, '"}}', "</parameter>", "<|im_end|>", "[f(a=1)]")
)


@pytest.mark.parametrize("grammar", ALL, ids=lambda grammar: grammar.name)
def test_a_completion_is_read_alike_wherever_the_prompt_ends_and_the_stream_is_cut(
    grammar: Grammar,
) -> None:
    """What the prompt began is no part of the completion's text, and what is shown adds up to what is read."""
    marks = sorted(
        {mark for form in grammar.calls for mark in (form.block_opener, form.opener, form.closer)}
        | {"", "a", '{"name": "f", "parameters": {"a": "}{"}}', '{"a": [1]}', "f"}
    )

    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(st.one_of(BITS, st.sampled_from(marks)), max_size=9).map("".join),
        st.integers(0, 60),
        st.lists(st.integers(1, 9), min_size=1, max_size=5),
    )
    def check(whole: str, begun: int, cuts: list[int]) -> None:
        prompt, text = "<|im_start|>assistant\n" + whole[:begun], whole[begun:]
        reading = read_response(text, prompt=prompt, family=grammar)
        assert unparse(reading) == text
        parser = stream_parser(prompt=prompt, family=grammar)
        events, at = [], 0
        for size in itertools.cycle(cuts):
            if at >= len(text):
                break
            events += parser.feed(text[at : at + size])
            at += size
        found = parser.finish()
        assert found.message == reading.message
        assert unparse(found) == text
        for kind, field in (("content", "content"), ("reasoning", "reasoning_content")):
            shown = [event.text for event in [*events, *found.last_events] if event.kind == kind]
            assert "".join(shown) == (reading.message[field] or "")

    check()


SPACES = (
    "",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\n\n\n",
    "\t",
    " \n",
    "\n ",
    "\r\n",
    "\u00a0",
    "\u2028",
    "\x1f",
)
spaced = st.tuples(
    st.sampled_from(SPACES), st.sampled_from(("0", "a b", "{a}", "")), st.sampled_from(SPACES)
)
padded = spaced.map("".join)
blocks = st.tuples(
    st.sampled_from(("", "<think>", "<think>\n", "\n<think>")),
    padded,
    st.sampled_from(("</think>", "\n</think>\n\n", "\n</think>", "</think>\n")),
    padded,
).map("".join)


@st.composite
def padded_conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw a conversation with white space wherever a template may strip some, and reasoning in the content, in the
    field or in both.
    """
    messages: list[dict[str, Any]] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": draw(padded)})
    for _ in range(draw(st.integers(1, 2))):
        messages.append({"role": "user", "content": draw(padded)})
        answer: dict[str, Any] = {"role": "assistant", "content": draw(padded)}
        where = draw(st.sampled_from(("nowhere", "content", "field", "both")))
        if where in ("content", "both"):
            answer["content"] = draw(blocks)
        if where in ("field", "both"):
            answer["reasoning_content"] = draw(padded)
        messages.append(answer)
        if draw(st.integers(0, 2)) == 0:
            function = {"name": "f", "arguments": draw(st.sampled_from(({}, {"a": "\n v "})))}
            answer["tool_calls"] = [{"id": "c1", "type": "function", "function": function}]
            result = {"role": "tool", "content": draw(padded), "tool_call_id": "c1", "name": "f"}
            messages += [result, {"role": "assistant", "content": draw(padded)}]
    return messages


@pytest.mark.parametrize("name", DECLARED)
def test_white_space_around_contents_and_reasoning_renders_again(name: str) -> None:
    """What a template strips at one place and prints at another comes back so that it is printed."""

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(padded_conversations(), st.booleans())
    def check(messages: list[dict[str, Any]], prompt: bool) -> None:
        renderings = again(name, messages, prompt)
        assume(renderings is not None)
        assert len(set(renderings)) == 1

    check()


BLANKS = ("", "\n", "\n\n", " \n", "\x1f")


def blank_conversations() -> Iterator[list[dict[str, Any]]]:
    """Yield conversations in which one text, or two, are nothing but white space."""
    question, answer = {"role": "user", "content": "0"}, {"role": "assistant", "content": "0"}
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {}}}
    result = {"role": "tool", "content": "0", "tool_call_id": "c1", "name": "f"}
    calling = {"role": "assistant", "content": "", "tool_calls": [call]}
    for one, two in itertools.product(BLANKS, BLANKS):
        yield [{"role": "system", "content": one}, {"role": "user", "content": two}, answer]
        yield [{"role": "user", "content": one}, calling, {**result, "content": two}, answer]
        for thought in ({"reasoning_content": two}, {"reasoning_content": f"0{two}"}, {}):
            said = {"role": "assistant", "content": one, **thought}
            called = {**said, "tool_calls": [call]}
            yield from ([question, first] for first in (said, called))
            yield [question, said, question, answer]
            yield [question, called, result, answer]
            yield [question, called, result, question, answer]


@pytest.mark.parametrize("name", DECLARED)
def test_texts_of_white_space_alone_render_again(name: str) -> None:
    """A template may test a text of white space for truth, and strip it where it prints it."""
    read = 0
    for messages in blank_conversations():
        renderings = again(name, copy.deepcopy(messages))
        if renderings is not None:
            assert len(set(renderings)) == 1, messages
            read += 1
    assert read > 100


@pytest.mark.parametrize("name", DECLARED)
def test_reading_ends_on_any_text_made_of_what_stands_around_messages(name: str) -> None:
    """No turn opens for ever at the place where it ends, wherever a text breaks off."""
    grammar = get_family(name).load_grammar()
    assert grammar is not None
    parts = {"0", "\n", "<", *grammar.end_tokens}
    for form in grammar.roles:
        for literals in (form.opener, form.closer, form.begins, form.group_opener, form.separator):
            literals = (literals,) if isinstance(literals, str) else literals
            parts |= {part for part in literals if isinstance(part, str)}

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.sampled_from(sorted(parts)), max_size=9).map("".join), st.integers(0, 40))
    def check(whole: str, torn: int) -> None:
        text = whole[: max(len(whole) - torn, 0)]
        try:
            found = read_conversation(text, family=grammar)
        except GrammarUnavailable:
            return
        assert len(found.messages) <= len(text) + 1

    check()


def test_turns_that_only_their_first_words_tell_end_where_the_next_begins() -> None:
    answer = RoleForm("assistant", "", begins="<answer>", after=("user", "assistant"))
    grammar = Grammar("short", roles=(RoleForm("user", "<u>"), answer))
    found = read_conversation("<u>hi<answer>yes<answer>no", family=grammar).messages
    assert [message["content"] for message in found] == ["hi", "<answer>yes", "<answer>no"]
