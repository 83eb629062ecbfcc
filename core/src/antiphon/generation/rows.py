"""What a wrapper's call works on: one flat list of rows, read from a tensordict and written back to
one.

A batch of any shape becomes a list; prompts of several samples follow each other, so row ``i * n +
j`` answers prompt i.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from tensordict import TensorDictBase, is_tensor_collection

from antiphon.conversations import containers
from antiphon.conversations.conversion import encode_history
from antiphon.conversations.encoding import decoded
from antiphon.conversations.fields import nested_entry
from antiphon.conversations.history import History
from antiphon.conversations.padding import leaves, token_rows
from antiphon.conversations.ragged import ragged
from antiphon.conversations.rows import storage
from antiphon.conversations.templating import Message, Template, read_answer
from antiphon.engine.sampled import attach
from antiphon.errors import FamilyNotFound, GrammarUnavailable, InvalidParameter
from antiphon.generation.backends import Generation

Key = Any  # a string, or a tuple of strings

# tensordict makes these classes as they are defined: a type checker does not know their fields.
ChatHistory: Any = containers.ChatHistory
LogProbs: Any = containers.LogProbs
Masks: Any = containers.Masks
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
    """

    shape: tuple[int, ...]
    ids: list[list[int]]
    assistant: list[list[bool]] | None = None
    log_probs: list[list[float]] | None = None
    texts: list[str] | None = None
    chats: list[list[Message]] | None = None
    prompts: list[int] | None = None

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
        )


# Reading


def found(td: TensorDictBase, key: Key) -> Any:
    """Return what stands under a key, or None."""
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
            f"The wrapper reads {what} from {key!r}, and the tensordict has nothing there (its keys: {there}); put it "
            "there or set input_key."
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
        value = History.from_chats(value.tolist() if hasattr(value, "tolist") else value)
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


def token_rows_of(td: TensorDictBase, key: Key, mask_keys: Sequence[Key]) -> Rows:
    """Return the rows of ids; what is padding is told by bounds or a mask, never by the ids."""
    value = entry(td, key, "token ids")
    shape = tuple(td.batch_size)
    parts = (key,) if isinstance(key, str) else tuple(key)
    parent = td if len(parts) == 1 else td.get(parts[:-1])
    mask = next((m for m in (_get(td, k) for k in mask_keys) if m is not None), None)
    if isinstance(parent, Tokens) and _any(parent.padded):
        rows = leaves(token_rows(storage(parent.unpad(mask)), parts[-1]))
    else:
        held = storage(parent) if hasattr(parent, "_tensordict") else parent
        rows = leaves(token_rows(held, parts[-1]))
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


# Writing


@dataclass
class Layout:
    """How results are laid out.

    Attributes:
        pad: Dense tensors instead of ragged rows.
        pad_id: What ids are padded with.
        jagged: Nested tensors for ragged rows.
        device: Where results go.
    """

    pad: bool = False
    pad_id: int = 0
    jagged: bool = False
    device: torch.device | None = None

    def containers(
        self,
        shape: tuple[int, ...],
        ids: dict[str, list[list[int]]],
        log_probs: dict[str, list[torch.Tensor]] | None,
        assistant: list[list[bool]] | None,
    ) -> tuple[Any, Any, Any]:
        """Return the containers of a batch of ``shape`` from flat rows; the masks lie over ``full``."""
        tokens = self._ragged(Tokens, shape, ids, torch.int64)
        masks = {"all_attention_mask": [[True] * len(row) for row in ids["full"]]}
        if assistant is not None:
            masks["all_assistant_mask"] = assistant
        probs = None
        if log_probs is not None:
            probs = self._ragged(LogProbs, shape, log_probs, torch.float32)
        if not self.pad:
            made = self._ragged(Masks, shape, masks, torch.bool)
            return self._nested(tokens), self._nested(made), self._nested(probs)
        tokens = tokens.pad(self.pad_id)
        probs = None if probs is None else probs.pad(0.0)
        return tokens, self._like(tokens, masks), probs

    def _ragged(
        self, cls: Any, shape: tuple[int, ...], parts: dict[str, Any], dtype: torch.dtype
    ) -> Any:
        def tensor(row: Any) -> torch.Tensor:
            made = torch.as_tensor(row, dtype=dtype)
            return made if self.device is None else made.to(self.device)

        nested = {
            name: nested_rows([tensor(row) for row in rows], shape) for name, rows in parts.items()
        }
        return ragged(cls, shape, nested, self.device)

    def _like(self, tokens: Any, masks: dict[str, list[list[bool]]]) -> Any:
        """Return masks that lie where the rows of ``tokens.full`` lie."""
        full, bounds = tokens.full, tokens.bounds
        where = bounds.get("full").reshape(-1, 2).tolist()
        made = {}
        for name, rows in masks.items():
            dense = torch.zeros(full.shape, dtype=torch.bool, device=full.device)
            flat = dense.reshape(-1, full.shape[-1])
            for index, (row, (begin, end)) in enumerate(zip(rows, where, strict=True)):
                flat[index, begin:end] = torch.tensor(row, dtype=torch.bool, device=full.device)
            made[name] = dense
        placed = Masks(**made, batch_size=tokens.batch_size, device=tokens.device)
        placed.padded = True
        placed.bounds = type(bounds)(
            {name: bounds.get("full").clone() for name in masks}, batch_size=tokens.batch_size
        )
        return placed

    def _nested(self, container: Any) -> Any:
        if not self.jagged or container is None or container.batch_dims != 1 or not len(container):
            return container
        held = storage(container)
        made = {}
        for name in ("prompt", "response", "full", "all_attention_mask", "all_assistant_mask"):
            rows = token_rows(held, name)
            if rows is not None:
                made[name] = torch.nested.nested_tensor(leaves(rows), layout=torch.jagged)
        return type(container)(**made, batch_size=container.batch_size, device=container.device)


