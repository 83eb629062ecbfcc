"""Holding what was read by an inferred grammar against the template: does it print that?

Probes show a template's format only so far. So each whole conversation is rendered again: what the
template does not print like the text that was read was not read for sure, and is refused. Only
answers are free to differ, since models write calls, reasoning and ends in ways of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from antiphon.errors import InvalidData, RenderError
from antiphon.reading.compiled import Compiled
from antiphon.reading.conversation import Conversation, Place, splitter_of
from antiphon.reading.grammar import Literals, Slot, Source
from antiphon.reading.ids import literals_of
from antiphon.reading.infer_turns import MARKER
from antiphon.reading.scan import WHITE

if TYPE_CHECKING:
    from antiphon.engine.rendering import Rendering

_WAYS: tuple[dict[str, Any], ...] = ({}, {"enable_thinking": False}, {"enable_thinking": True})


def unprinted(
    conversation: Conversation, compiled: Compiled, text: str, tools: list[Any] | None
) -> str:
    """Say why the template does not print what was read; "" if it does.

    Args:
        conversation: What was read.
        compiled: The grammar it was read by, with its `Grammar.source`.
        text: What it was read from, in the form that `compiled` reads.
        tools: The tools that the caller knows of.
    """
    source = compiled.grammar.source
    assert source is not None
    if not text:
        return ""
    if compiled.is_exact and _holds_controls(conversation, compiled, text):
        return "a control token of turns stands in a message"
    plain, said = compiled.plain(text), conversation.messages
    first, rest = (said[:1], said[1:]) if said and said[0]["role"] == "system" else ([], said)
    reason = ""
    for made, given in _printed(source, conversation, said, tools):
        if made.text == plain:
            if not tools or given is not None:
                return ""
            if any(_holds_turns(message, compiled) for message in said):
                return "a message holds markers of turns, or what announces tools"
            if first and _prints(source, conversation, rest, tools, plain):
                return "what reads as its system text announces tools"
            return ""
        again = _spelled(made, compiled)
        found = _difference(conversation, text, again, compiled, has_tools=given is not None)
        if not found:
            if first and _prints(source, conversation, [*rest, *first], tools, plain):
                return "its system text stood last"
            empty = [_without_none(message) for message in said]
            if empty != said and _prints(source, conversation, empty, tools, plain):
                return "a content of None stands in it as a word"
            return ""
        reason = reason or found
    return reason or "the template refuses the conversation that was read"


def _prints(
    source: Source,
    conversation: Conversation,
    messages: list[dict[str, Any]],
    tools: list[Any] | None,
    text: str,
) -> bool:
    """Whether the template prints other messages than those that were read as the text."""
    ways = _printed(source, conversation, messages, tools)
    return any(made.text == text for made, given in ways if given is tools)


def _printed(
    source: Source,
    conversation: Conversation,
    messages: list[dict[str, Any]],
    tools: list[Any] | None,
) -> Iterator[tuple[Rendering, list[Any] | None]]:
    """Yield what the template prints of messages, in each way in which it may have been asked, with
    the tools that it was given.
    """
    from antiphon.engine.rendering import render
    from antiphon.plugins.events import unobserved

    variables = {**dict(source.variables), **conversation.arguments}
    plain = _linked([_without_verdicts(message) for message in messages])
    ways = _WAYS if "enable_thinking" in source.template else _WAYS[:1]
    takes_tools = False
    for as_parts in (source.as_parts, not source.as_parts):
        asked = [_with_parts(message) for message in plain] if as_parts else plain
        for given in (tools, None) if tools else (None,):
            if takes_tools and given is None:
                break  # it was printed with tools
            for way in ways:
                for prompt in (conversation.prompted, not conversation.prompted):
                    try:
                        with unobserved():
                            made = render(
                                asked,
                                chat_template=source.template,
                                tools=given,
                                add_generation_prompt=prompt,
                                **{**variables, **way},
                            )
                    except (RenderError, InvalidData):
                        continue
                    takes_tools = conversation.has_tools and given is not None
                    yield made, given


def _spelled(made: Rendering, compiled: Compiled) -> str:
    """Return a rendering in the form that `compiled` reads: what was said in messages as it is."""
    pieces, at = [], 0
    for span in made.spans:
        pieces += [compiled.convert(made.text[at : span.start]), made.text[span.start : span.end]]
        at = span.end
    return "".join([*pieces, compiled.convert(made.text[at:])])


def _difference(
    conversation: Conversation, text: str, again: str, compiled: Compiled, *, has_tools: bool
) -> str:
    """Say where two renderings differ outside of answers and of tools and dates before all messages,
    of which the reader is not told; "" if they do not.
    """
    printed = splitter_of(compiled).read(again)
    one, two = conversation.places, printed.places
    if any(not place.role for place in one):
        return "a part of it belongs to no message"
    if [place.role for place in one] != [place.role for place in two]:
        return "the template prints what was read as other messages"
    if any(_holds_turns(message, compiled) for message in conversation.messages):
        return "a message holds markers of turns"
    for number, (first, second) in enumerate(zip(one, two, strict=True)):
        bodies = text[first.start : first.end], again[second.start : second.end]
        if first.role == "assistant":
            message = conversation.messages[first.message] if first.message >= 0 else {}
            other = printed.messages[second.message] if second.message >= 0 else {}
            is_last = (
                first is one[-1]
                and not conversation.prompted
                and _is_headed(conversation, text, compiled)
            )
            is_free = _is_free(message, *bodies, compiled) and _says_no_more(other, message)
            differ = not is_free and not _alike(*bodies, compiled, is_last=is_last)
        else:
            differ = bodies[0] != bodies[1]
        if differ:
            return f"the template prints turn {number} in another way"
    if one:
        heads = [text[: one[0].start], again[: two[0].start]]
        if _varies(conversation, compiled):
            # The white space at the end is the first message's, or not, all the same.
            is_like = has_tools == conversation.has_tools
            heads = [head[len(head.rstrip()) :] if is_like else "" for head in heads]
        if heads[0] != heads[1]:
            return "the template begins in another way"
    for number, (left, right) in enumerate(zip(pairwise(one), pairwise(two), strict=True), 1):
        gaps = text[left[0].end : left[1].start], again[right[0].end : right[1].start]
        if left[1].role == "assistant":
            gaps = _unthought(gaps[0], compiled), _unthought(gaps[1], compiled)
        if gaps[0] != gaps[1] and not _announces(gaps[0], compiled):
            return f"the template prints something else before turn {number}"
    if not one or (one[-1].role == "assistant" and not conversation.prompted):
        return "" if one else "no message stands in it"
    ends = text[one[-1].end :], again[two[-1].end :]
    return "" if ends[0] == ends[1] else "the template prints another end"


def _varies(conversation: Conversation, compiled: Compiled) -> bool:
    """Whether what stands before all messages holds what the reader is not told: tools, a date."""
    date = Slot("date")
    openers = [form.opener for form in compiled.grammar.roles]
    return conversation.has_tools or any(date in it for it in openers if not isinstance(it, str))


def _announces(gap: str, compiled: Compiled) -> bool:
    """Whether what stands before a turn announces tools, as one of the grammar's forms has it."""
    for form in compiled.grammar.roles:
        if isinstance(form.opener, str) or Slot("tools") not in form.opener:
            continue
        at = 0
        for part in form.opener:
            literal = compiled.convert(part) if isinstance(part, str) else ""
            found = gap.find(literal, at)
            if found < 0:
                break
            at = found + len(literal)
        else:
            if at == len(gap) or not isinstance(form.opener[-1], str):
                return True
    return False


