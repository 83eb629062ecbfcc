"""What a message carries of its sampling: the ids, their log-probs, and what they stood for.

Ids stand only for the message that they were sampled as. So beside ``token_ids`` and ``log_probs`` a message has
``sampled_as``, a mark of what it said then, of the ids, and of their tokenizer. It goes wherever the message goes:
files, copies, branches. A message that says something else now was edited, and its ids are not used.

Messages from elsewhere have ids and no mark: whatever they say then is what the ids stand for. A History marks them
when it takes them in, so that edits in it are noticed; `openai_messages` takes such a mark away where it still fits.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from antiphon.engine.provenance import REASONING_FIELDS
from antiphon.engine.tokenizers import view
from antiphon.errors import InvalidMessage, TokenizerMismatch

# The keys of a message that tell of its sampling; templates never see them.
SAMPLED_KEYS = ("token_ids", "log_probs", "sampled_as")

_DIGITS = 12
# Begins a mark that was made of what a message said when it was found, not when it was sampled.
_FOUND = "~"


@dataclass
class Sampled:
    """A message as a backend sampled it.

    Attributes:
        ids: The sampled ids.
        log_probs: Their log-probs.
        start: Where they begin in the ids of the conversation, and ``end`` where they end; -1: not placed.
        text: The text of its turn while it was the last message; None where the template shows none.
        context: The text before that turn.
        scaffold: How many characters of it the template wrote before the message's own first one.
        lead: Ids that the prompt put before the answer and that the rendered turn does not show.
        closing: The end token, for an answer that lacks one.
        known: Whether ``text`` and what follows are filled in.
        edited: Whether the message says something else than the ids were sampled as.
        tokenizer: The mark of the tokenizer of the ids; "" where it is not known.
    """

    ids: list[int]
    log_probs: list[float] | None = None
    start: int = -1
    end: int = -1
    text: str | None = None
    context: str | None = None
    scaffold: int = 0
    lead: list[int] = field(default_factory=list)
    closing: list[int] = field(default_factory=list)
    known: bool = False
    edited: bool = False
    tokenizer: str = ""

    def placed(self, start: int) -> Sampled:
        """Return the same with its place."""
        return replace(self, start=start, end=start + len(self.ids))


def attach(
    message: Mapping[str, Any],
    token_ids: Sequence[int],
    log_probs: Sequence[float] | None = None,
    tokenizer: Any = None,
) -> dict[str, Any]:
    """Return a message with the ids, and log-probs, that a backend sampled for it.

    Args:
        message: What was read from the ids.
        token_ids: The ids.
        log_probs: One for each id.
        tokenizer: The tokenizer of the ids: with another one they are refused.
    """
    attached = {key: value for key, value in message.items() if key not in SAMPLED_KEYS}
    attached["token_ids"] = list(token_ids)
    if log_probs is not None:
        attached["log_probs"] = list(log_probs)
    attached["sampled_as"] = sampled_mark(
        attached, "" if tokenizer is None else view(tokenizer).fingerprint
    )
    return attached


def detach(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without what it carries of its sampling."""
    return {key: value for key, value in message.items() if key not in SAMPLED_KEYS}


def sampled_mark(message: Mapping[str, Any], tokenizer: str = "") -> str:
    """Return the mark of what a message says, of its ids, and of their tokenizer (its `fingerprint`)."""
    return f"{_digest(_said(message))} {_digest(_ids_of(message))} {tokenizer}".rstrip()


def found_mark(message: Mapping[str, Any]) -> str:
    """Return the mark of a message from elsewhere, which is taken for what its ids stand for."""
    return _FOUND + sampled_mark(message)


def fits_as_found(message: Mapping[str, Any]) -> bool:
    """Whether a message still says what it said when it was found."""
    mark = str(message.get("sampled_as") or "")
    return mark.startswith(_FOUND) and mark == found_mark(message)


def sampled_of(message: Mapping[str, Any]) -> Sampled | None:
    """Return what a message carries of its sampling; None where there are no ids.

    Raises:
        InvalidMessage: Ids and log-probs are no numbers, or differ in number.
    """
    if message.get("token_ids") is None:
        return None
    given = message.get("log_probs")
    ids = _ids_of(message)
    try:
        log_probs = None if given is None else [float(value) for value in given]
    except (TypeError, ValueError) as error:
        raise InvalidMessage(f"log_probs that are no list of numbers ({error})") from error
    if log_probs is not None and len(log_probs) != len(ids):
        raise InvalidMessage(
            f"{len(ids)} token_ids and {len(log_probs)} log_probs; give one for each token"
        )
    own = Sampled(ids, log_probs)
    said, stood, tokenizer = _parts(message.get("sampled_as"))
    # Other ids were put in since: the mark is not theirs.
    if said and stood == _digest(ids):
        own.tokenizer = tokenizer
        own.edited = said.removeprefix(_FOUND) != _digest(_said(message))
    return own


