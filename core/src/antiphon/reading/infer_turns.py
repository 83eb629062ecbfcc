"""Reading the turns of a conversation off a template: what opens and closes each role."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from antiphon.errors import GrammarUnavailable
from antiphon.reading.grammar import Literals, RoleForm, Slot
from antiphon.reading.probing import (
    ROLES,
    TOOLS,
    Prober,
    around_tools,
    common_prefix,
    conversation,
    cut,
    with_dates,
    word,
)

SEQUENCES = (
    "u", "ua", "uau", "uaua", "uauau", "uauaua", "s", "su", "sua", "suau", "suaua",
    "uua", "uuaua", "auau", "aua", "uasu", "uasua", "uaau", "suu", "sau",
)  # fmt: skip
WITH_TOOLS = ("u", "ua", "uau", "uaua", "su", "sua", "suau", "suaua")
PROMPTED = ("u", "su", "uau", "ua", "uaua")
THINKING: tuple[dict[str, object], ...] = (
    {},
    {"enable_thinking": False},
    {"enable_thinking": True},
)

MARKER = re.compile(r"<[^<>\s]{1,40}>|\[/?[A-Z_]{2,20}\]")
"""Something that looks like a control token."""


@dataclass
class Turns:
    """What stands between messages.

    Attributes:
        between: For each pair of neighbours (``""`` is the start) the texts between them.
        ends: For each role the texts after it at the end of a rendering.
        prompts: For each role the texts after it where an answer is asked for.
        closers: For each role what ends its body.
    """

    between: dict[tuple[str, str], list[Literals]] = field(
        default_factory=lambda: defaultdict(list)
    )
    ends: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    prompts: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    closers: dict[str, str] = field(default_factory=dict)

    def add(self, before: str, after: str, text: Literals) -> None:
        """Note a text between two roles."""
        if text not in self.between[before, after]:
            self.between[before, after].append(text)

    def openers(self, role: str) -> list[tuple[str, Literals]]:
        """Return what opens a role's body, with the role before it."""
        found: list[tuple[str, Literals]] = []
        for (before, after), texts in self.between.items():
            if after == role:
                found += [(before, without(text, self.closers.get(before, ""))) for text in texts]
        return found


def lead_of(literals: Literals) -> str:
    """Return the literal up to the first slot."""
    if isinstance(literals, str):
        return literals
    return literals[0] if literals and isinstance(literals[0], str) else ""


def without(literals: Literals, prefix: str) -> Literals:
    """Return literals less a prefix of the first of them."""
    if not prefix or not lead_of(literals).startswith(prefix):
        return literals
    if isinstance(literals, str):
        return literals[len(prefix) :]
    rest = lead_of(literals)[len(prefix) :]
    return (rest, *literals[1:]) if rest else literals[1:]


def probe_turns(prober: Prober) -> Turns:
    """Render conversations of words and note what stands between them.

    Raises:
        GrammarUnavailable: Not even a question and an answer come out as they went in.
    """
    turns = Turns()
    for sequence in SEQUENCES:
        _note(turns, prober, sequence)
    if ("u", "a") not in turns.between:
        raise GrammarUnavailable(
            "The template does not print a question and its answer once each, so its renderings "
            "can't be read back; declare a grammar for it."
        )
    _close(turns)
    for sequence in WITH_TOOLS:
        _note_tools(turns, prober, sequence)
    for sequence in PROMPTED:
        for options in THINKING:
            text = prober.render(conversation(sequence), prompt=True, **options)
            parts = cut(text, _words(sequence)) if text is not None else None
            if parts is not None:
                turns.prompts[sequence[-1]].append(parts[-1])
    return turns


def _words(sequence: str) -> list[str]:
    return [word(role, number) for number, role in enumerate(sequence)]


def _note(turns: Turns, prober: Prober, sequence: str) -> None:
    text = prober.render(conversation(sequence))
    parts = cut(text, _words(sequence)) if text is not None else None
    if parts is None:
        return
    before = ""
    for role, part in zip(sequence, parts, strict=False):
        turns.add(before, role, with_dates(part))
        before = role
    turns.ends[before].append(parts[-1])


def _note_tools(turns: Turns, prober: Prober, sequence: str) -> None:
    """Note where a template announces tools, and how."""
    shown = []
    for tools in TOOLS:
        text = prober.render(conversation(sequence), tools=tools)
        parts = cut(text, _words(sequence)) if text is not None else None
        if parts is None:
            return
        shown.append(parts)
    before = ""
    for role, one, two in zip(sequence, shown[0], shown[1], strict=False):
        turns.add(before, role, with_dates(around_tools(one, two)))
        before = role


def _close(turns: Turns) -> None:
    """Settle where each role's closer ends and the next one's opener begins."""
    for role in ROLES:
        following = [
            lead_of(text)
            for (before, _), texts in turns.between.items()
            if before == role
            for text in texts
        ]
        if not following:
            continue
        turns.closers[role] = common_prefix([*following, *turns.ends[role]])
    # Where only one role follows, its header is not the closer's.
    for role in ROLES:
        closer = turns.closers.get(role)
        if not closer:
            continue
        for (before, after), texts in turns.between.items():
            if before != role or closer not in texts:
                continue
            headers = [
                lead_of(without(text, turns.closers.get(other, "")))
                for (other, later), others in turns.between.items()
                if later == after and other not in (role, "")
                for text in others
            ]
            fitting = [head for head in headers if head and closer.endswith(head)]
            if fitting:
                turns.closers[role] = closer[: -len(max(fitting, key=len))]


def role_forms(turns: Turns) -> tuple[RoleForm, ...]:
    """Return the forms of all roles."""
    made: dict[tuple[str, Literals], list[str]] = {}
    for role in ROLES:
        for before, opener in turns.openers(role):
            made.setdefault((role, opener), []).append(before)
    names = {"": "", **ROLES}
    return tuple(
        RoleForm(
            ROLES[role],
            opener,
            turns.closers.get(role, ""),
            after=tuple(dict.fromkeys(names[before] for before in places)),
        )
        for (role, opener), places in made.items()
    )


def generation_prompts(turns: Turns) -> tuple[str, ...]:
    """Return the texts that end a rendering and are no message's, longest first."""
    found: set[str] = set()
    for texts in (turns.prompts, turns.ends):
        for role, ends in texts.items():
            closer = turns.closers.get(role, "")
            found |= {text[len(closer) :] for text in ends if text.startswith(closer)}
    return tuple(sorted((text for text in found if text), key=len, reverse=True))


def has_slot(literals: Literals) -> bool:
    """Whether there is a slot among literals."""
    return not isinstance(literals, str) and any(isinstance(part, Slot) for part in literals)
