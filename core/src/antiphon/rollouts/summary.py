"""The figures of a rollout, from the records of its file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


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
        difference: The largest difference between a sampled log-prob and the same one scored again.
    """

    conversations: int = 0
    succeeded: int = 0
    reward: float = 0.0
    by_turn: list[list[float]] = field(default_factory=list)
    tokens: int = 0
    sampled: int = 0
    breaks: int = 0
    difference: float = 0.0

    def add(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take in records; those of one conversation may come in any order."""
        for record in records:
            self.tokens += len(record["input_ids"])
            self.sampled += sum(record["assistant_mask"])
            if record["segment"]:
                continue
            self.conversations += 1
            self.succeeded += bool(record["terminated"])
            self.reward += record["reward"]
            self.breaks += len(record["breaks"])
            self.difference = max(self.difference, record["log_prob_difference"])
            for number, turn in enumerate(record["turns"]):
                if number == len(self.by_turn):
                    self.by_turn.append([])
                self.by_turn[number].append(turn["reward"])

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
            ("log-probs, sampled against scored", f"{self.difference:.1e} at most"),
        ]
        return found
