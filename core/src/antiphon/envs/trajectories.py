"""The steps of a conversation as the trajectory that observers are told of, when it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase, is_tensor_collection

from antiphon.plugins.events import (
    TrajectoryFinished,
    TrajectorySegment,
    TrajectoryTurn,
    steps_finished,
)


class OpenConversations:
    """The conversations under way in an environment's rows; each is told of as it ends."""

    def __init__(self) -> None:
        self._steps: dict[int, list[TensorDictBase]] = {}

    def add(self, step: TensorDictBase) -> None:
        """Take a step of all rows; rows that have ended before and wait are left out."""
        for number, row in enumerate(_rows(step)):
            if _is_set(row, "done"):
                continue
            self._steps.setdefault(number, []).append(row)
            if _is_set(row, ("next", "done")):
                steps_finished(self._steps.pop(number))


def _rows(step: TensorDictBase) -> Iterator[TensorDictBase]:
    if not step.batch_size:
        yield step
        return
    for part in step.unbind(0):
        yield from _rows(part)


def trajectory_of(steps: Sequence[TensorDictBase]) -> TrajectoryFinished:
    """Return what the steps of one row hold: its ids, rewards and, in history mode, its messages.

    Args:
        steps: All steps of a conversation, without batch dimension, in order. Segments and turns
            are there where the policy wrote ``tokens``.
    """
    segments: list[TrajectorySegment] = []
    turns: list[TrajectoryTurn] = []
    for step in steps:
        prompt = _numbers(step, ("tokens", "prompt"))
        answer = _numbers(step, ("tokens", "response"))
        if prompt is None or answer is None:
            continue
        known = segments[-1] if segments else TrajectorySegment((), (), ())
        if tuple(prompt[: len(known.ids)]) != known.ids:
            known = TrajectorySegment((), (), ())  # the template has rewritten what was printed
        else:
            segments = segments[:-1]
        log_probs = _numbers(step, ("log_probs", "response")) or [None] * len(answer)
        given = len(prompt) - len(known.ids)
        segments.append(
            TrajectorySegment(
                (*known.ids, *prompt[len(known.ids) :], *answer),
                (*known.sampled, *[False] * given, *[True] * len(answer)),
                (*known.log_probs, *[None] * given, *log_probs),
            )
        )
        place = len(segments) - 1, len(prompt), len(prompt) + len(answer)
        turns.append(TrajectoryTurn(*place, finish="", reward=_reward(step)))
    last = steps[-1]
    history: Any = last.get("history", None)
    full = getattr(history, "full", None)
    return TrajectoryFinished(
        conversation=str(last.get("conversation", "")),
        messages=() if full is None else tuple(_messages(full)),
        turns=tuple(turns),
        segments=tuple(segments),
        reward=_reward(last),
        terminated=_is_set(last, ("next", "terminated")),
        truncated=_is_set(last, ("next", "truncated")),
        log_prob_difference=None,
    )


def _messages(full: Any) -> list[dict[str, Any]]:
    chats = full.to_chats()
    messages: list[dict[str, Any]] = chats[0] if chats and isinstance(chats[0], list) else chats
    return messages


def _numbers(step: TensorDictBase, key: tuple[str, str]) -> list[Any] | None:
    outer: Any = step.get(key[0], None)
    value = outer.get(key[1], None) if is_tensor_collection(outer) else None
    return value.tolist() if isinstance(value, torch.Tensor) and value.ndim == 1 else None


def _reward(step: TensorDictBase) -> float:
    value: Any = step.get(("next", "reward"), None)
    return 0.0 if value is None else float(value.sum())


def _is_set(step: TensorDictBase, key: str | tuple[str, str]) -> bool:
    value: Any = step.get(key, None)
    return value is not None and bool(value.any())
