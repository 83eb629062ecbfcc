"""Preference data: rows with a prompt, a chosen and a rejected answer as ids, the prompt once.

The columns are those that TRL's loss for preferences reads. Each answer stands behind the very ids that the model has
at inference, and ends with the end of its turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from antiphon.conversations.arguments import of_kind
from antiphon.conversations.chats import stored_message
from antiphon.conversations.dataset_rows import said_by
from antiphon.conversations.templating import Template
from antiphon.data.conversations import Conversation, conversation_of
from antiphon.data.training import (
    Note,
    Refused,
    SampleOptions,
    encode_ahead,
    leave_out_ends,
    numbered,
    plan_conversation,
    sample_ids,
)
from antiphon.engine.samples import SamplePlan
from antiphon.errors import AntiphonError, InvalidData, InvalidMessage, reason_of

SIDES = ("chosen", "rejected")
# Where the prompt stands, if not in front of both answers.
_PROMPTS = ("prompt", "conversations", "conversation")
PREFERENCE_COLUMNS = (
    *_PROMPTS,
    *SIDES,
    "tools",
    "functions",
    "system",
    "system_prompt",
    "chat_template_kwargs",
)


class Preference(NamedTuple):
    """Ids of a prompt and of the two answers to it."""

    row: int
    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]

    @property
    def tokens(self) -> int:
        """How many ids are stored."""
        return len(self.prompt_ids) + self.trained

    @property
    def trained(self) -> int:
        """How many of them are compared: those of the answers."""
        return len(self.chosen_ids) + len(self.rejected_ids)


class PreferenceBatch(NamedTuple):
    """The preferences of some rows, and notes about those rows."""

    samples: list[Preference]
    notes: list[Note]


class _Work(NamedTuple):
    row: int
    conversations: list[Conversation]
    plans: list[SamplePlan]


def make_preferences(
    rows: Iterable[tuple[int, Any]],
    tokenizer: Any,
    options: SampleOptions,
    *,
    strict: bool = False,
) -> PreferenceBatch:
    """Return the preferences of rows.

    Args:
        rows: Row numbers with ``{"prompt", "chosen", "rejected"}``, or ``{"chosen", "rejected"}`` which begin with the
            prompt; messages in any form, or strings. An exception in a row's place refuses it.
        tokenizer: The tokenizer.
        options: How conversations are rendered, and how long they may be; what is trained are the answers.
        strict: Raise at the first row that is refused.

    Raises:
        InvalidData: With ``strict``; names the row.
    """
    notes: list[Note] = []
    work: list[_Work] = []

    def refuse(row: int, error: BaseException) -> None:
        if strict:
            raise InvalidData(f"Row {row} is refused: {reason_of(error)}.") from error
        notes.append(Note(row, "refused", reason_of(error)))

    of_kind("options", options, SampleOptions, "a SampleOptions")
    template = Template(tokenizer, options.chat_template, options.family)
    for row, value in numbered(rows):
        try:
            if isinstance(value, AntiphonError):
                raise value
            both = preference_of(value, padded=options.padded)
            plans = [_plan(side, each, template, options) for side, each in both.items()]
            work.append(_Work(row, list(both.values()), plans))
        except AntiphonError as error:
            refuse(row, error)
    encode_ahead([plan for item in work for plan in item.plans], tokenizer)
    samples: list[Preference] = []
    for item in work:
        try:
            whole = _encode(item)
            made = _fitting(whole, options)
        except AntiphonError as error:
            refuse(item.row, error)
            continue
        samples.append(made)
        if made.tokens < whole.tokens:
            reason = f"longer than max_length {options.max_length}"
            notes.append(Note(item.row, "truncated", reason))
    notes.sort(key=lambda note: note.row)
    return PreferenceBatch(samples, notes)


def preference_of(row: Any, *, padded: bool = False) -> dict[str, Conversation]:
    """Return the chosen and the rejected conversation of a row, each with the prompt and one answer.

    Raises:
        InvalidMessage: The row has no such two, they do not go on from one prompt, or one of them adds anything but
            one answer.
    """
    if not isinstance(row, Mapping) or any(row.get(side) is None for side in SIDES):
        told = (
            f"its keys are {', '.join(map(str, row))}"
            if isinstance(row, Mapping)
            else "it is no object"
        )
        raise InvalidMessage(f"the row is no preference: it needs chosen and rejected ({told})")
    given: Any = next((row[key] for key in _PROMPTS if row.get(key) is not None), [])
    prompt = said_by("user", given)
    sides = {side: said_by("assistant", row[side]) for side in SIDES}
    if all(len(m) > len(prompt) and _same(m[: len(prompt)], prompt) for m in sides.values()):
        sides = {side: m[len(prompt) :] for side, m in sides.items()}  # each has the prompt again
    shared = 0
    one, other = sides.values()
    while shared < min(len(one), len(other)) - 1 and _same([one[shared]], [other[shared]]):
        shared += 1
    prompt = [*prompt, *one[:shared]]
    result = {}
    for side, messages in sides.items():
        answer = messages[shared:]
        if len(answer) != 1:
            raise InvalidMessage(
                f"{side} adds {len(answer)} messages to the prompt; compared are answers of one message each"
            )
        found = conversation_of({**row, "messages": [*prompt, *answer]}, padded=padded)
        if found.messages[-1]["role"] not in ("assistant", "model"):
            raise InvalidMessage(
                f"{side} ends with a message of the {found.messages[-1]['role']}, not an answer"
            )
        if len(found.messages) < 2:
            raise InvalidMessage(
                "there is no prompt: give it under prompt, or as messages that chosen and rejected begin with"
            )
        result[side] = found
    return result


def _same(some: list[Any], others: list[Any]) -> bool:
    return [stored_message(m) for m in some] == [stored_message(m) for m in others]


def _plan(
    side: str, conversation: Conversation, template: Template, options: SampleOptions
) -> SamplePlan:
    """Return the sample that shows the answer behind its prompt."""
    last = len(conversation.messages) - 1
    for plan in plan_conversation(conversation, template, options):
        if last in plan.messages:
            return plan
    raise Refused(f"the template shows nothing of the {side} answer")


def _encode(item: _Work) -> Preference:
    parts = []
    for conversation, plan in zip(item.conversations, item.plans, strict=True):
        messages = conversation.messages
        tokenized = sample_ids(plan, messages, {len(messages) - 1})
        mask, ids = list(tokenized.assistant_mask), tokenized.input_ids
        leave_out_ends(mask, tokenized.message_index, messages)
        if not any(mask):
            raise Refused("the template shows nothing of an answer")
        start, end = mask.index(True), len(mask) - mask[::-1].index(True)
        parts.append((ids[:start], ids[start:end]))
    (prompt, chosen), (other, rejected) = parts
    if prompt != other:
        raise Refused(
            "the template prints the prompt otherwise in front of the one answer than of the other"
        )
    return Preference(item.row, prompt, chosen, rejected)


def _fitting(whole: Preference, options: SampleOptions) -> Preference:
    """Cut answers at their ends ("cut-right"), or the prompt at its beginning ("cut-left")."""
    limit, prompt = options.max_length, whole.prompt_ids
    longest = max(len(whole.chosen_ids), len(whole.rejected_ids))
    if limit is None or len(prompt) + longest <= limit:
        return whole
    if options.long == "refuse":
        raise Refused(
            f"a sample of {len(prompt) + longest} tokens is longer than max_length {limit}"
        )
    room = limit - (len(prompt) if options.long == "cut-right" else longest)
    if room < 1:
        part = "prompt" if options.long == "cut-right" else "answer"
        raise Refused(f"the {part} alone fills max_length {limit}")
    if options.long == "cut-left":
        return whole._replace(prompt_ids=prompt[-room:])
    return whole._replace(
        chosen_ids=whole.chosen_ids[:room], rejected_ids=whole.rejected_ids[:room]
    )
