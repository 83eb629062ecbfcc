"""Rows in all their forms are read or refused by name; scores are strict and loose."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from antiphon.errors import InvalidData, InvalidParameter
from antiphon_ifeval import IFEvalReward, IFEvalTask, accuracy, read_instructions, score

if sys.version_info < (3, 11):
    pytest.skip("if-verifiable has no release for Python 3.10", allow_module_level=True)

NO_COMMA = "punctuation:no_comma"


def row(*instructions: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "instruction_id_list": [name for name, _ in instructions],
        "kwargs": [arguments for _, arguments in instructions],
        **more,
    }


@pytest.mark.parametrize(
    ("name", "repeated", "answer", "kept"),
    [
        ("combination:repeat_prompt", "Say hi", "Hello!", False),
        ("combination:repeat_prompt", "Say hi", "Say hi. Hello!", True),
        ("change_case:english_capital", None, "This Is Title Case", False),
        ("change_case:english_capital", None, "ALL CAPS 3!", True),
    ],
)
def test_an_instruction_is_never_kept_by_default(
    name: str, repeated: str | None, answer: str, kept: bool
) -> None:
    assert score(row((name, {"prompt_to_repeat": repeated})), answer).strict == (kept,)
    # Where the row repeats itself no prompt, its own is meant.
    assert score(row((name, None), prompt=repeated), answer).strict == (kept,)


def test_an_unknown_instruction_is_refused_by_its_row() -> None:
    with pytest.raises(InvalidData, match="Row 17 asks for 'made_up:id', which is no instruction"):
        score(row(("made_up:id", None), key=17), "x")
    with pytest.raises(InvalidData, match="did you mean 'punctuation:no_comma'"):
        score(row(("punctuation:no_commas", None)), "x")
    with pytest.raises(InvalidData, match="The row 'Say hi' asks for 'made_up:id'"):
        score(row((NO_COMMA, None), ("made_up:id", None), prompt="Say hi"), "x")
    with pytest.raises(InvalidData, match="asks for None"):
        score(row((None, None)), "x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "label",
    [
        '{"instruction_id": ["punctuation:no_comma"], "kwargs": [null]}',
        "[{'instruction_id': ['punctuation:no_comma'], 'kwargs': [None]}]",
        {"instruction_id_list": [NO_COMMA], "kwargs": [{"num_words": None, "relation": None}]},
        {"instruction_id_list": [NO_COMMA]},
        {"instruction_id_list": [NO_COMMA], "kwargs": None},
        {"instruction_id_list": [NO_COMMA], "kwargs": "[{}]"},
        {"instruction_id_list": (NO_COMMA,), "kwargs": ({"relation": None},)},
        {"instruction_id": NO_COMMA, "kwargs": {"relation": None}},
        {"prompt": "p", "ground_truth": "[{'instruction_id': ['punctuation:no_comma']}]"},
        {"prompt": "p", "label": {"instruction_id_list": [NO_COMMA], "kwargs": [None]}},
        {
            "prompt": "p",
            "instruction_id_list": None,
            "label": '{"instruction_id": ["punctuation:no_comma"]}',
        },
    ],
)
def test_labels_in_all_forms(label: Any) -> None:
    (instruction,) = read_instructions(label)
    assert (instruction.id, dict(instruction.arguments)) == (NO_COMMA, {})
    assert score(label, "none").strict == (True,)
    assert score(label, "one, two").strict == (False,)


def test_arguments_as_arrow_keeps_them() -> None:
    nulls = {"num_words": None, "relation": None, "first_word": None, "keywords": None}
    filled = row(
        (NO_COMMA, nulls),
        ("length_constraints:number_words", {**nulls, "num_words": 3.0, "relation": "at least"}),
    )
    columns = {"num_words": [None, 3], "relation": [None, "at least"], "first_word": [None, None]}
    for found in (filled, {**filled, "kwargs": columns}):
        assert score(found, "a b c").strict == (True, True)
        assert score(found, "a b").strict == (True, False)


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("{broken", "neither JSON nor a Python literal"),
        ("__import__('os').system('true')", "neither JSON nor a Python literal"),
        ("[1, 2]", "a list of 2"),
        ("[1]", "is int, not a mapping"),
        ({"key": 3}, "Row 3 names no instructions"),
        ({"key": 3, "instruction_id_list": []}, "Row 3 names no instructions"),
        (row((NO_COMMA, None), (NO_COMMA, None), key=3) | {"kwargs": [None]}, "2 instr.*for 1"),
        (row((NO_COMMA, "x"), key=3), "Row 3.*are str"),
        (row(("keywords:existence", None), key=3), "needs the argument 'keywords'"),
        (row(("keywords:existence", {"keywords": []})), "not a list of words"),
        (row(("keywords:existence", {"keywords": "river"})), "not a list of words"),
        (
            row(("length_constraints:number_words", {"num_words": 3, "relation": "at most"})),
            "neither 'less than' nor 'at least'",
        ),
        (
            row(("length_constraints:number_words", {"num_words": -1, "relation": "at least"})),
            "not a number from 0 up",
        ),
        (
            row(
                (
                    "length_constraints:nth_paragraph_first_word",
                    {"num_paragraphs": 2, "nth_paragraph": 3, "first_word": "a"},
                )
            ),
            "nth_paragraph is 3, of 2",
        ),
        (row(("startend:end_checker", {"end_phrase": " "})), "not text"),
        (row(("combination:repeat_prompt", None)), "needs the argument 'prompt_to_repeat'"),
    ],
)
def test_what_can_not_be_scored_is_refused(label: Any, words: str) -> None:
    with pytest.raises(InvalidData, match=words):
        read_instructions(label)


def test_strict_and_loose_on_both_levels() -> None:
    asked = row((NO_COMMA, None), ("detectable_format:json_format", None))
    found = score(asked, 'Here it is:\n{"a": 1}')
    assert (found.strict, found.loose) == ((True, False), (True, True))
    assert found.numbers == {
        "prompt_level_strict_acc": False,
        "inst_level_strict_acc": 0.5,
        "prompt_level_loose_acc": True,
        "inst_level_loose_acc": 1.0,
    }
    assert found.reward() == pytest.approx(0.3 * 0.5 + 0.2 + 0.1)
    assert found.reward((1, 0, 0, 0)) == 0.0
    assert IFEvalReward()("[1]", asked) == {
        "prompt_level_strict_acc": True,
        "inst_level_strict_acc": 1.0,
        "prompt_level_loose_acc": True,
        "inst_level_loose_acc": 1.0,
        "reward": pytest.approx(1.0),
    }
    # Each loose form is judged by each instruction on its own.
    both = row(("startend:quotation", None), ("detectable_format:title", None))
    assert score(both, '<<T>>\n"so"').loose == (True, True)


def test_reasoning_and_answer_tags_do_not_count() -> None:
    asked = row((NO_COMMA, None), ("startend:quotation", None))
    assert score(asked, '<think>Well, well</think>"so"').strict == (True, True)
    assert score(asked, '<think>a, b</think>\n<answer>"so"</answer>').strict == (True, True)
    assert score(asked, '<think>a, b "so"').strict == (False, False)
    # A text about tags is a text.
    assert score(asked, 'The <answer> tag, "so"').strict == (False, False)


def test_the_benchmarks_figures_over_many_answers() -> None:
    one = score(row((NO_COMMA, None)), "none")
    two = score(row((NO_COMMA, None), ("startend:quotation", None)), "a, b")
    assert accuracy([one, two]) == {
        "prompt_level_strict_acc": 0.5,
        "inst_level_strict_acc": pytest.approx(1 / 3),
        "prompt_level_loose_acc": 0.5,
        "inst_level_loose_acc": pytest.approx(1 / 3),
    }
    with pytest.raises(InvalidData, match="no scores"):
        accuracy([])


def test_the_task() -> None:
    task = IFEvalTask(max_turns=2)
    asked = row((NO_COMMA, None), prompt="Say so.", key=1)
    assert task.start(asked) == [{"role": "user", "content": "Say so."}]
    again = task.respond([{"role": "assistant", "content": "a, b"}], asked, 1)
    assert (again.terminated, again.truncated, len(again.messages)) == (False, False, 1)
    last = task.respond([{"role": "assistant", "content": "a, b"}], asked, 2)
    assert (last.terminated, last.truncated, last.reward) == (False, True, 0.0)
    kept = task.respond([{"role": "assistant", "content": "a b"}], asked, 1)
    assert (kept.terminated, kept.reward) == (True, pytest.approx(1.0))
    assert task.row_fault(asked) is None
    assert "can't be scored" in str(task.row_fault({"prompt": "p"}))
    assert "no field 'prompt'" in str(task.row_fault({"key": 1}))
    with pytest.raises(InvalidParameter, match="four scores"):
        IFEvalTask(weights=(1.0,))
