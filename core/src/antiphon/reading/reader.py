"""Reading whole conversations and single completions, from text or ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from antiphon.errors import GrammarUnavailable, NoTokenizer
from antiphon.families import ModelFamily
from antiphon.reading.call_parts import Call
from antiphon.reading.compiled import Compiled, compile_text
from antiphon.reading.conversation import Conversation, splitter_of
from antiphon.reading.events import Event, Piece
from antiphon.reading.foreign import foreign_calls, format_of
from antiphon.reading.grammar import Grammar
from antiphon.reading.ids import TokenTable, as_ids, token_table
from antiphon.reading.machine import Machine
from antiphon.reading.messages import call_dict
from antiphon.reading.other_roles import with_roles_of
from antiphon.reading.prompt import begin
from antiphon.reading.resolve import resolve_grammar
from antiphon.reading.schema import index_tools, settle, tool_list
from antiphon.reading.verifying import unprinted

TextOrIds = str | Iterable[int]


@dataclass
class Reading:
    """One completion as read.

    Attributes:
        message: The message, in the OpenAI form, with ``is_complete``.
        pieces: Every part of the text and what it was taken for.
        end_token: The end token that ended the turn; None where there was none.
        last_events: In a stream: what only its end showed.
    """

    message: dict[str, Any]
    pieces: list[Piece]
    end_token: str | None
    last_events: list[Event] = field(default_factory=list)


def unparse(reading: Reading) -> str:
    """Return the text that went in."""
    return "".join(piece.text for piece in reading.pieces)


def parse(
    text_or_ids: TextOrIds,
    *,
    tokenizer: Any = None,
    family: str | ModelFamily | Grammar | None = None,
    tools: Iterable[Any] | None = None,
) -> list[dict[str, Any]]:
    """Read a whole rendered conversation back into messages.

    What the template adds by itself (default system text, date lines, the announcement of tools,
    an empty reasoning block, the generation prompt) is taken out again.

    Args:
        text_or_ids: The rendering, as text or as token ids. From ids a marker counts only as its
            control id; from text the same characters in a message can't always be told from it.
        tokenizer: The tokenizer; needed for ids.
        family: A family's name, a descriptor or a grammar; without it the tokenizer decides.
        tools: The tools; they type the arguments of formats that write bare text.

    Returns:
        Messages in the OpenAI form. ``is_complete`` is there, and False, only on a last message
        that was cut off. Calls carry a ``status``. What looks like a call and is none (malformed,
        or written as the template can't have printed it) is content, since only so the messages
        render to what was read; ``unparsed_calls`` on the message has it.

    Raises:
        FamilyNotFound: Nothing says which dialect is meant.
        GrammarUnavailable: The dialect can't be read, or was inferred from a template that does not
            print what was read.
        ToolSchemaInvalid: A tool has no name, or a schema that can't judge calls.
    """
    return read_conversation(text_or_ids, tokenizer=tokenizer, family=family, tools=tools).messages


def read_conversation(
    text_or_ids: TextOrIds,
    *,
    tokenizer: Any = None,
    family: str | ModelFamily | Grammar | None = None,
    tools: Iterable[Any] | None = None,
) -> Conversation:
    """Read as `parse` does, with its arguments, and also say what else the rendering tells; see `Conversation`."""
    grammar = resolve_grammar(tokenizer, family)
    given = text_or_ids if isinstance(text_or_ids, str) else as_ids(text_or_ids)
    compiled, text = _prepare(grammar, given, tokenizer)
    known = tool_list(tools)  # they are read more than once
    if grammar.source is None:
        return _read_by(compiled, text, known)
    widened = with_roles_of(grammar, compiled.plain(text))
    if widened is not grammar:
        # Somebody may have typed what looks like another role's header: then it prints in vain.
        wider, spelled = _prepare(widened, given, tokenizer)
        conversation = _read_by(wider, spelled, known)
        if not unprinted(conversation, wider, spelled, known):
            return conversation
    conversation = _read_by(compiled, text, known)
    reason = unprinted(conversation, compiled, text, known)
    if reason:
        raise GrammarUnavailable(
            f"The grammar {grammar.name!r}, inferred from a template, can't read this rendering for "
            f"sure: {reason}; declare a grammar for it."
        )
    return conversation


def _read_by(compiled: Compiled, text: str, tools: Iterable[Any] | None) -> Conversation:
    conversation = splitter_of(compiled).read(text)
    if compiled.grammar.calls:
        _settle_messages(conversation.messages, tools)
    return conversation


def parse_response(
    text_or_ids: TextOrIds,
    *,
    prompt: TextOrIds | None = None,
    tokenizer: Any = None,
    family: str | ModelFamily | Grammar | None = None,
    tools: Iterable[Any] | None = None,
) -> dict[str, Any]:
    """Read one completion; never raises on what a model emits.

    Args:
        text_or_ids: What the model wrote after the prompt, as text or ids.
        prompt: The prompt, as text or ids; its end says whether the completion begins inside the
            reasoning, after an empty block, or inside an answer that it goes on with.
        tokenizer: The tokenizer; needed for ids.
        family: A family's name, a descriptor or a grammar; without it the tokenizer decides.
        tools: The tools; they type bare arguments and judge every call.

    Returns:
        ``role``, ``content``, ``reasoning_content``, ``tool_calls`` (None where empty) and
        ``is_complete``: whether an end token was there. Each call has a ``status``: ``"ok"``, or
        ``"malformed"``, ``"incomplete"``, ``"unknown_tool"``, ``"invalid_arguments"``,
        ``"unchecked"`` (the tool's schema could not judge), ``"foreign"`` (it looks like a call in
        a format that this grammar does not read: its text stays in the content); then ``problem``
        says what is wrong and ``raw`` holds its text.

    Raises:
        FamilyNotFound: Nothing says which dialect is meant.
        GrammarUnavailable: The dialect can't be read.
        ToolSchemaInvalid: A tool has no name, or a schema that can't judge calls.
    """
    machine, known = _read(text_or_ids, prompt, tokenizer, family, tools, keeps=False)
    return message_of(machine, known)


def read_response(
    text_or_ids: TextOrIds,
    *,
    prompt: TextOrIds | None = None,
    tokenizer: Any = None,
    family: str | ModelFamily | Grammar | None = None,
    tools: Iterable[Any] | None = None,
) -> Reading:
    """Read as `parse_response` does, with its arguments, and keep what each part of the text was; see `Reading`."""
    machine, known = _read(text_or_ids, prompt, tokenizer, family, tools, keeps=True)
    return finish(machine, known)


def _read(
    text_or_ids: TextOrIds,
    prompt: TextOrIds | None,
    tokenizer: Any,
    family: str | ModelFamily | Grammar | None,
    tools: Iterable[Any] | None,
    *,
    keeps: bool,
) -> tuple[Machine, dict[str, Any] | None]:
    """Read one completion; returns the machine that did, and the tools by name."""
    grammar = resolve_grammar(tokenizer, family)
    compiled, text = _prepare(grammar, text_or_ids, tokenizer)
    known = index_tools(tools)
    before = None if prompt is None else prepared(compiled, prompt, tokenizer)
    machine = begin(compiled, before, known, shows=False, keeps=keeps)
    end = compiled.certain_end(text)
    if end < 0:
        machine.close(text)
    else:
        machine.close(text[:end])
        machine.end(text[end], text[end + 1 :])
    return machine, known


def message_of(machine: Machine, tools: dict[str, Any] | None) -> dict[str, Any]:
    """Return the message of a machine that was closed."""
    machine.calls += foreign_calls(machine, tools)
    for call in machine.calls:
        settle(call, tools)
        if call.status != "ok":
            call.keep_raw()
        if call.status == "malformed" and call.raw:
            owner = format_of(call.raw)
            call.problem += f"; it looks like a call in the format {owner}" if owner else ""
    calls = [call_dict(call) for call in machine.calls]
    return {
        "role": "assistant",
        "content": "".join(machine.content) or None,
        "reasoning_content": "".join(machine.reasoning) or None,
        "tool_calls": calls or None,
        "is_complete": machine.ended_by is not None,
    }


def finish(machine: Machine, tools: dict[str, Any] | None) -> Reading:
    """Make the result of a machine that was closed."""
    return Reading(message_of(machine, tools), machine.pieces, machine.ended_by)


def _prepare(grammar: Grammar, text_or_ids: TextOrIds, tokenizer: Any) -> tuple[Compiled, str]:
    if isinstance(text_or_ids, str):
        return compile_text(grammar), text_or_ids
    table = table_of(grammar, tokenizer)
    return table.compiled, table.text(as_ids(text_or_ids))


def table_of(grammar: Grammar, tokenizer: Any) -> TokenTable:
    """Return the table by which ids are read.

    Raises:
        NoTokenizer: There is no tokenizer.
    """
    if not callable(getattr(tokenizer, "decode", None)):
        raise NoTokenizer(
            "Token ids can be read only with the tokenizer they belong to: give tokenizer=, not "
            f"{tokenizer!r:.60}."
        )
    return token_table(grammar, tokenizer)


def prepared(compiled: Compiled, text_or_ids: TextOrIds, tokenizer: Any) -> str:
    """Return a prompt in the form that `compiled` reads."""
    if isinstance(text_or_ids, str):
        return compiled.convert(text_or_ids)
    text = table_of(compiled.grammar, tokenizer).text(as_ids(text_or_ids))
    if compiled.is_exact:
        return text
    return token_table(compiled.grammar, tokenizer).compiled.plain(text)


def _settle_messages(messages: list[dict[str, Any]], tools: Iterable[Any] | None) -> None:
    """Type the bare arguments in whole conversations."""
    known = index_tools(tools)
    for message in messages:
        for call in message.get("tool_calls") or ():
            untyped: Call | None = call.pop("_call", None)
            if untyped is None:
                continue
            settle(untyped, known)
            call["function"]["arguments"] = untyped.arguments
            call["status"] = untyped.status
            if untyped.status != "ok":
                call["problem"], call["raw"] = untyped.problem, untyped.raw


__all__ = [
    "Reading",
    "parse",
    "parse_response",
    "read_conversation",
    "read_response",
    "unparse",
]
