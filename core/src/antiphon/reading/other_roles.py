"""Messages of roles that a grammar does not know by name, where its template prints any role in one form."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from antiphon.engine.caches import BoundedCache
from antiphon.reading.grammar import OTHER, Grammar, Literals, RoleForm, Slot
from antiphon.reading.ids import literals_of

WAYS: dict[str, Callable[[str], str]] = {
    "role": str,
    "ROLE": str.upper,
    "Role": str.capitalize,
}
"""The slots for a role's name, and how each of them writes it."""

_MAX_ROLES = 8
"""Roles beyond the grammar's own that a conversation may have."""

_Headers = tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...]

_KEPT: BoundedCache[tuple[int, tuple[str, ...]], tuple[Grammar, Grammar]] = BoundedCache(64)
_LOOKED: BoundedCache[int, tuple[Grammar, frozenset[str], _Headers]] = BoundedCache(64)


def with_roles_of(grammar: Grammar, text: str) -> Grammar:
    """Return the grammar with the forms of the roles that a rendering's headers name.

    Args:
        grammar: The grammar; without `Grammar.others` it is returned as it is.
        text: The rendering, its control tokens written out.
    """
    if not grammar.others:
        return grammar
    names = _named(grammar, text)
    if not names:
        return grammar
    key = (id(grammar), names)
    kept = _KEPT.get(key)
    if kept is None or kept[0] is not grammar:
        kept = grammar, _expanded(grammar, names)
        _KEPT.put(key, kept)
    return kept[1]


def with_form(grammar: Grammar, form: RoleForm) -> Grammar:
    """Return the grammar with one more form: where it has the same for other places, for these as well."""
    roles = list(grammar.roles)
    for place, known in enumerate(roles):
        if replace(known, after=form.after) == form:
            if known.after is not None and form.after is not None:
                after = tuple(dict.fromkeys((*known.after, *form.after)))
                roles[place] = replace(known, after=after)
            return replace(grammar, roles=tuple(roles))
    return replace(grammar, roles=(*roles, form))


def _named(grammar: Grammar, text: str) -> tuple[str, ...]:
    """Return the roles that headers in a text name, less the usual ones and those of the grammar's
    own forms, and less what is a marker of another meaning (``<|end|>`` is no message of the role
    ``end``).
    """
    known, headers = _kept_headers(grammar)
    found: dict[str, None] = {}
    for way, header, ends in headers:
        for match in header.finditer(text):
            if ends and match.start() and not text.endswith(ends, 0, match.start()):
                continue
            name = match["name"]
            if way != "role":
                # How it was written before is not to be seen; roles are in small letters.
                name = name.lower() if name == WAYS[way](name.lower()) else ""
            if name in known or name in found or is_literal(grammar, match.group()):
                continue
            if name:
                found[name] = None
                if len(found) == _MAX_ROLES:
                    return tuple(found)
    return tuple(found)


def _kept_headers(grammar: Grammar) -> tuple[frozenset[str], _Headers]:
    """Return the roles that a grammar knows and its headers of others, found out once."""
    kept = _LOOKED.get(id(grammar))
    if kept is None or kept[0] is not grammar:
        known = frozenset(("system", "user", "assistant", *(form.role for form in grammar.roles)))
        kept = grammar, known, _headers(grammar)
        _LOOKED.put(id(grammar), kept)
    return kept[1], kept[2]


def _headers(grammar: Grammar) -> _Headers:
    """Return for headers with a role's name the slot in which it stands, the expression, and what
    ends the message before: one of these stands before such a header, if any are known.
    """
    closers: dict[str, set[str]] = {}
    for form in (*grammar.roles, *grammar.others):
        if isinstance(form.closer, str):
            closers.setdefault(form.role, set()).update((form.closer, *form.other_closers))
    made = []
    for form in grammar.others:
        place = name_place(form.opener)
        if form.role != OTHER or place is None:
            continue
        before, behind = (
            "".join(re.escape(part) for part in side if isinstance(part, str))
            for side in (form.opener[:place][-1:], form.opener[place + 1 :][:1])
        )
        ends = [end for role in form.after or () for end in closers.get(role, {""} if role else ())]
        closed = () if form.unclosed or "" in ends else tuple(dict.fromkeys(ends))
        header = re.compile(rf"{before}(?P<name>\w[\w-]{{0,40}}){behind}")
        made.append((_field(form.opener[place]), header, closed))
    return tuple(made)


def name_place(literals: Literals) -> int | None:
    """Return the place of the one slot for a role's name among literals; None where there is none."""
    places = [place for place, part in enumerate(literals) if _field(part) in WAYS]
    return places[0] if len(places) == 1 else None


def _field(part: str | Slot) -> str:
    """Return a slot's field; "" for a literal."""
    return part.field if isinstance(part, Slot) else ""


def is_literal(grammar: Grammar, header: str) -> bool:
    """Whether a header stands in one of the grammar's literals."""
    bare = header.strip()
    return any(bare in literal for literal in literals_of(replace(grammar, others=())))


def _expanded(grammar: Grammar, names: tuple[str, ...]) -> Grammar:
    for form in grammar.others:
        after = form.after and tuple(
            name for role in form.after for name in (names if role == OTHER else (role,))
        )
        form = replace(form, after=after)
        for name in names if form.role == OTHER else (form.role,):
            grammar = with_form(
                grammar,
                replace(
                    form,
                    role=name,
                    opener=_filled(form.opener, name),
                    closer=_filled(form.closer, name),
                ),
            )
    return grammar


def _filled(literals: Literals, name: str) -> Literals:
    """Return literals with a role's name in its slots."""
    if isinstance(literals, str):
        return literals
    made: list[str | Slot] = []
    for part in literals:
        item = WAYS[_field(part)](name) if _field(part) in WAYS else part
        if made and isinstance(item, str) and isinstance(made[-1], str):
            made[-1] += item
        else:
            made.append(item)
    return made[0] if len(made) == 1 and isinstance(made[0], str) else tuple(made)
