"""pytest fixtures of the kit: ``pytest_plugins = ["antiphon.testing.fixtures"]`` in a conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from antiphon.testing.scenarios import Case, corpus
from antiphon.testing.stand_in import StandInTokenizer, stand_in_for


@pytest.fixture(scope="session")
def antiphon_corpus() -> dict[str, Case]:
    """The conversations of the corpus by name."""
    return {case.id: case for case in corpus()}


@pytest.fixture(scope="session")
def antiphon_stand_in() -> Callable[[str], StandInTokenizer]:
    """A function from a family's name to a tokenizer with its control tokens."""
    made: dict[str, StandInTokenizer] = {}

    def make(name: str) -> StandInTokenizer:
        if name not in made:
            from antiphon.registry import get_family

            family = get_family(name)
            made[name] = stand_in_for(family, family.load_grammar())
        return made[name]

    return make


@pytest.fixture
def antiphon_check() -> Callable[..., Any]:
    """Runs `antiphon.testing.check_family` and fails with its report unless all is well."""
    from antiphon.testing.running import check_family

    def check(name: str, tokenizer: Any = None, **options: Any) -> Any:
        report = check_family(name, tokenizer, **options)
        if not report.ok:
            pytest.fail(str(report), pytrace=False)
        return report

    return check
