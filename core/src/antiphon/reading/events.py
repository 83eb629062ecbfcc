"""What a reading shows: events while it goes on, pieces of what it took the text for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from antiphon.reading.call_parts import Call

Tools = Mapping[str, Mapping[str, Any]] | None

EventKind = Literal["reasoning", "content", "call", "arguments", "call_end", "end"]
PieceKind = Literal["format", "reasoning", "content", "call", "end", "after"]


class Event(NamedTuple):
    """Something a stream shows.

    Attributes:
        kind: ``"reasoning"`` and ``"content"``: more of it, in `text`. ``"call"``: a call began,
            its name in `text`. ``"arguments"``: more of its arguments' JSON text. ``"call_end"``:
            the call is over, `call` says how it went. ``"end"``: the turn's end token.
        text: See above.
        number: The call's number in the turn; -1 for events that are not of a call.
        call: The call as read, for ``"call_end"``.
    """

    kind: EventKind
    text: str = ""
    number: int = -1
    call: Call | None = None


class Piece(NamedTuple):
    """A part of the text and what it was taken for. All pieces in order are the text."""

    kind: PieceKind
    text: str
