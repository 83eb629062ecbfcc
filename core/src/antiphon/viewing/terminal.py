"""Rows for a terminal: the template dim, messages in colours, trained tokens marked."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from antiphon.viewing.rows import Piece, Row, visible

_COLORS = ("cyan", "yellow", "magenta", "blue")
_TRAINED = "bold green"


def show(row: Row, console: Console, *, tokens: bool = False, log_probs: bool = False) -> None:
    """Print a row.

    Args:
        row: The row.
        console: Where to. Without colours, trained text stands between ▶ and ◀.
        tokens: As a table, one line a token.
        log_probs: With the log-prob behind each sampled token.
    """
    console.print(_heading(row), soft_wrap=True)
    if tokens:
        console.print(_table(row))
    else:
        console.print(
            _text(row, marks=console.color_system is None, log_probs=log_probs), soft_wrap=True
        )
    console.print()


def _heading(row: Row) -> Text:
    reward = {} if row.reward is None else {"reward": f"{row.reward:.3f}"}
    heading = Text(f"── {visible(row.name)} ", style="bold")
    for name, told in {**reward, **row.facts}.items():
        heading.append(f"· {name} ", style="dim")
        heading.append(f"{visible(told)} ")
    return heading


def _text(row: Row, *, marks: bool, log_probs: bool) -> Text:
    text = Text()
    trained = False
    for piece in row.pieces:
        if marks and piece.trained != trained:
            text.append("▶" if piece.trained else "◀")
        trained = piece.trained
        text.append(visible(piece.text), style=_style(piece))
        if log_probs and piece.log_probs:
            text.append(f"({sum(piece.log_probs):.2f})", style="dim italic")
    if marks and trained:
        text.append("◀")
    return text


def _style(piece: Piece) -> str:
    if piece.trained:
        return _TRAINED
    return "dim" if piece.message is None else _COLORS[piece.message % len(_COLORS)]


def _table(row: Row) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("place", "id", "log-prob"):
        table.add_column(name, justify="right")
    for name in ("trained", "message", "text"):
        table.add_column(name, overflow="fold")
    for place, piece in _places(row):
        ids = " ".join(map(str, piece.ids))
        scored = " ".join(f"{value:.4f}" for value in piece.log_probs)
        origin = "" if piece.message is None else _origin(row, piece.message)
        literal = visible(json.dumps(piece.text, ensure_ascii=False))
        cells = (str(place), ids, scored, "▶" if piece.trained else "", origin, literal)
        table.add_row(*map(Text, cells), style=_style(piece))
    return table


def _places(row: Row) -> Iterator[tuple[int, Piece]]:
    place = 0
    for piece in row.pieces:
        yield place, piece
        place += len(piece.ids) or 1


def _origin(row: Row, message: int) -> str:
    role = row.roles[message] if message < len(row.roles) else ""
    return f"{message} {visible(role)}".strip()
