"""Kinds of answers that are easily taken for another number, or for one where there is none."""

from __future__ import annotations

from fractions import Fraction

import pytest
from antiphon.envs.answers import extract_answer, is_right
from antiphon.envs.tasks import WordProblems

UNFINISHED = [
    # an operator waits for what follows it
    "#### 12 +",
    "#### 12 *",
    "#### 12 -",
    "#### 12−",
    "#### 12 x",
    "#### 12 ×",
    "#### 12 ÷ ",
    "#### 12+",
    "#### 3/",
    "#### 2^",
    "#### 12 =",
    "#### 12 ≈",
    "#### 2 * 6 +",
    "#### 2 * 6 *",
    "#### 2 * 6 =",
    "#### 12 eggs +",
    "#### 12 + $",
    "#### 12 \\times",
    "#### 12 +\nMore text",
    "#### 12 + (since 9",
    # nothing has come yet
    "4 * 3 = 12\n#### $",
    "4 * 3 = 12\n#### -",
    "4 * 3 = 12\n#### =",
    "4 * 3 = 12\n#### x =",
    "4 * 3 = 12\n####",
    "4 * 3 = 12\n#### ",
    "That makes 12. The answer is",
    "That makes 12. The answer is $",
    "That makes 12. The answer is:",
    # a number of which more is to come
    "#### 12,",
    "#### 12,3",
    "#### 1,234,",
    "#### 1.5e",
    "#### 1.5e+",
    # brackets that are not closed
    "\\boxed{12",
    "4 * 3 = 12 \\boxed{",
    "\\boxed{\\frac{12}{4}",
    "#### \\frac{12}{",
    "#### \\sqrt{12",
    "#### (12 + 3",
    "#### 12 * (3",
    "#### 12(3 + ",
    "<answer>12 +",
    "<answer>12 +</answer>",
    "<answer>12,",
    "\\boxed{12 +}",
    "\\boxed{12 +",
    "The answer is 12 +",
    "The answer is 12 *",
    "The answer is 3 * 4 =",
    # without a marker
    "So the total is 5 + 12 =",
    "So the total is 12 +",
    "So the total is 12 eggs +",
    "So the total is 12 *",
    "There are 12 of them. She pays $",
    "It comes to 12,",
    "It comes to 12,34",
]


@pytest.mark.parametrize("text", UNFINISHED)
def test_what_breaks_off_within_an_answer_is_none(text: str) -> None:
    found = extract_answer(text)
    assert found is None or (found.value is None and not found.is_complete)
    row = {"question": "", "answer": "#### 12"}
    reply = WordProblems().respond([{"role": "assistant", "content": text}], row, 1)
    assert (reply.reward, reply.info["success"], reply.info["reward_answer"]) == (0.0, False, 0.0)


FINISHED = [
    ("#### 12.", 12),
    ("The answer is 12.", 12),
    ("It comes to 12.", 12),
    ("#### **12**", 12),
    ("**#### 12**", 12),
    ("***Answer: 12***", 12),
    ("**Answer: 12**", 12),
    ("**Final answer:\n#### 12**", 12),
    ("#### *12*", 12),
    ("#### $12$", 12),
    ("The answer is $12$", 12),
    ("#### $\\boxed{12}$", 12),
    ("#### 12, because 4 * 3 =", 12),
    ("#### 12,\nwhich is what she pays", 12),
    ("#### 12 (since 4 *", 12),
    ("#### 12 (4 * 3", 12),
    ("#### 12 - that is all", 12),
    ("#### 12 —", 12),
    ("#### 12 :)", 12),
    ("#### $12/hour", 12),
    ("#### 12 km/h", 12),
    ("#### 12°", 12),
    ("<answer>12", 12),  # a stop string is not part of the text
    ("It comes to 12.\n---", 12),
    ("It comes to 12!\n***", 12),
    ("It comes to 12,\nall told.", 12),
    ("#### 42\n####", 42),
]