def _alike(one: str, two: str, compiled: Compiled, *, is_last: bool) -> bool:
    """Whether two answers differ only in white space and in which token ends them; the last one
    may have no end.
    """
    ended, bodies = [], []
    for whole in (one, two):
        body = whole.rstrip(WHITE)
        ends = [stop for stop in compiled.stops if body.endswith(stop)]
        for stop in ends:
            body = body.removesuffix(stop)
        ended.append("a token" if ends else "white space" if body != whole else "nothing")
        bodies.append("".join(body.split()))
    return bodies[0] == bodies[1] and (is_last or ended[0] == ended[1])


def _is_headed(conversation: Conversation, text: str, compiled: Compiled) -> bool:
    """Whether something shows that the last turn is an answer, though it may be cut off: without a
    header any text would pass for one.
    """
    before, last = [Place("", 0, 0), *conversation.places][-2:]
    header = text[before.end : last.start]
    source = compiled.grammar.source
    tokens = [value for _, value in source.variables if isinstance(value, str)] if source else []
    for token in (*map(compiled.convert, tokens), *compiled.stops):
        header = header.replace(token, "") if token else header
    return bool(header.strip(WHITE))


def _is_free(message: dict[str, Any], one: str, two: str, compiled: Compiled) -> bool:
    """Whether an answer holds a call or reasoning: models write these in their own ways, and
    templates leave some of them out. What it says stands on the same side of its calls.
    """
    content, reasoning = message.get("content"), compiled.grammar.reasoning
    if message.get("tool_calls") and isinstance(content, str) and content.strip():
        calls = [
            min((at for mark in compiled.triggers if (at := body.find(mark)) >= 0), default=-1)
            for body in (one, two)
        ]
        places = [body.find(content.strip()) for body in (one, two)]
        if min(*calls, *places) >= 0 and (places[0] < calls[0]) != (places[1] < calls[1]):
            return False
    if any(message.get(key) for key in ("tool_calls", "unparsed_calls", "reasoning_content")):
        return True
    # A block that the template does not print of its own stays in the content.
    closer = compiled.plain(compiled.think_close.core)
    is_kept = reasoning is not None and not (reasoning.separate or "reasoning_content" in message)
    return is_kept and bool(closer) and closer in str(content)


