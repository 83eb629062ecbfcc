"""Render and encode many conversations, cut them to a length and pad them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from antiphon.engine.pieces import Pieces
from antiphon.engine.rendering import Rendering, renderer
from antiphon.engine.tokenization import (
    TokenizedRendering,
    encode,
    is_encoded,
    pieces_to_encode,
    tokenize,
)
from antiphon.engine.tokenizers import TokenizerView, view
from antiphon.errors import AntiphonError, InvalidMessage, InvalidParameter

Side = Literal["left", "right"]
_Result = TypeVar("_Result")

_CHUNK = 1024  # texts that are encoded at once, while the next conversations are being rendered


def render_batch(
    conversations: Iterable[Any],
    tokenizer: Any,
    *,
    tools: Sequence[Any] | None = None,
    allow_control_tokens: bool = False,
    max_length: int | None = None,
    truncation_side: Side = "right",
    **options: Any,
) -> list[TokenizedRendering]:
    """Render and encode conversations; rendering and encoding go on side by side.

    Args:
        conversations: Message lists or histories.
        tokenizer: The tokenizer.
        tools: Tools for all of them.
        allow_control_tokens: As for `Rendering.tokenize`.
        max_length: Cut each to so many tokens.
        truncation_side: The side that is cut.
        **options: Further arguments of `antiphon.render`.

    Raises:
        AntiphonError: As `antiphon.render` raises; the message begins with the number of the conversation.
    """
    tokens = view(tokenizer)
    render = renderer(tokenizer, tools=tools, **options)
    if tokens.backend is None or not tokens.cuts_at_controls or tokens.inner_mark:
        renderings = [
            _named(row, render, conversation) for row, conversation in enumerate(conversations)
        ]
        result = tokenize(renderings, tokenizer, allow_control_tokens=allow_control_tokens)
    else:
        result = []
        # The Rust encoder runs without the interpreter's lock and spreads its work itself; the second thread has it
        # go on while the first one waits for the lock to hand over what is encoded.
        with ThreadPoolExecutor(2) as pool:
            ahead = _encode_ahead(conversations, render, tokens, pool, allow_control_tokens)
            for chunk in list(ahead):
                chunk.encoded.result()
                for rendering, texts in zip(chunk.renderings, chunk.texts, strict=True):
                    result.append(
                        _named(len(result), encode, rendering, tokens, allow_control_tokens, texts)
                    )
    if max_length is not None:
        result = [truncate(item, max_length, side=truncation_side) for item in result]
    return result


@dataclass
class _Chunk:
    """Conversations that are encoded together."""

    renderings: list[Rendering] = field(default_factory=list)
    texts: list[list[str] | None] = field(default_factory=list)
    missing: dict[str, None] = field(default_factory=dict)  # each text once
    encoded: Future[Any] = field(default_factory=Future)


def _encode_ahead(
    conversations: Iterable[Any],
    render: Callable[[Any], Rendering],
    tokens: TokenizerView,
    pool: ThreadPoolExecutor,
    allow_control_tokens: bool,
) -> Iterator[_Chunk]:
    """Render conversations while the texts of those before are being encoded."""
    if isinstance(conversations, (str, Mapping)) or not isinstance(conversations, Iterable):
        raise InvalidMessage(
            f"A batch is a list of conversations, not {type(conversations).__name__}."
        )
    chunk = _Chunk()
    for row, conversation in enumerate(conversations):
        rendering = _named(row, render, conversation)
        texts = None
        if not is_encoded(rendering, tokens, allow_control_tokens):
            texts = pieces_to_encode(rendering, tokens)
            chunk.missing.update(dict.fromkeys(tokens.missing(texts)))
        chunk.renderings.append(rendering)
        chunk.texts.append(texts)
        if len(chunk.missing) >= _CHUNK:
            chunk.encoded = pool.submit(tokens.entries, list(chunk.missing))
            yield chunk
            chunk = _Chunk()
    if chunk.missing:
        chunk.encoded = pool.submit(tokens.entries, list(chunk.missing))
    else:
        chunk.encoded.set_result(None)
    yield chunk


def _named(row: int, function: Callable[..., _Result], *args: Any) -> _Result:
    """Call, and put the number of the conversation in front of what it complains of."""
    try:
        return function(*args)
    except AntiphonError as error:
        error.args = (f"Conversation {row}: {error}", *error.args[1:])
        raise


def truncate(
    item: TokenizedRendering, max_length: int, *, side: Side = "right"
) -> TokenizedRendering:
    """Return the first (``side="right"``: the right end is cut) or last ``max_length`` tokens, masks and all.

    Raises:
        InvalidParameter: ``max_length`` is negative or ``side`` unknown.
    """
    _check_side(side)
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 0:
        raise InvalidParameter(f"max_length must be a length, 0 or more, not {max_length!r:.60}.")
    if len(item) <= max_length:
        return item
    keep = slice(0, max_length) if side == "right" else slice(len(item) - max_length, len(item))
    sampled = {
        message: replace(own, start=own.start - keep.start, end=own.end - keep.start)
        for message, own in item.sampled.items()
        if own.start >= keep.start and own.end <= keep.stop
    }
    return replace(
        item,
        input_ids=item.input_ids[keep],
        _mask=item._mask[keep],
        _pieces=Pieces(),
        settled=item.message_index[keep],
        sampled=sampled,
        log_probs=None if item.log_probs is None else item.log_probs[keep],
    )


def pad(
    items: Sequence[TokenizedRendering],
    pad_id: int,
    *,
    side: Side = "right",
    multiple_of: int = 1,
) -> dict[str, list[list[Any]]]:
    """Pad to the longest and return ``input_ids``, ``attention_mask``, ``assistant_mask`` and ``message_index``.

    Padding is told by the attention mask, never by the id: ``pad_id`` may be the end token. Padded positions have
    message index -1 and are in no mask.
    """
    _check_side(side)
    if multiple_of < 1:
        raise InvalidParameter(f"multiple_of must be 1 or more, not {multiple_of}.")
    width = max((len(item) for item in items), default=0)
    width = -(-width // multiple_of) * multiple_of

    def padded(row: list[Any], filler: Any) -> list[Any]:
        fill = [filler] * (width - len(row))
        return [*fill, *row] if side == "left" else [*row, *fill]

    return {
        "input_ids": [padded(item.input_ids, pad_id) for item in items],
        "attention_mask": [padded([1] * len(item), 0) for item in items],
        "assistant_mask": [padded(item.assistant_mask, False) for item in items],
        "message_index": [padded(item.message_index, -1) for item in items],
    }


def expand_placeholders(
    item: TokenizedRendering, token_id: int, counts: Sequence[int]
) -> TokenizedRendering:
    """Repeat each placeholder token as often as its image, sound or video takes, masks and message index with it.

    For processors that only repeat the placeholder; `Rendering.expand` follows those that write something else.

    Args:
        item: A tokenized rendering with one ``token_id`` for each medium, in order.
        token_id: The id of the placeholder.
        counts: How many tokens each medium takes.

    Raises:
        InvalidParameter: There are more or fewer placeholders than counts.
    """
    places = [i for i, token in enumerate(item.input_ids) if token == token_id]
    if len(places) != len(counts):
        raise InvalidParameter(
            f"The rendering holds {len(places)} placeholders with id {token_id}, but {len(counts)} counts were given."
        )
    times = [1] * len(item)
    for place, count in zip(places, counts, strict=True):
        times[place] = count
    shift = [0]
    for count in times:
        shift.append(shift[-1] + count)

    def spread(values: list[Any]) -> list[Any]:
        return [value for value, count in zip(values, times, strict=True) for _ in range(count)]

    return replace(
        item,
        input_ids=spread(item.input_ids),
        _mask=spread(item._mask),
        _pieces=Pieces(),
        settled=spread(item.message_index),
        sampled={
            m: replace(own, start=shift[own.start], end=shift[own.end])
            for m, own in item.sampled.items()
        },
        log_probs=None if item.log_probs is None else spread(item.log_probs),
    )


def _check_side(side: str) -> None:
    if side not in ("left", "right"):
        raise InvalidParameter(f"The side is 'left' or 'right', not {side!r}.")
