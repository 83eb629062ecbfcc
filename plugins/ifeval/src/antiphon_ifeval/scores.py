"""What an answer is worth: how many of its instructions it keeps to, strictly and loosely."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from antiphon.envs.answers import visible_text
from antiphon.errors import InvalidData

from antiphon_ifeval.checkers import follows, loose_forms
from antiphon_ifeval.instructions import Instruction, read_instructions

# Of prompt-level strict, instruction-level strict, prompt-level loose, instruction-level loose.
WEIGHTS = (0.4, 0.3, 0.2, 0.1)
_ANSWER = re.compile(r"\A\s*<answer>(.*)</answer>\s*\Z", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Scores:
    """The verdicts on one answer, one for each instruction in the row's order.

    Attributes:
        strict: Whether the answer as it is keeps to each instruction.
        loose: Whether it does in one of its loose forms.
    """

    strict: tuple[bool, ...]
    loose: tuple[bool, ...]

    @property
    def numbers(self) -> dict[str, float | bool]:
        """The four scores: prompt level as flags, instruction level as shares."""
        return {
            "prompt_level_strict_acc": all(self.strict),
            "inst_level_strict_acc": sum(self.strict) / len(self.strict),
            "prompt_level_loose_acc": all(self.loose),
            "inst_level_loose_acc": sum(self.loose) / len(self.loose),
        }

    def reward(self, weights: Sequence[float] = WEIGHTS) -> float:
        """Return the weighted sum of the four scores."""
        pairs = zip(weights, self.numbers.values(), strict=True)
        return float(sum(weight * number for weight, number in pairs))


def score(row: Any, answer: str) -> Scores:
    """Score one answer.

    Args:
        row: A data row, or instructions that were read from one.
        answer: The assistant's text. Reasoning in ``<think>`` does not count, and where all the
            rest stands in ``<answer>``, the tags do not.

    Raises:
        InvalidData: What the row asks for can't be read, or is unknown.
    """
    read = isinstance(row, tuple) and all(isinstance(each, Instruction) for each in row)
    instructions: tuple[Instruction, ...] = row if read else read_instructions(row)
    text = visible_text(answer).strip() if "think" in answer else answer
    tagged = _ANSWER.match(text)
    if tagged is not None:
        text = tagged[1].strip()
    strict, loose = [], []
    for instruction in instructions:
        kept = follows(instruction, text)
        strict.append(kept)
        loose.append(kept or any(follows(instruction, form) for form in loose_forms(text)[1:]))
    return Scores(tuple(strict), tuple(loose))


def accuracy(scores: Iterable[Scores]) -> Mapping[str, float]:
    """Return the benchmark's four figures over many answers.

    On prompt level each answer counts once, on instruction level each instruction.

    Raises:
        InvalidData: There are no answers.
    """
    found = list(scores)
    if not found:
        raise InvalidData("There are no scores to sum up; score at least one answer.")
    strict = [kept for each in found for kept in each.strict]
    loose = [kept for each in found for kept in each.loose]
    return {
        "prompt_level_strict_acc": sum(all(each.strict) for each in found) / len(found),
        "inst_level_strict_acc": sum(strict) / len(strict),
        "prompt_level_loose_acc": sum(all(each.loose) for each in found) / len(found),
        "inst_level_loose_acc": sum(loose) / len(loose),
    }
