"""`ChatEnv`: conversations as an environment, in history, text or tokens mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from tensordict import TensorDict, TensorDictBase, is_non_tensor, lazy_stack

from antiphon.conversations.chats import openai_messages, stored_message
from antiphon.conversations.history import History
from antiphon.envs.base import EnvBase
from antiphon.envs.chat_modes import (
    STATE,
    Chats,
    HistoryMode,
    Mode,
    TextMode,
    TokensMode,
    row_values,
)
from antiphon.envs.composite import Composite
from antiphon.envs.conversation import Prompter
from antiphon.envs.entries import DONE_KEYS, has_key
from antiphon.envs.specs import Categorical, NonTensor, Unbounded
from antiphon.envs.tasks import Message, Reply, Task
from antiphon.errors import EnvError, InvalidParameter

InputMode = Literal["history", "text", "tokens"]
EndCondition = Callable[[Sequence[Message], Mapping[str, Any]], bool]
_CONTAINERS = ("history", "text", "tokens", "masks", "log_probs")


class ChatEnv(EnvBase):
    """A conversation: reset gives the first prompt, each step takes an answer and gives the next.

    Without a task the next prompt is simply the conversation so far, for transforms to go on with.
    A task answers, gives rewards and says when a conversation has ended. Nothing of a row is kept
    in the environment; any number of rows can be reset or stepped, whatever ``batch_size`` says.

    Args:
        input_mode: The form of prompts and answers: ``"history"``, ``"text"`` or ``"tokens"``.
        batch_size: The rows that the specs speak of; ``(1,)`` if None.
        system_prompt: Put before conversations that have no system message of their own.
        tokenizer: Needed in text and tokens mode, and for ``max_tokens``.
        template_kwargs: For `antiphon.render`: ``tools``, ``chat_template``, ``family`` (or
            ``chat_template_name``), and further variables of the template.
        system_role: The role of the system prompt.
        user_role: The role of a question that is a plain string.
        policy_role: The role of answers; None does not look.
        data_key: The entry that reset starts from: a string, a message list, or a `History`.
        device: Where tensors are made.
        task: What answers and rewards; its system prompt and data key are the defaults.
        max_turns: Truncate after this many answers.
        max_tokens: Truncate when a conversation has this many tokens.
        end_condition: ``(messages, row) -> bool``: terminate after this answer.
    """

    data_key = "query"
    text_key = ("text", "prompt")
    response_key = ("text", "response")
    step_keys = _CONTAINERS

    def __init__(
        self,
        *,
        input_mode: InputMode = "history",
        batch_size: torch.Size | tuple[int, ...] | int | None = None,
        system_prompt: str | None = None,
        tokenizer: Any = None,
        template_kwargs: Mapping[str, Any] | None = None,
        system_role: str = "system",
        user_role: str = "user",
        policy_role: str | None = "assistant",
        data_key: str | None = None,
        device: torch.device | str | None = None,
        task: Task | None = None,
        max_turns: int | None = None,
        max_tokens: int | None = None,
        end_condition: EndCondition | None = None,
    ) -> None:
        size = torch.Size((1,) if batch_size is None else _size(batch_size))
        if len(size) != 1:
            raise InvalidParameter(
                f"ChatEnv needs a batch size of one dimension, such as (1,), not {tuple(size)}."
            )
        super().__init__(batch_size=size, device=device)
        for name, limit in (("max_turns", max_turns), ("max_tokens", max_tokens)):
            if limit is not None and not (isinstance(limit, int) and limit >= 1):
                raise InvalidParameter(f"{name} must be a number of at least 1, not {limit!r}.")
        if system_prompt is None and task is not None:
            system_prompt = task.system_prompt
        if data_key is None and task is not None:
            data_key = task.data_key
        if data_key is not None:
            self.data_key = data_key
        self.system_prompt = system_prompt
        self.tokenizer = tokenizer
        self.template_kwargs = dict(template_kwargs or {})
        self.system_role, self.user_role, self.policy_role = system_role, user_role, policy_role
        self.task = task
        self.max_turns, self.max_tokens = max_turns, max_tokens
        self.end_condition = end_condition
        self.input_mode = input_mode
        self.mode = self._make_mode()
        self._make_specs()

    def _make_mode(self) -> Mode:
        options = dict(self.template_kwargs)
        named = options.pop("chat_template_name", None)
        prompter = None
        if self.tokenizer is not None or options.get("chat_template") or named:
            prompter = Prompter(
                self.tokenizer,
                family=options.pop("family", named),
                chat_template=options.pop("chat_template", None),
                tools=options.pop("tools", None),
                template_kwargs=options,
                role=self.policy_role or "assistant",
            )
        if self.input_mode == "history":
            return HistoryMode(prompter, self.policy_role)
        if self.input_mode not in ("text", "tokens"):
            raise InvalidParameter(
                f"input_mode must be 'history', 'text' or 'tokens', not {self.input_mode!r}."
            )
        if prompter is None or (self.input_mode == "tokens" and self.tokenizer is None):
            raise InvalidParameter(
                f"ChatEnv in {self.input_mode} mode needs a tokenizer; give it the model's."
            )
        return TextMode(prompter) if self.input_mode == "text" else TokensMode(prompter)

    def _make_specs(self) -> None:
        size, name = self.batch_size, self.mode.name
        container: Any = self.mode.container
        self.full_observation_spec = Composite(
            {
                name: container.default_spec(shape=size, keys=["prompt"]).to(self.device),
                "turn": Unbounded((*size, 1), dtype=torch.int64, device=self.device),
            },
            shape=size,
        )
        self.full_action_spec = Composite(
            {name: container.default_spec(shape=size, keys=["full"]).to(self.device)}, shape=size
        )
        self.full_state_spec = Composite({self.data_key: NonTensor(size)}, shape=size)
        for key, kind in (self.task.info_keys if self.task is not None else {}).items():
            shape = (*size, 1)
            self.full_reward_spec[key] = (
                Categorical(2, shape, torch.bool, self.device)
                if kind is bool
                else Unbounded(shape, device=self.device)
            )

    @classmethod
    def from_dataloader(cls, dataloader: Any, **kwargs: Any) -> Any:
        """Return a `DatasetChatEnv` that takes its questions from ``dataloader``."""
        from antiphon.envs.dataset import DatasetChatEnv

        return DatasetChatEnv.from_dataloader(dataloader, **kwargs)

    # Reset.

    def _reset(self, tensordict: TensorDictBase | None, **kwargs: Any) -> TensorDictBase:
        if tensordict is None or not has_key(tensordict, self.data_key):
            has = "nothing" if tensordict is None else ", ".join(map(str, tensordict.keys()))
            raise EnvError(
                f"ChatEnv.reset needs a tensordict with the entry {self.data_key!r} to start from; "
                f"it got {has}."
            )
        if len(tensordict.batch_size) != 1:
            raise EnvError(
                "ChatEnv.reset needs a tensordict with one batch dimension, not the batch size "
                f"{tuple(tensordict.batch_size)}."
            )
        count = tensordict.batch_size[0]
        if not count:
            raise EnvError("ChatEnv.reset needs at least one row to start; it got a batch of none.")
        chats = [self._begin(chat) for chat in self._chats(tensordict, count)]
        entries = self.mode.first(chats, self.device)
        entries["turn"] = torch.zeros((count, 1), dtype=torch.int64, device=self.device)
        return TensorDict(entries, batch_size=(count,), device=self.device)

    def _chats(self, tensordict: TensorDictBase, count: int) -> list[Any]:
        """Return what each row starts from, plain: a string or a message list."""
        value: Any = tensordict.get(self.data_key)
        if is_non_tensor(value):
            value = value.tolist() if hasattr(value, "tolist") else value.data
        if isinstance(value, History):
            value = value._messages()
        if isinstance(value, Mapping):
            value = [value]
        if isinstance(value, str) or (value and isinstance(value[0], Mapping)):
            # One question, or one conversation, for all rows.
            return [value] * count
        rows = [item._messages() if isinstance(item, History) else item for item in value]
        if len(rows) != count:
            raise EnvError(
                f"{self.data_key!r} holds {len(rows)} conversations for a batch of {count} rows."
            )
        return rows

    def _begin(self, start: Any) -> list[Message]:
        if isinstance(start, str):
            start = [{"role": self.user_role, "content": start}]
        elif isinstance(start, Mapping):
            start = [start]
        # Data-set rows fill keys with None, and templates look whether a key is there.
        messages = openai_messages([stored_message(message) for message in start])
        for message in messages:
            if message.get("tool_calls") == []:
                del message["tool_calls"]
        own = messages[0]["role"] if messages else None
        if self.system_prompt is not None and own != self.system_role:
            messages.insert(0, {"role": self.system_role, "content": self.system_prompt})
        return messages

    # Step.

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        count = tensordict.batch_size[0]
        answers = self.mode.read(tensordict)
        self.mode.check(answers)
        turn = self._turn(tensordict, count)
        turns: list[int] = turn[:, 0].tolist()
        replies = self._replies(tensordict, answers, turns)
        truncated = [
            (reply.truncated or (self.max_turns is not None and turns[row] >= self.max_turns))
            and not reply.terminated
            for row, reply in enumerate(replies)
        ]
        if self.max_tokens is not None:
            for row, length in enumerate(self._lengths(tensordict, answers)):
                truncated[row] |= length >= self.max_tokens and not replies[row].terminated
        following: Chats = [
            [] if reply.terminated or cut else list(reply.messages)
            for reply, cut in zip(replies, truncated, strict=True)
        ]
        entries = self.mode.proceed(answers, following, self.device)
        entries["turn"] = turn
        entries["terminated"] = self._column([r.terminated for r in replies], torch.bool)
        entries["truncated"] = self._column(truncated, torch.bool)
        entries["reward"] = self._column([r.reward for r in replies], torch.float32)
        for key, kind in (self.task.info_keys if self.task is not None else {}).items():
            dtype = torch.bool if kind is bool else torch.float32
            entries[key] = self._column([reply.info.get(key, 0) for reply in replies], dtype)
        return TensorDict(entries, batch_size=(count,), device=self.device)

    # For transforms.

    def conversations(self, tensordict: TensorDictBase) -> list[list[Message]]:
        """Return each row's messages, the policy's answer last.

        Args:
            tensordict: The root of a step, with the answer.
        """
        answers = self.mode.read(tensordict)
        self.mode.check(answers)
        return self.mode.messages(answers)

    def rows(self, tensordict: TensorDictBase) -> list[dict[str, Any]]:
        """Return each row's data: all entries that are not the environment's own.

        Args:
            tensordict: A root or what reset gave, ``[*batch]``.
        """
        own = {*_CONTAINERS, *DONE_KEYS, STATE, "turn", "next", "_reset", *self.reward_keys}
        rows: list[dict[str, Any]] = [{} for _ in range(tensordict.batch_size[0])]
        for key, value in tensordict.items():
            if key in own:
                continue
            values = value if isinstance(value, torch.Tensor) else row_values(tensordict, key)
            for row, item in zip(rows, values, strict=True):
                row[key] = item
        return rows

    def reply(
        self,
        tensordict: TensorDictBase,
        next_tensordict: TensorDictBase,
        replies: Mapping[int, Sequence[Message]],
        *,
        undo_done: bool = True,
        zero_reward: bool = True,
    ) -> TensorDictBase:
        """Return the next step with other replies in some rows.

        What the task said there is taken back: the answer stands, and then ``replies``. All ids so
        far are kept.

        Args:
            tensordict: The root of the step, with the answer.
            next_tensordict: What the step gave.
            replies: By row, the messages that follow the answer.
            undo_done: Whether these rows go on although they had ended.
            zero_reward: Whether these rows' rewards become 0.
        """
        chosen = sorted(replies)
        if not chosen:
            return next_tensordict
        index = torch.tensor(chosen)
        answers = self.mode.read(tensordict[index])
        fresh = TensorDict(
            self.mode.proceed(answers, [list(replies[row]) for row in chosen], self.device),
            batch_size=(len(chosen),),
            device=self.device,
        )
        rows = [row.copy() for row in next_tensordict.unbind(0)]
        for row, part in zip(chosen, fresh.unbind(0), strict=True):
            for key, value in part.items():
                rows[row].set(key, value)
            if undo_done:
                for key in DONE_KEYS:
                    rows[row].set(key, torch.zeros_like(rows[row].get(key)))
            if zero_reward:
                for key in self.reward_keys:
                    rows[row].set(key, torch.zeros_like(rows[row].get(key)))
        stacked: TensorDictBase = lazy_stack(rows)
        return stacked

    def _turn(self, tensordict: TensorDictBase, count: int) -> torch.Tensor:
        given: Any = tensordict.get("turn", None)
        if given is None:
            return torch.ones((count, 1), dtype=torch.int64, device=self.device)
        turn: torch.Tensor = given + 1
        return turn

    def _replies(self, tensordict: TensorDictBase, answers: Any, turns: list[int]) -> list[Reply]:
        if self.task is None and self.end_condition is None:
            return [_NOTHING] * len(turns)
        chats = self.mode.messages(answers)
        rows = self.rows(tensordict)
        replies = []
        for chat, row, turn in zip(chats, rows, turns, strict=True):
            reply = _NOTHING if self.task is None else self.task.respond(chat, row, turn)
            if self.end_condition is not None and self.end_condition(chat, row):
                reply = Reply(reply.messages, reply.reward, True, False, reply.info)
            replies.append(reply)
        return replies

    def _lengths(self, tensordict: TensorDictBase, answers: Any) -> list[int]:
        from antiphon.conversations.padding import token_rows

        tokens: Any = tensordict.get("tokens", None)
        fulls = None if tokens is None else token_rows(tokens._tensordict, "full")
        return self.mode.lengths(answers) if fulls is None else [len(row) for row in fulls]

    def _column(self, values: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)[:, None]

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Put an answer without meaning into ``tensordict``."""
        if tensordict is None:
            raise EnvError("ChatEnv.rand_action needs the prompt to answer; call reset first.")
        return tensordict.set(self.mode.name, self.mode.babble(tensordict))


_NOTHING = Reply()


def _size(batch_size: torch.Size | Sequence[int] | int) -> tuple[int, ...]:
    size = (batch_size,) if isinstance(batch_size, int) else batch_size
    if not isinstance(size, Iterable) or not all(isinstance(each, int) for each in size):
        raise InvalidParameter(f"A batch size is a number or a tuple of one, not {batch_size!r}.")
    return tuple(size)
