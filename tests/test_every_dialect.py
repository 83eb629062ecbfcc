"""What must hold for every dialect alike: faults that were met in one are looked for in all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import antiphon
import pytest
from antiphon.errors import AntiphonError, TemplateRefused
from antiphon.families import ModelFamily
from antiphon.reading import read_response, unparse
from antiphon.registry import families
from antiphon.testing.parity import as_newest
from antiphon.testing.scenarios import corpus, with_arguments
from antiphon.testing.stand_in import special_tokens_for

EVERY = pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "note",
            "description": "Keep a note.",
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "deep": {"type": "object"}},
            },
        },
    }
]
ASKED = [{"role": "user", "content": "Note it."}]


def variables(family: ModelFamily) -> dict[str, str]:
    return {**special_tokens_for(family), "date_string": "01 Jan 2025"}


@EVERY
def test_generation_tags_mark_the_turns_with_thinking_on_too(family: ModelFamily) -> None:
    transformers = pytest.importorskip(
        "transformers.utils.chat_template_utils", reason="transformers marks by the tags"
    )
    template = family.load_template()
    if not re.search(r"{%-?\s*generation", template):
        pytest.skip(f"the template of {family.name} has no generation tags")
    form = "string" if family.arguments == "string" else "mapping"
    compared = 0
    for case in corpus():
        messages, tools = with_arguments(case.messages, form), case.tools
        settings = {
            **variables(family),
            **case.variables,
            "thinking": True,
            "enable_thinking": True,
        }
        try:
            rendering = antiphon.render(messages, chat_template=template, tools=tools, **settings)
        except TemplateRefused:
            continue
        if rendering.unlocated:
            continue
        texts, marked = transformers.render_jinja_template(
            [as_newest(messages)],
            tools=tools,
            chat_template=template,
            return_assistant_tokens_mask=True,
            **settings,
        )
        assert rendering.text == texts[0]
        turns = [(turn.start, turn.end) for turn in rendering.turns if turn.end > turn.start]
        assert turns == [(a, b) for a, b in marked[0] if b > a], case.id
        compared += len(turns)
    assert compared > 10


def call(arguments: Any, family: ModelFamily | None = None) -> dict[str, Any]:
    if family is not None and family.arguments == "string":
        arguments = json.dumps(arguments, ensure_ascii=False)
    function = {"name": "note", "arguments": arguments}
    return {"id": "call12345", "type": "function", "function": function}


def turn_with(family: ModelFamily, arguments: list[Any]) -> tuple[str, str] | None:
    """Return prompt and turn of calls; None where the dialect prints fewer."""
    calls = [call(each, family) for each in arguments]
    for content in ("", None):
        messages = [*ASKED, {"role": "assistant", "content": content, "tool_calls": calls}]
        try:
            rendering = antiphon.render(
                messages, family=family.name, tools=TOOLS, **variables(family)
            )
            prompt = antiphon.render(
                ASKED,
                family=family.name,
                tools=TOOLS,
                add_generation_prompt=True,
                **variables(family),
            ).text
        except AntiphonError:
            continue
        if rendering.text.count("note") >= prompt.count("note") + len(calls) and rendering.turns:
            turn = rendering.turns[-1]
            return prompt, rendering.text[turn.start : turn.end]
    return None


def arguments_of(message: dict[str, Any]) -> list[Any]:
    given = [each["function"]["arguments"] for each in message.get("tool_calls") or ()]
    return [json.loads(each) if isinstance(each, str) else each for each in given]


def markers_of(family: ModelFamily) -> Iterator[str]:
    grammar = family.load_grammar()
    assert grammar is not None
    for form in grammar.calls:
        for text in (form.opener, form.closer, form.block_opener, form.block_closer):
            yield text.strip()
    yield from (*family.end_tokens, "</think>", "<think>", '"}', "}}", "]", "```", "</parameter>")


@EVERY
def test_markers_in_arguments_do_not_end_a_call(family: ModelFamily) -> None:  # case parse-qwen-01
    compared = 0
    for marker in dict.fromkeys(filter(None, markers_of(family))):
        for arguments in ({"text": f"a {marker} b"}, {"deep": {"k": [marker, {"z": marker}]}}):
            for others in ([], [{"text": "second"}]):
                made = turn_with(family, [arguments, *others])
                if made is None:
                    continue
                prompt, turn = made
                read = antiphon.parse_response(turn, prompt=prompt, family=family.name, tools=TOOLS)
                assert arguments_of(read) == [arguments, *others], marker
                compared += 1
    if not compared:
        pytest.skip("the dialect prints no calls")


@EVERY
def test_a_turn_cut_anywhere_keeps_its_whole_calls_and_its_text(  # case parse-qwen-04
    family: ModelFamily,
) -> None:
    wanted = [{"text": "one"}, {"text": "tw{o"}]
    made = turn_with(family, wanted) or turn_with(family, wanted[:1])
    if made is None:
        pytest.skip("the dialect prints no calls")
    prompt, turn = made
    for size in range(len(turn)):
        read = read_response(turn[:size], prompt=prompt, family=family.name, tools=TOOLS)
        assert unparse(read) == turn[:size]
        assert not read.message["is_complete"]
        whole = [c for c in read.message.get("tool_calls") or () if c["status"] == "ok"]
        found = arguments_of({"tool_calls": whole})
        assert found == wanted[: len(found)], turn[:size]


@EVERY
def test_a_call_reads_alike_however_its_content_and_arguments_are_spelled(  # cases args-01, args-03
    family: ModelFamily,
) -> None:
    texts = set()
    for content in ({"content": None}, {"content": ""}, {}):
        for arguments in ({"x": 1}, '{"x": 1}'):
            answer = {"role": "assistant", "tool_calls": [call(arguments)], **content}
            history = antiphon.History.from_chats(
                [*ASKED, answer, {"role": "tool", "content": "1"}]
            )
            try:
                texts.add(
                    antiphon.render(
                        history, family=family.name, tools=TOOLS, **variables(family)
                    ).text
                )
            except TemplateRefused:
                texts.add("")
    assert len(texts) == 1


@EVERY
@pytest.mark.parametrize("text", ["The capital is ", "  lead", "x\n\n", "{", "a </think> b"])
def test_a_continued_answer_ends_where_it_was_cut(  # cases ws-01, ws-03
    family: ModelFamily, text: str
) -> None:
    earlier = [
        {"role": "user", "content": "And Spain?"},
        {"role": "assistant", "content": "The capital is "},
    ]
    for before in ([], earlier):
        messages = [*before, *ASKED, {"role": "assistant", "content": text}]
        rendering = antiphon.render(
            messages, family=family.name, continue_final_message=True, **variables(family)
        )
        assert rendering.text.rstrip().endswith(text.strip())
        assert not rendering.turns[-1].closed


def texts_of(value: Any) -> Iterator[str]:
    """Yield the words of a field: of texts, parts, calls, tools."""
    if isinstance(value, str):
        yield from (word for word in re.findall(r"[a-z]+w[0-9]", value))
    else:
        for item in value.values() if isinstance(value, dict) else value or ():
            yield from texts_of(item)


def parts_of(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


SAID: dict[str, list[dict[str, Any]]] = {
    "calls": [
        {"role": "system", "content": "systemw1"},
        {"role": "user", "content": "userw1"},
        {
            "role": "assistant",
            "content": "saidw1",
            "reasoning_content": "whyw1",
            "tool_calls": [call({"text": "callw1"}), call({"text": "callw2"})],
        },
        {"role": "tool", "content": "resultw1"},
        {"role": "tool", "content": "resultw2"},
        {"role": "assistant", "content": "saidw2"},
    ],
    "one call": [
        {"role": "user", "content": "userw1"},
        {"role": "assistant", "content": "saidw1", "tool_calls": [call({"text": "callw1"})]},
        {"role": "tool", "content": "resultw1"},
    ],
    "a call without content": [
        {"role": "user", "content": "userw1"},
        {"role": "assistant", "content": None, "tool_calls": [call({"text": "callw1"})]},
        {"role": "tool", "content": "resultw1"},
    ],
    "systems and developers": [
        {"role": "system", "content": "systemw1"},
        {"role": "system", "content": "systemw2"},
        {"role": "developer", "content": "developerw1"},
        {"role": "user", "content": "userw1"},
        {"role": "assistant", "content": "saidw1"},
    ],
    "parts": [
        {"role": "system", "content": parts_of("systemw1", "systemw2")},
        {"role": "user", "content": parts_of("userw1", "userw2")},
        {"role": "assistant", "content": parts_of("saidw1", "saidw2")},
    ],
}


@EVERY
@pytest.mark.parametrize("messages", SAID.values(), ids=SAID)
@pytest.mark.parametrize("form", ["mapping", "string"])
def test_what_a_dialect_does_not_print_is_told(
    family: ModelFamily, messages: list[dict[str, Any]], form: str
) -> None:
    tools = json.loads(json.dumps(TOOLS).replace("Keep a note.", "toolw1"))
    given = with_arguments(messages, form)
    try:
        rendering = antiphon.render(given, family=family.name, tools=tools, **variables(family))
    except TemplateRefused:
        return  # a refusal is told, too
    lost = {
        (index, field)
        for index, message in [*enumerate(given), (-1, {"tools": tools})]
        for field, value in message.items()
        if any(word not in rendering.text for word in texts_of(value))
    }
    assert {(each.message, each.field) for each in rendering.dropped} == lost


@EVERY
def test_a_conversation_cut_in_a_header_has_no_answer_of_its_beginning(family: ModelFamily) -> None:
    messages = [
        {"role": "user", "content": "first question"},
        {"role": "assistant", "content": "first answer"},
        {"role": "user", "content": "second question"},
        {"role": "assistant", "content": "second answer"},
    ]
    given = {**variables(family), "bos_token": ""}
    text = antiphon.render(messages, family=family.name, **given).text
    for size in range(text.index("first answer") + len("first answer"), len(text)):
        read = antiphon.parse(text[:size], family=family.name)
        contents = [each["content"] or "" for each in read]
        assert not any(re.match(r"\s*<[^<>\s]+>", each) for each in contents), text[:size]


def refuses(family: ModelFamily, messages: list[dict[str, Any]]) -> bool:
    try:
        antiphon.render(messages, family=family.name, tools=TOOLS, **variables(family))
    except TemplateRefused:
        return True
    return False


@EVERY
def test_notes_tell_what_is_refused_and_not_printed(family: ModelFamily) -> None:
    told = " ".join(family.notes if "As deepseek-r" not in family.notes[0] else root(family).notes)
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    if refuses(family, parts):
        assert re.search("parts|not text", told)
    if refuses(family, [{"role": "user", "content": None}]):
        assert re.search("None|without a content", told)
    if turn_with(family, [{"text": "one"}]) is None:
        assert re.search("[Cc]alls", told)


def root(family: ModelFamily) -> ModelFamily:
    return next(each for each in families() if each.name == family.variant_of)
