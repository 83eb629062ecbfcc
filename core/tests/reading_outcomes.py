"""What becomes of a conversation that is rendered by a template and read by a grammar inferred from it."""

from __future__ import annotations

import copy
import json
from typing import Any

from antiphon.engine.rendering import render
from antiphon.errors import GrammarUnavailable, RenderError
from antiphon.reading import Grammar, parse

READ = ("same messages", "same text")
"""Outcomes of a conversation that is read right."""
REFUSED = ("refused", "flagged")
"""Outcomes of one that is not read, and where the reader says so."""

Message = dict[str, Any]


def outcome(template: str, grammar: Grammar, case: dict[str, Any], tokens: dict[str, str]) -> str:
    """Say what becomes of a conversation.

    Returns:
        ``"not accepted"``: the template refuses it. ``"same messages"``: it comes back, but for
        what the template did not print (parts of messages, or whole ones) and white space at the
        ends. ``"same text"``: what comes
        back renders to the same text. ``"refused"``: reading raises. ``"flagged"``: reading says
        that there are calls that it can't read. ``"wrong"``: none of these.
    """
    options = {"chat_template": template, "tools": case.get("tools"), **case["kwargs"], **tokens}
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
    shown = [message for message in messages if not is_left_out(message, text)]
    if comparable(found, text) in (comparable(messages, text), comparable(shown, text)):
        return "same messages"
    if renders_again(found, text, options):
        return "same text"
    if any("unparsed_calls" in message for message in found):
        return "flagged"
    return "wrong"


def renders_again(found: list[Message], text: str, options: dict[str, Any]) -> bool:
    """Whether what was read renders to the text, with or without a prompt for an answer, with
    contents as texts or as parts, thinking or not: a text does not say which of them made it.
    """
    plain = with_ids([without_status(message) for message in found])
    ways = [{}, {"enable_thinking": False}, {"enable_thinking": True}]
    for messages in (plain, with_parts(plain)):
        for prompt in (options["add_generation_prompt"], True):
            for way in ways if "enable_thinking" not in options else ways[:1]:
                asked = {**options, "add_generation_prompt": prompt, **way}
                try:
                    again = render(messages, **asked).text
                except RenderError:
                    continue
                if again == text:
                    return True
    return False


def with_ids(messages: list[Message]) -> list[Message]:
    """Return messages whose calls and results have ids, as templates need them that print none."""
    made, waiting, count = [], [], 0
    for message in messages:
        if message.get("tool_calls"):
            calls = []
            for call in message["tool_calls"]:
                count += 1
                calls.append({"id": f"call{count:05}", **call})
            message = {**message, "tool_calls": calls}
            waiting = list(calls)
        elif message["role"] == "tool" and waiting:
            call = waiting.pop(0)
            link = {"tool_call_id": call["id"], "name": call["function"]["name"]}
            message = {**link, **message}
        made.append(message)
    return made


def comparable(messages: list[Message], text: str) -> list[Message]:
    """Return what of messages has to come back: what the template printed."""
    made = []
    for message in messages:
        item: Message = {"role": message["role"]}
        item["content"] = printed(message.get("content") or "", text)
        reasoning = (message.get("reasoning_content") or "").strip()
        if reasoning and reasoning in text:
            item["reasoning"] = reasoning
        for call in message.get("tool_calls") or ():
            arguments = call["function"]["arguments"]
            if isinstance(arguments, str):
                arguments = json.loads(arguments)
            item.setdefault("calls", []).append((call["function"]["name"], arguments))
        made.append(item)
    return made


def is_left_out(message: Message, text: str) -> bool:
    """Whether the template printed nothing of a message that says something."""
    content, thought = message.get("content"), message.get("reasoning_content")
    said = content if isinstance(content, str) else ""
    return (
        bool(said.strip())
        and said.strip() not in text
        and not message.get("tool_calls")
        and not (thought and thought.strip() in text)
    )


def printed(content: Any, text: str) -> str:
    """Return a content as the template printed it, less white space.

    Parts may stand there as Python writes a list; a content that is nowhere in the text was
    dropped.
    """
    if isinstance(content, list):
        if str(content) in text:
            content = str(content)
        else:
            content = "".join(part["text"] for part in content if part["text"].strip() in text)
        return "".join(content.split())
    shown = content.strip()
    return "".join(shown.split()) if shown in text else ""


def without_status(message: Message) -> Message:
    """Return a message without what only the reader says of its calls."""
    made = {key: value for key, value in message.items() if key != "unparsed_calls"}
    if made.get("tool_calls"):
        made["tool_calls"] = [
            {key: value for key, value in call.items() if key != "status"}
            for call in made["tool_calls"]
        ]
    return made


def with_parts(messages: list[Message]) -> list[Message]:
    """Return messages with contents as lists with one part."""
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if isinstance(message.get("content"), str)
        else message
        for message in messages
    ]


def with_text_arguments(messages: list[Message]) -> list[Message]:
    """Return messages with call arguments as JSON text."""
    made = copy.deepcopy(messages)
    for message in made:
        for call in message.get("tool_calls") or ():
            if not isinstance(call["function"]["arguments"], str):
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return made
