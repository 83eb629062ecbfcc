"""IFEval as an environment, and its scores as a transform on any `ChatEnv`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from antiphon.envs.chat import ChatEnv
from antiphon.envs.composite import Composite
from antiphon.envs.dataset import DatasetChatEnv
from antiphon.envs.entries import DONE_KEYS
from antiphon.envs.tasks import message_text
from antiphon.envs.transformed import Transform
from antiphon.errors import EnvError
from tensordict import TensorDictBase

from antiphon_ifeval.score_data import IFEvalScoreData, score_data
from antiphon_ifeval.scores import WEIGHTS, score
from antiphon_ifeval.task import INFO_KEYS, IFEvalTask, checked_weights


class IfEvalScorer(Transform):
    """Scores each answer by the instructions of its row.

    Args:
        instruction_ids_key: The field of the row with the instruction ids.
        keyword_args_key: The field with their arguments.
        score_key: Where the scores are put, see `IFEvalScoreData`.
        aggregate_reward: Whether the reward becomes the weighted sum of the scores; or a function
            of the scores ``[*batch]`` that gives the reward ``[*batch, 1]``.
        format_weights: Of prompt-level strict, instruction-level strict, prompt-level loose and
            instruction-level loose.
        set_done_if_answer: Whether a conversation ends with the first answer.
    """

    def __init__(
        self,
        *,
        instruction_ids_key: str = "instruction_id_list",
        keyword_args_key: str = "kwargs",
        score_key: str = "ifeval_score",
        aggregate_reward: bool | Callable[[IFEvalScoreData], torch.Tensor] = True,
        format_weights: Sequence[float] | None = None,
        set_done_if_answer: bool = True,
    ) -> None:
        super().__init__()
        self.instruction_ids_key, self.keyword_args_key = instruction_ids_key, keyword_args_key
        self.score_key = score_key
        self.aggregate_reward = aggregate_reward
        self.format_weights = checked_weights(format_weights or WEIGHTS)
        self.set_done_if_answer = set_done_if_answer

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        env = None if self.container is None else self.container.base_env
        if not isinstance(env, ChatEnv):
            raise EnvError("IfEvalScorer works on a ChatEnv.")
        answers = [message_text(chat[-1]) for chat in env.conversations(tensordict)]
        rows = [self._labelled(row) for row in env.rows(tensordict)]
        found = [score(row, answer) for row, answer in zip(rows, answers, strict=True)]
        columns = {
            key: torch.tensor([each.numbers[key] for each in found], device=env.device)[:, None]
            for key in INFO_KEYS
        }
        scores = score_data(columns, next_tensordict.batch_size)
        next_tensordict.set(self.score_key, scores)
        if callable(self.aggregate_reward):
            next_tensordict.set("reward", self.aggregate_reward(scores))
        elif self.aggregate_reward:
            sums = [each.reward(self.format_weights) for each in found]
            next_tensordict.set("reward", torch.tensor(sums, device=env.device)[:, None])
        if self.set_done_if_answer:
            flag = torch.ones((len(found), 1), dtype=torch.bool, device=env.device)
            for key in DONE_KEYS:
                next_tensordict.set(key, flag if key != "truncated" else ~flag)
        return next_tensordict

    def _labelled(self, row: dict[str, Any]) -> dict[str, Any]:
        names = {
            self.instruction_ids_key: "instruction_id_list",
            self.keyword_args_key: "kwargs",
        }
        return {names.get(key, key): value for key, value in row.items()}

    def transform_reward_spec(self, reward_spec: Composite) -> Composite:
        reward_spec[self.score_key] = IFEvalScoreData.default_spec(reward_spec.shape)
        return reward_spec


class _Gathered(Transform):
    """Puts the four scores that the task gives together, under ``"ifeval_score"``."""

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        columns = {key: next_tensordict.get(key) for key in INFO_KEYS}
        scores = score_data(columns, next_tensordict.batch_size)
        return next_tensordict.set("ifeval_score", scores)

    def transform_reward_spec(self, reward_spec: Composite) -> Composite:
        reward_spec["ifeval_score"] = IFEvalScoreData.default_spec(reward_spec.shape)
        return reward_spec


class IFEvalEnv(DatasetChatEnv):
    """Prompts with checkable instructions: one answer each by default, scored and rewarded.

    Each step gives `IFEvalScoreData` under ``"ifeval_score"``, and the weighted sum of the four
    scores as the reward. (The four stand beside the reward too: they are the task's.)

    Args:
        dataset: A hub name, a JSONL or Parquet file, or rows with prompt, instruction_id_list and
            kwargs.
        max_steps: How often the model may answer; it is told where it did not keep to something.
        compute_reward: Whether answers are scored; without, a conversation ends by ``max_steps``.
        weights: See `IFEvalTask`.
        data_key: The field of the prompt.
        system_prompt: Put before every conversation.
        **options: As `DatasetChatEnv` takes them.

    A reset refuses a row that asks for something unknown or incomplete, and names it.
    """

    def __init__(
        self,
        *,
        dataset: Any = "google/IFEval",
        max_steps: int = 1,
        compute_reward: bool = True,
        weights: Sequence[float] = WEIGHTS,
        data_key: str = "prompt",
        system_prompt: str | None = None,
        **options: Any,
    ) -> None:
        task = self.make_task(
            max_turns=max_steps, weights=weights, data_key=data_key, system_prompt=system_prompt
        )
        if compute_reward:
            options["task"] = task
        else:
            options["max_turns"] = max_steps
        super().__init__(
            dataset=dataset, data_key=data_key, system_prompt=task.system_prompt, **options
        )
        if compute_reward:
            self.append_transform(_Gathered())

    @classmethod
    def make_task(cls, **options: Any) -> IFEvalTask:
        """Return the task, for `antiphon rollout --env ifeval`."""
        return IFEvalTask(**options)
