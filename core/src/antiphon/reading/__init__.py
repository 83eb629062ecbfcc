"""Reading text and ids back into messages: grammars, the reader, the stream."""

from __future__ import annotations

from antiphon.reading.events import Event, Piece
from antiphon.reading.grammar import (
    CHATML_ROLES,
    CallForm,
    ContentForm,
    Grammar,
    ParamForm,
    ReasoningForm,
    RoleForm,
    Slot,
    ToolsForm,
    chatml_role,
)
from antiphon.reading.reader import (
    Reading,
    parse,
    parse_response,
    read_conversation,
    read_response,
    unparse,
)
from antiphon.reading.resolve import resolve_grammar
from antiphon.reading.stream import StreamParser, stream_parser

__all__ = [
    "CHATML_ROLES",
    "CallForm",
    "ContentForm",
    "Event",
    "Grammar",
    "ParamForm",
    "Piece",
    "Reading",
    "ReasoningForm",
    "RoleForm",
    "Slot",
    "StreamParser",
    "ToolsForm",
    "chatml_role",
    "parse",
    "parse_response",
    "read_conversation",
    "read_response",
    "resolve_grammar",
    "stream_parser",
    "unparse",
]
