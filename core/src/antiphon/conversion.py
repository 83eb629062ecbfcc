"""Conversions between conversations, texts and tokens.

Tokens are the truth. What a model sampled is never encoded again: its ids ride along in the message
(`token_ids`) and stand in the turn they were sampled for, and text is what ids decode to. A prompt and what
follows it are encoded apart, as the model saw them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict

from antiphon.errors import ContainerError, InvalidParameter, TurnRewritten
from antiphon.sampled_turns import Encoded, encoded, spliced_text
from antiphon.templating import Template, read_answer, read_chat, renderable

if TYPE_CHECKING:
    from antiphon.containers import ChatHistory, LogProbs, Masks, Text, Tokens
    from antiphon.history import History
    from antiphon.rendering import Rendering

Message = dict[str, Any]


# Nested lists: batches of any shape, ragged or not


def flattened(nested: Any, depth: int) -> list[Any]:
    """The leaves of lists nested `depth` deep."""
    if depth == 0:
        return [nested]
    return [leaf for part in nested for leaf in flattened(part, depth - 1)]


def nested_like(nested: Any, depth: int, leaves: Iterable[Any]) -> Any:
    """`leaves` in lists of the form of `nested`."""
    source = iter(leaves)

    def walk(part: Any, level: int) -> Any:
        return next(source) if level == 0 else [walk(item, level - 1) for item in part]

    return walk(nested, depth)


# A History through its template


def apply_template(
    history: History,
    template: Template,
    *,
    add_generation_prompt: bool,
    continue_final_message: bool,
    tokenize: bool | None,
    padding: bool | str,
    truncation: bool | str,
    max_length: int | None,
    return_tensors: str | None,
    return_dict: bool | None,
    with_mask: bool,
) -> Any:
    """What `History.apply_chat_template` documents."""
    if tokenize is None:
        tokenize = with_mask or return_tensors is not None or bool(return_dict)
    if return_tensors not in (None, "pt", "np"):
        raise InvalidParameter(f"return_tensors must be 'pt' or 'np', got {return_tensors!r}")
    depth = max(history.ndim - 1, 0)
    nested = history._messages()
    chats = flattened(nested, depth)
    if hasattr(template.tokenizer, "image_processor") or hasattr(
        template.tokenizer, "feature_extractor"
    ):
        results = [
            _by_processor(template, chat, add_generation_prompt, continue_final_message, tokenize)
            for chat in chats
        ]
        return nested_like(nested, depth, results)
    if continue_final_message:
        add_generation_prompt = False
    renderings = template.render_all(chats, add_generation_prompt, continue_final_message)
    if not tokenize:
        texts = [
            spliced_text(rendering, chat, template)
            for rendering, chat in zip(renderings, chats, strict=True)
        ]
        return nested_like(nested, depth, texts)
    if template.tokenizer is None:
        raise InvalidParameter("tokenize needs a tokenizer: pass tokenizer=")
    rows = encode_all(renderings, chats, template)
    if truncation and max_length is not None:
        side = getattr(template.tokenizer, "truncation_side", "right")
        rows = [row.cut(max_length, side) for row in rows]
    size = _padded_size(padding, max_length, rows)
    if size is not None:
        side = getattr(template.tokenizer, "padding_side", "right")
        rows = [row.padded(size, pad_id(template.tokenizer), side) for row in rows]
    if return_dict is None:
        return_dict = with_mask
    entries = [row.entries(with_mask) for row in rows]
    if return_tensors == "np":
        entries = [{name: value.numpy() for name, value in entry.items()} for entry in entries]
    elif return_dict:
        return _stacked(
            nested, depth, [TensorDict(entry, batch_size=()) for entry in entries], size
        )
    if return_dict:
        return nested_like(nested, depth, entries)
    ids = [entry["input_ids"] for entry in entries]
    if depth == 0:
        return ids[0][None]
    if size is not None and return_tensors != "np":
        return torch.stack(ids).reshape(*history.batch_size[:-1], size)
    return nested_like(nested, depth, ids)


def _stacked(nested: Any, depth: int, rows: list[Any], size: int | None) -> Any:
    if depth == 0:
        return rows[0]

    def stack(part: Any, level: int) -> Any:
        if level == 0:
            return part
        items = [stack(item, level - 1) for item in part]
        if not items:
            return LazyStackedTensorDict(batch_size=())
        return torch.stack(items) if size is not None else LazyStackedTensorDict(*items)

    return stack(nested_like(nested, depth, rows), depth)


def _padded_size(
    padding: bool | str, max_length: int | None, rows: Sequence[Encoded]
) -> int | None:
    if padding in (False, "do_not_pad"):
        return None
    if padding == "max_length":
        if max_length is None:
            raise InvalidParameter("padding='max_length' needs max_length")
        return max_length
    if padding in (True, "longest"):
        return max((len(row.ids) for row in rows), default=0)
    raise InvalidParameter(
        f"padding must be True, False, 'longest' or 'max_length', got {padding!r}"
    )


def _by_processor(
    template: Template,
    chat: Sequence[Message],
    add_generation_prompt: bool,
    continues: bool,
    tokenize: bool,
) -> Any:
    """A processor puts pictures and sound into the text and the tensors: that is its own matter."""
    result = template.tokenizer.apply_chat_template(
        renderable(chat, "mapping"),
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continues,
        chat_template=template.chat_template,
        tokenize=tokenize,
        **({"return_dict": True, "return_tensors": "pt"} if tokenize else {}),
        **template.variables,
    )
    if not tokenize:
        return result
    return {
        name: value[0] if name in ("input_ids", "attention_mask") else value
        for name, value in result.items()
    }


def pad_id(tokenizer: Any) -> int:
    """The id to pad with; which positions are padding is told by lengths and masks, never by the id."""
    for name in ("pad_token_id", "eos_token_id"):
        value = getattr(tokenizer, name, None)
        if isinstance(value, list):
            value = value[0] if value else None
        if value is not None:
            return int(value)
    return 0


def encode_all(
    renderings: Sequence[Rendering], chats: Sequence[Sequence[Message]], template: Template
) -> list[Encoded]:
    """The tokens of renderings, encoded together, with the sampled ids of their messages."""
    from antiphon.tokenization import tokenize

    return [
        encoded(tokenized, chat, template)
        for tokenized, chat in zip(tokenize(renderings, template.tokenizer), chats, strict=True)
    ]


def decoded(tokenizer: Any, rows: Sequence[Any], skip_special_tokens: bool) -> list[str]:
    """The texts of rows of ids, each exactly what its ids say: no spaces cleaned up."""
    rows = [row.tolist() if isinstance(row, torch.Tensor) else list(row) for row in rows]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and hasattr(backend, "decode_batch"):
        return list(backend.decode_batch(rows, skip_special_tokens=skip_special_tokens))
    if hasattr(tokenizer, "decode_batch"):
        return list(tokenizer.decode_batch(rows, skip_special_tokens=skip_special_tokens))
    options = {}
    if hasattr(tokenizer, "clean_up_tokenization_spaces"):
        options["clean_up_tokenization_spaces"] = False
    return [
        tokenizer.decode(row, skip_special_tokens=skip_special_tokens, **options) for row in rows
    ]


# ChatHistory to text and tokens


class _Chats:
    """A ChatHistory's conversations, in one list for each part; `nested` is the form of the batch."""

    def __init__(self, chat: ChatHistory) -> None:
        self.parts: dict[str, list[list[Message]]] = {}
        self.nested: Any = None
        self.depth = 0
        for name in ("prompt", "response", "full"):
            history = _part(chat._tensordict, name)
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
    from antiphon.history import History

    value = td._get_str(name, None)
    if value is None or isinstance(value, History):
        return value
    if isinstance(td, LazyStackedTensorDict):
        parts = [_part(member, name) for member in td.tensordicts]
        if any(part is None for part in parts):
            return None
        stacked: History = LazyStackedTensorDict.lazy_stack(parts, td.stack_dim)
        return stacked
    raise ContainerError(f"{name} must be a History, got {type(value).__name__}")


