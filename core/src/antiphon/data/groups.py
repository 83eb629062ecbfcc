"""A group: several answers to one prompt, whose ids are stored once."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from antiphon.conversations.arguments import one_of, said, whole
from antiphon.errors import InvalidData


class Branch(NamedTuple):
    """What one member of a group adds to the prompt: ids, whether each was sampled, log-probs (None: unknown)."""

    ids: array[int]
    sampled: array[int]
    log_probs: array[float] | None


@dataclass
class PromptGroup:
    """Answers to one prompt.

    Attributes:
        prompt: The ids that all have in common.
        branches: What each adds.
    """

    prompt: array[int]
    branches: list[Branch] = field(default_factory=list)

    @classmethod
    def of(cls, prompt_ids: Iterable[int]) -> PromptGroup:
        """Return a group without answers.

        Args:
            prompt_ids: What all members begin with.

        Raises:
            InvalidData: They are no ids.
        """
        return cls(_array("i", "prompt_ids", prompt_ids))

    @classmethod
    def from_rows(
        cls, rows: Sequence[Sequence[int]], masks: Sequence[Sequence[bool]]
    ) -> PromptGroup:
        """Take whole rows apart: the prompt is what all begin with and none has sampled.

        Args:
            rows: The ids of each member, prompt included.
            masks: Which of them were sampled.

        Raises:
            InvalidData: A row and its mask differ in length, or there is no row.
        """
        for name, value in (("rows", rows), ("masks", masks)):
            if not isinstance(value, Sequence) or not all(map(_is_list, value)):
                raise InvalidData(
                    f"A group's {name} are lists, one for each answer, not {said(value)}."
                )
        if not rows or len(rows) != len(masks):
            raise InvalidData(
                f"A group needs a mask for each row; it got {len(rows)} and {len(masks)}."
            )
        for number, (row, mask) in enumerate(zip(rows, masks, strict=True)):
            if len(row) != len(mask):
                raise InvalidData(f"Row {number} has {len(row)} ids and a mask of {len(mask)}.")
        # What the first and the last in order have in common, all in between have.
        one, other = list(min(map(list, rows))), list(max(map(list, rows)))
        pairs = enumerate(zip(one, other, strict=False))
        common = next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
        common = min([common, *(list(m).index(True) for m in masks if True in m)])
        group = cls.of(rows[0][:common])
        for row, mask in zip(rows, masks, strict=True):
            group.add(row[common:], sampled=mask[common:])
        return group

    def add(
        self,
        ids: Iterable[int],
        *,
        sampled: Sequence[bool] | None = None,
        log_probs: Sequence[float] | None = None,
    ) -> None:
        """Add an answer.

        Args:
            ids: What follows the prompt.
            sampled: Which of them were sampled; None for all.
            log_probs: One for each id.

        Raises:
            InvalidData: The lengths differ.
        """
        own = _array("i", "ids", ids)
        sampled = [True] * len(own) if sampled is None else sampled
        mask = _array("b", "sampled", sampled)
        known = None if log_probs is None else _array("f", "log_probs", log_probs)
        for name, values in (("sampled", mask), ("log_probs", known)):
            if values is not None and len(values) != len(own):
                raise InvalidData(
                    f"Answer {len(self.branches)} has {len(own)} ids and {len(values)} {name}."
                )
        self.branches.append(Branch(own, mask, known))

    def __len__(self) -> int:
        return len(self.branches)

    @property
    def stored(self) -> int:
        """How many ids are stored."""
        return len(self.prompt) + sum(len(branch.ids) for branch in self.branches)

    def rows(self) -> Iterator[tuple[list[int], list[bool]]]:
        """Yield the whole ids and the mask of each member."""
        for branch in self.branches:
            yield (
                [*self.prompt, *branch.ids],
                [False] * len(self.prompt) + [bool(value) for value in branch.sampled],
            )

    def padded(
        self, pad_id: int, *, side: Literal["left", "right"] = "right"
    ) -> dict[str, list[list[Any]]]:
        """Return rows of equal length: ``input_ids``, ``attention_mask``, ``assistant_mask`` and ``log_probs``.

        ``log_probs`` is NaN where none is known, and absent where no member has any.

        Args:
            pad_id: What ``input_ids`` are filled with.
            side: Where the padding goes.

        Returns:
            Lists ``[members][longest]`` by name: int ids, int 1 where a token is real, bool where
                it was sampled, floats in nats.

        Raises:
            InvalidParameter: There is no such side, or ``pad_id`` is no number.
        """
        one_of("side", side, ("left", "right"))
        whole("pad_id", pad_id)
        width = max((len(branch.ids) for branch in self.branches), default=0) + len(self.prompt)

        def pad(values: list[Any], filler: Any) -> list[Any]:
            fill = [filler] * (width - len(values))
            return [*fill, *values] if side == "left" else [*values, *fill]

        members = list(self.rows())
        result: dict[str, list[list[Any]]] = {
            "input_ids": [pad(ids, pad_id) for ids, _ in members],
            "attention_mask": [pad([1] * len(ids), 0) for ids, _ in members],
            "assistant_mask": [pad(mask, False) for _, mask in members],
        }
        if any(branch.log_probs is not None for branch in self.branches):
            unknown = float("nan")
            result["log_probs"] = [
                pad(
                    [unknown] * len(self.prompt)
                    + list(branch.log_probs or [unknown] * len(branch.ids)),
                    unknown,
                )
                for branch in self.branches
            ]
        return result


def _is_list(value: Any) -> bool:
    return isinstance(value, Sized) and not isinstance(value, (str, bytes))


def _array(kind: Literal["i", "b", "f"], name: str, values: Any) -> Any:
    """Return numbers in little memory: ids ("i"), flags ("b") or log-probs ("f").

    Raises:
        InvalidData: They are none.
    """
    read: dict[str, Callable[[Any], Any]] = {"i": operator.index, "b": bool, "f": float}
    try:
        return array(kind, map(read[kind], values))
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        what = {"i": "ids", "b": "true or false for each id", "f": "a number for each id"}[kind]
        raise InvalidData(f"{name} must be {what}, not {said(values)}.") from error
