"""Renderings are read back: render(parse(x)) is x, parse(render(m)) is m, hostile content does no harm."""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random

import deepseek_oracle as oracle
import pytest
from antiphon.reading import parse, parse_response, read_response, stream_parser, unparse
from antiphon_deepseek.families import FAMILIES
from hypothesis import given, settings
from hypothesis import strategies as st

BY_NAME = {family.name: family for family in FAMILIES}
# Fields that these templates don't print.
REASONING = {"reasoning-field", "reasoning-field-two-turns", "tool-round-reasoning"}
CALLS = {
    "tool-call",
    "tool-call-with-content",
    "tool-call-nested-args",
    "tool-call-string-args",
    "tool-call-no-args",
    "tool-round",
    "tool-round-prompt",
    "tool-round-reasoning",
    "tool-parallel",
    "tool-two-rounds",
}
# Contents that these templates print without the text up to </think>.
STRIPPED = {"think-inline", "think-inline-prompt", "think-inline-two-turns"}
# An empty system message leaves no trace, a later one moves to the front.
SYSTEM = {"system-in-middle", "empty-contents"}
# Calls with content are dropped, those of a second round lose theirs.
UNPRINTED = {"tool-call-with-content", "tool-two-rounds"}

# Corpus conversations of which the text does not tell what they were.
NOT_TOLD = {
    "deepseek-v2": REASONING | CALLS,
    "deepseek-v2-0628": REASONING | CALLS,
    "deepseek-coder": REASONING | CALLS | {"system-in-middle"},
    "deepseek-prover": REASONING | CALLS | {"empty-contents"},
    "deepseek-coder-v2-0724": REASONING | SYSTEM | UNPRINTED,
    "deepseek-v2.5": REASONING | SYSTEM | UNPRINTED,
    "deepseek-v3": REASONING | SYSTEM | UNPRINTED,
    "deepseek-r1-distill": REASONING | SYSTEM | UNPRINTED | STRIPPED,
    "deepseek-r1": REASONING | SYSTEM | STRIPPED | {"tool-two-rounds"},
    "deepseek-r1-0528": REASONING | SYSTEM | STRIPPED,
    "deepseek-v3.1": REASONING | SYSTEM | STRIPPED,
    # Reasoning is printed after the last user message, and an inline block looks like it.
    "deepseek-v3.2": {"reasoning-field-two-turns", "tool-round-reasoning"} | SYSTEM | STRIPPED,
    "deepseek-v4": SYSTEM | STRIPPED | {"consecutive-users", "content-parts"},
    "deepseek-v4-encoder": {"reasoning-field-two-turns"},
}
every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def printable(family, messages):
    """Return the messages in the form in which the dialect prints calls."""
    if family.arguments == "mapping":
        return oracle.with_mapping_arguments(messages)
    messages = oracle.with_string_arguments(messages)
    if family.load_grammar().empty_content is None:
        messages = [
            {**message, "content": message.get("content") or None}
            if "tool_calls" in message
            else message
            for message in messages
        ]
    return messages


def essence(messages):
    """Return what two message lists must have in common; arguments by value, no content as ""."""
    essences = []
    for message in messages:
        calls = []
        for call in message.get("tool_calls") or ():
            arguments = call["function"]["arguments"]
            value = json.loads(arguments) if isinstance(arguments, str) else arguments
            calls.append((call["function"]["name"], value))
        reasoning = message.get("reasoning_content") or ""
        essences.append((message["role"], message.get("content") or "", reasoning, calls))
    return essences


@every_family
def test_the_corpus_comes_back_as_it_was(family):
    template, grammar = family.load_template(), family.load_grammar()
    told, lost = 0, set()
    for case in oracle.corpus():
        messages = printable(family, case["messages"])
        variables = {**case["kwargs"], "thinking": True}
        text = oracle.render(template, messages, case.get("tools"), **variables)
        if text is None:
            continue
        if essence(parse(text, family=grammar)) == essence(messages):
            told += 1
        else:
            lost.add(case["id"])
    assert lost <= NOT_TOLD[family.variant_of or family.name] | NOT_TOLD.get(family.name, set())
    assert told >= 20


@every_family
def test_every_corpus_rendering_comes_back_to_the_byte(family):
    template, grammar = family.load_template(), family.load_grammar()
    compared = 0
    for case in oracle.corpus():
        messages = printable(family, case["messages"])
        for thinking in (False, True):
            variables = {**case["kwargs"], "thinking": thinking}
            text = oracle.render(template, messages, case.get("tools"), **variables)
            if text is None or not_settled(family, case["id"]):
                continue
            again = oracle.render(
                template, parse(text, family=grammar), case.get("tools"), **variables
            )
            assert again == text, case["id"]
            compared += 1
    assert compared >= 60


