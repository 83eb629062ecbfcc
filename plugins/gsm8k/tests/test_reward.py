"""The reward reads answers as models write them, and never rewards another number."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
from antiphon.errors import InvalidData, InvalidParameter
from antiphon_gsm8k import GSM8KReward, GSM8KTask

STYLES = (
    "\\boxed{{{}}}",
    "<think>Let me add that up: 1 + 1 = 2.</think><answer>{}</answer>",
    "**Final answer:** ${}",
    "The answer is {}.",
    "So in total that makes {} of them, all told.",
)


MORE_STYLES = (
    "The final answer is $\\boxed{{{}}}$. I hope it is correct.",
    "**#### {}**",
    "#### {}\u00a0in all",
    "<answer>After 3 days that makes {} of them.</answer>",
    "#### Step 3: The sum\n\\[\\boxed{{\\text{{{}}}}}\\]",
)
BROKEN_OFF = ("#### {} +", "#### {} *", "#### {}/", "\\boxed{{{}", "#### {} = ")


@pytest.fixture(scope="module")
def problems() -> list[dict[str, str]]:
    path = os.environ.get("ANTIPHON_GSM8K")
    if not path or not Path(path).is_file():
        pytest.skip("ANTIPHON_GSM8K does not name the GSM8K test file (gsm8k_test.jsonl)")
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def reward(completion: str, gold: str, **options: object) -> float:
    return GSM8KReward(**options)(completion, gold)["reward"]  # type: ignore[arg-type]


def test_a_number_starts_and_ends_with_a_digit() -> None:
    assert reward("The total is 72 clips, altogether.", "... #### 72") == 1.0
    assert reward("The total is 72 clips, altogether.", "72", fallback=False) == 0.0


@pytest.mark.parametrize(
    ("completion", "gold", "expected"),
    [
        ("#### -3", "-3", 1.0),
        ("#### 3", "-3", 0.1),
        ("#### -3", "3", 0.1),
        ("The change is −3.", "-3", 1.0),
        ("It fell from 10-3 to 7. #### 7", "7", 1.0),
    ],
)
def test_a_sign_counts_and_a_hyphen_is_none(completion: str, gold: str, expected: float) -> None:
    assert reward(completion, gold) == expected


def test_a_marker_is_found_however_much_follows_it() -> None:
    assert reward("2+40=42\n#### 42\n" + "and so on. " * 200, "42") == 1.0


def test_text_inside_think_does_not_count() -> None:
    assert reward("<think>#### 42</think>I don't know.", "42") == 0.0
    assert reward("<think>#### 41</think>#### 42", "42") == 1.0


@pytest.mark.parametrize("style", ["any", "boxed"])
def test_a_boxed_answer_is_read_by_the_reward_itself(style: str) -> None:
    scores = GSM8KReward(answer_style=style)("so \\boxed{18}", "18")  # type: ignore[arg-type]
    assert scores["reward"] == 1.0
    assert scores["success"] is True


@pytest.mark.parametrize(
    ("formula", "gold"),
    [
        ("\\log_2 8", "3"),
        ("\\binom{4}{2}", "6"),
        ("4!", "24"),
        ("\\sqrt{2}\\cdot\\sqrt{8}", "4"),
        ("\\sqrt[3]{27}", "3"),
    ],
)
def test_a_boxed_formula_is_judged_with_math_verify(formula: str, gold: str) -> None:
    pytest.importorskip("math_verify", reason="math-verify is not installed")
    assert reward(f"\\boxed{{{formula}}}", gold) == 1.0
    assert reward(f"\\boxed{{{formula}}}", str(int(gold) + 1)) == 0.1
    for number in "1248":
        assert gold == number or reward(f"\\boxed{{{formula}}}", number) == 0.1
    assert reward(f"\\boxed{{{formula}}}", gold, symbolic=False) == 0.1


@pytest.mark.parametrize(
    ("box", "wrong"),
    [
        ("3 \\text{ hours } 30 \\text{ min}", "3"),
        ("18 \\text{ dollars and } 50 \\text{ cents}", "18"),
        ("2 \\text{ and a half}", "2"),
        ("12 \\text{ or } 13", "13"),
        ("12, 13", "12"),
        ("\\sqrt{4} \\pm 1", "3"),
        ("12 +", "12"),
    ],
)
def test_a_box_with_more_than_a_number_is_not_right(box: str, wrong: str) -> None:
    assert reward(f"\\boxed{{{box}}}", wrong) < 1.0


@pytest.mark.parametrize(
    "formula",
    [
        "9^{9^{9^9}}",
        "10^{999999}",
        "99999!",
        "\\int_0^1 x",
        "\\log_2 " + "9" * 500,
        "((" * 400,
        "\\sqrt{",
    ],
)
def test_a_formula_that_could_take_for_ever_is_not_evaluated(formula: str) -> None:
    assert reward(f"\\boxed{{{formula}}}", "1") < 1.0


def test_formulas_are_judged_in_threads_too() -> None:
    pytest.importorskip("math_verify", reason="math-verify is not installed")
    texts = [f"\\boxed{{\\log_2 {2**n}}}" for n in range(2, 10)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: reward(texts[n - 2], str(n)), range(2, 10)))
    assert found == [1.0] * 8


def test_only_the_asked_for_mark_counts() -> None:
    assert reward("#### 18", "18", answer_style="boxed") == 0.0
    assert reward("18", "18", answer_style="hash") == 0.0
    with pytest.raises(InvalidParameter, match="answer_style"):
        GSM8KReward(answer_style="roman")  # type: ignore[arg-type]


def test_all_five_entries_are_given() -> None:
    scores = GSM8KReward()("<think>16 - 3</think><answer>13</answer>", "#### 18")
    assert scores == {
        "reward_answer": 1.0,
        "reward_think": 1.0,
        "reward_right": 0.1,
        "reward": 0.1,
        "success": False,
    }


def test_only_the_last_assistant_message_is_looked_at() -> None:
    task = GSM8KTask(max_turns=3)
    row = {"question": "q", "answer": "#### 18"}
    messages = [
        {"role": "user", "content": "For example #### 18"},
        {"role": "assistant", "content": "#### 18"},
        {"role": "user", "content": "Are you sure? It is 18."},
        {"role": "assistant", "content": "I am not."},
    ]
    assert task.respond(messages, row, turn=2).reward == 0.0


def test_a_gold_answer_without_a_number_is_refused() -> None:
    with pytest.raises(InvalidData, match="no number"):
        GSM8KReward()("#### 1", "no idea")


def test_every_reference_solution_scores_one(problems: list[dict[str, str]]) -> None:
    assert len(problems) == 1319
    wrong = [p for p in problems if reward(p["answer"], p["answer"]) != 1.0]
    assert wrong == []


def test_every_reference_solution_with_its_answer_changed_scores_less(
    problems: list[dict[str, str]],
) -> None:
    for problem in problems:
        text, _, gold = problem["answer"].rpartition("#### ")
        number = Fraction(gold.replace(",", ""))
        for other in {number + 1, number * 10, -number, number + Fraction(1, 2)} - {number}:
            changed = f"{text}#### {other if other.denominator == 1 else float(other)}"
            assert reward(changed, problem["answer"]) < 1.0, changed


@pytest.mark.parametrize("style", STYLES)
def test_every_reference_solution_in_other_styles_scores_one(
    problems: list[dict[str, str]], style: str
) -> None:
    for problem in problems:
        text, _, gold = problem["answer"].rpartition("#### ")
        assert reward(text + style.format(gold), problem["answer"]) == 1.0, (gold, style)
        assert reward(style.format(gold), problem["answer"]) == 1.0, (gold, style)


@pytest.mark.parametrize("style", MORE_STYLES)
def test_every_answer_is_read_in_more_styles(problems: list[dict[str, str]], style: str) -> None:
    for problem in problems:
        text, _, gold = problem["answer"].rpartition("#### ")
        assert reward(text + style.format(gold), problem["answer"]) == 1.0, (gold, style)


@pytest.mark.parametrize("style", BROKEN_OFF)
def test_no_answer_that_breaks_off_is_rewarded(problems: list[dict[str, str]], style: str) -> None:
    for problem in problems:
        text, _, gold = problem["answer"].rpartition("#### ")
        assert reward(text + style.format(gold), problem["answer"]) == 0.0, (gold, style)
