"""Taking the announcement of tools out of the message in whose turn it stands."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.reading.compiled import Convert
from antiphon.reading.grammar import ToolsForm
from antiphon.reading.scan import decode_json_at, skip_white


def without_announcement(
    forms: Iterable[ToolsForm], role: str, body: str, convert: Convert
) -> tuple[str, bool] | None:
    """Take an announcement of tools out of the body of a role's turn.

    Args:
        forms: The ways in which tools are announced.
        role: The role.
        body: The body.
        convert: Rewrites literals as `body` is.

    Returns:
        The body without it, and whether a message stands there beside it; None where no tools are
        announced.
    """
    for form in forms:
        if form.role != role:
            continue
        opener, closer = convert(form.opener), convert(form.closer)
        separator = convert(form.separator)
        if form.place == "after":
            if not body.endswith(closer):
                continue
            start = body.find(opener)
            if start < 0 or start + len(opener) > len(body) - len(closer):
                continue
            if form.own_turn or start == 0:
                return "", False
            if body.endswith(separator, 0, start):
                start -= len(separator)
            return body[:start], True
        if not body.startswith(opener):
            continue
        end = _end_before(form, body, len(opener), closer)
        if end < 0:
            continue
        if form.own_turn or end >= len(body):
            return "", False
        if separator and body.startswith(separator, end):
            end += len(separator)
        return body[end:], True
    return None


def _end_before(form: ToolsForm, body: str, pos: int, closer: str) -> int:
    """Return where an announcement that stands before a message ends, or -1."""
    at = pos
    while True:
        value = decode_json_at(body, skip_white(body, at))
        if value is None:
            break
        at = value[1]
        if body.startswith(form.between, at):
            at += len(form.between)
    if at > pos and body.startswith(closer, at):
        return at + len(closer)
    if at > pos and closer and body.endswith(form.between, pos, at):
        back = at - len(form.between)
        if body.startswith(closer, back):
            return back + len(closer)
    found = body.find(closer, pos) if closer else (at if at > pos else -1)
    return found + len(closer) if found >= 0 else -1
