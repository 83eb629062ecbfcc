"""Those who speak in an environment beside the agent: each has the conversation from its own side.

What others say are a user's messages for a speaker, and what it says itself are its policy's
answers. Each side has its own prompts, by its own template and tokenizer, and keeps the ids that it
sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensordict import TensorDict, TensorDictBase, lazy_stack

from antiphon.envs.base import Policy, acted
from antiphon.envs.chat import ChatEnv
from antiphon.envs.composite import Composite
from antiphon.envs.specs import NonTensor
from antiphon.envs.tasks import Message, message_text
from antiphon.envs.tools import ReplyTransform
from antiphon.envs.transformed import Transform, TransformedEnv
from antiphon.errors import EnvError

Stop = str | Callable[[str], bool] | None


@dataclass(frozen=True)
class UserSide:
    """A row's conversation as a speaker has it for whom all others are users.

    Attributes:
        opening: What it starts with; the speaker's own messages have its policy's role.
        step: The prompt of its last answer with the answer, as its policy returned it: ids,
            log-probs and all. None where nothing has been sampled yet.
    """

    opening: tuple[Message, ...]
    step: TensorDictBase | None = None


class Speaker:
    """A policy and the environment that makes its prompts.

    Args:
        policy: Any callable on tensordicts, such as an `LLMWrapper`.
        env: A `ChatEnv` that makes the prompts: its mode, its tokenizer, its template. It is never
            reset or stepped by itself.
        name: How others call it.
        system_prompt: Tells it who it is, or makes that of a row's data.
    """

    def __init__(
        self,
        policy: Policy,
        env: ChatEnv,
        *,
        name: str = "user",
        system_prompt: str | Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        self.policy, self.env = policy, env
        self.name = name
        self.system_prompt = system_prompt

    def opening(self, row: Mapping[str, Any]) -> list[Message]:
        """Return what the conversation about a data row starts with: its system prompt, or nothing."""
        prompt = self.system_prompt(row) if callable(self.system_prompt) else self.system_prompt
        return [] if prompt is None else [{"role": self.env.system_role, "content": prompt}]

    def told(self, text: str) -> Message:
        """Return what others say as a message for this speaker.

        Args:
            text: Their words.
        """
        return {"role": self.env.user_role, "content": text}

    def said(self, text: str) -> Message:
        """Return what is put in this speaker's own mouth.

        Args:
            text: The words.
        """
        return {"role": self.env.policy_role or "assistant", "content": text}

    def speak(
        self, sides: Sequence[UserSide], news: Sequence[Sequence[Message]]
    ) -> tuple[list[UserSide], list[str]]:
        """Return the sides after what the speaker says next, and its words.

        Args:
            sides: The sides so far.
            news: The messages that each is told first.
        """
        mode, device = self.env.mode, self.env.device
        fresh = [row for row, side in enumerate(sides) if side.step is None]
        going = [row for row, side in enumerate(sides) if side.step is not None]
        roots: dict[int, TensorDictBase] = {}
        if fresh:
            entries = mode.first([[*sides[row].opening, *news[row]] for row in fresh], device)
            roots.update(zip(fresh, _rows(entries, len(fresh)), strict=True))
        if going:
            steps = lazy_stack([side.step for side in sides if side.step is not None])
            entries = mode.proceed(mode.read(steps), [list(news[row]) for row in going], device)
            roots.update(zip(going, _rows(entries, len(going)), strict=True))
        step = acted(self.policy, lazy_stack([roots[row] for row in range(len(sides))]))
        words = [message_text(chat[-1]) for chat in self.env.conversations(step)]
        after = [
            UserSide(side.opening, part) for side, part in zip(sides, step.unbind(0), strict=True)
        ]
        return after, words


class Speaking(Transform):
    """Base class of transforms that let others than the agent speak, where no tool or task has.

    Put it outside of `ToolTransform`: results of tools go to the agent alone. Rewards and ends of
    the environment's own task stand.

    Args:
        stop: The conversation ends (terminated) when another speaker says this, or when this is
            true of what it says; those words are not handed on.
        key: The entry with what belongs to each row.
    """

    def __init__(self, *, stop: Stop = None, key: str) -> None:
        super().__init__()
        self.stop, self.key = stop, key

    def set_container(self, container: TransformedEnv) -> None:
        if not isinstance(container.base_env, ChatEnv):
            raise EnvError(
                f"{type(self).__name__} works on a ChatEnv, not on "
                f"{type(container.base_env).__name__}."
            )
        super().set_container(container)

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        observation_spec[self.key] = NonTensor(observation_spec.shape)
        return observation_spec

    def check_outermost(self) -> None:
        """Refuse what would answer in the speakers' place."""
        assert self.container is not None
        parts = self.container.transform.transforms
        own = next(place for place, part in enumerate(parts) if part is self)
        for part in parts[own:]:
            if isinstance(part, ReplyTransform):
                raise EnvError(
                    f"{type(part).__name__} stands outside of {type(self).__name__}, which would "
                    f"answer in its place; append {type(self).__name__} after it."
                )

    @property
    def agent(self) -> ChatEnv:
        """The environment of the agent."""
        assert self.container is not None
        env: ChatEnv = self.container.base_env  # type: ignore[assignment]
        return env

    def stops(self, text: str) -> bool:
        """Return whether words end the conversation.

        Args:
            text: What another speaker has said.
        """
        if self.stop is None:
            return False
        return self.stop in text if isinstance(self.stop, str) else bool(self.stop(text))

    def with_values(self, tensordict: TensorDictBase, values: Sequence[Any]) -> TensorDictBase:
        """Return ``tensordict`` with each row's value under ``key``.

        Args:
            tensordict: ``[rows]``; left as it is.
            values: One for each row.
        """
        rows = []
        for row, value in zip(tensordict.unbind(0), values, strict=True):
            row = row.copy()
            row.set_non_tensor(self.key, value)
            rows.append(row)
        stacked: TensorDictBase = lazy_stack(rows)
        return stacked

    def opened(
        self, tensordict_reset: TensorDictBase, chats: Mapping[int, str | list[Message]]
    ) -> TensorDictBase:
        """Return what reset gave, in some rows with another conversation to start from.

        Args:
            tensordict_reset: What reset gave, ``[rows]``.
            chats: The text or messages that a row starts from, by the row's number.
        """
        if not chats:
            return tensordict_reset
        # Row by row: a message list for the whole batch would be one for each row.
        starts = [TensorDict().set_non_tensor(self.agent.data_key, chat) for chat in chats.values()]
        fresh = self.agent.reset(lazy_stack(starts))
        rows = [row.copy() for row in tensordict_reset.unbind(0)]
        for row, part in zip(chats, fresh.unbind(0), strict=True):
            for key, value in part.items():
                if key != self.agent.data_key:
                    rows[row].set(key, value)
        stacked: TensorDictBase = lazy_stack(rows)
        return stacked


def contents(messages: Sequence[Message]) -> str:
    """Return what assistant messages say, without reasoning and calls."""
    said = (message_text(m).strip() for m in messages if m.get("role") not in ("tool", "user"))
    return "\n\n".join(text for text in said if text)


def since_user(chat: Sequence[Message], role: str) -> list[Message]:
    """Return what follows the last message of ``role``."""
    users = [place for place, message in enumerate(chat) if message.get("role") == role]
    return list(chat[users[-1] + 1 :] if users else chat)


def terminated(tensordict: TensorDictBase, ended: Sequence[int]) -> TensorDictBase:
    """Return a next step in which these rows have ended."""
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
