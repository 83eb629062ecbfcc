"""`AddThinkingPrompt`: ask a model to think again where its answer calls for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Literal

from tensordict import TensorDictBase

from antiphon.envs.chat import ChatEnv
from antiphon.envs.tools import ReplyTransform
from antiphon.errors import InvalidParameter

_AS_USER = (
    "Are you sure? Go through it once more, step by step.",
    "Check your answer: is each step right?",
    "Something may be wrong there. Think again before you answer.",
)
_AS_ASSISTANT = (
    "Wait, let me check that once more.",
    "Hold on, I should go through each step again.",
    "Let me make sure that this is right.",
)


class AddThinkingPrompt(ReplyTransform):
    """Adds a message that asks for more thought to rows for which a condition holds.

    Args:
        cond: Sees one row of what the step gave (reward, flags, the next prompt).
        prompt: What to say; drawn from a few of our own if None.
        random_prompt: Draw anew each time; otherwise the first is used.
        role: Who says it. The assistant saying it to itself is part of its conversation, not of
            what was sampled: no mask is set on it.
        edit_last_turn: Accepted for ``role="assistant"``: the answer itself is never edited, what
            was sampled stays, so the words are a message of their own behind it.
        zero_reward: Whether the reward of such rows becomes 0; the value of ``edit_last_turn`` if
            None.
        undo_done: Whether such rows go on although they had ended.
        seed: Settles what is drawn.
    """

    def __init__(
        self,
        cond: Callable[[TensorDictBase], bool],
        prompt: str | None = None,
        random_prompt: bool = False,
        role: Literal["user", "assistant"] = "assistant",
        edit_last_turn: bool = True,
        zero_reward: bool | None = None,
        undo_done: bool = True,
        egocentric: bool | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if role not in ("user", "assistant"):
            raise InvalidParameter(f"role must be 'user' or 'assistant', not {role!r}.")
        own = egocentric if egocentric is not None else role == "assistant"
        self.cond = cond
        self.prompts = (_AS_ASSISTANT if own else _AS_USER) if prompt is None else (prompt,)
        self.random_prompt = random_prompt
        self.role = role
        self.zero_reward = edit_last_turn if zero_reward is None else zero_reward
        self.undo_done = undo_done
        self._random = random.Random(seed)

    def set_seed(self, seed: int | None) -> None:
        self._random = random.Random(seed)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        assert self.container is not None
        env: ChatEnv = self.container.base_env  # type: ignore[assignment]
        replies: dict[int, Any] = {}
        for row, part in enumerate(next_tensordict.unbind(0)):
            if self.cond(part):
                said = self._random.choice(self.prompts) if self.random_prompt else self.prompts[0]
                replies[row] = [{"role": self.role, "content": said}]
        return env.reply(
            tensordict,
            next_tensordict,
            replies,
            undo_done=self.undo_done,
            zero_reward=self.zero_reward,
        )
