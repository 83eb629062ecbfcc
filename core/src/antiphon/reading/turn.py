"""What is kept of one assistant turn while it is read: the text in hand, and what it was taken for."""

from __future__ import annotations

import json
from typing import Literal

from antiphon.reading.call_parts import Call, Draft, arguments_text
from antiphon.reading.compiled import Compiled
from antiphon.reading.events import Event, Piece, PieceKind, Tools
from antiphon.reading.scan import WHITE
from antiphon.reading.schema import typed


class Turn:
    """A turn so far.

    Args:
        compiled: The grammar.
        tools: The parameter schema of each tool, where the tools are known.
        shows: Whether what is read makes events.
        keeps: Whether what each part of the text was is kept.

    Attributes:
        reasoning: Parts of the reasoning.
        content: Parts of the content.
        calls: The calls.
        ended_by: The end token that ended the turn; None while there is none.
    """

    def __init__(
        self, compiled: Compiled, tools: Tools = None, shows: bool = True, keeps: bool = True
    ) -> None:
        self._compiled = compiled
        self._tools = tools
        self._shows = shows
        self._keeps = keeps
        self._text = ""
        self._pos = 0
        self._state = "start"
        self._gap = ""
        self._after_call = False
        self._ticks = 0
        """How many backticks the last line of the content has."""
        self._after_tick = False
        self._borrowed = 0
        """How many characters, of those that no piece holds yet, are the prompt's."""
        self._events: list[Event] = []
        self._pieces: list[tuple[PieceKind, str]] = []
        self.reasoning: list[str] = []
        self.content: list[str] = []
        self.calls: list[Call] = []
        self.ended_by: str | None = None

    @property
    def compiled(self) -> Compiled:
        """The grammar that is read by."""
        return self._compiled

    @property
    def pieces(self) -> list[Piece]:
        """What each part of the text was."""
        return [Piece(kind, text) for kind, text in self._pieces]

    def _taken(self) -> list[Event]:
        """Return the events since the last time."""
        events, self._events = self._events, []
        return events

    def _own(self, text: str) -> str:
        """Return plain text without what is the prompt's of it."""
        size = min(self._borrowed, len(text))
        self._borrowed -= size
        return text[size:]

    def _piece(self, kind: PieceKind, text: str) -> None:
        if self._keeps or self._borrowed:
            self._keep(kind, self._compiled.plain(text))

    def _keep(self, kind: PieceKind, text: str) -> None:
        """Keep plain text as a piece."""
        if self._borrowed:
            text = self._own(text)
        if text and self._keeps:
            self._pieces.append((kind, text))

    def _say(self, kind: Literal["reasoning", "content"], text: str) -> None:
        if self._compiled.symbols:
            text = self._compiled.plain(text)
        if self._borrowed:
            text = self._own(text)
        if text:
            (self.reasoning if kind == "reasoning" else self.content).append(text)
            if self._keeps:
                self._pieces.append((kind, text))
            if self._shows:
                self._events.append(Event(kind, text))

    def _ticks_behind(self, text: str) -> int:
        """Return how many backticks the last line has when more content follows."""
        line = text.rpartition("\n")[2]
        return line.count("`") + (self._ticks if len(line) == len(text) else 0)

    def _say_content(self, text: str) -> None:
        """Content; white space after a call counts only if more than white space follows."""
        if not text:
            return
        if self._ticks or "`" in text:
            self._ticks, self._after_tick = self._ticks_behind(text), text[-1] == "`"
        if self._after_call:
            if not text.strip(WHITE):
                self._gap += text
                return
            text, self._gap, self._after_call = self._gap + text, "", False
        self._say("content", text)

    def _drop_gap(self) -> None:
        if self._gap:
            self._piece("format", self._gap)
            self._gap = ""

    def _show_draft(self, number: int, draft: Draft) -> None:
        """Show what no event has shown yet of a call that is being written."""
        if not draft.is_announced:
            draft.is_announced = True
            self._events.append(Event("call", self._compiled.plain(draft.name), number))
        if draft.news:
            self._events.append(Event("arguments", draft.news, number))
            draft.news = ""

    def _add(self, call: Call, draft: Draft | None = None) -> None:
        """Keep a call and show what has not been shown of it."""
        index = len(self.calls)
        self.calls.append(call)
        self._after_call = True
        if not self._shows:
            return
        if call.status == "ok":
            draft = draft or Draft(call.name or "")
            if draft.is_open:
                draft.say("}")
            else:
                draft.say(self._compiled.plain(self._arguments(call))[draft.size :])
            self._show_draft(index, draft)
        self._events.append(Event("call_end", "", index, call))

    def _arguments(self, call: Call) -> str:
        """Return a call's arguments as JSON text, bare ones typed as the message will have them."""
        if not call.untyped:
            return arguments_text(call)
        schema = (self._tools or {}).get(call.name or "")
        return json.dumps(
            {
                key: typed(value, key, call.form, schema) if key in call.untyped else value
                for key, value in call.arguments.items()
            },
            ensure_ascii=False,
        )

    def _finish(self, end: int) -> None:
        """The turn ends with the token at the current position."""
        self._drop_gap()
        text = self._text
        self.ended_by = self._compiled.plain(text[self._pos : end])
        self._piece("end", text[self._pos : end])
        self._piece("after", text[end:])
        if self._shows:
            self._events.append(Event("end", self.ended_by))
        self._pos = len(text)
        self._state = "done"
