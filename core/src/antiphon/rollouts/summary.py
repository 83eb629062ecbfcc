"""The figures of a rollout, from the records of its file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Its square is still a number.
_LARGEST_LOG_RATIO = 300.0


@dataclass
class Summary:
    """Figures of a rollout.

    Attributes:
        conversations: How many there are.
        succeeded: How many terminated, which is what a right answer does.
        reward: The sum of the conversations' rewards.
        by_turn: For each turn the rewards that it got.
        tokens: All tokens of all sequences.
        sampled: The tokens that the model sampled, which are the ones that are trained.
        breaks: How often a template rewrote what was sampled.
        scored: The sampled tokens that were scored by the trainer, or what stands for it.
        difference: The largest difference between a sampled and a scored log-prob.
        differences: The sum of these differences.
        ratios: The sum of the tokens' probability ratios, trainer to sampler.
        squares: The sum of the squares of these ratios.
    """

    conversations: int = 0
    succeeded: int = 0
    reward: float = 0.0
    by_turn: list[list[float]] = field(default_factory=list)
    tokens: int = 0
    sampled: int = 0
    breaks: int = 0
    scored: int = 0
    difference: float = 0.0
    differences: float = 0.0
    ratios: float = 0.0
    squares: float = 0.0

    def add(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take in records; those of one conversation may come in any order."""
        for record in records:
            self.tokens += len(record["input_ids"])
            self.sampled += sum(record["assistant_mask"])
            self._compare(record["log_probs"], record["scored_log_probs"])
            if record["segment"]:
                continue
            self.conversations += 1
            self.succeeded += bool(record["terminated"])
            self.reward += record["reward"]
            self.breaks += len(record["breaks"])
            for number, turn in enumerate(record["turns"]):
                if number == len(self.by_turn):
                    self.by_turn.append([])
                self.by_turn[number].append(turn["reward"])

    def _compare(self, sampled: Sequence[float | None], scored: Sequence[float | None]) -> None:
        for one, other in zip(sampled, scored, strict=True):
            if one is None or other is None:
                continue
            self.scored += 1
            self.difference = max(self.difference, abs(other - one))
            self.differences += abs(other - one)
            ratio = math.exp(min(other - one, _LARGEST_LOG_RATIO))
            self.ratios += ratio
            self.squares += ratio * ratio

    @property
    def mean_difference(self) -> float:
        """The mean difference between a sampled and a scored log-prob."""
        return self.differences / self.scored if self.scored else 0.0

    @property
    def effective_ratio(self) -> float:
        """The share of the sampled tokens that is left when each is weighted with its ratio.

        The effective sample size of importance sampling, over the number of samples: the square of
        the weights' sum by the sum of their squares (Kish, "Survey Sampling", 1965). 1 where sampler
        and trainer are one.
        """
        return self.ratios**2 / (self.scored * self.squares) if self.squares else 1.0

    @property
    def mean_reward(self) -> float:
        """The mean reward of a conversation; 0 where there is none."""
        return self.reward / self.conversations if self.conversations else 0.0

    def lines(self) -> list[tuple[str, str]]:
        """Return the figures as pairs of name and text."""
        found = [
            ("conversations", str(self.conversations)),
            ("mean reward", f"{self.mean_reward:.3f}"),
        ]
        for number, rewards in enumerate(self.by_turn, start=1):
            mean = sum(rewards) / len(rewards)
            found.append((f"reward, turn {number}", f"{mean:.3f} ({len(rewards)} answers)"))
        share = 100 * self.sampled / self.tokens if self.tokens else 0.0
        found += [
            ("solved", f"{self.succeeded} of {self.conversations}"),
            ("tokens", f"{self.tokens:,}"),
            ("trained tokens", f"{self.sampled:,} ({share:.1f} %)"),
            ("breaks", str(self.breaks)),
            (
                "log-probs, sampler against trainer",
                f"{self.mean_difference:.1e} in the mean, {self.difference:.1e} at most",
            ),
            ("effective samples", f"{100 * self.effective_ratio:.2f} %"),
        ]
        return found
