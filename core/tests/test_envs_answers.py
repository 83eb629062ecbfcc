"""Answers are found where the model put them, and compared exactly."""

from __future__ import annotations

import contextlib
import time
from fractions import Fraction

import pytest
from antiphon.envs.answers import (
    extract_answer,
    has_thought,
    is_right,
    reference_answer,
    visible_text,
)
from antiphon.envs.arithmetic import NoValue, evaluate
from hypothesis import given
from hypothesis import strategies as st

CASES = [
    # markers
    ("2+40=42\n#### 42", 42),
    ("so \\boxed{18}", 18),
    ("$\\boxed{\\text{about } 18}$", 18),
    ("\\boxed{18\\text{ dollars}}", 18),
    ("<answer>Mary saw 36 snakes.</answer>", 36),
    ("The answer is 18.", 18),
    ("**Answer:** 18 dollars", 18),
    ("The final answer is: \\(18\\)", 18),
    ("the answer to the question is 18", 18),
    ("####42", 42),
    ("#### **42**", 42),
    ("####\n42", 42),
    ("#### (42)", 42),
    # the last marker that holds a number wins, whatever follows it
    ("#### 41\n#### 42\nand so on. Page 5.", 42),
    ("\\boxed{41} no: \\boxed{42}", 42),
    ("#### 42\n####", 42),
    ("The answer is 5. No, wait.\n#### 7", 7),
    # equations and explanations
    ("#### 10 - 3 = 7", 7),
    ("#### 9/3 = 3", 3),
    ("#### x = 18", 18),
    ("#### $5 - $2 = $3", 3),
    ("#### 18 eggs * $2 = $36", 36),
    ("#### 18 (since 9 * 2 = 18 and 4 = 4)", 18),
    ("The answer is 18 because 20 - 2 = 18 and 1 = 1", 18),
    # how numbers are written
    ("#### $1,234.50 per week", Fraction(2469, 2)),
    ("\\boxed{\\$1{,}234}", 1234),
    ("\\boxed{70\\,000}", 70000),
    ("#### 70\u202f000", 70000),
    ("#### 1,00,000", 100000),
    ("#### 25%", 25),
    ("#### 18.00", 18),
    ("#### 18. Done.", 18),
    ("#### .5", Fraction(1, 2)),
    ("#### 1/2", Fraction(1, 2)),
    ("#### 2 1/2", Fraction(5, 2)),
    ("\\boxed{\\frac{1}{2}}", Fraction(1, 2)),
    ("#### 1.5e3", 1500),
    ("#### ４２", 42),
    ("#### 1'234'567", 1234567),
    ("The answer is 1½ cups.", Fraction(3, 2)),
    ("#### ½", Fraction(1, 2)),
    ("\\boxed{\\frac12}", Fraction(1, 2)),
    ("\\boxed{\\tfrac{-1}{2}}", Fraction(-1, 2)),
    ("\\boxed{1\\frac{1}{2}}", Fraction(3, 2)),
    ("#### 18 #### 19", 19),
    # arithmetic is worth its result, never its first number
    ("#### 2*9", 18),
    ("#### 2 * 9 eggs", 18),
    ("#### $2 * 9", 18),
    ("#### 20-5", 15),
    ("#### 18 = 2 * 9", 18),
    ("#### 3 x 10^4", 30000),
    ("\\boxed{2^{10}}", 1024),
    ("\\boxed{2 \\times 9}", 18),
    ("\\boxed{3 \\cdot 10^{4}}", 30000),
    ("\\boxed{\\frac{2 \\cdot 9}{3}}", 6),
    ("\\boxed{\\left(1+2\\right) \\div 2}", Fraction(3, 2)),
    ("\\boxed{2(1+2)}", 6),
    ("\\boxed{\\sqrt{16}}", 4),
    ("\\boxed{-2^2}", -4),
    ("The answer is 7 + 8", 15),
    ("The answer is 18 - 2 more than before", 18),
    ("<answer>36/2</answer>", 18),
    ("#### 18 m^2", 18),
    ("\\boxed{18\\,\\text{cm}^{2}}", 18),
    ("\\boxed{18^\\circ}", 18),
    ("#### 10!", 10),
    # signs
    ("#### -3", -3),
    ("#### −3", -3),
    ("The change is −3.", -3),
    ("#### -$5", -5),
    ("#### $-5", -5),
    ("#### - 3", -3),
    ("\\boxed{-3}", -3),
    ("It is (-4)", -4),
    ("x = -4", -4),
    ("a loss of negative 4", -4),
    ("It fell from 10-3", 3),
    ("10 - 3", 3),
    ("10 -3", 3),
    ("COVID-19", 19),
    ("we get:\n- 3 apples", 3),
    # the last number, where nothing is marked
    ("The total is 72 clips, altogether.", 72),
    ("first 1,2,3", 3),
    ("about 20–25", 25),
    # nothing
    ("none at all", None),
    ("a lone , comma", None),
    ("#### ,", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "value"), CASES)
