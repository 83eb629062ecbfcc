"""`GSM8KEnv`: GSM8K as an environment."""

from __future__ import annotations

from typing import Any

from antiphon.envs.dataset import DatasetChatEnv

from antiphon_gsm8k.reward import SYSTEM_PROMPT, AnswerStyle, GSM8KTask


class GSM8KEnv(DatasetChatEnv):
    """Word problems with a numeric answer: one answer each by default, rewarded.

    Args:
        dataset: A hub name, a GSM8K-shaped JSONL or Parquet file, or rows with question and answer.
        max_steps: How often the model may answer; a wrong answer is said to be wrong.
        compute_reward: Whether answers are rewarded; without, a conversation ends by ``max_steps``.
        answer_style: Which mark an answer must carry, see `GSM8KTask`.
        fallback: See `GSM8KTask`.
        **options: As `DatasetChatEnv` takes them.
    """

    SYSTEM_PROMPT = SYSTEM_PROMPT

    def __init__(
        self,
        *,
        dataset: Any = "openai/gsm8k",
        name: str | None = "main",
        max_steps: int = 1,
        compute_reward: bool = True,
        answer_style: AnswerStyle = "any",
        fallback: bool | None = None,
        system_prompt: str | None = None,
        **options: Any,
    ) -> None:
        task = self.make_task(
            max_turns=max_steps,
            answer_style=answer_style,
            fallback=fallback,
            system_prompt=system_prompt,
        )
        if compute_reward:
            options["task"] = task
        else:
            options.setdefault("data_key", task.data_key)
            options["max_turns"] = max_steps
        super().__init__(dataset=dataset, name=name, system_prompt=task.system_prompt, **options)

    @classmethod
    def make_task(cls, **options: Any) -> GSM8KTask:
        """Return the task, for `antiphon rollout --env gsm8k`."""
        return GSM8KTask(**options)
