"""`Tokens` and `Text` to text, tokens and conversations.

A prompt and what follows it are encoded apart, as a model sees them. Conversations are read from ids where there are
ids, and the message of a response keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict

from antiphon.conversations.arguments import said, switch, whole
from antiphon.conversations.encoding import as_tensor, decoded, pad_id
from antiphon.conversations.nested import flattened, nested_like
from antiphon.conversations.rows import storage
from antiphon.conversations.templating import Template, read_answer, read_chat
from antiphon.errors import ContainerError, InvalidParameter
from antiphon.fingerprints import token_fingerprints

if TYPE_CHECKING:
    from antiphon.conversations.containers import ChatHistory, LogProbs, Text, Tokens

Message = dict[str, Any]


def tokens_to_text(tokens: Tokens, tokenizer: Any, skip_special_tokens: bool) -> Text:
    """What `Tokens.to_text` documents."""
    from antiphon.conversations.containers import Text
    from antiphon.conversations.fields import nested_entry
    from antiphon.conversations.padding import depth_of, regrouped, token_rows

    entries = {}
    for name in ("prompt", "response", "full"):
        rows = token_rows(storage(tokens), name)
        if rows is None:
            continue
        texts = regrouped(rows, decoded(tokenizer, _id_lists(rows, name), skip_special_tokens))
        entries[name] = nested_entry(texts, depth_of(rows), tokens.device)
    text: Text = Text._from_tensordict(
        TensorDict(entries, batch_size=tokens.batch_size, device=tokens.device)
    )
    return text


def tokens_to_history(
    tokens: Tokens, template: Template, log_probs: LogProbs | None = None
) -> ChatHistory:
    """What `Tokens.to_history` documents."""
    from antiphon.conversations.containers import LogProbs
    from antiphon.conversations.padding import depth_of, leaves, token_rows

    td = storage(tokens)
    parts = {name: token_rows(td, name) for name in ("prompt", "response", "full")}
    known = {name: rows for name, rows in parts.items() if rows is not None}
    if not known:
        raise ContainerError(
            "these Tokens hold neither prompt, response nor full: there is nothing to convert"
        )
    nested = next(iter(known.values()))
    flat = {name: _id_lists(rows, name) for name, rows in known.items()}
    if not isinstance(log_probs, (LogProbs, type(None))):
        raise ContainerError(f"log_probs must be LogProbs, got {said(log_probs)}")
    probs = token_rows(storage(log_probs), "response") if log_probs is not None else None
    flat_probs = None if probs is None else [row.tolist() for row in leaves(probs)]
    return _read_all(flat, nested, depth_of(nested), tokens, template, flat_probs)


def _id_lists(rows: Any, name: str) -> list[list[int]]:
    """The ids of rows in one list.

    Raises:
        ContainerError: names the row that holds something else.
    """
    from antiphon.conversations.padding import leaves

    result = []
    for i, row in enumerate(leaves(rows)):
        if row.is_floating_point() or row.dtype is torch.bool:
            raise ContainerError(f"row {i} of {name} holds {row.dtype}, not token ids")
        ids: list[int] = row.tolist()
        if ids and min(ids) < 0:
            raise ContainerError(
                f"row {i} of {name} holds {min(ids)}, which is no token id: labels and fillers such as -100 must be "
                "taken out first"
            )
        result.append(ids)
    return result


def text_to_history(text: Text, template: Template) -> ChatHistory:
    """What `Text.to_history` documents."""
    nested, depth, flat = _text_parts(text)
    return _read_all(
        flat,
        nested,
        depth,
        text,
        template,
        None,
    )


def _text_parts(text: Text) -> tuple[Any, int, dict[str, list[str]]]:
    """The texts: one part in nested lists, how deep these are, and each part in one list.

    Raises:
        ContainerError: there are none, parts have unequal numbers of them, or a row is no text.
    """
    parts = {name: _text_rows(text, name) for name in ("prompt", "response", "full")}
    known = {name: value for name, value in parts.items() if value is not None}
    if not known:
        raise ContainerError(
            "this Text holds neither prompt, response nor full: there is nothing to convert"
        )
    flat = {name: flattened(rows, depth) for name, (rows, depth) in known.items()}
    for name, texts in flat.items():
        for row, item in enumerate(texts):
            if not isinstance(item, str):
                raise ContainerError(f"row {row} of {name} must be a text, got {said(item)}")
    counts = {name: len(texts) for name, texts in flat.items()}
    if len(set(counts.values())) > 1:
        raise ContainerError(f"the parts of a Text have unequal numbers of rows: {counts}")
    return *next(iter(known.values())), flat


def _text_rows(text: Text, name: str) -> tuple[Any, int] | None:
    value = storage(text)._get_str(name, None)
    if value is None:
        return None
    rows = value.tolist() if hasattr(value, "tolist") else value
    depth = 0
    probe = rows
    while isinstance(probe, list):
        depth += 1
        probe = probe[0] if probe else None
    if not _is_even(rows, depth):
        raise ContainerError(
            f"{name} of a Text must be texts nested equally deep, got {said(rows)}"
        )
    return rows, depth


def _is_even(rows: Any, depth: int) -> bool:
    if depth == 0:
        return not isinstance(rows, list)
    return isinstance(rows, list) and all(_is_even(row, depth - 1) for row in rows)


def _read_all(
    flat: dict[str, list[Any]],
    nested: Any,
    depth: int,
    source: Any,
    template: Template,
    log_probs: list[list[float]] | None,
) -> ChatHistory:
    """The ChatHistory of rows of ids or texts."""
    from antiphon.conversations.containers import ChatHistory
    from antiphon.conversations.history import History

    count = len(next(iter(flat.values())))
    read: dict[str, list[list[Message]]] = {}
    if "prompt" in flat:
        read["prompt"] = [read_chat(row, template) for row in flat["prompt"]]
    responses = flat.get("response")
    if responses is None and "prompt" in flat and "full" in flat:
        responses = [
            full[len(prompt) :] if full[: len(prompt)] == prompt else None
            for prompt, full in zip(flat["prompt"], flat["full"], strict=True)
        ]
    if responses is not None:
        prompts = flat.get("prompt", [None] * count)
        read["response"] = []
        for i, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
            known = read["prompt"][i] if "prompt" in read else []
            messages, end_token = _read_response(prompt, response, known, template)
            if len(messages) == 1 and not isinstance(response, (str, type(None))):
                probs = None if log_probs is None else log_probs[i]
                _keep_sampled(messages[0], response, end_token, probs, template)
            read["response"].append(messages)
        if "response" not in flat and any(response is None for response in responses):
            del read["response"]
    if "full" in flat:
        if "prompt" in read and "response" in read and _made_up(flat, responses):
            read["full"] = [p + r for p, r in zip(read["prompt"], read["response"], strict=True)]
        else:
            read["full"] = [read_chat(row, template) for row in flat["full"]]
    histories = {
        name: History.from_chats(nested_like(nested, depth, chats)) for name, chats in read.items()
    }
    td = TensorDict(histories, batch_size=source.batch_size, device=source.device)
    chat: ChatHistory = ChatHistory._from_tensordict(td)
    return chat


def _made_up(flat: dict[str, list[Any]], responses: Sequence[Any] | None) -> bool:
    assert responses is not None
    rows = zip(flat["prompt"], responses, flat["full"], strict=True)
    return all(
        response is not None and prompt + response == full for prompt, response, full in rows
    )


def _read_response(
    prompt: Any, response: Any, known: list[Message], template: Template
) -> tuple[list[Message], str | None]:
    """The messages of a response: one answer (and its end token), or what a whole exchange adds to the prompt."""
    if response is None:
        return [], None
    if prompt is not None:
        whole = read_chat(prompt + response, template)
        new = whole[len(known) :]
        if len(new) > 1 and whole[: len(known)] == known:
            return new, None
    message, end_token = read_answer(response, prompt, template)
    return [message], end_token


def _keep_sampled(
    message: Message,
    ids: list[int],
    end_token: str | None,
    log_probs: list[float] | None,
    template: Template,
) -> None:
    """The ids of a turn in its message, without what a template prints behind its end token."""
    from antiphon.engine.sampled import attach
    from antiphon.engine.tokenizers import view

    ends = {
        token for token, (text, _) in view(template.tokenizer).added.items() if text == end_token
    }
    count = next((i + 1 for i, token in enumerate(ids) if token in ends), len(ids))
    known = log_probs is not None and len(log_probs) == len(ids)
    probs = log_probs[:count] if log_probs is not None and known else None
    message.update(attach(message, ids[:count], probs, template.tokenizer))


# Text to tokens


def text_to_tokens(
    text: Text,
    tokenizer: Any,
    padding: bool,
    max_length: int | None,
    truncation: bool,
    add_special_tokens: bool | None,
) -> Tokens:
    """What `Text.to_tokens` documents."""
    from antiphon.conversations.containers import Tokens
    from antiphon.conversations.ragged import ragged

    nested, depth, flat = _text_parts(text)
    for given, value in (("padding", padding), ("add_special_tokens", add_special_tokens)):
        switch(given, value)
    if max_length is not None and whole("max_length", max_length) < 0:
        raise InvalidParameter(f"max_length must not be negative, got {max_length}")
    ids: dict[str, list[list[int]]] = {}
    if "prompt" in flat:
        ids["prompt"] = _encode_start(flat["prompt"], tokenizer, add_special_tokens)
    if "response" in flat:
        ids["response"] = _encode_plain(flat["response"], tokenizer)
    if "full" in flat:
        ids["full"] = _encode_full(flat, ids, tokenizer, add_special_tokens)
    if truncation:
        limit = (
            max_length if max_length is not None else getattr(tokenizer, "model_max_length", None)
        )
        if limit is not None:
            ids = {name: [row[:limit] for row in rows] for name, rows in ids.items()}
    shaped = {}
    for name, rows in ids.items():
        tensors = [as_tensor(row, torch.int64, text.device) for row in rows]
        shaped[name] = nested_like(nested, depth, tensors)
    shared = {"fingerprints": token_fingerprints(tokenizer)}
    tokens: Tokens = ragged(Tokens, text.batch_size, shaped, text.device, shared)
    return tokens.pad(pad_id(tokenizer)) if padding else tokens


def _encode_full(
    flat: dict[str, list[str]],
    ids: dict[str, list[list[int]]],
    tokenizer: Any,
    add_special_tokens: bool | None,
) -> list[list[int]]:
    """The ids of full texts: those of the prompt, then what follows it, encoded apart."""
    fulls = flat["full"]
    prompts = flat.get("prompt")
    if prompts is None:
        return _encode_start(fulls, tokenizer, add_special_tokens)
    behind = [
        full[len(p) :] if full.startswith(p) else None
        for p, full in zip(prompts, fulls, strict=True)
    ]
    tails = iter(_encode_plain([tail for tail in behind if tail is not None], tokenizer))
    return [
        ids["prompt"][i] + next(tails)
        if tail is not None
        else _encode_start([fulls[i]], tokenizer, add_special_tokens)[0]
        for i, tail in enumerate(behind)
    ]


def _encode_plain(texts: Sequence[str], tokenizer: Any) -> list[list[int]]:
    from antiphon.engine.tokenizers import view

    return [list(row) for row in view(tokenizer).encode_inner(texts)]


def _encode_start(
    texts: Sequence[str], tokenizer: Any, add_special_tokens: bool | None
) -> list[list[int]]:
    """The ids of texts that begin a sequence."""
    from antiphon.engine.tokenizers import view

    tokens = view(tokenizer)
    rows = [list(row) for row in tokens.encode(texts)]
    if add_special_tokens is False:
        return rows
    special = {token for token, (_, is_special) in tokens.added.items() if is_special}
    plain = [i for i, row in enumerate(rows) if add_special_tokens or special.isdisjoint(row)]
    for i in plain:
        whole = list(
            getattr(found := tokenizer.encode(texts[i], add_special_tokens=True), "ids", found)
        )
        # Never a second BOS.
        lead = len(whole) - len(rows[i])
        rows[i] = rows[i] if lead > 0 and rows[i][:lead] == whole[:lead] else whole
    return rows