def test_the_answer_is_found_as_people_write_it(text: str, value: int | Fraction | None) -> None:
    found = extract_answer(text)
    assert (None if found is None else found.value) == value


@pytest.mark.parametrize(
    "payload",
    ["\\sqrt{2}", "\\log_2 8", "\\binom{4}{2}", "4!", "1/(1-1)", "9^{9^9}", "2^{0.5}", "2\\pi"],
)
def test_a_formula_without_an_exact_value_is_no_number(payload: str) -> None:
    found = extract_answer(f"Not \\boxed{{2}} but \\boxed{{{payload}}}")
    assert found is not None
    assert (found.value, found.payload) == (None, payload)
    assert not any(is_right(found, Fraction(n)) for n in (1, 2, 3, 4, 8, 9))


NUMBERS = st.integers(0, 999).map(str)
SUMS = st.recursive(
    NUMBERS,
    lambda part: st.tuples(part, st.sampled_from("+-*"), part).map(
        lambda three: f"({''.join(three)})"
    ),
    max_leaves=8,
)


@given(SUMS)
def test_arithmetic_is_worth_what_python_makes_of_it(text: str) -> None:
    expression = f"{text} + 0"
    assert evaluate(expression) == eval(expression, {"__builtins__": {}})


@given(st.text("0123456789+-*/^()x. {}\\frac$,!%", max_size=40))
def test_any_text_has_a_value_or_none(text: str) -> None:
    with contextlib.suppress(NoValue):
        value = evaluate(text)
        assert value is None or isinstance(value, Fraction)


def test_text_inside_think_does_not_count() -> None:
    assert extract_answer("<think>#### 5</think>It is #### 6").value == 6  # type: ignore[union-attr]
    assert extract_answer("<think>#### 5") is None
    assert extract_answer("<think>#### 5</think>no number") is None
    opened_by_the_prompt = "2 + 2 is 5, no.\n</think>\n#### 4"
    assert extract_answer(opened_by_the_prompt).value == 4  # type: ignore[union-attr]
    assert visible_text("a<think>b</think>c<think>d") == "a c "


def test_a_thought_is_seen_only_when_it_is_closed_and_not_empty() -> None:
    assert has_thought("<think>hm</think>x")
    assert has_thought("hm</think>x")
    assert not has_thought("<think>\n\n</think>x")
    assert not has_thought("<think>hm")


def test_without_fallback_only_a_marker_counts() -> None:
    assert extract_answer("It is 18", fallback=False) is None
    assert extract_answer("#### 18", fallback=False).marker == "hash"  # type: ignore[union-attr]
    assert extract_answer("#### 18", fallback=False, markers=("boxed",)) is None


def test_a_reference_is_a_solution_or_a_bare_number() -> None:
    assert reference_answer("2 - 5 = -3\n#### -3") == -3
    assert reference_answer("1,234") == 1234
    assert reference_answer("-3") == -3
    with pytest.raises(ValueError, match="no number"):
        reference_answer("no idea")


def test_equal_means_exactly_equal() -> None:
    assert is_right(extract_answer("#### 0.3333"), Fraction("0.3333"))
    assert not is_right(extract_answer("#### 0.3333"), Fraction(1, 3))
    assert not is_right(extract_answer("#### 3"), Fraction(-3))
    assert not is_right(None, Fraction(0))


def test_absurd_numbers_are_refused_quickly() -> None:
    start = time.perf_counter()
    for text in (
        "9" * 100_000,
        "#### 1e999999999",
        "1e-999999999",
        "1," * 20_000,
        "1/" + "9" * 5000,
    ):
        assert not is_right(extract_answer(text), Fraction(0))
    assert time.perf_counter() - start < 10


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "${:,}", "{}.00", "{:,} km"]))
def test_any_integer_written_in_any_style_is_read_back(number: int, style: str) -> None:
    written = style.format(number)
    for frame in ("so\n#### {}", "\\boxed{{{}}}", "The answer is {}.", "<answer>{}</answer>"):
        found = extract_answer(frame.format(written))
        assert found is not None
        assert found.value == number


@given(st.text())
def test_no_text_makes_it_fail(text: str) -> None:
    extract_answer(text)
    extract_answer("#### " + text)
