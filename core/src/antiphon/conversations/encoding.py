"""Conversations to rows of tokens: what a model reads and what it wrote, ids as they were sampled."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from antiphon.conversations.templating import Template, is_cut_off, render_each
from antiphon.errors import NoTokenizer, RenderError, TokenizerMismatch

if TYPE_CHECKING:
    from antiphon.engine.tokenization import Break, TokenizedRendering

Message = dict[str, Any]


@dataclass
class Encoded:
    """A conversation's tokens, one list item each.

    Attributes:
        ids: the ids.
        assistant: whether a token is in a turn of the assistant; None where a turn could not be found.
        log_probs: of sampled tokens, NaN elsewhere; None where there are none.
        attention: False on padding; None where there is none.
        problem: why `assistant` is None.
        first_turn: where the first turn begins.
        breaks: sampled turns that were rewritten or edited since.
        sampled_end: where the sampled ids of the last message end; None where it has none.
    """

    ids: list[int]
    assistant: list[bool] | None = None
    log_probs: list[float] | None = None
    attention: list[bool] | None = None
    problem: RenderError | None = None
    first_turn: int = 0
    breaks: Sequence[Break] = ()
    sampled_end: int | None = None

    def mask(self) -> list[bool]:
        """The assistant mask.

        Raises:
            MaskUnavailable: a turn could not be found.
        """
        if self.problem is not None:
            raise self.problem
        return self.assistant or []

    def known_log_probs(self) -> list[float]:
        """The log-probs, NaN where none is known."""
        return self.log_probs if self.log_probs is not None else [float("nan")] * len(self.ids)

    def part(self, start: int, end: int | None = None) -> Encoded:
        """The tokens from `start` to `end`."""
        kept = slice(start, end)
        return Encoded(
            self.ids[kept],
            None if self.assistant is None else self.assistant[kept],
            None if self.log_probs is None else self.log_probs[kept],
            problem=self.problem,
            breaks=self.breaks,
        )

    def cut(self, size: int, side: str = "right") -> Encoded:
        """The first `size` tokens, or the last where `side` is "left"."""
        return self.part(max(0, len(self.ids) - size)) if side == "left" else self.part(0, size)

    def padded(self, size: int, fill: int, side: str) -> Encoded:
        """The tokens with padding on `side`, up to `size`."""
        missing = max(0, size - len(self.ids))

        def pad(values: list[Any], value: Any) -> list[Any]:
            return [value] * missing + values if side == "left" else values + [value] * missing

        return Encoded(
            pad(self.ids, fill),
            None if self.assistant is None else pad(self.assistant, False),
            attention=pad([True] * len(self.ids), False),
            problem=self.problem,
        )

    def entries(self, with_mask: bool) -> dict[str, torch.Tensor]:
        """Tensors under the names that transformers gives them, int64."""
        attention = torch.ones(len(self.ids), dtype=torch.int64)
        if self.attention is not None:
            attention = as_tensor(self.attention, torch.int64)
        entries = {"input_ids": as_tensor(self.ids, torch.int64), "attention_mask": attention}
        if with_mask:
            entries["assistant_masks"] = as_tensor(self.mask(), torch.int64)
        return entries


def as_tensor(
    values: list[Any], dtype: torch.dtype, device: torch.device | None = None
) -> torch.Tensor:
    """A list of numbers as a tensor [len(values)]."""
    if not values or dtype not in (torch.int64, torch.float32):
        return torch.tensor(values, dtype=dtype, device=device)
    # A small part of the time of torch.tensor, which asks each item for its type; struct refuses large floats.
    packed: Any = (
        bytearray(struct.pack(f"{len(values)}q", *values))
        if dtype == torch.int64
        else array("f", values)
    )
    tensor = torch.frombuffer(packed, dtype=dtype)
    return tensor if device is None else tensor.to(device)


def is_sampled(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a message carries sampled ids."""
    return any(message.get("token_ids") is not None for message in messages)


def encode_chats(
    chats: Sequence[Sequence[Message]],
    template: Template,
    add_generation_prompt: bool,
    continues: bool = False,
) -> list[Encoded]:
    """The tokens of conversations, encoded together, with the sampled ids of their messages.

    Raises:
        RenderError: names the conversation.
    """
    if continues or any(is_sampled(chat) or is_cut_off(chat) for chat in chats):
        return _one_by_one(chats, template, add_generation_prompt, continues)
    from antiphon.engine.batch import render_batch
    from antiphon.engine.tokenization import tokenize

    visible = [template.visible(chat) for chat in chats]
    growing = template.growing(add_generation_prompt)
    if visible and growing.knows(visible[0]):
        # A batch grows together: little is to be encoded, too little for threads of its own.
        rows = tokenize(render_each(growing, visible), template.tokenizer)
    else:
        rows = render_batch(
            visible,
            template.tokenizer,
            chat_template=template.source,
            add_generation_prompt=add_generation_prompt,
            **template.variables,
        )
    return [_row(row) for row in rows]