def nested_rows(flat: Sequence[Any], shape: Sequence[int]) -> Any:
    """Return flat rows in lists nested as a batch of ``shape``; no dimension: the one row itself."""
    if not shape:
        return flat[0]
    size = len(flat) // shape[0] if shape[0] else 0
    return [nested_rows(flat[i * size : (i + 1) * size], shape[1:]) for i in range(shape[0])]


def text_container(shape: tuple[int, ...], parts: dict[str, list[str]], device: Any) -> Any:
    """Return the Text of a batch of ``shape`` from flat rows."""
    entries = {
        name: nested_entry(nested_rows(rows, shape), len(shape), device)
        for name, rows in parts.items()
    }
    return Text(**entries, batch_size=shape, device=device)


def history_container(
    shape: tuple[int, ...], parts: dict[str, list[list[Message]]], device: Any
) -> Any:
    """Return the ChatHistory of a batch of ``shape`` from flat rows of messages."""
    histories = {name: History.from_chats(nested_rows(rows, shape)) for name, rows in parts.items()}
    return ChatHistory(**histories, batch_size=shape, device=device)


def response_texts(
    generation: Generation, tokenizer: Any, *, skip_special_tokens: bool, keep_stop: bool
) -> list[str]:
    """Return the answers' texts, cut where a stop string began (or ended, where it is to be kept)."""
    texts = decoded(tokenizer, generation.ids, False)
    for index, cut in enumerate(generation.cut):
        if cut is not None:
            stop = generation.stopped_by[index]
            texts[index] = texts[index][: cut + len(str(stop)) if keep_stop else cut]
    if skip_special_tokens:
        plain = decoded(tokenizer, generation.ids, True)
        texts = [
            text if cut is not None else bare
            for text, bare, cut in zip(texts, plain, generation.cut, strict=True)
        ]
    return texts


def response_message(
    generation: Generation,
    row: int,
    prompt: list[int],
    template: Template,
    text: Callable[[], str],
) -> Message:
    """Return the message that a row's answer is; it carries its exact ids and log-probs.

    It is complete where the model ended it; where a stop string or the limit did, it is not.
    """
    ids, finish = generation.ids[row], generation.finish[row]
    try:
        if generation.cut[row] is None:
            read, _ = read_answer(ids, prompt, template)
        else:
            before = decoded(template.tokenizer, [prompt], False)[0]
            read, _ = read_answer(text(), before, template)
    except (FamilyNotFound, GrammarUnavailable):
        # Nobody can say what is what in this dialect, so all of it is content.
        plain = decoded(template.tokenizer, [ids], True)[0]
        read = {"content": text() if generation.cut[row] is not None else plain}
    message = {key: value for key, value in read.items() if value}
    message["role"] = "assistant"
    message.setdefault("content", "")
    message["is_complete"] = finish == "end"
    return attach(message, ids, generation.log_probs[row].tolist(), template.tokenizer)