def _ids_of(message: Mapping[str, Any]) -> list[int]:
    try:
        ids = [int(token) for token in message["token_ids"]]
    except (TypeError, ValueError) as error:
        raise InvalidMessage(f"token_ids that are no list of numbers ({error})") from error
    if ids and min(ids) < 0:
        raise InvalidMessage(f"token_ids with {min(ids)}, which is no token id")
    return ids


def standing_ids(message: Mapping[str, Any]) -> list[int] | None:
    """Return the ids that a message was sampled as; None where it has none or was edited since."""
    own = sampled_of(message)
    return None if own is None or own.edited else own.ids


def split_sampled(messages: Any, first: int) -> tuple[list[Any], dict[int, Sampled]]:
    """Take the ids and log-probs out of messages; message numbers count from ``first``."""
    if hasattr(messages, "to_chats"):
        messages = messages.to_chats()
    if isinstance(messages, Mapping):
        raise InvalidMessage("new_messages is a list of messages, not one message.")
    if not isinstance(messages, Iterable):
        raise InvalidMessage(
            f"A conversation is a list of message dicts, not {type(messages).__name__}."
        )
    plain: list[Any] = []
    sampled: dict[int, Sampled] = {}
    for index, message in enumerate(messages, first):
        if isinstance(message, Mapping):
            try:
                own = sampled_of(message)
            except InvalidMessage as error:
                raise InvalidMessage(f"Message {index} has {error}.") from None
            if own is not None:
                sampled[index] = own
            message = detach(message)
        plain.append(message)
    return plain, sampled


def check_tokenizer(sampled: Mapping[int, Sampled], tokenizer: Any) -> None:
    """Make sure that ids are of this tokenizer, where they say whose they are.

    Raises:
        TokenizerMismatch: Names the message and both tokenizers.
    """
    for message, own in sampled.items():
        if own.tokenizer and not view(tokenizer).is_of(own.tokenizer):
            raise TokenizerMismatch(
                f"The ids of message {message} were sampled with another tokenizer ({own.tokenizer}) than this one "
                f"({view(tokenizer).fingerprint}); use that one, or leave token_ids out of the messages "
                "(History.without_sampled())."
            )


def _parts(mark: Any) -> tuple[str, str, str]:
    said, _, rest = str(mark or "").partition(" ")
    stood, _, tokenizer = rest.partition(" ")
    return said, stood, tokenizer


def _said(message: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
    """What a message says, in one form however it is written: role, content, reasoning, calls."""
    reasoning = next((message[name] for name in REASONING_FIELDS if message.get(name)), "")
    calls = message.get("tool_calls") or ()
    if isinstance(calls, Mapping):
        calls = [calls]
    return message.get("role"), _text(message.get("content")), reasoning, list(map(_call, calls))


def _text(content: Any) -> Any:
    """Content as one string where it is text, else its parts."""
    if hasattr(content, "to_parts"):
        content = content.to_parts()
    if content is None or isinstance(content, str):
        return content or ""
    parts = [{"text": part} if isinstance(part, str) else _filled(part) for part in content]
    if all(isinstance(p, dict) and p.keys() <= {"type", "text"} for p in parts):
        return "".join(str(p.get("text", "")) for p in parts)
    return parts


def _call(call: Any) -> Any:
    """The name and arguments of a call, or its raw text where it was malformed."""
    if not isinstance(call, Mapping):
        return str(call)
    inner = call.get("function")
    inner = inner if isinstance(inner, Mapping) else call
    arguments = inner.get("arguments", inner.get("parameters"))
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # no JSON: the string itself
            arguments = json.loads(arguments)
    return [inner.get("name"), _filled(arguments), call.get("raw")]


def _filled(value: Any) -> Any:
    """A value without the None that data sets fill columns with."""
    if isinstance(value, Mapping):
        return {str(k): _filled(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_filled(item) for item in value]
    return value


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