def history_to_text(chat: ChatHistory, template: Template) -> Text:
    """What `ChatHistory.to_text` documents."""
    chats = _Chats(chat)
    texts: dict[str, list[str]] = {}
    if chats.prompt is not None:
        texts["prompt"] = _texts(chats.prompt, template, True)
    if chats.full is not None:
        if chats.answer_only:
            renderings = template.render_all(chats.full, False)
            texts["response"] = [
                spliced_text(r, c, template)[r.turns[0].start if r.turns else 0 :]
                for r, c in zip(renderings, chats.full, strict=True)
            ]
            return _text_container(chat, chats, texts)
        texts["full"] = _texts(chats.full, template, False)
    if "prompt" in texts and "full" in texts:
        assert chats.prompt is not None
        texts["response"] = []
        for i, (prompt, full) in enumerate(zip(texts["prompt"], texts["full"], strict=True)):
            if not full.startswith(prompt):
                sampled = _sampled_answer(chats, i)
                if sampled is None:
                    raise TurnRewritten(_rewritten(i, prompt, full))
                full = prompt + decoded(template.tokenizer, [sampled], False)[0]
                texts["full"][i] = full
            texts["response"].append(full[len(prompt) :])
    return _text_container(chat, chats, texts)


def _texts(chats: list[list[Message]], template: Template, prompt: bool) -> list[str]:
    renderings = template.render_all(chats, prompt)
    return [spliced_text(r, c, template) for r, c in zip(renderings, chats, strict=True)]


