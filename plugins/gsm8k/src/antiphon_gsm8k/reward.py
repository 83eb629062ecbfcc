"""The GSM8K reward: 1.0 for the right number, 0.1 for a wrong one that was marked, else 0.

How numbers are found is core's (`antiphon.envs.answers`); this says what they are worth and how the
question is put.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

from antiphon.envs.answers import Answer, Marker
from antiphon.envs.tasks import WordProblems
from antiphon.errors import InvalidParameter

from antiphon_gsm8k.symbolic import equals, is_installed

AnswerStyle = Literal["any", "hash", "boxed", "tag"]

SYSTEM_PROMPT = (
    "Solve the user's problem. Reason first, inside <think></think>; then give the answer, a "
    "single number, inside <answer></answer>."
)
_PROMPTS: Mapping[str, str] = {
    "any": SYSTEM_PROMPT,
    "tag": SYSTEM_PROMPT,
    "hash": "Solve the user's problem step by step. Write the final number on a last line: #### N",
    "boxed": "Solve the user's problem step by step. Put the final number in \\boxed{}.",
}
_MARKERS: Mapping[str, tuple[Marker, ...]] = {
    "any": ("hash", "boxed", "tag", "phrase"),
    "hash": ("hash",),
    "boxed": ("boxed",),
    "tag": ("tag",),
}


class GSM8KTask(WordProblems):
    """GSM8K as a conversation: the question, an answer, its reward.

    Args:
        answer_style: Which mark an answer must carry; ``"any"`` takes them all.
        fallback: Whether the last number counts where nothing is marked; None: only for ``"any"``.
        system_prompt: In place of the style's own prompt.
        symbolic: Whether boxed formulas that are more than arithmetic are judged with math-verify;
            None where it is installed.
        **kwargs: As `WordProblems` takes them.
    """

    def __init__(
        self,
        *,
        answer_style: AnswerStyle = "any",
        fallback: bool | None = None,
        system_prompt: str | None = None,
        symbolic: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if symbolic and not is_installed():
            raise InvalidParameter(
                "symbolic=True needs math-verify; run `pip install antiphon-gsm8k[symbolic]`."
            )
        if answer_style not in _MARKERS:
            raise InvalidParameter(
                f"answer_style must be one of {', '.join(_MARKERS)}, not {answer_style!r}."
            )
        self.symbolic = symbolic
        super().__init__(
            system_prompt=_PROMPTS[answer_style] if system_prompt is None else system_prompt,
            markers=_MARKERS[answer_style],
            fallback=answer_style == "any" if fallback is None else fallback,
            **kwargs,
        )

    def is_right(self, answer: Answer, reference: Fraction) -> bool:
        is_formula = answer.value is None and answer.marker == "boxed" and answer.is_complete
        if is_formula and self.symbolic is not False:
            return equals(answer.payload, reference)
        return super().is_right(answer, reference)


class GSM8KReward:
    """Scores one answer: ``GSM8KReward()(completion, gold)``.

    Args:
        answer_style: Which mark an answer must carry; ``"any"`` takes them all.
        fallback: Whether the last number counts where nothing is marked; None: only for ``"any"``.
        right_reward: The reward of the right number.
        format_reward: The reward of a wrong number that was marked as the answer.
        symbolic: See `GSM8KTask`.
    """

    def __init__(
        self,
        *,
        answer_style: AnswerStyle = "any",
        fallback: bool | None = None,
        symbolic: bool | None = None,
        right_reward: float = 1.0,
        format_reward: float = 0.1,
    ) -> None:
        self._task = GSM8KTask(
            answer_style=answer_style,
            fallback=fallback,
            symbolic=symbolic,
            right_reward=right_reward,
            format_reward=format_reward,
        )

    def __call__(self, completion: str, gold: str) -> dict[str, float | bool]:
        """Return reward_answer, reward_think, reward_right, reward and success.

        Args:
            completion: The assistant's text of the last turn, never the prompt.
            gold: A GSM8K solution, or the bare number.

        Raises:
            InvalidData: There is no number in ``gold``.
        """
        row = {"question": "", "answer": gold}
        reply = self._task.respond([{"role": "assistant", "content": completion}], row, turn=1)
        return {**reply.info, "reward": reply.reward}
