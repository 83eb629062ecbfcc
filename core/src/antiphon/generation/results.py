"""What a wrapper's call gives back: flat rows in containers of any batch shape, and the messages that answers are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from antiphon.conversations import containers
from antiphon.conversations.encoding import decoded
from antiphon.conversations.fields import nested_entry
from antiphon.conversations.history import History
from antiphon.conversations.padding import leaves, token_rows
from antiphon.conversations.ragged import ragged
from antiphon.conversations.rows import storage
from antiphon.conversations.templating import Message, Template, read_answer
from antiphon.engine.sampled import attach
from antiphon.errors import FamilyNotFound, GrammarUnavailable
from antiphon.generation.backends import Generation

if TYPE_CHECKING:
    from antiphon.engine.tokenization import Break

# tensordict makes these classes as they are defined: a type checker does not know their fields.
ChatHistory: Any = containers.ChatHistory
LogProbs: Any = containers.LogProbs
Masks: Any = containers.Masks
Text: Any = containers.Text
Tokens: Any = containers.Tokens


@dataclass
class Layout:
    """How results are laid out.

    Attributes:
        pad: Dense tensors instead of ragged rows.
        pad_id: What ids are padded with.
        jagged: Nested tensors for ragged rows.
        device: Where results go.
        fingerprints: Whose tokens they are (`antiphon.fingerprints.token_fingerprints`).
        splits: Say of each row whether a trajectory begins there.
    """

    pad: bool = False
    pad_id: int = 0
    jagged: bool = False
    device: torch.device | None = None
    fingerprints: dict[str, str] | None = None
    splits: bool = False

    def containers(
        self,
        shape: tuple[int, ...],
        ids: dict[str, list[list[int]]],
        log_probs: dict[str, list[torch.Tensor]] | None,
        assistant: list[list[bool]] | None,
        breaks: Sequence[Sequence[Break]] | None = None,
    ) -> tuple[Any, Any, Any]:
        """Return the containers of a batch of ``shape`` from flat rows; the masks lie over ``full``."""
        shared = {"fingerprints": self.fingerprints}
        tokens = self._ragged(Tokens, shape, ids, torch.int64, shared)
        masks = {"all_attention_mask": [[True] * len(row) for row in ids["full"]]}
        if assistant is not None:
            masks["all_assistant_mask"] = assistant
        probs = None
        if log_probs is not None:
            probs = self._ragged(LogProbs, shape, log_probs, torch.float32)
        if not self.pad:
            made = self._ragged(Masks, shape, masks, torch.bool)
            tokens, made, probs = self._nested(tokens), self._nested(made), self._nested(probs)
        else:
            tokens = tokens.pad(self.pad_id)
            probs = None if probs is None else probs.pad(0.0)
            made = self._like(tokens, masks)
        if breaks is not None:
            self._tell_breaks(tokens, shape, breaks)
        return tokens, made, probs

    def _tell_breaks(
        self, tokens: Any, shape: tuple[int, ...], breaks: Sequence[Sequence[Break]]
    ) -> None:
        told = [[found._asdict() for found in row] for row in breaks]
        held = storage(tokens)
        held.set("breaks", nested_entry(nested_rows(told, shape), len(shape), self.device))
        if self.splits:
            anew = torch.tensor([bool(row) for row in breaks], device=self.device).reshape(shape)
            held.set("starts_anew", anew)

    def _ragged(
        self,
        cls: Any,
        shape: tuple[int, ...],
        parts: dict[str, Any],
        dtype: torch.dtype,
        shared: dict[str, Any] | None = None,
    ) -> Any:
        def tensor(row: Any) -> torch.Tensor:
            # On a device by name: torch.set_default_device would put it elsewhere than what was computed.
            given = isinstance(row, torch.Tensor)
            made: torch.Tensor = row if given else torch.tensor(row, dtype=dtype, device="cpu")
            return made.to(dtype=dtype, device=self.device)

        nested = {
            name: nested_rows([tensor(row) for row in rows], shape) for name, rows in parts.items()
        }
        return ragged(cls, shape, nested, self.device, shared)

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