def _sampled_answer(chats: _Chats, i: int) -> list[int] | None:
    """The sampled ids of the one message that follows prompt `i`, if that is what follows."""
    assert chats.prompt is not None
    assert chats.full is not None
    new = chats.full[i][len(chats.prompt[i]) :]
    return new[0].get("token_ids") if len(new) == 1 else None


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
    from antiphon.containers import Text
    from antiphon.fields import nested_entry

    batch = chat.batch_size
    entries = {}
    for name in ("prompt", "response", "full"):
        if name in texts:
            entries[name] = nested_entry(
                nested_like(chats.nested, chats.depth, texts[name]), chats.depth, chat.device
            )
    text: Text = Text._from_tensordict(TensorDict(entries, batch_size=batch, device=chat.device))
    return text


def history_to_tokens(chat: ChatHistory, template: Template) -> tuple[Tokens, Masks, LogProbs]:
    """The ids, the masks over `full` (or what there is), and the log-probs that messages carry."""
    from antiphon.containers import LogProbs, Masks, Tokens, ragged

    chats = _Chats(chat)
    prompts = _encode(chats.prompt, template, True) if chats.prompt is not None else None
    fulls = _encode(chats.full, template, False) if chats.full is not None else None
    ids: dict[str, list[list[int]]] = {}
    probs: dict[str, list[list[float]]] = {}
    if prompts is not None:
        ids["prompt"] = [row.ids for row in prompts]
        probs["prompt"] = [_known(row) for row in prompts]
    if fulls is not None and chats.answer_only:
        fulls = [_from_first_turn(row) for row in fulls]
        ids["response"] = [row.ids for row in fulls]
        probs["response"] = [_known(row) for row in fulls]
    elif fulls is not None:
        if prompts is not None:
            fulls = [_behind(prompts[i], full, chats, i, template) for i, full in enumerate(fulls)]
            ids["response"] = [f.ids[len(p.ids) :] for p, f in zip(prompts, fulls, strict=True)]
            probs["response"] = [
                _known(f)[len(p.ids) :] for p, f in zip(prompts, fulls, strict=True)
            ]
        ids["full"] = [row.ids for row in fulls]
        probs["full"] = [_known(row) for row in fulls]
    rows = fulls if fulls is not None else prompts
    if rows is None:
        raise ContainerError(
            "this ChatHistory holds neither prompt, response nor full: there is nothing to convert"
        )
    device = chat.device

    def shaped(values: list[list[Any]], dtype: torch.dtype) -> Any:
        tensors = [torch.tensor(value, dtype=dtype, device=device) for value in values]
        return nested_like(chats.nested, chats.depth, tensors)

    size = chat.batch_size
    tokens = ragged(
        Tokens, size, {name: shaped(value, torch.int64) for name, value in ids.items()}, device
    )
    log_probs = ragged(
        LogProbs,
        size,
        {name: shaped(value, torch.float32) for name, value in probs.items()},
        device,
    )
    masks = {"all_attention_mask": shaped([[True] * len(row.ids) for row in rows], torch.bool)}
    if all(row.assistant is not None for row in rows):
        masks["all_assistant_mask"] = shaped([row.mask() for row in rows], torch.bool)
    return tokens, ragged(Masks, size, masks, device), log_probs


def _encode(chats: list[list[Message]], template: Template, prompt: bool) -> list[Encoded]:
    return encode_all(template.render_all(chats, prompt), chats, template)


def _known(row: Encoded) -> list[float]:
    return row.log_probs if row.log_probs is not None else [float("nan")] * len(row.ids)


def _from_first_turn(row: Encoded) -> Encoded:
    start = min((start for start, _ in row.turns.values()), default=0)
    return Encoded(
        row.ids[start:],
        None if row.assistant is None else row.assistant[start:],
        None if row.log_probs is None else row.log_probs[start:],
        problem=row.problem,
    )


def _behind(prompt: Encoded, full: Encoded, chats: _Chats, i: int, template: Template) -> Encoded:
    """The full row as the prompt's ids with the answer behind them."""
    count = len(prompt.ids)
    if full.ids[:count] == prompt.ids:
        return full
    sampled = _sampled_answer(chats, i)
    if sampled is None:
        raise TurnRewritten(
            _rewritten(i, *decoded(template.tokenizer, [prompt.ids, full.ids], False))
        )
    own = chats.full[i][-1].get("log_probs") if chats.full is not None else None
    probs = (
        list(own) if own is not None and len(own) == len(sampled) else [float("nan")] * len(sampled)
    )
    return Encoded(
        [*prompt.ids, *sampled],
        None if prompt.assistant is None else [*prompt.assistant, *[True] * len(sampled)],
        [*_known(prompt), *probs],
        problem=prompt.problem,
    )


