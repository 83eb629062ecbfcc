"""The demo's word problems: their arithmetic is right, and their answers can be read."""

from __future__ import annotations

import json
import re
from fractions import Fraction

from antiphon.demo import problems_path
from antiphon.envs.answers import extract_answer, is_right, reference_answer

ROWS = [json.loads(line) for line in problems_path().read_text(encoding="utf-8").splitlines()]


def test_there_are_at_least_forty_different_problems() -> None:
    assert len(ROWS) >= 40
    assert len({row["question"] for row in ROWS}) == len(ROWS)
    assert all(set(row) == {"question", "answer"} for row in ROWS)


def test_every_calculation_in_a_solution_is_right() -> None:
    for row in ROWS:
        steps = re.findall(r"<<([-\d+*/.]+)=([-\d.]+)>>", row["answer"])
        assert steps, row
        for expression, result in steps:
            terms = re.findall(r"(?:(?<=[+*/-])-|^-)?[\d.]+|[+*/-]", expression)
            value = Fraction(terms[0])
            for operator, term in zip(terms[1::2], terms[2::2], strict=True):
                other = Fraction(term)
                value = {
                    "+": value + other,
                    "-": value - other,
                    "*": value * other,
                    "/": value / other,
                }[operator]
            assert value == Fraction(result), row
        assert reference_answer(row["answer"]) == Fraction(steps[-1][1]), row


def test_each_solution_answers_its_own_problem() -> None:
    for row in ROWS:
        assert is_right(extract_answer(row["answer"]), reference_answer(row["answer"]))