def not_settled(family, case_id):
    """What the text alone does not settle: see the grammar's notes."""
    if family.arguments == "mapping" and case_id in STRIPPED:
        return True  # See test_a_block_behind_an_empty_one_is_content.
    # Eight spaces before BOS stand for a system message, be it empty; then nothing else tells of it.
    return family.name == "deepseek-coder-v2-0724" and case_id == "empty-contents"


@every_family
def test_any_conversation_in_order_comes_back_to_the_byte(family):
    template, grammar = family.load_template(), family.load_grammar()
    random = Random(family.name)
    compared = 0
    for _ in range(300):
        messages, tools, variables = oracle.sensible_conversation(random, oracle.PLAIN_TEXTS)
        if family.name == "deepseek-coder-v2-0724" and messages[0]["content"] == "":
            continue
        messages = printable(family, messages)
        text = oracle.render(template, messages, tools, **variables)
        if text is None:
            continue
        read = parse(text, family=grammar)
        assert oracle.render(template, read, tools, **variables) == text, (messages, read)
        compared += 1
    assert compared >= 100


@pytest.mark.parametrize("name", ["deepseek-v3.2", "deepseek-v4"])
@pytest.mark.parametrize("thinking", [False, True])
def test_a_block_behind_an_empty_one_is_content(name, thinking):
    family = BY_NAME[name]
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<think>\nr\n</think>\n\nb"},
    ]
    text = oracle.render(family.load_template(), messages, thinking=thinking)
    assert text is not None
    assert essence(parse(text, family=family.load_grammar())) == essence(messages)


@settings(max_examples=200, deadline=None)
@given(chance=st.randoms(use_true_random=False), family=st.sampled_from(FAMILIES))
def test_reading_a_rendering_with_markers_in_it_never_raises(chance, family):
    messages, tools, variables = oracle.sensible_conversation(chance, oracle.TEXTS)
    text = oracle.render(family.load_template(), printable(family, messages), tools, **variables)
    if text is not None:
        parse(text, family=family.load_grammar())


@settings(max_examples=200, deadline=None)
@given(
    parts=st.lists(
        st.sampled_from((*oracle.TEXTS, oracle.EOS, "<think>", "\n```json\n", '">')), max_size=8
    ),
    prompt=st.sampled_from(
        (None, "<｜Assistant｜>", "<｜Assistant｜><think>\n", "<｜Assistant｜></think>")
    ),
    family=st.sampled_from(FAMILIES),
)
def test_any_completion_is_read_without_loss(parts, prompt, family):
    text = "".join(parts)
    reading = read_response(text, prompt=prompt, family=family.load_grammar())
    assert unparse(reading) == text


# --- Hostile content ----------------------------------------------------------------------------------------

HOSTILE = (
    ("deepseek-v3", "v3"),
    ("deepseek-r1", "v3"),
    ("deepseek-r1-0528", "v3"),
    ("deepseek-v3.1", "v3"),
    ("deepseek-v3.1", "v4"),
    ("deepseek-v3.2", "v4"),
    ("deepseek-v4", "v4"),
)


@pytest.mark.parametrize(("name", "vocabulary"), HOSTILE)
def test_markers_typed_by_users_and_tools_are_text_when_read_from_ids(name, vocabulary, tokenizers):
    from antiphon import render

    tokenizer = tokenizers(vocabulary)
    family = BY_NAME[name]
    # V4's results stand between tags that are no tokens: such a text can't be told from a result.
    hostile = [text for text in oracle.TEXTS if text and "<tool_result>" not in text]
    random = Random(name)
    for _ in range(40):
        calls = [
            {
                "type": "function",
                "function": {"name": "f", "arguments": random.choice(oracle.ARGUMENTS)},
            }
            for _ in range(random.choice((1, 2)))
        ]
        messages = [
            {"role": "system", "content": random.choice(hostile)},
            {"role": "user", "content": random.choice(hostile)},
            {"role": "assistant", "content": "", "tool_calls": calls},
            *({"role": "tool", "content": random.choice(hostile)} for _ in calls),
            {"role": "assistant", "content": "So it is."},
            {"role": "user", "content": random.choice(hostile)},
            {"role": "assistant", "content": "Well."},
        ]
        messages = printable(family, messages)
        rendering = render(messages, tokenizer, chat_template=family.load_template())
        ids = rendering.tokenize(tokenizer).input_ids
        read = parse(ids, tokenizer=tokenizer, family=family.load_grammar())
        assert essence(read) == essence(messages)


