"""What a wrapper's call works on: one flat list of rows, read from a tensordict.

A batch of any shape becomes a list; prompts of several samples follow each other, so row ``i * n +
j`` answers prompt i.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from tensordict import TensorDictBase, is_tensor_collection

from antiphon.conversations import containers
from antiphon.conversations.conversion import encode_history
from antiphon.conversations.encoding import decoded
from antiphon.conversations.history import History
from antiphon.conversations.padding import leaves, token_rows
from antiphon.conversations.rows import storage
from antiphon.conversations.templating import Message, Template
from antiphon.engine.extension import rewritten
from antiphon.errors import InvalidParameter, NoHistory, TurnRewritten
from antiphon.generation.settings import Key, key_path

if TYPE_CHECKING:
    from antiphon.engine.tokenization import Break

# tensordict makes these classes as they are defined: a type checker does not know their fields.
ChatHistory: Any = containers.ChatHistory
Text: Any = containers.Text
Tokens: Any = containers.Tokens


@dataclass
class Rows:
    """Rows of one call.

    Attributes:
        shape: The batch shape that they fill.
        ids: One list of ids per row.
        assistant: Per row who wrote each token (True: the assistant), or None where nothing says
            so.
        log_probs: Per row what is known of the tokens' log-probs, NaN elsewhere; None where nothing
            is.
        texts: The rows as text, where the input was text.
        chats: The rows as messages, where the input was a history.
        prompts: Scoring: how many tokens of each row are its prompt, where that is known.
        breaks: Per row the sampled turns whose ids could not be kept; None where the input was no history.
    """

    shape: tuple[int, ...]
    ids: list[list[int]]
    assistant: list[list[bool]] | None = None
    log_probs: list[list[float]] | None = None
    texts: list[str] | None = None
    chats: list[list[Message]] | None = None
    prompts: list[int] | None = None
    breaks: list[Sequence[Break]] | None = None

    def repeated(self, n: int) -> Rows:
        """Return the rows with each n times in a row, in a batch of one dimension more."""

        def repeat(rows: Any) -> Any:
            return None if rows is None else [row for row in rows for _ in range(n)]

        return Rows(
            (*self.shape, n),
            repeat(self.ids),
            repeat(self.assistant),
            repeat(self.log_probs),
            repeat(self.texts),
            repeat(self.chats),
            repeat(self.prompts),
            repeat(self.breaks),
        )


@dataclass(frozen=True)
class RowReader:
    """How a wrapper reads its input.

    Attributes:
        mode: ``"history"``, ``"text"`` or ``"tokens"``.
        key: Where the input is.
        tokenizer: The tokenizer; None only in tokens mode.
        template: How a history is rendered.
        text_options: What the tokenizer is told about texts.
        mask_keys: Where masks of padded ids may be.
        on_break: What to do about sampled turns whose ids can't be kept: ``"raise"``, or go on.
        known_prompts: In history mode, where the prompts' ids may be already, to be preferred.
        prompt_mask_keys: Where masks of those may be.
    """

    mode: str
    key: Key
    tokenizer: Any
    template: Template
    text_options: dict[str, Any]
    mask_keys: tuple[Key, ...]
    on_break: str
    known_prompts: Key | None
    prompt_mask_keys: tuple[Key, ...]

    def read(self, td: TensorDictBase, part: str) -> Rows:
        """Return the rows of the input, which is a ``"prompt"`` or a ``"full"`` conversation."""
        rows = self._rows(td, self.key, part, self.mask_keys)
        if self.on_break == "raise":
            _raise_breaks(rows)
        if part == "prompt" and self.known_prompts is not None:
            self._prefer_known(td, rows)
        if part == "full":
            self._find_prompts(td, rows)
        return rows

    def texts(self, rows: Rows) -> list[str]:
        """Return the rows as text: as it was given, or what the ids say."""
        return rows.texts if rows.texts is not None else decoded(self.tokenizer, rows.ids, False)

    def _rows(self, td: TensorDictBase, key: Key, part: str, masks: Sequence[Key]) -> Rows:
        if self.mode == "text":
            return text_rows(td, key, self.tokenizer, self.text_options)
        if self.mode == "tokens":
            return token_rows_of(td, key, masks, self.tokenizer)
        return history_rows(td, key, part, self.template)

    def _prefer_known(self, td: TensorDictBase, rows: Rows) -> None:
        """Take the prompts' ids from the tensordict, and with them what is still known of each token.

        Where they spell only how the prompt begins, they are those of an earlier turn and left alone.
        """
        if found(td, self.known_prompts) is None:
            return
        given = token_rows_of(td, self.known_prompts, self.prompt_mask_keys, self.tokenizer).ids
        differ = [i for i, ids in enumerate(given) if ids != rows.ids[i]]
        pairs = [given[i] for i in differ] + [rows.ids[i] for i in differ]
        spelled = decoded(self.tokenizer, pairs, False)
        for place, index in enumerate(differ):
            own, whole = spelled[place], spelled[place + len(differ)]
            if own != whole and whole.startswith(own):
                continue
            rows.ids[index] = given[index]
            if rows.assistant is not None:
                rows.assistant[index] = [False] * len(given[index])
            if rows.log_probs is not None:
                rows.log_probs[index] = [math.nan] * len(given[index])

    def _find_prompts(self, td: TensorDictBase, rows: Rows) -> None:
        """Find how much of each row is its prompt, where the tensordict has the prompts too."""
        path = key_path(self.key)
        key = (*path[:-1], "prompt")
        if len(path) < 2 or path[-1] != "full" or found(td, key) is None:
            return
        prompts = self._rows(td, key, "prompt", ()).ids
        if all(row[: len(p)] == p for row, p in zip(rows.ids, prompts, strict=True)):
            rows.prompts = [len(p) for p in prompts]


def _raise_breaks(rows: Rows) -> None:
    for index, breaks in enumerate(rows.breaks or ()):
        if breaks:
            raise TurnRewritten(f"Row {index}: {rewritten(breaks[0], 'of the wrapper')}")


# Reading


def found(td: TensorDictBase, key: Key) -> Any:
    """Return what stands under a key, or None."""
    if not is_tensor_collection(td):
        raise InvalidParameter(f"A wrapper reads a tensordict, not {type(td).__name__}.")
    try:
        return td.get(key, None)
    except KeyError:  # a part of a nested key that is not there
        return None
    except RuntimeError:  # rows of different lengths in a lazy stack: no one tensor holds them
        return cast("Any", td).get(key, as_list=True)


def entry(td: TensorDictBase, key: Key, what: str) -> Any:
    """Return what stands under a key.

    Raises:
        InvalidParameter: There is nothing; says which keys there are.
    """
    value = found(td, key)
    if value is None:
        there = ", ".join(map(repr, td.keys())) or "none"
        raise InvalidParameter(
            f"Expected {key!r} key: the wrapper reads {what} there, and the tensordict has nothing there (its keys: "
            f"{there}); put it there or set input_key."
        )
    return value


def history_rows(td: TensorDictBase, key: Key, part: str, template: Template) -> Rows:
    """Return the rows of a History: rendered with a generation prompt for ``part`` "prompt", without for "full"."""
    value = entry(td, key, "a History")
    if not isinstance(value, History):
        if isinstance(value, ChatHistory):
            raise InvalidParameter(
                f"{key!r} is a ChatHistory; the key of one of its parts is needed."
            )
        lists = value.tolist() if hasattr(value, "tolist") else value
        first = lists
        while isinstance(first, (list, tuple)) and first:
            first = first[0]
        if not isinstance(first, (Mapping, list, tuple)):
            raise NoHistory(f"Expected History object under {key!r}, got {type(first).__name__}.")
        value = History.from_chats(lists)
    shape = tuple(td.batch_size)
    chat = ChatHistory(**{part: value}, batch_size=shape)
    made = encode_history(chat, template)
    encoded, chats = made.rows[part], made.chats.parts[part]
    _check_count(len(encoded), shape, key)
    if part == "full":
        # Without what a template prints behind a last answer that was sampled: a conversation is scored over exactly
        # the tokens that it was generated with.
        encoded = [row.part(0, row.sampled_end) for row in encoded]
    rows = Rows(shape, [list(row.ids) for row in encoded], chats=chats)
    rows.breaks = [row.breaks for row in encoded]
    rows.assistant = [row.mask() for row in encoded]
    if any(row.log_probs is not None for row in encoded):
        rows.log_probs = [
            row.log_probs if row.log_probs is not None else [math.nan] * len(row.ids)
            for row in encoded
        ]
    return rows


def text_rows(td: TensorDictBase, key: Key, tokenizer: Any, options: dict[str, Any]) -> Rows:
    """Return the rows of texts."""
    value = entry(td, key, "text")
    texts = list(_strings(value, key))
    shape = tuple(td.batch_size)
    _check_count(len(texts), shape, key)
    if not texts:
        return Rows(shape, [], texts=[])
    tokens = Text(prompt=texts, batch_size=(len(texts),)).to_tokens(tokenizer, **options)
    ids = [row.tolist() for row in leaves(token_rows(storage(tokens), "prompt"))]
    return Rows(shape, ids, texts=texts)


def token_rows_of(
    td: TensorDictBase, key: Key, mask_keys: Sequence[Key], tokenizer: Any = None
) -> Rows:
    """Return the rows of ids; what is padding is told by bounds or a mask, never by the ids.

    Raises:
        TokenizerMismatch: The ids say that they are of another tokenizer.
    """
    value = entry(td, key, "token ids")
    shape = tuple(td.batch_size)
    parts = (key,) if isinstance(key, str) else tuple(key)
    parent = td if len(parts) == 1 else td.get(parts[:-1])
    mask = next((m for m in (_get(td, k) for k in mask_keys) if m is not None), None)
    if isinstance(parent, Tokens) and tokenizer is not None:
        parent.check_tokenizer(tokenizer)
    if isinstance(parent, Tokens) and _any(parent.padded):
        rows = leaves(token_rows(storage(parent.unpad(mask)), parts[-1]))
    else:
        rows = leaves(token_rows(held_by(parent), parts[-1]))
        if isinstance(mask, torch.Tensor) and isinstance(value, torch.Tensor):
            if mask.shape != value.shape:
                raise InvalidParameter(
                    f"The attention mask has shape {tuple(mask.shape)}, the ids under {key!r} {tuple(value.shape)}."
                )
            keep = mask.reshape(-1, mask.shape[-1]).bool() if mask.ndim else mask
            rows = [row[kept] for row, kept in zip(rows, keep, strict=True)]
    _check_count(len(rows), shape, key)
    for index, row in enumerate(rows):
        if row.is_floating_point():
            raise InvalidParameter(f"Row {index} under {key!r} holds {row.dtype}, not token ids.")
    return Rows(shape, [row.tolist() for row in rows])


def held_by(parent: Any) -> Any:
    """Return the tensordict of what holds rows: itself, or the one inside a container."""
    return parent if isinstance(parent, TensorDictBase) else storage(parent)


def _get(td: TensorDictBase, key: Key) -> Any:
    try:
        return td.get(key, None)
    except (KeyError, RuntimeError):  # not there, or ragged: then nothing is padded
        return None


def _any(flag: Any) -> bool:
    return any(map(_any, flag)) if isinstance(flag, (list, tuple)) else bool(flag)


def _strings(value: Any, key: Key) -> Iterator[str]:
    if is_tensor_collection(value) or hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item, key)
    else:
        raise InvalidParameter(f"{key!r} holds {type(value).__name__}, not text.")


def _check_count(count: int, shape: tuple[int, ...], key: Key) -> None:
    if count != math.prod(shape):
        raise InvalidParameter(
            f"{key!r} holds {count} rows, and the tensordict's batch size {list(shape)} asks for {math.prod(shape)}."
        )
