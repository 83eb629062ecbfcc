"""IFEval as a task: a prompt with checkable instructions, one answer, a weighted reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.envs.tasks import Reply, Task, message_text
from antiphon.errors import InvalidData, InvalidParameter

from antiphon_ifeval.instructions import read_instructions
from antiphon_ifeval.scores import WEIGHTS, score

INFO_KEYS: Mapping[str, type] = {
    "prompt_level_strict_acc": bool,
    "inst_level_strict_acc": float,
    "prompt_level_loose_acc": bool,
    "inst_level_loose_acc": float,
}
AGAIN = "That does not keep to all that was asked for. Read the request again, then answer anew."


class IFEvalTask(Task):
    """A prompt whose instructions an answer must keep to.

    An answer that keeps to all of them strictly ends the conversation; another is asked for again
    until ``max_turns``.

    Args:
        data_key: The field of the prompt.
        weights: Of prompt-level strict, instruction-level strict, prompt-level loose and
            instruction-level loose in the reward.
        system_prompt: Put before every conversation.
        max_turns: How often the model may answer.
    """

    info_keys: Mapping[str, type] = INFO_KEYS

    def __init__(
        self,
        *,
        data_key: str = "prompt",
        weights: Sequence[float] = WEIGHTS,
        system_prompt: str | None = None,
        max_turns: int | None = 1,
    ) -> None:
        super().__init__(system_prompt=system_prompt, data_key=data_key, max_turns=max_turns)
        self.weights = checked_weights(weights)

    @property
    def row_form(self) -> str:
        return (
            f"a JSON object with {self.data_key!r} as text and the instructions under "
            "'instruction_id_list' and 'kwargs'"
        )

    def row_fault(self, row: Mapping[str, Any]) -> str | None:
        fault = super().row_fault(row)
        if fault is None:
            try:
                read_instructions(row)
            except InvalidData as error:
                return f"can't be scored: {str(error).rstrip('.')}"
        return fault

    def respond(
        self, messages: Sequence[Mapping[str, Any]], row: Mapping[str, Any], turn: int
    ) -> Reply:
        found = score(row, message_text(messages[-1]))
        kept = all(found.strict)
        reward, numbers = found.reward(self.weights), found.numbers
        if kept or (self.max_turns is not None and turn >= self.max_turns):
            return Reply((), reward, terminated=kept, truncated=not kept, info=numbers)
        return Reply([{"role": "user", "content": AGAIN}], reward, info=numbers)

    def figures(
        self, ends: Sequence[tuple[Mapping[str, Any], Mapping[str, float | bool]]]
    ) -> Mapping[str, float]:
        """Return the benchmark's four figures, strict and loose; each instruction counts once."""
        if not ends:
            return {}
        counts = [len(read_instructions(row)) for row, _ in ends]
        found = {}
        for key in INFO_KEYS:
            weights = counts if key.startswith("inst_level") else [1] * len(ends)
            kept = sum(weight * info[key] for weight, (_, info) in zip(weights, ends, strict=True))
            found[key] = kept / sum(weights)
        return found


class IFEvalReward:
    """Scores one answer: ``IFEvalReward()(completion, row)``.

    Args:
        weights: See `IFEvalTask`.
    """

    def __init__(self, *, weights: Sequence[float] = WEIGHTS) -> None:
        self.weights = checked_weights(weights)

    def __call__(self, completion: str, row: Any) -> dict[str, float | bool]:
        """Return the four scores and the reward.

        Args:
            completion: The assistant's text.
            row: The data row, or its label.

        Raises:
            InvalidData: What the row asks for can't be read, or is unknown.
        """
        found = score(row, completion)
        return {**found.numbers, "reward": found.reward(self.weights)}


def checked_weights(weights: Sequence[float]) -> tuple[float, ...]:
    """Return the weights of the four scores, if they are four."""
    found = tuple(float(weight) for weight in weights)
    if len(found) != len(INFO_KEYS):
        raise InvalidParameter(
            f"There are four scores to weigh ({', '.join(INFO_KEYS)}), not {len(found)}."
        )
    return found
