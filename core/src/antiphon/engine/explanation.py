"""Show a rendering to people: what the template wrote, what messages brought, what the model writes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon.engine.rendering import Rendering

_RESET = "\x1b[0m"
_COLORS = {"scaffold": "\x1b[2m", "input": "\x1b[33m", "content": "\x1b[36m"}
_TURN = "\x1b[1;32m"


def explain_data(rendering: Rendering) -> list[dict[str, Any]]:
    """Return the text in parts, in order; joined they are the text.

    Each part has ``text``, ``start``, ``kind`` ("scaffold", "content" of a message, or "input": tools, documents,
    variables), ``message`` and ``field`` where it is not scaffold, and ``turn``: the message in whose turn it stands.
    """
    marks = sorted([*rendering.spans, *rendering.input_spans])
    cuts = {0, len(rendering.text)}
    cuts.update(edge for span in marks for edge in (span.start, span.end))
    cuts.update(edge for turn in rendering.turns for edge in (turn.start, turn.end))
    edges = sorted(cuts)
    parts = []
    number = 0
    for start, end in itertools.pairwise(edges):
        while number < len(marks) and marks[number].end <= start:
            number += 1
        span = marks[number] if number < len(marks) and marks[number].start <= start else None
        turn = next((t.message for t in rendering.turns if t.start <= start < t.end), None)
        parts.append(
            {
                "text": rendering.text[start:end],
                "start": start,
                "kind": "scaffold" if span is None else "input" if span.message < 0 else "content",
                "message": None if span is None else span.message,
                "field": None if span is None else list(span.field),
                "turn": turn,
            }
        )
    return parts


def explain(rendering: Rendering, *, color: bool = False) -> str:
    """Return the text with content as ``⟦message.field:…⟧`` and turns between ``▶`` and ``◀``; colours on request."""
    pieces: list[str] = []
    turn: int | None = None
    for part in explain_data(rendering):
        if part["turn"] != turn:
            mark = "◀" if turn is not None else ""
            mark += "▶" if part["turn"] is not None else ""
            pieces.append(f"{_TURN}{mark}{_RESET}" if color else mark)
            turn = part["turn"]
        text = part["text"]
        if part["kind"] != "scaffold":
            where = ".".join(
                map(str, ([part["message"]] if part["kind"] == "content" else []) + part["field"])
            )
            text = f"⟦{where}:{text}⟧"
        pieces.append(f"{_COLORS[part['kind']]}{text}{_RESET}" if color else text)
    if turn is not None:
        pieces.append(f"{_TURN}◀{_RESET}" if color else "◀")
    dropped = [
        f"{f'message {d.message}: ' * (d.message >= 0)}{d.field} not shown by the template"
        for d in rendering.dropped
    ]
    return "".join(pieces) + ("\n" + "\n".join(dropped) if dropped else "")
