"""`SimulatedUser`: a second policy speaks the user's turns, and has the conversation from its side.

What the agent says is a user's message for the simulator, and what the simulator says is a user's
message for the agent. For more than two see `antiphon.envs.RoundTable`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensordict import TensorDictBase

from antiphon.envs.base import Policy
from antiphon.envs.chat import ChatEnv
from antiphon.envs.chat_modes import row_values
from antiphon.envs.speakers import (
    Speaker,
    Speaking,
    Stop,
    UserSide,
    contents,
    since_user,
    terminated,
)
from antiphon.envs.tasks import Message, message_text
from antiphon.errors import EnvError

GREETING = "Hello. What can I do for you?"


class SimulatedUser(Speaking):
    """Lets a policy answer the agent, where no tool or task has answered already.

    Put it outside of `ToolTransform`: results of tools go to the agent alone. Rewards and ends of
    the environment's own task stand. Each row's side is the entry ``key``, a `UserSide`.

    Args:
        policy: Speaks for the user: any callable on tensordicts, such as an `LLMWrapper`.
        env: A `ChatEnv` that makes the simulator's prompts: its mode, its tokenizer, its template.
            It is never reset or stepped by itself.
        system_prompt: Tells the simulator who it is, or makes that of a row's data.
        greeting: What the simulator is told first, as if the agent had said it; the agent does not
            see it.
        opens: Whether the simulator says the first message too. Otherwise that is the
            environment's question.
        stop: The conversation ends (terminated) when the simulator says this, or when this is true
            of what it says; those words are not handed on.
        heard: Makes what the simulator is told of the agent's messages since its last one; their
            contents without reasoning and calls, if None.
        key: The entry with each row's side.
    """

    def __init__(
        self,
        policy: Policy,
        env: ChatEnv,
        *,
        system_prompt: str | Callable[[Mapping[str, Any]], str] | None = None,
        greeting: str = GREETING,
        opens: bool = False,
        stop: Stop = None,
        heard: Callable[[Sequence[Message]], str] | None = None,
        key: str = "user_side",
    ) -> None:
        super().__init__(stop=stop, key=key)
        self.speaker = Speaker(policy, env, system_prompt=system_prompt)
        self.greeting = greeting
        self.opens = opens
        self.heard = contents if heard is None else heard

    def _reset(
        self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase
    ) -> TensorDictBase:
        del tensordict
        self.check_outermost()
        greeted = self.speaker.told(self.greeting)
        openings = [
            (*self.speaker.opening(row), greeted) for row in self.agent.rows(tensordict_reset)
        ]
        if not self.opens:
            chats = self.agent.mode.standing(tensordict_reset)
            sides = [
                UserSide((*opening, self.speaker.said(self._asked(row, chat))))
                for row, (opening, chat) in enumerate(zip(openings, chats, strict=True))
            ]
            return self.with_values(tensordict_reset, sides)
        sides, said = self.speaker.speak(
            [UserSide(opening) for opening in openings], [()] * len(openings)
        )
        return self.with_values(self.opened(tensordict_reset, dict(enumerate(said))), sides)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        sides: list[UserSide] = row_values(tensordict, self.key)
        done: Any = next_tensordict.get("done")
        before = self.agent.conversations(tensordict)
        after = self.agent.mode.standing(next_tensordict)
        waiting = [
            row
            for row, flag in enumerate(done.reshape(-1).tolist())
            if not flag and len(after[row]) == len(before[row])
        ]
        if waiting:
            role = self.agent.user_role
            told = [self.heard(since_user(before[row], role)) for row in waiting]
            news = [[self.speaker.told(text)] for text in told]
            spoken, said = self.speaker.speak([sides[row] for row in waiting], news)
            sides = list(sides)
            replies, ended = {}, []
            for row, side, text in zip(waiting, spoken, said, strict=True):
                sides[row] = side
                if self.stops(text):
                    ended.append(row)
                else:
                    replies[row] = [{"role": role, "content": text}]
            next_tensordict = self.agent.reply(
                tensordict, next_tensordict, replies, undo_done=False, zero_reward=False
            )
            next_tensordict = terminated(next_tensordict, ended)
        return self.with_values(next_tensordict, sides)

    def _asked(self, row: int, chat: Sequence[Message]) -> str:
        for message in reversed(chat):
            if message.get("role") == self.agent.user_role:
                return message_text(message)
        raise EnvError(
            f"Row {row}: the conversation starts without a message of the user, so there is nothing "
            "that the simulated user has said; give it a question, or use opens=True."
        )
