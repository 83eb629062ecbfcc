"""Which dialect a model speaks, settled in tiers, with the reasons.

The tiers, the surest first: what the caller says, the model's exact hub name, the digest of its
tokenizer's own template, the control tokens in its vocabulary, patterns on its own name. The first
tier that holds a dialect decides. Dialects of a higher `ModelFamily.priority` are asked first, in all
tiers: so a user's own family wins. Where several dialects of one priority hold in one tier, the more
telling mark decides (more control tokens, a longer stretch of the name); then the tiers below, among
those dialects only. What is still a tie is an error and not
a guess (dialects with one template excepted: none of them is wrong).

A mark that is known and speaks against a dialect rules it out below the digest tier: a vocabulary
without its control tokens, or a template of the tokenizer's own that writes another text (see
`antiphon.agreement`). So a model that only borrows another's name or vocabulary is told apart from
it. A surer mark outweighs the ones below it; where those say something else, the verdict's notes
say what.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from antiphon.agreement import finer_agreement, finer_difference, first_difference
from antiphon.errors import FamilyAmbiguous
from antiphon.families import ModelFamily
from antiphon.marks import ModelMarks, marks_of
from antiphon.plugins import get_host
from antiphon.registry import families, get_family, registered_by

Tier = Literal["explicit", "model id", "template digest", "vocabulary", "name"]


@dataclass(frozen=True)
class Candidate:
    """A dialect that holds in a tier, and the mark that says so.

    Attributes:
        family: The dialect's name.
        tier: The tier.
        reason: The mark.
        priority: The dialect's priority.
        weight: How telling the mark is, among those of its tier.
    """

    family: str
    tier: Tier
    reason: str
    priority: int = 0
    weight: int = 0


@dataclass(frozen=True)
class Detection:
    """The verdict.

    Attributes:
        subject: What was asked about.
        family: The dialect's name; None where no dialect is known to be the model's.
        tier: The tier that decided, None where none did.
        candidates: Every dialect that held in a tier that was looked at, the chosen one among them.
        notes: What spoke against dialects, and what could not be looked at, one sentence each.
    """

    subject: str
    family: str | None
    tier: Tier | None
    candidates: tuple[Candidate, ...] = ()
    notes: tuple[str, ...] = ()

    def explain(self) -> str:
        """Return the verdict and its reasons, for people to read."""
        if self.family is None:
            lines = [f"{self.subject}: no dialect is known to be its own."]
        else:
            owner = registered_by(self.family)
            lines = [f"{self.subject}: {self.family} (from {owner}), settled by {self.tier}."]
        for candidate in self.candidates:
            chosen = candidate.family == self.family and candidate.tier == self.tier
            priority = f", priority {candidate.priority}" if candidate.priority else ""
            lines.append(
                f"  {'*' if chosen else '-'} {candidate.tier}: {candidate.family} by"
                f" {candidate.reason}{priority}"
            )
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)


def detect_family(name_or_tokenizer: Any, *, family: str | None = None) -> Detection:
    """Return which dialect a model speaks.

    Args:
        name_or_tokenizer: A hub name, a path (a folder with tokenizer files is read), or an object
            with any of ``chat_template``, ``get_vocab()`` and ``name_or_path``. A dialect's own
            name counts as explicit.
        family: The dialect, where the caller knows it: it is looked up, and nothing else is.

    Raises:
        FamilyAmbiguous: Several dialects hold equally well; the error says how to choose.
        FamilyNotFound: ``family`` is no dialect.
        PluginConflict: Several plugins claim the dialect.
        InvalidData: A tokenizer file in the folder can't be read.
    """
    if family is not None:
        found = get_family(family)
        subject = name_or_tokenizer if isinstance(name_or_tokenizer, str) else "this model"
        return _verdict(subject, found, "explicit", "the caller's word")
    known = (*families(), *get_host().contested("family", ModelFamily))
    if isinstance(name_or_tokenizer, str) and name_or_tokenizer in {f.name for f in known}:
        return _verdict(
            name_or_tokenizer, get_family(name_or_tokenizer), "explicit", "its own name"
        )
    detection = _settle(known, marks_of(name_or_tokenizer), check_text=True)
    if detection.family is not None:
        get_family(detection.family)  # Raises where two plugins claim the dialect.
    return detection


def detect_among(known: Sequence[ModelFamily], name_or_tokenizer: Any) -> Detection:
    """Return which of some dialects fits a model best, whatever its own template writes.

    For callers who want a line's template in place of the tokenizer's own.

    Raises:
        FamilyAmbiguous: Several of them fit equally well.
    """
    return _settle(known, marks_of(name_or_tokenizer), check_text=False)


def template_digests(template: str) -> tuple[str, ...]:
    """Return the SHA-256 digests of a template and of the spellings that mean the same to Jinja.

    Jinja reads every line end as a newline and drops one newline at the end of a template.
    """
    text = template.replace("\r\n", "\n").replace("\r", "\n")
    spellings = dict.fromkeys((template, text, text.removesuffix("\n"), text + "\n"))
    return tuple(hashlib.sha256(each.encode("utf-8", "replace")).hexdigest() for each in spellings)


def _verdict(subject: str, family: ModelFamily, tier: Tier, reason: str) -> Detection:
    candidate = Candidate(family.name, tier, reason, family.priority)
    return Detection(subject, family.name, tier, (candidate,))


def _settle(known: Sequence[ModelFamily], marks: ModelMarks, *, check_text: bool) -> Detection:
    """Ask the dialects of the highest priority first; who has none that holds leaves it to the next."""
    notes: list[str] = []
    seen: list[Candidate] = []
    for priority in sorted({family.priority for family in known}, reverse=True):
        asked = [family for family in known if family.priority == priority]
        verdict = _go_through(asked, marks, notes, seen, check_text=check_text)
        if verdict is not None:
            name, tier = verdict
            lower = _held(known, marks, below=priority)
            if lower:
                notes.append(
                    f"{name} has the higher priority ({priority}): without it,"
                    f" {' or '.join(_best(lower))} would be taken by {lower[0].tier}."
                )
            notes += _outweighed(asked, name, tier, marks)
            chosen = next(family for family in asked if family.name == name)
            notes += _left_open(chosen, tier, marks)
            return Detection(marks.subject, name, tier, (*seen, *lower), tuple(notes))
    notes.append(_looked_at(marks))
    return Detection(marks.subject, None, None, tuple(seen), tuple(notes))


def _left_open(chosen: ModelFamily, tier: Tier, marks: ModelMarks) -> list[str]:
    """Return what a verdict by the vocabulary or the name does not say."""
    if tier not in ("vocabulary", "name"):
        return []
    if marks.template is None:
        return [
            f"No template of its own was seen, and that may print more than {chosen.name} does (a"
            " default system message, say): give its tokenizer to be sure."
        ]
    difference = finer_difference(chosen, marks.template, marks.special_tokens)
    if difference is None:
        return []
    return [f"The tokenizer's own template is a near relative of {chosen.name}: {difference}."]


def _held(known: Sequence[ModelFamily], marks: ModelMarks, below: int) -> list[Candidate]:
    """Return who of a lower priority holds, in the first tier that has one."""
    others = [family for family in known if family.priority < below]
    held = (matching(others, marks) for _, matching in _TIERS)
    return next((candidates for candidates in held if candidates), []) if others else []


def _go_through(
    asked: Sequence[ModelFamily],
    marks: ModelMarks,
    notes: list[str],
    seen: list[Candidate],
    *,
    check_text: bool,
) -> tuple[str, Tier] | None:
    """Go through the tiers until one of the dialects that are asked is left; return it and the tier.

    Raises:
        FamilyAmbiguous: Several are left.
    """
    left = list(asked)
    tie: tuple[Tier, list[str]] | None = None
    for tier, matching in _TIERS:
        candidates = matching(left, marks)
        seen += candidates
        if (
            check_text
            and marks.template is not None
            and (tie or (tier,))[0] in ("vocabulary", "name")
        ):
            candidates = _writing_the_same(left, candidates, marks, notes)
        names = _best(candidates)
        if len(names) == 1:
            # A tie above that this tier breaks was settled by the tier above: it is the surer mark.
            return names[0], tie[0] if tie else tier
        if names:
            tie = (tie[0] if tie else tier, names)
            left = [family for family in left if family.name in names]
    if tie is None:
        return None
    tier, names = tie
    if tier == "template digest":
        return names[0], tier  # They write one text, so none of them is wrong.
    raise FamilyAmbiguous(
        f"{marks.subject} may be {' or '.join(names)} by its {tier}, and nothing says which:"
        f" say family={names[0]!r} (or another one), or register one with a higher priority."
    )


def _looked_at(marks: ModelMarks) -> str:
    """Return what was looked at in vain, and what to do."""
    looked = []
    advice = "Give its tokenizer, or say family=... if you know the dialect."
    if marks.template is not None:
        advice = "Its own template is what is rendered; family=... puts a dialect's in its place."
    if marks.own_name:
        looked.append(f"its name {marks.own_name!r}")
    if marks.template is not None:
        looked.append(f"its template (digest {template_digests(marks.template)[0][:12]}...)")
    if marks.vocabulary() is not None:
        looked.append("its vocabulary")
    return (
        f"Looked at {', '.join(looked) or 'nothing, since nothing is known of it'}: no dialect's model"
        f" is known by that. {advice}"
    )


def _outweighed(
    known: Sequence[ModelFamily], name: str, decided: Tier, marks: ModelMarks
) -> list[str]:
    """Return a sentence for each mark that speaks for another dialect than the one that was chosen."""
    chosen = next(family for family in known if family.name == name)
    related = {chosen.variant_of or name, *(f.name for f in known if f.variant_of == name), name}
    notes = []
    if decided == "model id" and marks.template is not None:
        difference = first_difference(chosen, marks.template, marks.special_tokens)
        if difference is not None:
            notes.append(f"{name} is not the tokenizer's own template: {difference}.")
    vocabulary = marks.vocabulary() if decided in ("model id", "template digest") else None
    if vocabulary is not None:
        lacking = [token for token in chosen.required_tokens if token not in vocabulary]
        foreign = [token for token in chosen.excluded_tokens if token in vocabulary]
        notes += [f"Its vocabulary lacks {' '.join(lacking)}, which {name} has."] * bool(lacking)
        notes += [f"Its vocabulary has {' '.join(foreign)}, which {name} lacks."] * bool(foreign)
    below = [tier for tier, _ in _TIERS]
    for tier, matching in _TIERS[below.index(decided) + 1 :]:
        candidates = matching(known, marks) if tier != "vocabulary" else []
        others = [each for each in _best(candidates) if each not in related]
        if others and len(others) == len(_best(candidates)):
            reason = next(each.reason for each in candidates if each.family in others)
            notes.append(
                f"Its {tier} says {' or '.join(others)} ({reason}); its {decided} is the surer mark."
            )
    return notes


def _best(candidates: list[Candidate]) -> list[str]:
    """Return who has the highest priority and, among these, the most telling mark, sorted."""
    first = max(((each.priority, each.weight) for each in candidates), default=None)
    return sorted({each.family for each in candidates if (each.priority, each.weight) == first})


def _writing_the_same(
    known: list[ModelFamily], candidates: list[Candidate], marks: ModelMarks, notes: list[str]
) -> list[Candidate]:
    """Return the candidates whose text is that of the tokenizer's own template.

    Of several, those that agree on the most probes; of dialects that agree on all, the one that is
    no variant of another.
    """
    template = marks.template or ""
    by_name = {family.name: family for family in known}
    agreeing: dict[str, int] = {}
    for name in dict.fromkeys(candidate.family for candidate in candidates):
        difference = first_difference(by_name[name], template, marks.special_tokens)
        if difference is None:
            agreeing[name] = finer_agreement(by_name[name], template, marks.special_tokens)
        else:
            notes.append(f"{name} is not the tokenizer's own template: {difference}.")
    if not agreeing:
        return []
    most = max(agreeing.values())
    names = [name for name, count in agreeing.items() if count == most]
    first = [name for name in names if by_name[name].variant_of not in names]
    return [candidate for candidate in candidates if candidate.family in first]


def _by_model_id(known: Iterable[ModelFamily], marks: ModelMarks) -> list[Candidate]:
    if marks.model_id is None:
        return []
    wanted = marks.model_id.lower()
    return [
        Candidate(family.name, "model id", repr(model_id), family.priority)
        for family in known
        for model_id in family.model_ids
        if model_id.lower() == wanted
    ]


def _by_digest(known: Iterable[ModelFamily], marks: ModelMarks) -> list[Candidate]:
    if marks.template is None:
        return []
    digests = template_digests(marks.template)
    return [
        Candidate(family.name, "template digest", f"{digest[:12]}...", family.priority)
        for family in known
        for digest in family.digests
        if digest in digests
    ]


def _by_vocabulary(known: Iterable[ModelFamily], marks: ModelMarks) -> list[Candidate]:
    vocabulary = marks.vocabulary()
    if vocabulary is None:
        return []
    return [
        Candidate(
            family.name,
            "vocabulary",
            " ".join(family.required_tokens),
            family.priority,
            len(family.required_tokens),
        )
        for family in known
        if family.required_tokens and _allows(vocabulary, family)
    ]


def _allows(vocabulary: Container[str], family: ModelFamily) -> bool:
    """Whether a vocabulary has all that a dialect's models have, and nothing that they don't."""
    return all(token in vocabulary for token in family.required_tokens) and not any(
        token in vocabulary for token in family.excluded_tokens
    )


def _by_name(known: Iterable[ModelFamily], marks: ModelMarks) -> list[Candidate]:
    vocabulary = marks.vocabulary()
    model_id = (marks.model_id or "").lower()
    candidates = []
    for family in known:
        if vocabulary is not None and not _allows(vocabulary, family):
            continue
        if model_id and any(other.lower() == model_id for other in family.other_ids):
            continue
        matches = (_compiled(pattern).search(marks.own_name) for pattern in family.name_patterns)
        found = max((match.group() for match in matches if match), key=len, default=None)
        if found is not None:
            reason = f"{found!r} in {marks.own_name!r}"
            candidates.append(Candidate(family.name, "name", reason, family.priority, len(found)))
    return candidates


_TIERS: tuple[tuple[Tier, Callable[[Iterable[ModelFamily], ModelMarks], list[Candidate]]], ...] = (
    ("model id", _by_model_id),
    ("template digest", _by_digest),
    ("vocabulary", _by_vocabulary),
    ("name", _by_name),
)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
