"""A `ChatHistory` to text and tokens.

Tokens are the truth. What a model sampled is never encoded again: its ids ride along in the message
(`token_ids`) and stand in the turn they were sampled for, and text is what ids decode to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict

from antiphon.conversations.encoding import Encoded, as_tensor, chat_texts, decoded, encode_chats
from antiphon.conversations.nested import flattened, nested_like
from antiphon.conversations.rows import storage
from antiphon.conversations.templating import Template
from antiphon.engine.sampled import standing_ids
from antiphon.errors import ContainerError, NoHistory, TurnRewritten
from antiphon.fingerprints import token_fingerprints

if TYPE_CHECKING:
    from antiphon.conversations.containers import ChatHistory, LogProbs, Masks, Text, Tokens
    from antiphon.conversations.history import History

Message = dict[str, Any]


class _Chats:
    """A ChatHistory's conversations, in one list for each part; `nested` is the form of the batch."""

    def __init__(self, chat: ChatHistory) -> None:
        self.parts: dict[str, list[list[Message]]] = {}
        self.nested: Any = None
        self.depth = 0
        for name in ("prompt", "response", "full"):
            history = _part(storage(chat), name)
            if history is None:
                continue
            nested = history._messages()
            if history.ndim == 0:
                raise ContainerError(f"the {name} of a ChatHistory needs a dimension for time")
            depth = history.ndim - 1
            flat = flattened(nested, depth)
            if self.nested is None:
                self.nested, self.depth = nested, depth
            elif depth != self.depth or len(flat) != len(next(iter(self.parts.values()))):
                raise ContainerError(
                    f"the {name} of this ChatHistory is a batch of another shape than its other parts"
                )
            self.parts[name] = flat
        prompt, response = self.parts.get("prompt"), self.parts.get("response")
        self.full = self.parts.get("full")
        if self.full is None and response is not None:
            self.full = (
                [p + r for p, r in zip(prompt, response, strict=True)]
                if prompt is not None
                else response
            )

    @property
    def prompt(self) -> list[list[Message]] | None:
        return self.parts.get("prompt")

    @property
    def answer_only(self) -> bool:
        """Whether there is a response and nothing that it answers."""
        return set(self.parts) == {"response"}


def _part(td: Any, name: str) -> History | None:
    """The History under `name`; a lazy stack of containers is read member by member, so it may be ragged."""
    from antiphon.conversations.history import History

    value = td._get_str(name, None)
    if value is None or isinstance(value, History):
        return value
    if isinstance(td, LazyStackedTensorDict):
        parts: list[Any] = [_part(member, name) for member in td.tensordicts]
        if any(part is None for part in parts):
            return None
        stacked: History = LazyStackedTensorDict.lazy_stack(parts, td.stack_dim)
        return stacked
    raise NoHistory(
        f"Expected History object as {name} of the ChatHistory, got {type(value).__name__}"
    )


def history_to_text(chat: ChatHistory, template: Template) -> Text:
    """What `ChatHistory.to_text` documents."""
    chats = _Chats(chat)
    texts: dict[str, list[str]] = {}
    if chats.prompt is not None:
        texts["prompt"] = chat_texts(chats.prompt, template, True)
    if chats.full is None:
        return _text_container(chat, chats, texts)
    fulls = chat_texts(chats.full, template, False)
    if chats.answer_only:
        renderings = template.render_all(chats.full, False)
        starts = [r.turns[0].start if r.turns else 0 for r in renderings]
        texts["response"] = [full[start:] for full, start in zip(fulls, starts, strict=True)]
        return _text_container(chat, chats, texts)
    if chats.prompt is not None:
        texts["response"] = []
        for i, prompt in enumerate(texts["prompt"]):
            if not fulls[i].startswith(prompt):
                sampled = _sampled_answer(chats, i)
                if sampled is None:
                    raise TurnRewritten(_rewritten(i, prompt, fulls[i]))
                fulls[i] = prompt + decoded(template.tokenizer, [sampled])[0]
            texts["response"].append(fulls[i][len(prompt) :])
    texts["full"] = fulls
    return _text_container(chat, chats, texts)


def _sampled_answer(chats: _Chats, i: int) -> list[int] | None:
    """The sampled ids of the one message that follows prompt `i`, if that is what follows."""
    assert chats.prompt is not None
    assert chats.full is not None
    new = chats.full[i][len(chats.prompt[i]) :]
    return standing_ids(new[0]) if len(new) == 1 else None


def _rewritten(i: int, prompt: str, full: str) -> str:
    at = next(
        (k for k, (a, b) in enumerate(zip(prompt, full, strict=False)) if a != b),
        min(len(prompt), len(full)),
    )
    return (
        f"conversation {i}: what its full history renders does not start with its prompt (they differ from character "
        f"{at} on: {prompt[at : at + 30]!r} and {full[at : at + 30]!r}), so no response can be cut off; keep the "
        "sampled token_ids in the response's message, or use training_samples"
    )


