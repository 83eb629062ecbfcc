"""Small transforms on rewards and steps: policy versions, the best of a group, length and format."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any, Literal

import torch
from tensordict import NonTensorData, TensorDictBase, lazy_stack

from antiphon.envs.answers import visible_text
from antiphon.envs.chat import ChatEnv
from antiphon.envs.composite import Composite
from antiphon.envs.entries import has_key
from antiphon.envs.specs import NonTensor, Unbounded
from antiphon.envs.tasks import message_text
from antiphon.envs.transformed import Transform
from antiphon.errors import EnvError, InvalidParameter


class PolicyVersion(Transform):
    """Writes which version of the policy each step belongs to, under ``"policy_version"``.

    Args:
        version_type: ``"int"`` counts from 0; ``"uuid"`` draws a name.
    """

    def __init__(self, version_type: Literal["int", "uuid"] | type = "int") -> None:
        super().__init__()
        named: dict[Any, str] = {int: "int", uuid.UUID: "uuid", str: "uuid"}
        kind = named.get(version_type, version_type)
        if kind not in ("int", "uuid"):
            raise InvalidParameter(f"version_type must be 'int' or 'uuid', not {version_type!r}.")
        self.version_type = kind
        self.version: int | str = 0 if kind == "int" else str(uuid.uuid4())

    def increment_version(self) -> int | str:
        """Begin the next version, after the weights have changed; returns it."""
        self.version = self.version + 1 if isinstance(self.version, int) else str(uuid.uuid4())
        return self.version

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        size = next_tensordict.batch_size
        if isinstance(self.version, int):
            value: Any = torch.full(tuple(size), self.version, dtype=torch.int64)
        else:
            value = NonTensorData(self.version, batch_size=size)
        return next_tensordict.set("policy_version", value)

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        shape = observation_spec.shape
        if self.version_type == "int":
            observation_spec["policy_version"] = Unbounded(shape, dtype=torch.int64)
        else:
            observation_spec["policy_version"] = NonTensor(shape, example_data="a uuid")
        return observation_spec


class TopKRewardSelector(Transform):
    """Keeps the best answers of each prompt: for storing, in front of a replay buffer.

    `inv` takes steps and gives those of the prompts that are complete: of ``total_dialog_turns``
    answers the ``topk_size`` with the highest reward, the earlier one where rewards are equal.

    Args:
        total_dialog_turns: Answers per prompt.
        topk_size: How many of them are kept.
        group_key: What tells prompts apart; ``"group_id"`` where it is there, else the query.
        reward_key: The reward.
    """

    def __init__(
        self,
        total_dialog_turns: int,
        topk_size: int,
        *,
        group_key: str | None = None,
        reward_key: tuple[str, ...] = ("next", "reward"),
    ) -> None:
        super().__init__()
        if not 1 <= topk_size <= total_dialog_turns:
            raise InvalidParameter(
                f"topk_size must be from 1 to total_dialog_turns ({total_dialog_turns}), not "
                f"{topk_size}."
            )
        self.total_dialog_turns, self.topk_size = total_dialog_turns, topk_size
        self.group_key, self.reward_key = group_key, reward_key
        self._waiting: dict[Any, list[TensorDictBase]] = {}

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict  # `inv` is not for stepping: what goes into a step passes through

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict

    def inv(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the steps ``[n]`` that are to be stored now; n may be 0."""
        rows = list(tensordict.reshape(-1).unbind(0)) if tensordict.batch_dims else [tensordict]
        chosen: list[TensorDictBase] = []
        for row in rows:
            group = self._group(row)
            waiting = self._waiting.setdefault(group, [])
            waiting.append(row)
            if len(waiting) == self.total_dialog_turns:
                del self._waiting[group]
                ranked = sorted(waiting, key=lambda step: -self._reward(step))
                chosen += ranked[: self.topk_size]
        return lazy_stack(chosen) if chosen else tensordict.reshape(-1)[:0]

    def _group(self, row: TensorDictBase) -> Any:
        key = self.group_key or ("group_id" if has_key(row, "group_id") else "query")
        value: Any = row.get(key, None)
        if value is None:
            raise EnvError(
                f"TopKRewardSelector tells prompts apart by {key!r}, and a step has none; name "
                "another group_key."
            )
        return value.item() if isinstance(value, torch.Tensor) else getattr(value, "data", value)

    def _reward(self, row: TensorDictBase) -> float:
        return float(row.get(self.reward_key).sum())


class AnswerReward(Transform):
    """Adds to the reward what a function makes of each answer's text.

    Args:
        score: Takes the answer's text, without its reasoning if ``visible_only``.
        weight: Its weight in the reward.
        key: Where the score itself is put.
        visible_only: Whether the reasoning is left out.
    """

    def __init__(
        self,
        score: Callable[[str], float],
        *,
        weight: float = 1.0,
        key: str = "reward_answer_text",
        visible_only: bool = True,
    ) -> None:
        super().__init__()
        self.score, self.weight, self.key = score, weight, key
        self.visible_only = visible_only

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        env = None if self.container is None else self.container.base_env
        if not isinstance(env, ChatEnv):
            raise EnvError(f"{type(self).__name__} works on a ChatEnv.")
        texts = [message_text(chat[-1]) for chat in env.conversations(tensordict)]
        if self.visible_only:
            texts = [visible_text(text) for text in texts]
        scores = torch.tensor([float(self.score(text)) for text in texts])[:, None]
        reward: Any = next_tensordict.get("reward")
        next_tensordict.set(self.key, scores)
        return next_tensordict.set("reward", reward + self.weight * scores.view_as(reward))

    def transform_reward_spec(self, reward_spec: Composite) -> Composite:
        reward_spec[self.key] = Unbounded((*reward_spec.shape, 1))
        return reward_spec


class FormatReward(AnswerReward):
    """Rewards answers in which a pattern is found: 1 if it is, else 0, times ``weight``.

    Args:
        pattern: A regular expression; its dot matches ends of lines too.
        weight: What a match is worth.
        key: Where the reward stands in the results.
        visible_only: Whether the reasoning is left out.
    """

    def __init__(
        self,
        pattern: str,
        *,
        weight: float = 1.0,
        key: str = "reward_format",
        visible_only: bool = False,
    ) -> None:
        self.pattern = re.compile(pattern, re.DOTALL)
        super().__init__(
            self._has_pattern,
            weight=weight,
            key=key,
            visible_only=visible_only,
        )

    def _has_pattern(self, text: str) -> float:
        return float(self.pattern.search(text) is not None)


class LengthReward(AnswerReward):
    """Takes off for answers that are too long: 0 up to ``limit`` characters, then down to -1.

    Args:
        limit: Characters that cost nothing.
        tolerance: Characters over which the score falls from 0 to -1.
        weight: Its weight in the reward.
        key: Where the score itself is put.
        visible_only: Whether the reasoning is left out.
    """

    def __init__(
        self,
        limit: int,
        tolerance: int,
        *,
        weight: float = 1.0,
        key: str = "reward_length",
        visible_only: bool = False,
    ) -> None:
        if limit < 0 or tolerance < 1:
            raise InvalidParameter(
                f"LengthReward needs limit >= 0 and tolerance >= 1, not {limit} and {tolerance}."
            )
        self.limit, self.tolerance = limit, tolerance
        super().__init__(
            self._overrun,
            weight=weight,
            key=key,
            visible_only=visible_only,
        )

    def _overrun(self, text: str) -> float:
        return -min(1.0, max(0, len(text) - self.limit) / self.tolerance)
