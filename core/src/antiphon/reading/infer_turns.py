"""Reading the turns of a conversation off a template: what opens and closes each role."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from antiphon.errors import GrammarUnavailable
from antiphon.reading.grammar import Literals, RoleForm
from antiphon.reading.probing import (
    ROLES,
    TOOLS,
    Prober,
    around_tools,
    common_prefix,
    conversation,
    cut,
    with_dates,
    with_parts,
    word,
)

SEQUENCES = (
    "u", "ua", "uau", "uaua", "uauau", "uauaua", "s", "su", "sua", "suau", "suaua",
    "uua", "uuaua", "auau", "aua", "uasu", "uasua", "uaau", "suu", "sau",
    "ss", "ssu", "ssua", "uas", "uaa",
)  # fmt: skip
WITH_TOOLS = (
    "u", "ua", "uau", "uaua", "su", "sua", "suau", "suaua", "a", "aua", "sau", "uu", "uua",
)  # fmt: skip
THOUGHT = ("u", "su", "ua", "uau", "sua", "uaua")
PARTS = ("ua", "uau", "sua", "suau")
PROMPTED = ("u", "su", "uau", "ua", "uaua")
THINKING: tuple[dict[str, Any], ...] = (
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
    unsaid: list[tuple[str, str]] = field(default_factory=list)
    """What stands at the start instead of a system message that is not printed, and the question's
    opener behind it."""

    def add(self, before: str, after: str, text: Literals) -> None:
        """Note a text between two roles."""
        if before and isinstance(text, str) and not text.strip():
            return  # the template joins the two: nothing tells them apart
        if text not in self.between[before, after]:
            self.between[before, after].append(text)

    def openers(self, role: str) -> list[tuple[str, Literals, bool]]:
        """Return what opens a role's body: the role before it, the text, and whether that stands in
        the place of the closer before it.
        """
        found: list[tuple[str, Literals, bool]] = []
        for (before, after), texts in self.between.items():
            if after != role:
                continue
            closer = self.closers.get(before, "")
            for text in texts:
                closed = lead_of(text).startswith(closer)
                found.append((before, without(text, closer) if closed else text, not closed))
        return found

    def finals(self, role: str) -> tuple[str, ...]:
        """Return what may stand behind a role's closer at the end of a rendering."""
        closer = self.closers.get(role, "")
        texts = [*self.ends[role], *self.prompts[role]]
        rests = {text[len(closer) :] for text in texts if text.startswith(closer)}
        return tuple(sorted((rest for rest in rests if rest), key=len, reverse=True))


def prompts_of(turns: Turns) -> tuple[str, ...]:
    """Return what asks for an answer at the end of a rendering, where that is told by no less than
    a marker or a word and no rendering ends so without being asked to.
    """
    ends = [text for texts in turns.ends.values() for text in texts]
    found = set()
    for role, texts in turns.prompts.items():
        closer = turns.closers.get(role, "")
        found |= {text[len(closer) :] for text in texts if text.startswith(closer)}
    told = {
        text
        for text in found
        if text.strip() and not any(end.rstrip().endswith(text.rstrip()) for end in ends)
    }
    return tuple(sorted(told, key=len, reverse=True))


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