def _one_by_one(
    chats: Sequence[Sequence[Message]],
    template: Template,
    add_generation_prompt: bool,
    continues: bool,
) -> list[Encoded]:
    from antiphon.engine.extension import compose
    from antiphon.engine.sampled import split_sampled
    from antiphon.engine.tokenization import tokenize

    renderings = template.render_all(chats, add_generation_prompt, continues)
    tokenized = tokenize(renderings, template.tokenizer)
    rows = []
    for chat, row in zip(chats, tokenized, strict=True):
        if not is_sampled(chat):
            rows.append(_row(row, given=continues))
            continue
        try:
            _, sampled = split_sampled(chat, 0)
            composed = compose(row.rendering, sampled)
        except (RenderError, TokenizerMismatch) as error:
            raise type(error)(f"conversation {len(rows)}: {error}") from error
        encoded = _row(composed)
        last = composed.sampled.get(len(chat) - 1)
        if last is not None and not add_generation_prompt and chat[-1].get("is_complete") is False:
            # It was cut off, so nothing follows it: no end token, nothing of the template's.
            first_turn = encoded.first_turn
            encoded = encoded.part(0, last.end)
            encoded.first_turn = first_turn
        encoded.breaks = composed.breaks
        encoded.sampled_end = None if last is None else last.end
        rows.append(encoded)
    return rows


def _row(tokenized: TokenizedRendering, given: bool = False) -> Encoded:
    rendering = tokenized.rendering
    mask: list[bool] | None
    problem = None
    try:
        mask = tokenized.assistant_mask
    except RenderError as error:
        mask, problem = None, error
    if rendering.continued and not given and mask is not None and rendering.turns:
        # An answer that was cut off: nothing was given for the model to go on from, all of it is the model's.
        start = rendering.turns[-1].start
        first = tokenized._pieces.tokens_before(start)
        mask = mask[:first] + [True] * (len(mask) - first)
    first_turn = mask.index(True) if mask is not None and True in mask else 0
    return Encoded(
        tokenized.input_ids, mask, tokenized.log_probs, problem=problem, first_turn=first_turn
    )


def chat_texts(
    chats: Sequence[Sequence[Message]],
    template: Template,
    add_generation_prompt: bool,
    continues: bool = False,
) -> list[str]:
    """The texts of conversations: what the template renders, or where ids were sampled what the ids decode to."""
    renderings = template.render_all(chats, add_generation_prompt, continues)
    texts = [rendering.text for rendering in renderings]
    sampled = [i for i, chat in enumerate(chats) if is_sampled(chat)]
    if sampled and template.tokenizer is not None:
        rows = _one_by_one([chats[i] for i in sampled], template, add_generation_prompt, continues)
        for i, text in zip(
            sampled, decoded(template.tokenizer, [row.ids for row in rows]), strict=True
        ):
            texts[i] = text
    return texts


def decoded(tokenizer: Any, rows: Sequence[Any], skip_special_tokens: bool = False) -> list[str]:
    """The texts of rows of ids, each exactly what its ids say: no spaces cleaned up.

    Args:
        tokenizer: whose ids they are.
        rows: one list or tensor of ids, [tokens], for each text.
        skip_special_tokens: whether to leave out tokens that are flagged special.

    Raises:
        NoTokenizer: there is no tokenizer.
    """
    if not callable(getattr(tokenizer, "decode", None)):
        raise NoTokenizer(
            f"token ids become text only by the tokenizer they belong to: give it, not {tokenizer!r:.60}"
        )
    rows = [row.tolist() if isinstance(row, torch.Tensor) else list(row) for row in rows]
    batched: Any
    for batched in (getattr(tokenizer, "backend_tokenizer", None), tokenizer):
        if hasattr(batched, "decode_batch"):
            return list(batched.decode_batch(rows, skip_special_tokens=bool(skip_special_tokens)))
    options = (
        {"clean_up_tokenization_spaces": False}
        if hasattr(tokenizer, "clean_up_tokenization_spaces")
        else {}
    )
    return [
        tokenizer.decode(row, skip_special_tokens=bool(skip_special_tokens), **options)
        for row in rows
    ]


def pad_id(tokenizer: Any) -> int:
    """The id to pad with; which positions are padding is told by lengths and masks, never by the id."""
    for name in ("pad_token_id", "eos_token_id"):
        value = getattr(tokenizer, name, None)
        if isinstance(value, list):
            value = value[0] if value else None
        if value is not None:
            return int(value)
    return 0
