"""Turns whose ids a model sampled: those ids stand in the rendering, whatever they decode to.

A message carries them (`token_ids`, `log_probs`). They hold as long as its turn still has the text that it had when
it was the last one (the canonical turn); where the template has rewritten it since, the rewritten turn stands and a
`Break` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from antiphon.errors import RenderError

if TYPE_CHECKING:
    from antiphon.rendering import Rendering
    from antiphon.templating import Template
    from antiphon.tokenization import Break, TokenizedRendering
    from antiphon.turns import Turn

Message = Mapping[str, Any]
_UNKNOWN = float("nan")


@dataclass
class Encoded:
    """A conversation's tokens, one list item each.

    Attributes:
        ids: the ids.
        assistant: whether a token is in a turn of the assistant; None where a turn could not be found.
        attention: False on padding.
        log_probs: of sampled tokens, NaN elsewhere.
        turns: of each message the (start, end) of its turn in `ids`.
        breaks: sampled turns that the template has rewritten.
        problem: why `assistant` is None.
    """

    ids: list[int]
    assistant: list[bool] | None
    log_probs: list[float] | None = None
    turns: dict[int, tuple[int, int]] = field(default_factory=dict)
    breaks: list[Break] = field(default_factory=list)
    attention: list[bool] | None = None
    problem: Exception | None = None

    def mask(self) -> list[bool]:
        """The assistant mask.

        Raises:
            MaskUnavailable: a turn could not be found.
        """
        if self.assistant is None:
            assert self.problem is not None
            raise self.problem
        return self.assistant

    def cut(self, size: int, side: str = "right") -> Encoded:
        """The first `size` tokens, or the last where `side` is "left"."""
        part = slice(max(0, len(self.ids) - size), None) if side == "left" else slice(size)
        return Encoded(
            self.ids[part],
            None if self.assistant is None else self.assistant[part],
            None if self.log_probs is None else self.log_probs[part],
            problem=self.problem,
        )

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
        attention = self.attention if self.attention is not None else [True] * len(self.ids)
        entries = {
            "input_ids": torch.tensor(self.ids, dtype=torch.int64),
            "attention_mask": torch.tensor(attention, dtype=torch.int64),
        }
        if with_mask:
            entries["assistant_masks"] = torch.tensor(self.mask(), dtype=torch.int64)
        return entries


def is_sampled(messages: Sequence[Message]) -> bool:
    """Whether a message carries sampled ids."""
    return any(message.get("token_ids") is not None for message in messages)


def standing_turns(
    rendering: Rendering, messages: Sequence[Message], template: Template
) -> tuple[list[Turn], list[Break]]:
    """The turns in which sampled ids stand, and the breaks for those in which they no longer can."""
    from antiphon.tokenization import Break

    standing: list[Turn] = []
    breaks: list[Break] = []
    for turn in rendering.turns:
        message = messages[turn.message]
        if message.get("token_ids") is None:
            continue
        if turn.message == len(messages) - 1:
            standing.append(turn)
            continue
        now = rendering.text[turn.start : turn.end]
        was = _canonical(messages[: turn.message + 1], template)
        # A cut-off answer has no end token of its own; the template closes it once something follows.
        if (
            was is None
            or was == now
            or (message.get("is_complete") is False and now.startswith(was))
        ):
            standing.append(turn)
        else:
            breaks.append(Break(turn.message, _first_difference(was, now), was, now))
    return standing, breaks


def _canonical(messages: Sequence[Message], template: Template) -> str | None:
    try:
        rendering = template.render(list(messages), False)  # type: ignore[arg-type]
    except RenderError:
        return None
    turns = rendering.turns
    if not turns or turns[-1].message != len(messages) - 1:
        return None
    return rendering.text[turns[-1].start : turns[-1].end]


def _first_difference(one: str, other: str) -> int:
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return min(len(one), len(other))


def encoded(
    tokenized: TokenizedRendering, messages: Sequence[Message], template: Template
) -> Encoded:
    """The tokens of a rendering with the sampled ids of its messages in their turns."""
    rendering = tokenized.rendering
    assistant: list[bool] | None = list(tokenized._mask)
    problem: Exception | None = None
    if rendering.unlocated:
        assistant = None
        try:
            tokenized.assistant_mask  # noqa: B018 (raises the error that says why)
        except RenderError as error:
            problem = error
    places = _places(tokenized)
    if (
        rendering.continued
        and rendering.turns
        and assistant is not None
        and not messages[-1].get("is_complete", True)
    ):
        # The answer was cut off, it was not given to be continued: its tokens are the assistant's.
        start, end = places[rendering.turns[-1].message]
        assistant[start:end] = [True] * (end - start)
    if not is_sampled(messages):
        return Encoded(tokenized.input_ids, assistant, None, places, problem=problem)
    standing, breaks = standing_turns(rendering, messages, template)
    ids: list[int] = []
    mask: list[bool] = []
    log_probs: list[float] = []
    turns: dict[int, tuple[int, int]] = {}
    position = 0
    base = assistant if assistant is not None else [False] * len(tokenized.input_ids)
    shift = 0
    replaced = {turn.message: turn for turn in standing}
    for number, (start, end) in sorted(places.items(), key=lambda item: item[1]):
        turn = replaced.get(number)
        if turn is None:
            turns[number] = (start + shift, end + shift)
            continue
        ids += tokenized.input_ids[position:start]
        mask += base[position:start]
        log_probs += [_UNKNOWN] * (len(ids) - len(log_probs))
        message = messages[number]
        own = list(message["token_ids"])
        first = len(ids)
        ids += own
        mask += [True] * len(own)
        probs = message.get("log_probs")
        log_probs += (
            list(probs) if probs is not None and len(probs) == len(own) else [_UNKNOWN] * len(own)
        )
        if message.get("is_complete") is False and turn.closed:
            closing = _closing(tokenized, start, end)
            ids += closing
            mask += [False] * len(closing)
            log_probs += [_UNKNOWN] * len(closing)
        turns[number] = (first, len(ids))
        position = end
        shift = len(ids) - end
    ids += tokenized.input_ids[position:]
    mask += base[position:]
    log_probs += [_UNKNOWN] * (len(ids) - len(log_probs))
    return Encoded(
        ids, mask if assistant is not None else None, log_probs, turns, breaks, problem=problem
    )


def _places(tokenized: TokenizedRendering) -> dict[int, tuple[int, int]]:
    """Of each message the (start, end) of its turn in the ids."""
    places: dict[int, tuple[int, int]] = {}
    turns = iter(tokenized.rendering.turns)
    turn = next(turns, None)
    position = 0
    for piece, count in tokenized._pieces:
        while turn is not None and piece.start >= turn.end > turn.start:
            turn = next(turns, None)
        while turn is not None and turn.end == turn.start and piece.start >= turn.start:
            places[turn.message] = (position, position)
            turn = next(turns, None)
        if turn is not None and turn.start <= piece.start < turn.end:
            start, _ = places.get(turn.message, (position, position))
            places[turn.message] = (start, position + count)
        position += count
    while turn is not None:
        places.setdefault(turn.message, (position, position))
        turn = next(turns, None)
    return places


def _closing(tokenized: TokenizedRendering, start: int, end: int) -> list[int]:
    """The control ids that the template closes a turn with: those at the end of its ids."""
    controls = set()
    position = 0
    for piece, count in tokenized._pieces:
        if piece.control >= 0 and start <= position < end:
            controls.add(position)
        position += count
    first = end
    while first - 1 in controls:
        first -= 1
    return tokenized.input_ids[first:end][-1:]


def spliced_text(rendering: Rendering, messages: Sequence[Message], template: Template) -> str:
    """The text of a rendering with sampled turns as what their ids decode to."""
    if not is_sampled(messages) or template.tokenizer is None:
        return rendering.text
    from antiphon.conversion import decoded

    text = rendering.text
    standing, _ = standing_turns(rendering, messages, template)
    for turn in reversed(standing):
        message = messages[turn.message]
        own = decoded(template.tokenizer, [message["token_ids"]], skip_special_tokens=False)[0]
        if message.get("is_complete") is False and turn.closed:
            canonical = _canonical(messages[: turn.message + 1], template)
            now = text[turn.start : turn.end]
            own += (
                now[len(canonical) :] if canonical is not None and now.startswith(canonical) else ""
            )
        text = text[: turn.start] + own + text[turn.end :]
    return text
