"""What a conversation is about: how it starts, what the other side answers, what an answer is
worth.

A task is plain Python on plain messages and keeps nothing of a conversation, so one task serves any
number of rows at once. `ChatEnv` puts it on tensordicts, `antiphon rollout` drives it with a
backend.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from antiphon.envs.answers import (
    Answer,
    Marker,
    extract_answer,
    has_thought,
    is_right,
    reference_answer,
    visible_text,
)
from antiphon.envs.problems import question_fault, text_fault
from antiphon.errors import InvalidData

Message = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What the other side makes of an assistant message.

    Attributes:
        messages: What it says next (user or tool messages); nothing ends the model's turn as it is.
        reward: What the assistant message is worth.
        terminated: The conversation has come to its end.
        truncated: It was cut off by a limit.
        info: Further numbers by name; each is a reward entry of the environment.
    """

    messages: Sequence[Message] = ()
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, float | bool] = field(default_factory=dict)


class Task:
    """Base class: a question, any number of answers, no reward.

    Args:
        system_prompt: Put before every conversation.
        data_key: The field of a data row that holds the question: text, or a conversation's messages.
        max_turns: The conversation is truncated after this many assistant messages; None: never.
    """

    # Names of the numbers in `Reply.info`, and whether each is a flag.
    info_keys: Mapping[str, type] = {}

    def __init__(
        self,
        *,
        system_prompt: str | None = None,
        data_key: str = "query",
        max_turns: int | None = None,
    ) -> None:
        self.system_prompt = system_prompt
        self.data_key = data_key
        self.max_turns = max_turns

    def start(self, row: Mapping[str, Any]) -> list[Message]:
        """Return the messages that a conversation about ``row`` starts with."""
        question = row[self.data_key]
        if isinstance(question, str):
            question = [{"role": "user", "content": question}]
        messages: list[Message] = [dict(message) for message in question]
        if self.system_prompt is not None and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        return messages

    @property
    def row_form(self) -> str:
        """What a data row looks like, in words."""
        return f"a JSON object with {self.data_key!r} as text or as messages"

    def row_fault(self, row: Mapping[str, Any]) -> str | None:
        """Return what is wrong with a data row, in words that follow "Row 3", or None.

        Rows are looked at before anybody answers their question.
        """
        return question_fault(row, self.data_key)

    def respond(self, messages: Sequence[Message], row: Mapping[str, Any], turn: int) -> Reply:
        """Return the reply to the last of ``messages``.

        Args:
            messages: The conversation; the last message is the assistant's.
            row: The data row it is about.
            turn: How many assistant messages the model has written, this one included.
        """
        del messages, row
        return Reply(truncated=self.max_turns is not None and turn >= self.max_turns)

    def figures(
        self, ends: Sequence[tuple[Mapping[str, Any], Mapping[str, float | bool]]]
    ) -> Mapping[str, float]:
        """Return what a rollout prints besides rewards, by name; nothing by default.

        Args:
            ends: Of each conversation its data row, and the `Reply.info` of its last answer.
        """
        del ends
        return {}


WRONG = "That is not right. Check each step, then write the final answer after '####'."
MISSING = "There is no number in your answer. Write the final answer after '####'."
INSTRUCTION = (
    "Answer each problem with one short calculation and the result, for example: "
    "5 * 2 = 10. #### 10"
)


