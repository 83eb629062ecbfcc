"""Messages in the OpenAI form, made of what the machine read."""

from __future__ import annotations

import re
from typing import Any

from antiphon.reading.call_parts import Call
from antiphon.reading.grammar import Grammar
from antiphon.reading.literals import python_value
from antiphon.reading.machine import Machine
from antiphon.reading.printed import keeps_text
from antiphon.reading.scan import WHITE, Invalid, decode_json

_BREAKS = re.compile(r"\n{2,}")


def conversation_message(
    machine: Machine, grammar: Grammar, kept: str = "", *, has_thought: bool = False
) -> dict[str, Any]:
    """Make the message of an assistant's turn in a whole conversation.

    What looked like a call and was none is content here, since only so it comes back when rendered;
    ``unparsed_calls`` says so.

    Args:
        machine: The machine that read the turn.
        grammar: The grammar.
        kept: A reasoning block that stays in the content.
        has_thought: An empty reasoning block stood before what the machine read.
    """
    good = [call for call in machine.calls if call.status == "ok"]
    is_whole = len(good) == len(machine.calls)
    if (
        good
        and not is_whole
        and machine.calls[: -len(good)] != [call for call in machine.calls if call.status != "ok"]
    ):
        # Templates print content before calls: what stands behind a call can't be content unless
        # the call is.
        good = []
    calls = [call_dict(call, exact=True, as_text=keeps_text(grammar, call)) for call in good]
    if is_whole:
        content: str | None = kept + "".join(machine.content)
    else:
        content = kept + _content_with_broken(machine, bool(good), grammar)
    if calls and not content:
        content = _unprinted_content(machine, grammar, has_thought or bool(machine.reasoning))
    message: dict[str, Any] = {"role": "assistant", "content": content}
    reasoning = "".join(machine.reasoning)
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    broken = [call_dict(call) for call in machine.calls if not (good and call.status == "ok")]
    if broken and not is_whole:
        message["unparsed_calls"] = broken
    return message


def _unprinted_content(machine: Machine, grammar: Grammar, has_thought: bool) -> str | None:
    """Return the content of an answer of calls alone.

    The white space that a format puts between content and calls tells that there was a content of
    which the template printed nothing: where reasoning stays in the content, it drops that from
    earlier answers; behind a block of reasoning it strips white space.
    """
    first = machine.calls[0].form
    if first is None or first.form.lead_always:
        return grammar.empty_content
    is_kept = grammar.reasoning is not None and not grammar.reasoning.separate
    is_stripped = has_thought and bool(first.form.lead)
    return (machine.lead if is_kept or is_stripped else "") or grammar.empty_content


def _content_with_broken(machine: Machine, has_calls: bool, grammar: Grammar) -> str:
    """Join content and broken calls, with what stands between them and closes their block.

    Args:
        machine: The machine that read them.
        has_calls: Whether the good calls are calls; else they are content as well.
        grammar: The grammar.
    """
    texts: list[str] = []
    between = ""
    whole = {call.raw for call in machine.calls if has_calls and call.status == "ok"}
    is_last = False
    started = not machine.reasoning
    for piece in machine.pieces:
        if piece.kind == "reasoning":
            between, started = "", False
        elif piece.kind == "format":
            between += piece.text if started else ""
            started = True
        elif piece.kind == "call" and piece.text in whole:
            if is_last:
                # What the format puts between content and calls is no content.
                texts = ["".join([*texts, between]).removesuffix(_lead(machine))]
            between, is_last = "", False
        elif piece.kind in ("content", "call"):
            texts.append(between + piece.text)
            between, started = "", True
            is_last = piece.kind == "call"
    closer = grammar.content.closer.strip(WHITE) if grammar.content else ""
    if is_last and not (closer and closer in between):
        texts.append(between)
    return "".join(texts)


def _lead(machine: Machine) -> str:
    """Return the white space that stands before the good calls."""
    form = next(call.form for call in machine.calls if call.status == "ok")
    return form.lead if form is not None else ""


def parts_or_text(content: Any) -> Any:
    """Return a list of parts where a content is one as Python writes it, else the content."""
    if not isinstance(content, str) or not content.startswith("[{'") or content[-2:] != "}]":
        return content
    try:
        read = python_value(content, 0)
    except Invalid:
        return content
    if read is None or not isinstance(read[0], list) or repr(read[0]) != content:
        return content
    are_parts = all(isinstance(part, dict) and "type" in part for part in read[0])
    return read[0] if are_parts else content


def with_all_breaks(content: str) -> str:
    """Return the shortest text of which this is left where every second break is left out."""
    return _BREAKS.sub(lambda found: "\n" * (2 * len(found.group()) - 1), content)


def call_dict(call: Call, *, exact: bool = False, as_text: bool = False) -> dict[str, Any]:
    """Return a call in the OpenAI form.

    Args:
        call: The call.
        exact: Keep arguments that stood there as a string a string.
        as_text: Give the arguments as their JSON text where there is one.
    """
    arguments = call.arguments
    written = call.written() if as_text else None
    if written is not None:
        arguments = written
    elif isinstance(arguments, str) and not exact:
        try:
            value = decode_json(arguments)
            arguments = value if isinstance(value, dict) else arguments
        except Invalid:
            pass
    made: dict[str, Any] = {} if call.id is None else {"id": call.id}
    made |= {
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
        "status": call.status,
    }
    if exact and call.untyped:
        made["_call"] = call
    if call.status != "ok":
        made["raw"] = call.raw
        made["problem"] = call.problem
    return made