def _text_container(chat: ChatHistory, chats: _Chats, texts: dict[str, list[str]]) -> Text:
    from antiphon.conversations.containers import Text
    from antiphon.conversations.fields import nested_entry

    batch = chat.batch_size
    entries = {}
    for name in ("prompt", "response", "full"):
        if name in texts:
            entries[name] = nested_entry(
                nested_like(chats.nested, chats.depth, texts[name]), chats.depth, chat.device
            )
    text: Text = Text._from_tensordict(TensorDict(entries, batch_size=batch, device=chat.device))
    return text


@dataclass
class EncodedChats:
    """A ChatHistory's rows of tokens under "prompt", "response" and "full", to make containers of."""

    chat: ChatHistory
    chats: _Chats
    rows: dict[str, list[Encoded]]
    template: Template

    def _shaped(self, values: Iterable[list[Any]], dtype: torch.dtype) -> Any:
        device = self.chat.device
        tensors = [as_tensor(value, dtype, device) for value in values]
        return nested_like(self.chats.nested, self.chats.depth, tensors)

    def _container(
        self, cls: Any, rows: dict[str, Any], shared: dict[str, Any] | None = None
    ) -> Any:
        from antiphon.conversations.ragged import ragged

        return ragged(cls, self.chat.batch_size, rows, self.chat.device, shared)

    def tokens(self) -> Tokens:
        """The ids."""
        from antiphon.conversations.containers import Tokens

        rows = {
            n: self._shaped((r.ids for r in rows), torch.int64) for n, rows in self.rows.items()
        }
        made_by = token_fingerprints(self.template.tokenizer, self.template.source)
        return self._container(Tokens, rows, {"fingerprints": made_by})  # type: ignore[no-any-return]

    def log_probs(self) -> LogProbs:
        """The log-probs that messages carry; NaN elsewhere."""
        from antiphon.conversations.containers import LogProbs

        rows = {
            n: self._shaped((r.known_log_probs() for r in rows), torch.float32)
            for n, rows in self.rows.items()
        }
        return self._container(LogProbs, rows)  # type: ignore[no-any-return]

    def masks(self) -> Masks:
        """The masks over `full`, or over the one part there is."""
        from antiphon.conversations.containers import Masks

        rows = self.rows.get("full") or next(iter(self.rows.values()))
        masks = {
            "all_attention_mask": self._shaped(([True] * len(r.ids) for r in rows), torch.bool),
            "all_assistant_mask": self._shaped((r.mask() for r in rows), torch.bool),
        }
        return self._container(Masks, masks)  # type: ignore[no-any-return]


def encode_history(chat: ChatHistory, template: Template) -> EncodedChats:
    """The rows of tokens of a ChatHistory."""
    chats = _Chats(chat)
    rows: dict[str, list[Encoded]] = {}
    if chats.prompt is not None:
        rows["prompt"] = encode_chats(chats.prompt, template, True)
    if chats.full is not None:
        fulls = encode_chats(chats.full, template, False)
        if chats.answer_only:
            rows["response"] = [row.part(row.first_turn) for row in fulls]
        elif "prompt" in rows:
            prompts = rows["prompt"]
            fulls = [_behind(prompts[i], full, chats, i, template) for i, full in enumerate(fulls)]
            rows["response"] = [f.part(len(p.ids)) for p, f in zip(prompts, fulls, strict=True)]
            rows["full"] = fulls
        else:
            rows["full"] = fulls
    if not rows:
        raise ContainerError(
            "this ChatHistory holds neither prompt, response nor full: there is nothing to convert"
        )
    return EncodedChats(chat, chats, rows, template)


def _behind(prompt: Encoded, full: Encoded, chats: _Chats, i: int, template: Template) -> Encoded:
    """The full row as the prompt's ids with the answer behind them."""
    count = len(prompt.ids)
    if full.ids[:count] == prompt.ids:
        return full
    sampled = None if any(found.edited for found in full.breaks) else _sampled_answer(chats, i)
    if sampled is None:
        raise TurnRewritten(_rewritten(i, *decoded(template.tokenizer, [prompt.ids, full.ids])))
    own = chats.full[i][-1].get("log_probs") if chats.full is not None else None
    probs = (
        list(own) if own is not None and len(own) == len(sampled) else [float("nan")] * len(sampled)
    )
    return Encoded(
        [*prompt.ids, *sampled],
        None if prompt.assistant is None else [*prompt.assistant, *[True] * len(sampled)],
        [*prompt.known_log_probs(), *probs],
        problem=prompt.problem,
    )