MORE = [
    # arithmetic with parentheses, whole
    ("#### 2 * (3 + 4)", 14),
    ("#### (3 + 4) * 2", 14),
    ("#### 2(3 + 4)", 14),
    ("#### (3 + 4) * (1 + 1) = 14", 14),
    ("#### 18 (9 * 2)", 18),
    ("#### 18 (9 * 2 = 18)", 18),
    ("#### 18(since 9 * 2 = 18)", 18),
    ("#### (18 eggs)", 18),
    ("#### 3×10⁴", 30000),
    ("#### 3 x 10⁻²", Fraction(3, 100)),
    ("#### 18 m²", 18),
    ("the area is 18 m^2", 18),
    ("the area is 18 m2", 18),
    ("#### 3 * 6 ⇒ 18", 18),
    ("#### 3 * 6 => 18", 18),
    ("#### 3 * 6 -> 18", 18),
    ("\\boxed{3 \\cdot 6 \\approx 18}", 18),
    # what the marker points at stands behind its verb
    ("The answer to question 3 is 18.", 18),
    ("The answer to 2 * 9 is 18.", 18),
    ("The answer for day 3: 18", 18),
    ("The correct answer is 18.", 18),
    ("the answer is, therefore, 18.", 18),
    ("The answer is not 12 but 18.", 18),
    ("The answer isn't 12, it is 18.", 18),
    ("#### 18, not 12", 18),
    ("<answer>After 3 days it is 18.</answer>", 18),
    ("<answer>The total is 18 after 3 days.</answer>", 18),
    ("<answer>She has 3 hens. She sells 18 eggs.</answer>", 18),
    ("<answer>18. She has 3 hens.</answer>", 18),
    ("#### 18 eggs per day for 3 days", 18),
    ("#### 18 in 30 days", 18),
    ("#### 12 times as many as 5", 12),
    ("#### 18, 6 of them a day", 18),
    ("#### ~~12~~ 18", 18),
    # headings are no answers
    ("#### Step 3: Adding up\nAll told there are 18 eggs.", 18),
    ("#### Step 3: Adding up\nThe answer is 18.", 18),
    ("#### 1. Find the eggs\n6 a day\n#### 2. Add up\nThe answer is 18.", 18),
    ("#### Conclusion\nShe has 18 eggs.", 18),
    ("#### Part 2: 18 eggs", 18),
    # how numbers are written
    ("#### 2 million", 2_000_000),
    ("#### $2.5 million", 2_500_000),
    ("The answer is 3 hundred.", 300),
    ("#### 5k", 5000),
    ("#### $1.2M", 1_200_000),
    ("#### 5 km", 5),
    ("#### 5 m", 5),
    ("#### 10 hundred-dollar bills", 10),
    ("#### 1 234", 1234),
    ("#### 1 234 567 eggs", 1234567),
    ("#### 2 and 1/2", Fraction(5, 2)),
    ("#### ４２％", 42),
    ("#### ＄４２", 42),
    ("#### １，２３４", 1234),
    ("#### ٤٢", 42),
    ("#### \u00a042\u00a0eggs", 42),
    ("#### $\u00a042", 42),
    ("#### 4\u200b2", 42),
    ("#### -$\u00a05", -5),
    ("#### ‑5", -5),
    ("#### ‒5", -5),
    ("#### −$5.00", -5),
    ("#### -5%", -5),
    ("#### minus 5", -5),
    ("#### -1,234.50 USD", Fraction(-2469, 2)),
    ("#### <b>18</b>", 18),
    ("#### 18<br>", 18),
    ("\\boxed{\\mathbf{18}}", 18),
    ("\\boxed{\\textit{18 eggs}}", 18),
    ("\\boxed{18\\%}", 18),
    ("\\boxed{18\\ \\text{eggs}}", 18),
    ("\\boxed{18\\;\\mathrm{cm}^2}", 18),
    ("\\boxed{\\$ 18}", 18),
    ("\\boxed{\\pounds 18}", 18),
    ("\\boxed{\\text{\\$}18}", 18),
    ("\\boxed{\\$18.00\\text{ per day}}", 18),
    ("\\boxed{-\\frac{36}{2}}", -18),
    ("\\boxed{\\boxed{18}}", 18),
    ("$$\\boxed{18}.$$", 18),
    ("He has 18 apples at 3:30.", 18),
    ("She counted 18 birds on 2024-05-12.", 18),
    ("10 minus 5", 5),
]