# Tokens to text and history


def tokens_to_text(tokens: Tokens, tokenizer: Any, skip_special_tokens: bool) -> Text:
    """What `Tokens.to_text` documents."""
    from antiphon.containers import Text
    from antiphon.fields import nested_entry
    from antiphon.padding import depth_of, leaves, regrouped, token_rows

    entries = {}
    for name in ("prompt", "response", "full"):
        rows = token_rows(tokens._tensordict, name)
        if rows is None:
            continue
        texts = regrouped(rows, decoded(tokenizer, leaves(rows), skip_special_tokens))
        entries[name] = nested_entry(texts, depth_of(rows), tokens.device)
    text: Text = Text._from_tensordict(
        TensorDict(entries, batch_size=tokens.batch_size, device=tokens.device)
    )
    return text


def tokens_to_history(
    tokens: Tokens, template: Template, log_probs: LogProbs | None = None
) -> ChatHistory:
    """What `Tokens.to_history` documents."""
    from antiphon.padding import depth_of, leaves, token_rows

    td = tokens._tensordict
    parts = {name: token_rows(td, name) for name in ("prompt", "response", "full")}
    known = {name: rows for name, rows in parts.items() if rows is not None}
    if not known:
        raise ContainerError(
            "these Tokens hold neither prompt, response nor full: there is nothing to convert"
        )
    nested = next(iter(known.values()))
    flat = {name: [row.tolist() for row in leaves(rows)] for name, rows in known.items()}
    probs = token_rows(log_probs._tensordict, "response") if log_probs is not None else None
    flat_probs = None if probs is None else [row.tolist() for row in leaves(probs)]
    return _read_all(flat, nested, depth_of(nested), tokens, template, flat_probs)


def text_to_history(text: Text, template: Template) -> ChatHistory:
    """What `Text.to_history` documents."""
    parts = {name: _text_rows(text, name) for name in ("prompt", "response", "full")}
    known = {name: rows for name, rows in parts.items() if rows is not None}
    if not known:
        raise ContainerError(
            "this Text holds neither prompt, response nor full: there is nothing to convert"
        )
    nested, depth = next(iter(known.values()))
    return _read_all(
        {n: flattened(rows, d) for n, (rows, d) in known.items()},
        nested,
        depth,
        text,
        template,
        None,
    )


def _text_rows(text: Text, name: str) -> tuple[Any, int] | None:
    value = text._tensordict._get_str(name, None)
    if value is None:
        return None
    rows = value.tolist() if hasattr(value, "tolist") else value
    depth = 0
    probe = rows
    while isinstance(probe, list):
        depth += 1
        probe = probe[0] if probe else None
    return rows, depth


def _read_all(
    flat: dict[str, list[Any]],
    nested: Any,
    depth: int,
    source: Any,
    template: Template,
    log_probs: list[list[float]] | None,
) -> ChatHistory:
    """The ChatHistory of rows of ids or texts."""
    from antiphon.containers import ChatHistory
    from antiphon.history import History

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
    message: Message, ids: list[int], end_token: str | None, log_probs: list[float] | None, template: Template
) -> None:
    """The ids of a turn in its message, without what a template prints behind its end token."""
    from antiphon.tokenizers import view

    ends = {token for token, (text, _) in view(template.tokenizer).added.items() if text == end_token}
    count = next((i + 1 for i, token in enumerate(ids) if token in ends), len(ids))
    message["token_ids"] = ids[:count]
    if log_probs is not None and len(log_probs) == len(ids):
        message["log_probs"] = log_probs[:count]


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
    from antiphon.containers import Tokens, ragged

    parts = {name: _text_rows(text, name) for name in ("prompt", "response", "full")}
    known = {name: value for name, value in parts.items() if value is not None}
    flat = {name: flattened(rows, depth) for name, (rows, depth) in known.items()}
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
        nested, depth = known[name]
        tensors = [torch.tensor(row, dtype=torch.int64, device=text.device) for row in rows]
        shaped[name] = nested_like(nested, depth, tensors)
    tokens: Tokens = ragged(Tokens, text.batch_size, shaped, text.device)
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
    from antiphon.tokenizers import view

    return [list(row) for row in view(tokenizer).encode_inner(texts)]


def _encode_start(
    texts: Sequence[str], tokenizer: Any, add_special_tokens: bool | None
) -> list[list[int]]:
    """The ids of texts that begin a sequence."""
    from antiphon.tokenizers import view

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