class WordProblems(Task):
    """Problems whose answer is a number: 1.0 for a right answer, 0.1 for a marked wrong one, else
    0.

    A wrong answer is said to be wrong and asked for again, until ``max_turns``. Only the
    assistant's own text of the last turn is looked at, without its reasoning.

    Args:
        system_prompt: Put before every conversation.
        data_key: The field that holds the question.
        answer_key: The field that holds the reference (a GSM8K solution, or a number).
        max_turns: How often the model may answer.
        fallback: Whether the last number of an answer without a marker counts.
        markers: Which markers count, see `extract_answer`.
        right_reward: The reward of a right answer.
        format_reward: The reward of a wrong answer that was marked as the answer.
    """

    info_keys: Mapping[str, type] = {
        "reward_answer": float,
        "reward_think": float,
        "reward_right": float,
        "success": bool,
    }

    def __init__(
        self,
        *,
        system_prompt: str | None = INSTRUCTION,
        data_key: str = "question",
        answer_key: str = "answer",
        max_turns: int | None = 1,
        fallback: bool = True,
        markers: tuple[Marker, ...] = ("hash", "boxed", "tag", "phrase"),
        right_reward: float = 1.0,
        format_reward: float = 0.1,
    ) -> None:
        super().__init__(system_prompt=system_prompt, data_key=data_key, max_turns=max_turns)
        self.answer_key = answer_key
        self.fallback = fallback
        self.markers = markers
        self.right_reward = right_reward
        self.format_reward = format_reward

    def is_right(self, answer: Answer, reference: Fraction) -> bool:
        """Return whether an answer is the reference."""
        return is_right(answer, reference)

    @property
    def row_form(self) -> str:
        return (
            f"a JSON object with {self.data_key!r} and {self.answer_key!r} as text, the answer ending "
            "in '#### N'"
        )

    def row_fault(self, row: Mapping[str, Any]) -> str | None:
        fault = question_fault(row, self.data_key) or text_fault(row, self.answer_key)
        if fault is None:
            try:
                reference_answer(row[self.answer_key])
            except ValueError:
                return f"has no number in {self.answer_key!r}"
        return fault

    def respond(self, messages: Sequence[Message], row: Mapping[str, Any], turn: int) -> Reply:
        message = messages[-1]
        text = message_text(message)
        try:
            reference = reference_answer(str(row[self.answer_key]))
        except (KeyError, ValueError) as error:
            raise InvalidData(
                f"The row has no usable {self.answer_key!r}: {error}; it must end in '#### N'."
            ) from error
        answer = extract_answer(text, fallback=self.fallback, markers=self.markers)
        right = answer is not None and self.is_right(answer, reference)
        marked = (
            answer is not None and answer.is_complete and answer.marker in ("hash", "boxed", "tag")
        )
        reward = self.right_reward if right else self.format_reward * marked
        info = {
            "reward_answer": float(marked),
            "reward_think": float(has_thought(text) or bool(message.get("reasoning_content"))),
            "reward_right": reward,
            "success": right,
        }
        out_of_turns = self.max_turns is not None and turn >= self.max_turns
        if right or out_of_turns:
            return Reply(reward=reward, terminated=right, truncated=not right, info=info)
        question = MISSING if answer is None else WRONG
        return Reply([{"role": "user", "content": question}], reward=reward, info=info)


class FunctionTask(Task):
    """A task from a function: ``respond(messages, row, turn) -> Reply``.

    The function may be ``async``, as a task's `respond` may for `roll_out_async`.
    """

    def __init__(
        self,
        respond: Callable[[Sequence[Message], Mapping[str, Any], int], Reply | Awaitable[Reply]],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._respond = respond

    def respond(self, messages: Sequence[Message], row: Mapping[str, Any], turn: int) -> Reply:
        reply = self._respond(messages, row, turn)
        if inspect.isawaitable(reply):
            return self._awaited(reply, turn)  # type: ignore[return-value]
        return self._limited(reply, turn)

    async def _awaited(self, reply: Awaitable[Reply], turn: int) -> Reply:
        return self._limited(await reply, turn)

    def _limited(self, reply: Reply, turn: int) -> Reply:
        if reply.terminated or self.max_turns is None or turn < self.max_turns:
            return reply
        return Reply((), reply.reward, False, True, reply.info)


def message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message's content, parts joined; empty where there is none."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or () if isinstance(part, Mapping))


__all__ = [
    "INSTRUCTION",
    "FunctionTask",
    "Message",
    "Reply",
    "Task",
    "WordProblems",
    "message_text",
    "visible_text",
]