@pytest.mark.parametrize("vocabulary", ["v3", "v4"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_ids_are_read_without_loss(vocabulary, data, tokenizers):
    tokenizer = tokenizers(vocabulary)
    control = [i for token, i in tokenizer.get_added_vocab().items() if "place" not in token]
    ids = data.draw(st.lists(st.sampled_from(control) | st.integers(0, 127_000), max_size=30))
    name = data.draw(
        st.sampled_from(("deepseek-v3", "deepseek-r1", "deepseek-v3.1", "deepseek-v3.2"))
    )
    reading = read_response(ids, tokenizer=tokenizer, family=BY_NAME[name].load_grammar())
    assert unparse(reading) == tokenizer.decode(ids, skip_special_tokens=False)


# --- Calls in three generations -----------------------------------------------------------------------------

FENCED = (
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": 1}\n```<｜tool▁call▁end｜>'
    "\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
NAMED = (
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>'
    "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
DSML = (
    '\n\n<｜DSML｜{block}>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="false">1'
    '</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name="g">\n</｜DSML｜invoke>\n</｜DSML｜{block}>'
)
FORMS = {
    "deepseek-v2.5": FENCED,
    "deepseek-v3": FENCED,
    "deepseek-r1": FENCED,
    "deepseek-r1-0528": FENCED,
    "deepseek-r1-distill": FENCED,
    "deepseek-v3.1": NAMED,
    "deepseek-v3.2": DSML.format(block="function_calls"),
    "deepseek-v4": DSML.format(block="tool_calls"),
}


@pytest.mark.parametrize("name", FORMS)
def test_two_calls_behind_a_word_are_read_in_each_generation(name):
    text = f"Wait.{FORMS[name]}{oracle.EOS}"
    message = parse_response(text, family=BY_NAME[name].load_grammar())
    assert message["content"] == "Wait."
    assert message["is_complete"]
    assert [
        (c["function"]["name"], c["function"]["arguments"], c["status"])
        for c in message["tool_calls"]
    ] == [
        ("f", {"a": 1}, "ok"),
        ("g", {}, "ok"),
    ]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("cut", [0.5, 0.8])
def test_a_call_that_is_cut_off_is_no_answer(name, cut):
    text = FORMS[name][: int(len(FORMS[name]) * cut)]
    message = parse_response(text, family=BY_NAME[name].load_grammar())
    assert not message["is_complete"]
    assert message["tool_calls"]
    assert message["tool_calls"][-1]["status"] != "ok" or message["content"] is None


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 400), max_size=6))
def test_a_stream_in_any_split_gives_the_same_message(name, cuts):
    grammar = BY_NAME[name].load_grammar()
    text = f"r</think>Wait.{FORMS[name]}{oracle.EOS}"
    prompt = "<｜Assistant｜><think>"
    parser = stream_parser(prompt=prompt, family=grammar)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in pairwise(places):
        parser.feed(text[start:end])
    assert parser.close() == parse_response(text, prompt=prompt, family=grammar)


@pytest.mark.parametrize(
    "name", ["deepseek-v2.5", "deepseek-v3", "deepseek-r1", "deepseek-r1-distill"]
)
@pytest.mark.parametrize("count", [1, 2])
def test_a_second_round_of_calls_is_read_without_a_header(name, count):
    family = BY_NAME[name]

    def calls(size):
        function = {"name": "f", "arguments": '{"a": 1}'}
        made = [{"type": "function", "function": function} for _ in range(size)]
        return {"role": "assistant", "content": None, "tool_calls": made}

    def results(size):
        return [{"role": "tool", "content": str(number)} for number in range(size)]

    messages = [
        {"role": "user", "content": "q"},
        calls(1),
        *results(1),
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "r"},
        calls(count),
        *results(count),
        {"role": "assistant", "content": "b"},
    ]
    text = oracle.render(family.load_template(), messages)
    found = parse(text, family=family.load_grammar())
    assert [(item["role"], item["content"]) for item in found] == [
        (item["role"], item["content"]) for item in messages
    ]
    assert len(found[5]["tool_calls"]) == count
    assert oracle.render(family.load_template(), found) == text
