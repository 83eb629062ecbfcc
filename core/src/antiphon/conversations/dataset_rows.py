"""Rows of data sets: which of their keys hold messages, and what to do with rows that are no conversation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from antiphon.conversations.arguments import short
from antiphon.errors import InvalidMessage

ROW_KEYS = ("messages", "conversations", "conversation", "chat", "dialog")
_SYSTEM_KEYS = ("system", "system_prompt")
# Keys that make a message of what has no role.
_MESSAGE_KEYS = ("from", "content", "value", "text", "parts", "tool_calls", "function_call", "name")
# Rows that are of a known kind and yet not one conversation, by the keys that tell, with what to do.
_OTHER_ROWS = (
    (
        {"chosen", "rejected"},
        "holds preferences (chosen, rejected), not one conversation: `antiphon tokenize --preference` makes ids of "
        "both; else take the messages of one of them",
    ),
    (
        {"instruction"},
        "holds an instruction, not a conversation: put it under prompt and its answer under completion, with what "
        "stands under input or context behind the instruction",
    ),
    (
        {"text"},
        "holds a text, not messages: `antiphon.parse` reads messages from the text of a template",
    ),
)


def is_message(item: Any) -> bool:
    """Whether `item` is one message rather than a conversation or a row."""
    if not isinstance(item, Mapping):
        return False
    if "role" in item or ("from" in item and "value" in item):
        return True
    is_row = any(key in item for key in (*ROW_KEYS, "prompt", "chosen", "instruction"))
    return not is_row and (not list(item) or any(key in item for key in _MESSAGE_KEYS))


def row_messages(row: Mapping[str, Any]) -> list[Any]:
    """The messages of a data-set row; see `row_parts`."""
    return row_parts(row)[0]


def row_parts(row: Mapping[str, Any]) -> tuple[list[Any], int]:
    """The messages of a data-set row, and how many of them are a prompt with a completion behind it.

    Columns of one type hold messages as JSON, as rollouts write them. A system text beside the messages is the first
    of them, where they begin with none.

    Raises:
        InvalidMessage: the row has no key that holds messages, or a text that is not JSON.
    """
    present = [key for key in ROW_KEYS if row.get(key) is not None]
    if present:
        # Where files with other names for them were joined, all columns but one are empty.
        key = next((key for key in present if not _is_empty(row[key])), present[0])
        messages = row[key]
        if isinstance(messages, str) and messages.lstrip().startswith("["):
            try:
                messages = json.loads(messages)
            except (ValueError, RecursionError) as error:
                raise InvalidMessage(f"the {key} are a string that is not JSON ({error})") from None
        return _led(row, listed(messages), 0)
    other = other_kind([key for key, value in row.items() if value is not None])
    if other:
        raise InvalidMessage(f"the row {other}")
    if row.get("prompt") is not None:
        prompt = said_by("user", row["prompt"])
        completion = row.get("completion")
        completion = [] if completion is None else said_by("assistant", completion)
        return _led(row, [*prompt, *completion], len(prompt) if completion else 0)
    raise InvalidMessage(
        f"the row has none of {', '.join(ROW_KEYS)}, or prompt with completion; its keys are {short(list(row))}"
    )


def _led(row: Mapping[str, Any], messages: list[Any], prompt: int) -> tuple[list[Any], int]:
    system = next((row[key] for key in _SYSTEM_KEYS if isinstance(row.get(key), str)), "")
    if not system or not messages or _is_system(messages[0]):
        return messages, prompt
    return [{"role": "system", "content": system}, *messages], prompt + bool(prompt)


def _is_system(message: Any) -> bool:
    roles = (message.get("role"), message.get("from")) if isinstance(message, Mapping) else ()
    return any(isinstance(role, str) and role == "system" for role in roles)


def other_kind(names: Iterable[str]) -> str | None:
    """What a row with keys of these names is, and what to do with it; None where it may hold one conversation."""
    present = set(names)
    for keys, what in _OTHER_ROWS:
        # Whatever else stands beside a prompt, the prompt is to be read; but not alone, if two answers follow.
        if present.issuperset(keys) and ("prompt" not in present or "chosen" in keys):
            return what
    return None


def said_by(role: str, value: Any) -> list[Any]:
    """A prompt or an answer as messages: they may be a text, one message, or a list of messages."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if isinstance(value, Mapping) and is_message(value) and isinstance(value.get("role", ""), str):
        return [value]
    return listed(value)


def _is_empty(messages: Any) -> bool:
    try:
        return not len(messages)
    except TypeError:  # what has no length may still give messages
        return False


def listed(items: Any) -> list[Any]:
    if isinstance(items, list):
        return items
    if isinstance(items, Mapping) and all(isinstance(column, list) for column in items.values()):
        return _from_columns(items)
    if isinstance(items, (Mapping, str, bytes)) or not isinstance(items, Iterable):
        raise InvalidMessage(
            f"expected a list of messages, got {type(items).__name__} {short(items)}"
        )
    try:
        return list(items)
    except TypeError as error:  # a tensor without dimensions
        raise InvalidMessage(f"expected a list of messages, got {short(items)}") from error


def _from_columns(columns: Mapping[str, list[Any]]) -> list[Any]:
    """Messages whose fields are lists, as a `Sequence` of dicts is stored."""
    sizes = {len(column) for column in columns.values()}
    if len(sizes) > 1:
        raise InvalidMessage(f"expected columns of equal length, got {short(dict(columns))}")
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