def _says_no_more(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Whether an answer says nothing that another one does not, but for white space: what a template
    prints at other messages than it was read from was read from wrong ones.
    """
    for key in ("content", "reasoning_content"):
        parts = one.get(key), two.get(key)
        said, known = ("".join(part.split()) if isinstance(part, str) else "" for part in parts)
        if said not in known:
            return False
    return True


def _holds_turns(message: dict[str, Any], compiled: Compiled) -> bool:
    """Whether a message's content holds a marker with which turns begin, or those of others end."""
    grammar = compiled.grammar
    others = tuple(form for form in grammar.roles if form.role != "assistant")
    sides = [grammar.end_tokens, *((form.opener, form.closer) for form in others)]
    content = message.get("content")
    marks = {mark.group() for side in literals_of(tuple(sides)) for mark in MARKER.finditer(side)}
    marks |= _turn_marks(compiled, closers=False)
    return isinstance(content, str) and any(mark in content for mark in marks)


def _holds_controls(conversation: Conversation, compiled: Compiled, text: str) -> bool:
    """Whether ids have a control token of turns inside of a message, where nobody can have typed it.

    A model may write a token in an answer that ends turns, and go on.
    """
    every, opening = (
        "".join(
            sign
            for mark in _turn_marks(compiled, closers=closers)
            if (sign := compiled.convert(mark)) in compiled.symbols
        )
        for closers in (True, False)
    )
    for place in conversation.places:
        body, marks = text[place.start : place.end], every
        if place.role == "assistant":
            body, marks = body.rstrip(WHITE + every), opening
        if not set(marks).isdisjoint(body):
            return True
    return False


def _turn_marks(compiled: Compiled, *, closers: bool = True) -> set[str]:
    """Return the markers with which turns begin, or end, less those that may stand in an answer."""
    grammar = compiled.grammar
    sides: list[Literals] = list(grammar.end_tokens) if closers else []
    for form in grammar.roles:
        sides += [form.group_opener, form.opener]
        sides += [form.closer, form.group_closer] if closers else []
    answers = (grammar.reasoning, grammar.content, grammar.continued, grammar.calls)
    within = "".join(literals_of(answers))
    found = {mark.group() for side in literals_of(tuple(sides)) for mark in MARKER.finditer(side)}
    return {mark for mark in found if mark not in within}


def _unthought(gap: str, compiled: Compiled) -> str:
    """Return what stands before an answer without the reasoning that it opens or leaves empty."""
    for mark in (compiled.think_open.core, compiled.think_close.core):
        gap = gap.replace(mark, "") if mark else gap
    return gap.rstrip(WHITE)


def _without_verdicts(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without what only the reader says of it and of its calls."""
    if message.keys().isdisjoint(("unparsed_calls", "is_complete", "tool_calls")):
        return message
    made = {
        key: value
        for key, value in message.items()
        if key not in ("unparsed_calls", "is_complete", "tool_calls")
    }
    if message.get("tool_calls"):
        aside = ("status", "problem", "raw")
        made["tool_calls"] = [
            {key: value for key, value in call.items() if key not in aside}
            for call in message["tool_calls"]
        ]
    return made


def _without_none(message: dict[str, Any]) -> dict[str, Any]:
    """Return an answer of calls whose content may be none at all, printed by its name, without it."""
    is_word = bool(message.get("tool_calls")) and message["content"] == str(None)
    return {**message, "content": None} if is_word else message


def _linked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in which each call has an id and each result that of its call, in order: where
    a template prints no ids it needs them all the same to number results or name their tools.
    """
    made: list[dict[str, Any]] = []
    waiting: list[tuple[str, str]] = []
    count = 0
    for message in messages:
        if message.get("tool_calls"):
            calls = []
            for call in message["tool_calls"]:
                count += 1
                calls.append({"id": f"call{count:05}", **call})
            message = {**message, "tool_calls": calls}
            waiting = [(call["id"], call["function"]["name"]) for call in calls]
        elif message["role"] == "tool" and waiting:
            link, name = waiting.pop(0)
            message = {"tool_call_id": link, "name": name, **message}
        made.append(message)
    return made


def _with_parts(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, str):
        return message
    return {**message, "content": [{"type": "text", "text": content}]}
