"""Faithful training samples for many conversations at once, with the mask that a run asks for.

Each row of a data set becomes the samples of `antiphon.training_samples`: every assistant turn stands in the context
that the model has at inference. All texts of a batch are encoded together. A row that can't be used is recorded with
its number and the reason, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from antiphon.conversations.arguments import items, of_kind, one_of, said, switch, whole
from antiphon.conversations.templating import Template
from antiphon.data.conversations import Conversation, conversation_of, reserved_variables
from antiphon.engine.sampled import split_sampled
from antiphon.engine.samples import SamplePlan, plan_samples
from antiphon.engine.tokenization import TokenizedRendering, pieces_to_encode
from antiphon.engine.tokenizers import view
from antiphon.errors import (
    AntiphonError,
    InvalidData,
    InvalidParameter,
    TokenizerMismatch,
    reason_of,
)

Long = Literal["cut-right", "cut-left", "refuse"]
_ASSISTANTS = ("assistant", "model")


@dataclass(frozen=True)
class TrainOn:
    """Which tokens are trained.

    Attributes:
        turns: ``"every-turn"`` of the assistant, or the ``"last-turn"`` of each conversation.
        roles: Whose messages are trained. The assistant's are its turns, end token included; of other roles it is
            the text of the message. A message of another role is trained in the first sample that shows it.
        marked_by: A key of messages, as ``"train"``: messages where it is false or 0 are not trained.
        messages: Only the messages with these indices; None for all.
    """

    turns: Literal["every-turn", "last-turn"] = "every-turn"
    roles: tuple[str, ...] = ("assistant",)
    marked_by: str | None = None
    messages: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        one_of("turns", self.turns, ("every-turn", "last-turn"))
        of_kind("roles", self.roles, (tuple, list, set, frozenset), "a tuple of names")
        for role in self.roles:
            of_kind("a role", role, str, "a name")
        if not self.roles:
            raise InvalidParameter("roles names no role; name those whose messages are trained.")
        of_kind("marked_by", self.marked_by, (str, type(None)), "a key of messages")
        if self.messages is not None:
            of_kind(
                "messages",
                self.messages,
                (tuple, list, range, set, frozenset),
                "indices of messages",
            )
            for index in self.messages:
                whole("the index of a message", index)

    def chosen(self, messages: Sequence[Mapping[str, Any]]) -> set[int]:
        """Return the indices of the messages that are trained."""
        found = {
            i
            for i, message in enumerate(messages)
            if _role(message) in self.roles
            and (self.messages is None or i in self.messages)
            and (self.marked_by is None or message.get(self.marked_by, True))
        }
        if self.turns == "last-turn":
            last = max((i for i in found if _role(messages[i]) == "assistant"), default=-1)
            found = {i for i in found if _role(messages[i]) != "assistant" or i == last}
        return found


@dataclass(frozen=True)
class SampleOptions:
    """How conversations become samples.

    Attributes:
        chat_template: As for `antiphon.render`.
        family: As for `antiphon.render`.
        tools: Tools for conversations that bring none.
        variables: Further variables of the template; those of a row win.
        train_on: Which tokens are trained.
        max_length: The most tokens of a sample; None for no limit.
        long: What happens to longer ones.
        padded: Whether None among call arguments is Arrow's padding.
        preference: Whether the rows hold a prompt, a chosen and a rejected answer (`antiphon.data.preferences`). Of
            Parquet, Arrow and data sets `open_rows` reads those with ``columns=PREFERENCE_COLUMNS``.
    """

    chat_template: str | None = None
    family: str | None = None
    tools: Sequence[Any] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    train_on: TrainOn = field(default_factory=TrainOn)
    max_length: int | None = None
    long: Long = "cut-right"
    padded: bool = False
    preference: bool = False

    def __post_init__(self) -> None:
        if self.max_length is not None and whole("max_length", self.max_length) < 1:
            raise InvalidParameter(f"max_length must be 1 or more, not {self.max_length}.")
        one_of("long", self.long, ("cut-right", "cut-left", "refuse"))
        of_kind("train_on", self.train_on, TrainOn, "a TrainOn")
        for name in ("padded", "preference"):
            switch(name, getattr(self, name))
        of_kind("variables", self.variables, Mapping, "variables of a template by name")
        for name in self.variables:
            of_kind("the name of a template variable", name, str, "a string")
        reserved = reserved_variables(self.variables)
        if reserved:
            raise InvalidParameter(
                f"{reserved} is no template variable: samples are made of whole conversations."
            )
        if self.preference and self.train_on != TrainOn():
            raise InvalidParameter(
                "In preference data the two answers are trained: leave train_on (--train, --roles, --marked-by) out."
            )


_DEFAULT = SampleOptions()


class Sample(NamedTuple):
    """One sample: ids, what of them is trained, and the message of each (-1: the template's)."""

    row: int
    number: int
    input_ids: list[int]
    mask: list[bool]
    message_index: list[int]

    @property
    def tokens(self) -> int:
        """How many tokens it has."""
        return len(self.input_ids)

    @property
    def trained(self) -> int:
        """How many of them are trained."""
        return sum(self.mask)


class Note(NamedTuple):
    """What happened to a row other than becoming one whole sample: ``what`` is split, truncated or refused."""

    row: int
    what: Literal["split", "truncated", "refused"]
    reason: str


class SampleBatch(NamedTuple):
    """The samples of some rows, and notes about those rows."""

    samples: list[Sample]
    notes: list[Note]


class _Work(NamedTuple):
    row: int
    conversation: Conversation
    plans: list[SamplePlan]


class Refused(AntiphonError):
    """A row that is not used, with the reason."""


def make_samples(
    rows: Iterable[tuple[int, Any]],
    tokenizer: Any,
    options: SampleOptions = _DEFAULT,
    *,
    strict: bool = False,
) -> SampleBatch:
    """Return the samples of rows.

    Args:
        rows: Row numbers with what the rows hold (see `antiphon.data.conversations`), or with an exception that
            reading the row raised.
        tokenizer: The tokenizer.
        options: How to make them.
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
            conversation = conversation_of(value, padded=options.padded)
            work.append(
                _Work(row, conversation, plan_conversation(conversation, template, options))
            )
        except AntiphonError as error:
            refuse(row, error)
    encode_ahead([plan for item in work for plan in item.plans], tokenizer)
    samples: list[Sample] = []
    for item in work:
        try:
            made, told = _finish(item, options)
        except AntiphonError as error:
            refuse(item.row, error)
        else:
            samples += made
            notes += told
    notes.sort(key=lambda note: note.row)
    return SampleBatch(samples, notes)


def numbered(rows: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Yield rows with their numbers.

    Raises:
        InvalidParameter: They are no such pairs.
    """
    for pair in items("rows", rows, "pairs of a number and a row, as enumerate(rows) gives them"):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InvalidParameter(
                f"rows are pairs of a number and a row, as enumerate(rows) gives them, not {said(pair)}"
            )
        yield whole("the number of a row", pair[0]), pair[1]


def plan_conversation(
    conversation: Conversation, template: Template, options: SampleOptions
) -> list[SamplePlan]:
    """Return the samples of a conversation, not encoded yet.

    Raises:
        RenderError: The template refuses it, or the turn of a message could not be found.
    """
    from antiphon.engine.source import prepare

    tools = conversation.tools if conversation.tools is not None else options.tools
    # A dialect is looked up once for the batch.
    given = options.chat_template if template.family is None else template.source
    source = prepare(
        template.visible(conversation.messages),
        template.tokenizer,
        chat_template=given,
        tools=tools,
        template_kwargs={**options.variables, **conversation.variables},
    )
    return plan_samples(source, template.tokenizer)


def encode_ahead(plans: Sequence[SamplePlan], tokenizer: Any) -> None:
    """Encode the texts of a batch together; what can't be encoded is found again, alone, with its row."""
    tokens = view(tokenizer)
    if tokens.cuts_at_controls and not tokens.inner_mark:
        try:
            tokens.entries(
                [piece for plan in plans for piece in pieces_to_encode(plan.rendering, tokens)]
            )
        except TokenizerMismatch:
            return


def _finish(item: _Work, options: SampleOptions) -> tuple[list[Sample], list[Note]]:
    messages, prompt = item.conversation.messages, item.conversation.prompt
    # Of a prompt with its completion only the completion is trained, as trainers do.
    chosen = {i for i in options.train_on.chosen(messages) if i >= prompt}
    if not chosen:
        roles = ", ".join(dict.fromkeys(str(message["role"]) for message in messages[prompt:]))
        raise Refused(f"no message of it is to be trained (its roles: {roles})")
    shown: set[int] = set()
    whole = []
    for plan in item.plans:
        tokenized = sample_ids(plan, messages, chosen)
        mask = list(tokenized.assistant_mask)
        index = tokenized.message_index
        others = {i for i in chosen if _role(messages[i]) != "assistant"} - shown
        if others:
            mask = [m or i in others for m, i in zip(mask, index, strict=True)]
            shown |= others.intersection(index)
        leave_out_ends(mask, index, messages)
        if any(mask):
            whole.append((tokenized.input_ids, mask, index))
    if not whole:
        raise Refused(
            "the template shows nothing of the messages that are to be trained"
            if len(item.plans) == 1
            else "no sample of it holds a message that is to be trained"
        )
    notes: list[Note] = []
    if len(whole) > 1:
        notes.append(Note(item.row, "split", _why_split(item.plans)))
    samples: list[Sample] = []
    cut = False
    for ids, mask, index in whole:
        kept = _kept(len(ids), options)
        cut = cut or kept.stop - kept.start < len(ids)
        if any(mask[kept]):
            samples.append(Sample(item.row, len(samples), ids[kept], mask[kept], index[kept]))
    if not samples:
        raise Refused(f"nothing that is to be trained lies within max_length {options.max_length}")
    if cut:
        notes.append(Note(item.row, "truncated", f"longer than max_length {options.max_length}"))
    return samples, notes


def sample_ids(
    plan: SamplePlan, messages: Sequence[Mapping[str, Any]], chosen: set[int]
) -> TokenizedRendering:
    """Encode a sample with a mask on the turns of ``chosen``; sampled ids stand where they were sampled.

    Raises:
        Refused: Sampled ids are of another tokenizer, or can't stand in the sample.
    """
    only = None if plan.messages <= chosen else plan.messages & chosen
    any_sampled = any(message.get("token_ids") is not None for message in messages)
    sampled = split_sampled(messages, 0)[1] if any_sampled else None
    for message, own in (sampled or {}).items():
        unknown = view(plan.rendering.tokenizer).unknown(own.ids)
        if unknown is not None:
            raise Refused(
                f"message {message} was sampled as the id {unknown}, which the tokenizer does not have"
            )
    encoded = plan.encode(only, sampled)
    for found in encoded.breaks:
        if found.edited:
            raise Refused(f"message {found.message} was edited after its ids were sampled")
        raise Refused(f"the template rewrites message {found.message}, whose ids were sampled")
    return encoded


def leave_out_ends(
    mask: list[bool], index: Sequence[int], messages: Sequence[Mapping[str, Any]]
) -> None:
    """An answer that was cut off (``is_complete`` False) did not write the end token behind it."""
    for message, value in enumerate(messages):
        if value.get("is_complete") is False and message in index:
            place = len(index) - 1 - list(reversed(index)).index(message) + 1
            while place < len(mask) and mask[place] and index[place] == -1:
                mask[place] = False
                place += 1


def _kept(size: int, options: SampleOptions) -> slice:
    """Return which tokens of a sample are kept."""
    limit = options.max_length
    if limit is None or size <= limit:
        return slice(0, size)
    if options.long == "refuse":
        raise Refused(f"a sample of {size} tokens is longer than max_length {limit}")
    return slice(0, limit) if options.long == "cut-right" else slice(size - limit, size)


def _why_split(plans: Sequence[SamplePlan]) -> str:
    """Say which message the template prints otherwise once the conversation goes on."""
    one, other = plans[0], plans[1]
    size = min(len(one.text), len(other.text))
    first = next((i for i in range(size) if one.text[i] != other.text[i]), size)
    spans = other.rendering.spans if other.follows_template else one.rendering.spans
    message = next((span.message for span in spans if span.end > first), None)
    if message is None:
        return "the template rewrites what came before"
    return f"the template prints message {message} otherwise once the conversation goes on"


def _role(message: Mapping[str, Any]) -> str:
    role = str(message.get("role"))
    return "assistant" if role in _ASSISTANTS else role
