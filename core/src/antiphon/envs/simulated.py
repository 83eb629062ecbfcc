"""`SimulatedUser`: a second policy speaks the user's turns, and has the conversation from its side.

What the agent says is a user's message for the simulator, and what the simulator says is a user's
message for the agent. Each side has its own prompts, by its own template and tokenizer, and each
keeps the ids that it sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensordict import TensorDict, TensorDictBase, lazy_stack

from antiphon.conversations.fields import nested_entry
from antiphon.envs.base import Policy, acted
from antiphon.envs.chat import ChatEnv
from antiphon.envs.chat_modes import row_values
from antiphon.envs.tasks import Message, message_text
from antiphon.envs.tools import ReplyTransform
from antiphon.envs.transformed import Transform, TransformedEnv
from antiphon.errors import EnvError

GREETING = "Hello. What can I do for you?"


@dataclass(frozen=True)
class UserSide:
    """A row's conversation as the simulated user has it.

    Attributes:
        opening: What it starts with; the user's own messages have the simulator's policy role.
        step: The prompt of its last answer with the answer, as its policy returned it: ids,
            log-probs and all. None where nothing has been sampled yet.
    """

    opening: tuple[Message, ...]
    step: TensorDictBase | None = None


class SimulatedUser(Transform):
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
        stop: str | Callable[[str], bool] | None = None,
        heard: Callable[[Sequence[Message]], str] | None = None,
        key: str = "user_side",
    ) -> None:
        super().__init__()
        self.policy, self.env = policy, env
        self.system_prompt, self.greeting = system_prompt, greeting
        self.opens = opens
        self.stop = stop
        self.heard = contents if heard is None else heard
        self.key = key

    def set_container(self, container: TransformedEnv) -> None:
        if not isinstance(container.base_env, ChatEnv):
            raise EnvError(
                f"SimulatedUser works on a ChatEnv, not on {type(container.base_env).__name__}."
            )
        super().set_container(container)

    def _check_outermost(self) -> None:
        assert self.container is not None
        parts = self.container.transform.transforms
        own = next(place for place, part in enumerate(parts) if part is self)
        for part in parts[own:]:
            if isinstance(part, ReplyTransform):
                raise EnvError(
                    f"{type(part).__name__} stands outside of SimulatedUser, which would answer in its "
                    "place; append SimulatedUser after it."
                )

    @property
    def _agent(self) -> ChatEnv:
        assert self.container is not None
        env: ChatEnv = self.container.base_env  # type: ignore[assignment]
        return env

    def _reset(
        self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase
    ) -> TensorDictBase:
        del tensordict
        self._check_outermost()
        openings = [self._before(row) for row in self._agent.rows(tensordict_reset)]
        if not self.opens:
            chats = self._agent.mode.standing(tensordict_reset)
            sides = [
                UserSide((*opening, {"role": self._own_role, "content": self._asked(row, chat)}))
                for row, (opening, chat) in enumerate(zip(openings, chats, strict=True))
            ]
            return self._with_sides(tensordict_reset, sides)
        sides, said = self._speak(
            [UserSide(tuple(opening)) for opening in openings], [None] * len(openings)
        )
        fresh = self._agent.reset(
            TensorDict({self._agent.data_key: nested_entry(said, 1)}, batch_size=(len(said),))
        )
        rows = [row.copy() for row in tensordict_reset.unbind(0)]
        for row, part in zip(rows, fresh.unbind(0), strict=True):
            for key, value in part.items():
                if key != self._agent.data_key:
                    row.set(key, value)
        return self._with_sides(lazy_stack(rows), sides)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        sides: list[UserSide] = row_values(tensordict, self.key)
        done: Any = next_tensordict.get("done")
        before = self._agent.conversations(tensordict)
        after = self._agent.mode.standing(next_tensordict)
        waiting = [
            row
            for row, flag in enumerate(done.reshape(-1).tolist())
            if not flag and len(after[row]) == len(before[row])
        ]
        if waiting:
            told = [self.heard(_since_user(before[row], self._agent.user_role)) for row in waiting]
            spoken, said = self._speak([sides[row] for row in waiting], told)
            sides = list(sides)
            replies, ended = {}, []
            for row, side, text in zip(waiting, spoken, said, strict=True):
                sides[row] = side
                if self._stops(text):
                    ended.append(row)
                else:
                    replies[row] = [{"role": self._agent.user_role, "content": text}]
            next_tensordict = self._agent.reply(
                tensordict, next_tensordict, replies, undo_done=False, zero_reward=False
            )
            next_tensordict = _terminated(next_tensordict, ended)
        return self._with_sides(next_tensordict, sides)

    def _speak(
        self, sides: Sequence[UserSide], told: Sequence[str | None]
    ) -> tuple[list[UserSide], list[str]]:
        """Return the sides after what the simulator says next, and its words.

        Args:
            sides: The sides so far.
            told: What each is told; None where it speaks first.
        """
        mode, device = self.env.mode, self.env.device
        news = [[] if text is None else [self._told(text)] for text in told]
        fresh = [row for row, side in enumerate(sides) if side.step is None]
        going = [row for row, side in enumerate(sides) if side.step is not None]
        roots: dict[int, TensorDictBase] = {}
        if fresh:
            entries = mode.first([[*sides[row].opening, *news[row]] for row in fresh], device)
            roots.update(zip(fresh, _rows(entries, len(fresh)), strict=True))
        if going:
            steps = lazy_stack([side.step for side in sides if side.step is not None])
            entries = mode.proceed(mode.read(steps), [news[row] for row in going], device)
            roots.update(zip(going, _rows(entries, len(going)), strict=True))
        step = acted(self.policy, lazy_stack([roots[row] for row in range(len(sides))]))
        said = [message_text(chat[-1]) for chat in self.env.conversations(step)]
        after = [
            UserSide(side.opening, part) for side, part in zip(sides, step.unbind(0), strict=True)
        ]
        return after, said

    def _before(self, row: Mapping[str, Any]) -> list[Message]:
        prompt = self.system_prompt(row) if callable(self.system_prompt) else self.system_prompt
        messages: list[Message] = []
        if prompt is not None:
            messages.append({"role": self.env.system_role, "content": prompt})
        return [*messages, self._told(self.greeting)]

    def _told(self, text: str) -> Message:
        return {"role": self.env.user_role, "content": text}

    @property
    def _own_role(self) -> str:
        return self.env.policy_role or "assistant"

    def _asked(self, row: int, chat: Sequence[Message]) -> str:
        for message in reversed(chat):
            if message.get("role") == self._agent.user_role:
                return message_text(message)
        raise EnvError(
            f"Row {row}: the conversation starts without a message of the user, so there is nothing "
            "that the simulated user has said; give it a question, or use opens=True."
        )

    def _stops(self, text: str) -> bool:
        if self.stop is None:
            return False
        return self.stop in text if isinstance(self.stop, str) else bool(self.stop(text))

    def _with_sides(self, tensordict: TensorDictBase, sides: Sequence[UserSide]) -> TensorDictBase:
        rows = []
        for row, side in zip(tensordict.unbind(0), sides, strict=True):
            row = row.copy()
            row.set_non_tensor(self.key, side)
            rows.append(row)
        stacked: TensorDictBase = lazy_stack(rows)
        return stacked


def contents(messages: Sequence[Message]) -> str:
    """Return what assistant messages say, without reasoning and calls."""
    said = (message_text(m).strip() for m in messages if m.get("role") not in ("tool", "user"))
    return "\n\n".join(text for text in said if text)


def _since_user(chat: Sequence[Message], role: str) -> list[Message]:
    users = [place for place, message in enumerate(chat) if message.get("role") == role]
    return list(chat[users[-1] + 1 :] if users else chat)


def _terminated(tensordict: TensorDictBase, ended: Sequence[int]) -> TensorDictBase:
    if not ended:
        return tensordict
    rows = [row.copy() for row in tensordict.unbind(0)]
    for row in ended:
        for key, value in (("done", True), ("terminated", True), ("truncated", False)):
            flag: Any = rows[row].get(key)
            rows[row].set(key, flag.new_full(flag.shape, value))
    stacked: TensorDictBase = lazy_stack(rows)
    return stacked


def _rows(entries: Mapping[str, Any], count: int) -> list[TensorDictBase]:
    return list(TensorDict(dict(entries), batch_size=(count,)).unbind(0))
