"""Rows as one page of HTML that holds all it needs and asks nothing of the network.

What conversations say is data in the page, never markup: the script puts it there as text, and the
page's policy lets no other script run.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from antiphon.viewing.rows import Row, visible

_FOLDER = Path(__file__).parent


def html_page(title: str, rows: Iterable[Row]) -> str:
    """Return the page.

    Args:
        title: What it is about.
        rows: What it shows.
    """
    style, script = _own("page.css"), _own("page.js")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        _own("page.html.jinja")
    )
    return template.render(
        title=visible(title),
        style=style,
        style_digest=_digest(style),
        script=script,
        script_digest=_digest(script),
        rows=[_plain(row) for row in rows],
    )


def _own(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Return the digest by which the page's policy knows what it may use."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _plain(row: Row) -> dict[str, Any]:
    return {
        "name": visible(row.name),
        "reward": None if row.reward is None else _json_number(row.reward),
        "facts": [[name, visible(told)] for name, told in row.facts.items()],
        "roles": [visible(role) for role in row.roles],
        # By place, for there are many: text, message, trained, ids, log-probs.
        "pieces": [
            [
                visible(piece.text),
                piece.message,
                int(piece.trained),
                list(piece.ids),
                [_json_number(value) for value in piece.log_probs],
            ]
            for piece in row.pieces
        ],
    }


def _json_number(value: float) -> float | str:
    return round(value, 4) if math.isfinite(value) else str(value)
