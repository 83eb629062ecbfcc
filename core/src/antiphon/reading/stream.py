"""Reading a completion while it is being written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from antiphon.errors import StreamMisused
from antiphon.families import ModelFamily
from antiphon.reading.compiled import Compiled, compile_text
from antiphon.reading.events import Event
from antiphon.reading.grammar import Grammar
from antiphon.reading.ids import IdStream, as_ids
from antiphon.reading.machine import Machine
from antiphon.reading.prompt import begin
from antiphon.reading.reader import Reading, TextOrIds, finish, prepared, table_of
from antiphon.reading.resolve import resolve_grammar
from antiphon.reading.schema import index_tools, settle


class StreamParser:
    """Reads one completion bit by bit; however it is cut, the result is that of reading it at once.

    All bits are text or all are ids: the first one settles which.

    Args:
        grammar: What to read by.
        prompt: What precedes the completion, text or ids; it tells where a reasoning block is open.
        tokenizer: Decodes ids; not needed for text.
        tools: Type and judge the calls.

    Raises:
        ToolSchemaInvalid: A tool has no name, or a schema that can't judge calls.
    """

    def __init__(
        self,
        grammar: Grammar,
        *,
        prompt: TextOrIds | None = None,
        tokenizer: Any = None,
        tools: Iterable[Any] | None = None,
    ) -> None:
        self._grammar = grammar
        self._prompt = prompt
        self._tokenizer = tokenizer
        self._tools = index_tools(tools)
        self._compiled: Compiled | None = None
        self._machine: Machine | None = None
        self._ids: IdStream | None = None
        self._reading: Reading | None = None

    def feed(self, more: TextOrIds | int) -> list[Event]:
        """Read more and return what it shows.

        Args:
            more: Text, ids, or one id.

        Raises:
            StreamMisused: Text follows ids or the other way round, or the stream was closed.
            NoTokenizer: Ids were given and no tokenizer.
            InvalidData: What was given is neither text nor ids.
        """
        if self._reading is not None:
            raise StreamMisused("The stream was closed; a new completion needs a new parser.")
        if isinstance(more, int):
            more = [more]
        is_text = isinstance(more, str)
        machine = self._machine or self._start(is_text)
        if is_text != (self._ids is None):
            raise StreamMisused("A stream takes text or ids, not both.")
        text = more if isinstance(more, str) else ""
        if self._ids is not None:
            text = self._ids.feed(as_ids(more))
        return self._judged(self._feed(machine, text)) if text else []

    def _start(self, is_text: bool) -> Machine:
        if is_text:
            self._compiled = compile_text(self._grammar)
        else:
            table = table_of(self._grammar, self._tokenizer)
            self._compiled, self._ids = table.compiled, IdStream(table)
        prompt = self._prompt
        before = None if prompt is None else prepared(self._compiled, prompt, self._tokenizer)
        self._machine = begin(self._compiled, before, self._tools)
        return self._machine

    def _feed(self, machine: Machine, text: str) -> list[Event]:
        compiled = self._compiled
        assert compiled is not None
        if machine.ended_by is None:
            end = compiled.certain_end(text)
            if end >= 0:
                events = machine.close(text[:end])
                return events + machine.end(text[end], text[end + 1 :])
        return machine.feed(text)

    def close(self) -> dict[str, Any]:
        """End the stream and return the message, as `antiphon.parse_response` gives it."""
        return self.finish().message

    def finish(self) -> Reading:
        """End the stream and return the whole reading."""
        if self._reading is None:
            machine = self._machine or self._start(is_text=True)
            events = self._feed(machine, self._ids.flush()) if self._ids is not None else []
            events = self._judged(events + machine.close())
            self._reading = finish(machine, self._tools)
            # Whether content looks like calls in another format is known only now.
            events += [
                Event("call_end", "", number, call)
                for number, call in enumerate(machine.calls)
                if call.status == "foreign"
            ]
            self._reading.last_events = events
        return self._reading

    def _judged(self, events: list[Event]) -> list[Event]:
        """Return events whose finished calls are typed and judged as the message's: a tool may be run on them."""
        for place, event in enumerate(events):
            call = event.call
            if call is not None:
                own = call.arguments
                # A copy: what comes behind a call may still be read by how it was written.
                call = replace(call, arguments=dict(own) if isinstance(own, dict) else own)
                settle(call, self._tools)
                if call.status != "ok":
                    call.keep_raw()
                events[place] = event._replace(call=call)
        return events


def stream_parser(
    *,
    prompt: TextOrIds | None = None,
    tokenizer: Any = None,
    family: str | ModelFamily | Grammar | None = None,
    tools: Iterable[Any] | None = None,
) -> StreamParser:
    """Return a parser with ``feed(text or ids)``, which gives events, and ``close()``, the message.

    Args:
        prompt: The prompt, as text or ids; see `antiphon.parse_response`.
        tokenizer: The tokenizer; needed for ids.
        family: A family's name, a descriptor or a grammar; without it the tokenizer decides.
        tools: The tools; they type bare arguments and judge every call.

    Raises:
        FamilyNotFound: Nothing says which dialect is meant.
        GrammarUnavailable: The dialect can't be read.
        ToolSchemaInvalid: A tool has no name, or a schema that can't judge calls.
    """
    grammar = resolve_grammar(tokenizer, family)
    return StreamParser(grammar, prompt=prompt, tokenizer=tokenizer, tools=tools)
