"""What `History.apply_chat_template` gives: texts, or ids and masks as lists, tensors or tensordicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict

from antiphon.conversations.arguments import one_of, said, short, switch, whole
from antiphon.conversations.encoding import Encoded, as_tensor, chat_texts, encode_chats, pad_id
from antiphon.conversations.nested import flattened, nested_like
from antiphon.conversations.template_forms import renderable
from antiphon.conversations.templating import Template
from antiphon.errors import InvalidParameter

if TYPE_CHECKING:
    from antiphon.conversations.history import History

Message = dict[str, Any]


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
    for name, given in (
        ("add_generation_prompt", add_generation_prompt),
        ("continue_final_message", continue_final_message),
        ("tokenize", tokenize),
        ("return_dict", return_dict),
        ("return_assistant_tokens_mask", with_mask),
    ):
        switch(name, given)
    if max_length is not None and whole("max_length", max_length) < 0:
        raise InvalidParameter(f"max_length must not be negative, got {max_length}")
    if tokenize is None:
        tokenize = with_mask or return_tensors is not None or bool(return_dict)
    if return_tensors is not None:
        one_of("return_tensors", return_tensors, ("pt", "np"))
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
    if not tokenize:
        texts = chat_texts(chats, template, add_generation_prompt, continue_final_message)
        return nested_like(nested, depth, texts)
    if template.tokenizer is None:
        raise InvalidParameter("tokenize needs a tokenizer: pass tokenizer=")
    rows = encode_chats(chats, template, add_generation_prompt, continue_final_message)
    if _truncates(truncation) and max_length is not None:
        side = getattr(template.tokenizer, "truncation_side", "right")
        rows = [row.cut(max_length, side) for row in rows]
    size = _padded_size(padding, max_length, rows)
    if size is not None:
        side = getattr(template.tokenizer, "padding_side", "right")
        rows = [row.padded(size, pad_id(template.tokenizer), side) for row in rows]
    if return_dict is None:
        return_dict = with_mask
    if return_dict:
        entries: list[dict[str, Any]] = [row.entries(with_mask) for row in rows]
        if return_tensors == "np":
            arrays = [{name: value.numpy() for name, value in entry.items()} for entry in entries]
            return nested_like(nested, depth, arrays)
        return _stacked(
            nested, depth, [TensorDict(entry, batch_size=()) for entry in entries], size
        )
    ids: list[Any] = [as_tensor(row.ids, torch.int64) for row in rows]
    if return_tensors == "np":
        ids = [row.numpy() for row in ids]
    if depth == 0:
        return ids[0][None]
    if size is not None and return_tensors != "np":
        shape = (*history.batch_size[:-1], size)
        return torch.stack(ids).reshape(shape) if ids else torch.zeros(shape, dtype=torch.int64)
    return nested_like(nested, depth, ids)


def _stacked(nested: Any, depth: int, rows: list[Any], size: int | None) -> Any:
    if depth == 0:
        return rows[0]

    def stack(part: Any, level: int) -> Any:
        if level == 0:
            return part
        items = [stack(item, level - 1) for item in part]
        if not items:
            return TensorDict(batch_size=(0,) * level)
        return torch.stack(items) if size is not None else LazyStackedTensorDict(*items)

    return stack(nested_like(nested, depth, rows), depth)


def _padded_size(
    padding: bool | str, max_length: int | None, rows: Sequence[Encoded]
) -> int | None:
    if not isinstance(padding, (bool, str)):
        raise InvalidParameter(
            f"padding must be True, False, 'longest' or 'max_length', got {said(padding)}"
        )
    if padding in (False, "do_not_pad"):
        return None
    if padding == "max_length":
        if max_length is None:
            raise InvalidParameter("padding='max_length' needs max_length")
        return max_length
    if padding in (True, "longest"):
        return max((len(row.ids) for row in rows), default=0)
    raise InvalidParameter(
        f"padding must be True, False, 'longest' or 'max_length', got {short(padding)}"
    )


def _truncates(truncation: bool | str) -> bool:
    if isinstance(truncation, str) and truncation not in (
        "longest_first",
        "only_first",
        "do_not_truncate",
    ):
        raise InvalidParameter(
            "truncation must be True, False, 'longest_first', 'only_first' or 'do_not_truncate', got "
            f"{short(truncation)}"
        )
    return bool(
        truncation if isinstance(truncation, str) else switch("truncation", truncation)
    ) and (truncation != "do_not_truncate")


def _by_processor(
    template: Template,
    chat: Sequence[Message],
    add_generation_prompt: bool,
    continues: bool,
    tokenize: bool,
) -> Any:
    """A processor puts pictures and sound into the text and the tensors: that is its own matter."""
    result = template.tokenizer.apply_chat_template(
        renderable(chat, template.chat_template),
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
