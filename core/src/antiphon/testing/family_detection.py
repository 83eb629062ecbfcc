"""Checks that a family is known by its own marks, and claims nobody else's."""

from __future__ import annotations

import re

from antiphon.detection import detect_family, template_digests
from antiphon.errors import FamilyAmbiguous
from antiphon.families import ModelFamily
from antiphon.registry import families
from antiphon.testing.results import CheckSkipped, Problems, demand
from antiphon.testing.subject import FamilySubject

# Names that say nothing about a model, and things that are no chat models.
NOBODYS = (
    "model",
    "checkpoint-1200",
    "my-finetune-v2",
    "aardvark-7b-instruct",
    "final_merged_16bit",
    "bert-base-uncased",
    "whisper-large-v3",
    "7b-chat",
    "assistant",
    "x",
    "",
)


def check_own_names(subject: FamilySubject) -> None:
    """The hub names of the descriptor lead to the family, and templates with its digests do."""
    family = subject.family
    problems = Problems("Look at model_ids and digests of the descriptor.")
    _require_registered(family)
    for name in family.model_ids:
        with problems.case(name):
            _demand_family(name, {family.name})
    for official in subject.official:
        alike = {
            each.name
            for each in families()
            if not set(each.digests).isdisjoint(template_digests(official))
        }
        if family.name in alike:
            with problems.case("the official template"):
                _demand_family(_Bare(official), alike)
    if not problems.looked_at:
        raise CheckSkipped("the descriptor has no model_ids, and no digest of a template at hand")
    problems.settle()


def check_foreign_names(subject: FamilySubject) -> None:
    """Names that are nobody's or others' are not claimed."""
    family = subject.family
    problems = Problems("Look at name_patterns of the descriptor: they match more than its models.")
    patterns = [re.compile(pattern, re.IGNORECASE) for pattern in family.name_patterns]
    for name in NOBODYS:
        with problems.case(repr(name)):
            for pattern in patterns:
                demand(not pattern.search(name), f"the pattern {pattern.pattern!r} claims it")
    others = [
        (name, other)
        for other in families()
        if other.line != family.line
        for name in other.model_ids
    ]
    own_names = {
        name.rpartition("/")[2].lower()
        for each in families()
        if each.line == family.line
        for name in each.model_ids
    }
    for name, other in others:
        with problems.case(name):
            own_name = name.rpartition("/")[2]
            # A copy under a model's own name that speaks another dialect is told by its whole id.
            told_by = name if own_name.lower() in own_names else own_name
            matching = [p.pattern for p in patterns if p.search(own_name)]
            demand(
                not matching or _leads_elsewhere(told_by, family),
                f"it is {other.name}'s, and the pattern {matching[:1]} claims {told_by}",
            )
    problems.settle()


def _leads_elsewhere(name: str, family: ModelFamily) -> bool:
    """Whether a name leads to another family, or to none."""
    try:
        return detect_family(name).family != family.name
    except FamilyAmbiguous:
        return False


def _demand_family(model: object, wanted: set[str]) -> None:
    detection = detect_family(model)
    demand(
        detection.family in wanted,
        f"it is taken for {detection.family}:\n{detection.explain()}",
    )


def _require_registered(family: ModelFamily) -> None:
    if family not in families():
        raise CheckSkipped("the family is not registered, so nothing can detect it")


class _Bare:
    """A tokenizer of which nothing is known but its template."""

    def __init__(self, template: str) -> None:
        self.chat_template = template
