"""The kit notices small faults in the templates and grammars of our own families."""

from __future__ import annotations

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
