"""What may end the body of a turn, as an expression."""

from __future__ import annotations

import re

from antiphon.reading.compiled import Compiled, alternation
from antiphon.reading.scan import WHITE
from antiphon.reading.turn_forms import SHORT, TurnForm, head, slot_expression, starts_of

_SOLID = 6
"""Characters that a turn's opener must exceed to end the body before it without a closer."""


def set_ending(form: TurnForm, following: list[TurnForm], compiled: Compiled) -> None:
    """Set the expression for the end of a form's body, the literals with which ends begin, and those
    with which other turns do that may follow.

    A closer counts only where the opener of a turn that may follow, or the end of the text,
    comes after it: so the same characters inside a body do no harm.

    Args:
        form: The form.
        following: The forms that may stand after it.
        compiled: The grammar.
    """
    begins = [follower.begins for follower in following]
    openers = alternation(begins)
    instead = [follower.begins for follower in following if follower.form.unclosed]
    form.close = re.compile("|".join(_options(form, begins, openers, instead, compiled)))
    convert = compiled.convert
    ends = [head(form.closer), head(form.closer).rstrip(WHITE)]
    if form.role == "assistant" and isinstance(form.closer, str):
        ends += [token for token in map(convert, compiled.grammar.end_tokens) if token]
        ends += begins if form.closer else []
    if not form.closer or not isinstance(form.closer, str):
        ends += begins
    ends += [convert(text) for text in (*form.form.finals, *form.form.other_closers)]
    ends += instead
    if form.grouped and not head(form.closer):
        ends += [form.separator + head(form.opener), form.group_closer]
    form.starts = starts_of(ends)
    form.others = tuple(other.begins for other in following if other is not form)


def _options(
    form: TurnForm, begins: list[str], openers: str, instead: list[str], compiled: Compiled
) -> list[str]:
    """Return expressions for all that may end a form's body, in the order in which they count."""
    is_assistant = form.role == "assistant"
    is_open = any(not begin for begin in begins)
    after = rf"(?={openers}|\Z)" if openers and not is_open else ""
    if not openers:
        after = r"(?=\Z)" if not is_open else ""
    closer = slot_expression(form.closer, form.close_fields)
    options: list[str] = []
    if form.grouped:
        again = re.escape(form.separator + head(form.opener))
        rest = re.escape(form.group_closer)
        stripped = re.escape(form.group_closer.rstrip(WHITE))
        inner = [rf"{rest}{after}", rf"{stripped}\Z", r"\Z"]
        if form.separator + head(form.opener):
            inner.insert(0, again)
        options.append(rf"{closer}(?={'|'.join(inner)})")
    elif closer:
        options.append(closer + after)
        if isinstance(form.closer, str):
            bare = form.closer.rstrip(WHITE)
            if bare != form.closer and bare:
                options.append(re.escape(bare) + r"\Z")
            if is_assistant:
                options += _other_ends(form.closer, after, compiled)
    finals = [re.escape(compiled.convert(final)) for final in form.form.finals]
    options = [rf"{closer}{final}\Z" for final in finals if closer or final] + options
    options += [rf"{final}\Z" for final in finals if len(final.strip()) > SHORT]
    for other in map(re.escape, map(compiled.convert, form.form.other_closers)):
        options += [rf"{other}{final}\Z" for final in finals]
        options.append(other + after)
    if not closer or (is_assistant and not isinstance(form.closer, str)):
        if openers:
            options.append(f"(?={openers})")
    elif is_assistant and openers:
        # Templates leave the end token out here and there (DeepSeek after calls): the next
        # turn's opener ends the body too, if nothing shorter than a whole marker says so, and if it
        # is no closer.
        solid = [
            begin
            for begin in begins
            if len(compiled.plain(begin)) > _SOLID
            and not begin[0].isspace()
            and begin != form.closer
        ]
        if solid:
            options.append(f"(?={alternation(solid)})")
    options += [f"(?={re.escape(begin)})" for begin in instead if begin]
    return [*options, r"\Z"]


def _other_ends(closer: str, after: str, compiled: Compiled) -> list[str]:
    """Return expressions for the other end tokens in the place of the usual one."""
    tokens = [compiled.convert(token) for token in compiled.grammar.end_tokens]
    usual = next((token for token in tokens if token in closer), None)
    if usual is None:
        return []
    # Where nothing certain follows, another token is an end only at the end.
    after = after or r"\s*\Z"
    return [re.escape(closer.replace(usual, token)) + after for token in tokens if token != usual]