def probe_turns(prober: Prober, both_ways: bool = False) -> Turns:
    """Render conversations of words and note what stands between them.

    Args:
        prober: The template.
        both_ways: Give contents as parts as well.

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
    _note_without_system(turns, prober)
    for sequence in WITH_TOOLS:
        _note_tools(turns, prober, sequence)
    for options in THINKING[1:]:
        for sequence in THOUGHT:
            _note(turns, prober, sequence, **options)
    for sequence in PARTS if both_ways else ():
        _note_parts(turns, prober, sequence)
    for sequence in PROMPTED:
        for tools, options in (*((None, options) for options in THINKING), (TOOLS[0], {})):
            text = prober.render(conversation(sequence), tools=tools, prompt=True, **options)
            parts = cut(text, _words(sequence)) if text is not None else None
            if parts is not None:
                turns.prompts[sequence[-1]].append(parts[-1])
    return turns


def _words(sequence: str) -> list[str]:
    return [word(role, number) for number, role in enumerate(sequence)]


def _note(turns: Turns, prober: Prober, sequence: str, **options: Any) -> None:
    text = prober.render(conversation(sequence), **options)
    parts = cut(text, _words(sequence)) if text is not None else None
    if parts is None:
        return
    before = ""
    for role, part in zip(sequence, parts, strict=False):
        turns.add(before, role, with_dates(part))
        before = role
    turns.ends[before].append(parts[-1])


def _note_parts(turns: Turns, prober: Prober, sequence: str) -> None:
    """Note what stands between contents that are given as parts, where that is something else."""
    made = [with_parts(message) for message in conversation(sequence)]
    text = prober.render(made)
    parts = cut(text, _words(sequence)) if text is not None else None
    if text is None or parts is None or any(str(message["content"]) in text for message in made):
        return
    before = ""
    for role, part in zip(sequence, parts, strict=False):
        if part.startswith(turns.closers.get(before, "")):
            turns.add(before, role, with_dates(part))
        before = role


def _note_without_system(turns: Turns, prober: Prober) -> None:
    """Note how a conversation begins whose system text is empty or not printed, where that is
    another way again.
    """
    asked = conversation("sua")[1:]
    for system in ("", word("s", 0)):
        text = prober.render([{"role": "system", "content": system}, *asked])
        parts = cut(text, [message["content"] for message in asked]) if text is not None else None
        if parts is not None and not (system and system in parts[0]):
            _note_unsaid(turns, parts[0])


def _note_unsaid(turns: Turns, start: str) -> None:
    shown = {
        lead_of(opener) + lead_of(following)
        for opener in turns.between.get(("", "s"), [])
        for following in turns.between.get(("s", "u"), [])
    }
    usual = [lead_of(opener) for opener in turns.between.get(("", "u"), [])]
    if start in shown or any(start == opener for opener in usual):
        return
    openers = {text for _, text, _ in turns.openers("u") if isinstance(text, str) and text.strip()}
    fitting = [opener for opener in openers if start.endswith(opener) and start != opener]
    if fitting:
        opener = max(fitting, key=len)
        found = start[: len(start) - len(opener)], opener
        if found not in turns.unsaid:
            turns.unsaid.append(found)
    elif not any(start.startswith(opener) for opener in usual):
        turns.add("", "u", with_dates(start))


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
    if shown[0][-1] == shown[1][-1]:
        turns.ends[before].append(shown[0][-1])


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
        texts = [*following, *turns.ends[role]]
        turns.closers[role] = whole_markers(common_prefix(texts), texts)
    for role in ROLES:
        if turns.closers.get(role) and not turns.ends[role]:
            _give_header_back(turns, role)


def whole_markers(prefix: str, texts: list[str]) -> str:
    """Cut a common beginning back so that it ends inside no marker."""
    for text in texts:
        for found in MARKER.finditer(text):
            if found.start() < len(prefix) < found.end():
                prefix = prefix[: found.start()]
    return prefix


def whole_start(suffix: str, texts: list[str]) -> str:
    """Cut a common end back so that it begins inside no marker."""
    for text in texts:
        at = len(text) - len(suffix)
        for found in MARKER.finditer(text):
            if found.start() < at < found.end():
                suffix = text[found.end() :]
                at = found.end()
    return suffix


def _give_header_back(turns: Turns, role: str) -> None:
    """Where no rendering ends with a role, its closer may hold the next one's header: cut it
    off.
    """
    closer = turns.closers[role]
    for (before, after), texts in turns.between.items():
        if before != role:
            continue
        headers = {
            lead_of(without(text, turns.closers.get(other, "")))
            for (other, later), others in turns.between.items()
            if later == after and other not in (role, "")
            for text in others
        }
        for text in texts:
            whole = lead_of(text)
            for head in headers:
                if head.strip() and whole.endswith(head) and len(whole) - len(head) < len(closer):
                    closer = whole[: len(whole) - len(head)]
    turns.closers[role] = closer


def role_forms(turns: Turns) -> tuple[RoleForm, ...]:
    """Return the forms of all roles.

    Where a system text stands at the head of the user's turn with nothing but white space behind
    it, it can't be told from the user's own: such a turn is the user's.
    """
    made: dict[tuple[str, Literals, bool], list[str]] = {}
    for role in ROLES:
        for before, opener, unclosed in turns.openers(role):
            made.setdefault((role, opener, unclosed), []).append(before)
    closer = turns.closers.get("s", "")
    headers = {opener for role, opener, _ in made if role == "a"}
    usual = {text for text in headers if isinstance(text, str) and text.strip()}
    others: set[Literals] = set()
    if not closer.strip() or closer == turns.closers.get("u"):
        others |= {opener for role, opener, _ in made if role == "u"}
    if closer == turns.closers.get("a"):
        # A first turn with an answer's header is an answer.
        others |= {text for text in headers if lead_of(text).endswith(tuple(usual - {text}))}
        others |= {text for (role, text, _), places in made.items() if role == "a" and "" in places}
    made = {key: places for key, places in made.items() if key[0] != "s" or key[1] not in others}
    names = {"": "", **ROLES}
    unsaid = []
    for before, opener in turns.unsaid:
        unsaid.append(RoleForm("system", with_dates(before), "", after=("",), begins=opener))
        places = made.setdefault(("u", opener, False), [])
        if "s" not in places:
            places.append("s")
    return (*unsaid, *_usual_forms(turns, made, names))


def _usual_forms(
    turns: Turns, made: dict[tuple[str, Literals, bool], list[str]], names: dict[str, str]
) -> tuple[RoleForm, ...]:
    return tuple(
        RoleForm(
            ROLES[role],
            opener,
            turns.closers.get(role, ""),
            after=tuple(dict.fromkeys(names[before] for before in places)),
            unclosed=unclosed,
            finals=turns.finals(role),
        )
        for (role, opener, unclosed), places in made.items()
    )