@pytest.mark.parametrize(("text", "value"), [*FINISHED, *MORE])
def test_a_finished_answer_is_read_as_it_is_meant(text: str, value: int | Fraction) -> None:
    found = extract_answer(text)
    assert found is not None
    assert (found.value, found.is_complete) == (value, True)


NO_NUMBER = [
    # the marker holds something else: a number before it is none
    ("4 * 3 = 12\n#### I don't know", 12),
    ("4 * 3 = 12\n#### no answer", 12),
    ("4 * 3 = 12\n#### N/A", 12),
    ("4 * 3 = 12\n#### eighteen", 12),
    ("4 * 3 = 12 <answer>unknown</answer>", 12),
    ("4 * 3 = 12 <answer></answer>", 12),
    ("4 * 3 = 12 \\boxed{\\text{none}}", 12),
    ("4 * 3 = 12 \\boxed{}", 12),
    ("4 * 3 = 12 \\boxed{x}", 12),
    # several numbers, of which none is chosen
    ("#### 12 or 13", 12),
    ("#### 12 or 13", 13),
    ("#### between 12 and 15", 12),
    ("#### 12 to 15", 12),
    ("#### 12 eggs or 13 eggs", 12),
    ("#### 12–15 eggs or so", 12),
    ("#### 12, 13", 12),
    ("\\boxed{12, 13}", 12),
    ("\\boxed{(12, 13)}", 12),
    ("\\boxed{12,13}", 12),
    ("\\boxed{x = 12, y = 13}", 13),
    ("\\boxed{x = 12, y = 13}", 12),
    ("<answer>12; 13</answer>", 12),
    ("The answer is 12 or 13.", 12),
    # more than the number
    ("#### 12 + x", 12),
    ("#### 3 apples + 2 oranges", 3),
    ("#### 20 apples - 5 apples", 20),
    ("#### 18 dollars and 50 cents", 18),
    ("#### 3 hours and 30 minutes", 3),
    ("#### 3 hr 30 min", 3),
    ("#### 18 hours, 30 minutes", 18),
    ("#### 18h30", 18),
    ("#### 5' 6\"", 5),
    ("#### 2 and a half", 2),
    ("#### 10 plus 5", 10),
    ("#### 10 minus 5", 10),
    ("#### 10 divided by 5", 10),
    ("#### 3:30", 3),
    ("#### 3:30 pm", 30),
    ("#### 2:3", 2),
    ("#### 2024-05-12", 2024),
    ("#### 1.2.3", Fraction("1.2")),
    ("#### 1.234,50", Fraction("1.234")),
    ("#### 12,5", 12),
    ("#### ±12", 12),
    ("\\boxed{12 \\pm 1}", 12),
    ("#### > 12", 12),
    ("\\boxed{x \\geq 12}", 12),
    ("#### not 12", 12),
    ("#### 2 million", 2),
    ("#### 5k", 5),
    ("#### 3×10⁴", 3),
    ("#### 1 234", 1),
]


@pytest.mark.parametrize(("text", "wrong"), NO_NUMBER)
def test_another_number_is_not_taken_for_the_answer(text: str, wrong: int | Fraction) -> None:
    found = extract_answer(text)
    assert not is_right(found, Fraction(wrong))
