"""The forms of turns as expressions: where a turn opens and what may end its body."""

from __future__ import annotations

import re

from antiphon.reading.compiled import Compiled
from antiphon.reading.grammar import Literals, RoleForm, Slot

SHORT = 8
"""A literal of fewer characters is no sure sign of anything."""


_SLOTS = {"": "((?s:.*?))", "tools": "((?s:.*?))", "date": "([^\\n]{0,40}?)"}


def slot_expression(literals: Literals, groups: list[str]) -> str:
    """Return an expression for literals with slots; the slots' fields are added to `groups`."""
    if isinstance(literals, str):
        return re.escape(literals)
    parts = []
    after_tools = False
    for part in literals:
        if isinstance(part, Slot):
            groups.append("" if part.field == "date" else part.field)
            parts.append(_SLOTS.get(part.field, "([^\\n]*?)"))
            after_tools = part.field == "tools"
        else:
            parts.append(re.escape(part))
            if after_tools and len(part.strip()) < SHORT:
                # What ends the tools is short enough to stand between two of them as well.
                # Where a line of its own closes each, a line opens each.
                parts.append(r"(?!\s*\{\n)" if part.startswith("\n}") else r"(?!\s*\{)")
            after_tools = False
    return "".join(parts)


def head(literals: Literals) -> str:
    """Return the literal text before the first slot."""
    if isinstance(literals, str):
        return literals
    first = literals[0] if literals else ""
    return first if isinstance(first, str) else ""


class TurnForm:
    """A `RoleForm` with its expressions."""

    def __init__(self, form: RoleForm, compiled: Compiled) -> None:
        convert = compiled.convert
        self.form = form
        self.role = form.role
        self.group_opener = convert(form.group_opener)
        self.group_closer = convert(form.group_closer)
        self.separator = convert(form.separator)
        self.opener = compiled.convert_literals(form.opener)
        self.closer = compiled.convert_literals(form.closer)
        self.grouped = bool(form.group_opener or form.group_closer or form.separator)
        self.fields: list[str] = []
        starts = convert(form.begins)
        self.open = re.compile(
            re.escape(self.group_opener)
            + slot_expression(self.opener, self.fields)
            + (f"(?={re.escape(starts)})" if starts else "")
        )
        self.again = re.compile(re.escape(self.separator) + slot_expression(self.opener, []))
        self.begins = self.group_opener + head(self.opener)
        if isinstance(self.opener, str):
            self.begins += starts
        literals = (self.opener,) if isinstance(self.opener, str) else self.opener
        self.size = len(self.group_opener) + sum(
            len(part) for part in literals if isinstance(part, str)
        )
        self.close_fields: list[str] = []
        self.close: re.Pattern[str] | None = None
        self.starts: tuple[str, ...] = ()
        self.others: tuple[str, ...] = ()
        self.has_twin = False
        self.has_thought = False

    def ending(self, text: str, pos: int) -> re.Match[str]:
        """Return the first end of this form's body at or after a position.

        What a body must begin with does not end it at once, unless another turn begins so too. The
        expression is tried only where a literal stands with which an end may begin: looking for a few
        literals is several times faster than searching for the expression.
        """
        assert self.close is not None
        if not self.starts:
            found = self.close.search(text, pos)
            if self._is_at_its_own_beginning(found, text, pos):
                found = self.close.search(text, pos + 1)
            assert found is not None  # the end of the text is among the ends
            return found
        at = pos
        while True:
            best = -1
            for start in self.starts:
                place = (
                    text.find(start, at) if best < 0 else text.find(start, at, best + len(start))
                )
                if place >= 0 and (best < 0 or place < best):
                    best = place
            found = self.close.match(text, best if best >= 0 else len(text))
            if found is not None and not self._is_at_its_own_beginning(found, text, pos):
                return found
            at = best + 1

    def _is_at_its_own_beginning(self, found: re.Match[str] | None, text: str, pos: int) -> bool:
        if found is None or not self.form.begins or not found.end() == pos < len(text):
            return False
        return not text.startswith(self.others, pos)


_SHARED = 4
"""Characters that literals must share to be looked for as one."""


def shared_start(texts: list[str]) -> str:
    """Return the longest common beginning of some texts."""
    if not texts:
        return ""
    # The first and the last in order differ as early as any two.
    low, high = min(texts), max(texts)
    for at, char in enumerate(low):
        if at >= len(high) or char != high[at]:
            return low[:at]
    return low


def starts_of(literals: list[str]) -> tuple[str, ...]:
    """Return a few literals with which all of the given ones begin; none if one of them is
    empty.
    """
    found: list[str] = []
    for literal in sorted(set(literals)):
        shared = shared_start([found[-1], literal]) if found else ""
        if found and len(shared) >= min(_SHARED, len(found[-1])):
            found[-1] = shared
        elif literal:
            found.append(literal)
    return tuple(found)
