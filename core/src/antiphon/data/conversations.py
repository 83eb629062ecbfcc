"""A row of a data set as a conversation that a template can take.

A row is a list of messages, or a mapping with the messages under one of the usual names and perhaps ``tools`` and
``chat_template_kwargs``. Arrow gives every dict of a column the same keys and fills those that are missing with
None, so keys whose value is None are as good as absent: in messages, calls and tool schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from antiphon.conversations.chats import openai_messages, stored_message
from antiphon.conversations.dataset_rows import is_message, row_parts
from antiphon.errors import InvalidMessage

_TOOL_KEYS = ("tools", "functions")
_SAYS_NOTHING = frozenset(("role", "is_complete", "name", "tool_call_id"))
# What a rendering is asked for: no variables of a template, so a row or a setting must not put others in their place.
_RESERVED = frozenset(
    (
        "messages",
        "tokenizer",
        "family",
        "tools",
        "documents",
        "add_generation_prompt",
        "continue_final_message",
        "chat_template",
    )
)


@dataclass
class Conversation:
    """One conversation, put right.

    Attributes:
        messages: In OpenAI form, without None.
        tools: The row's tools, None where it has none.
        variables: Template variables that the row brings along.
        prompt: How many messages at the beginning are the prompt that a row names, 0 where it names none.
    """

    messages: list[dict[str, Any]]
    tools: list[Any] | None = None
    variables: dict[str, Any] = field(default_factory=dict)
    prompt: int = 0


def conversation_of(row: Any, *, padded: bool = False) -> Conversation:
    """Return the conversation in a row.

    Args:
        row: A list of messages, or a mapping that holds one (OpenAI form or ShareGPT's ``from`` and ``value``).
        padded: Whether the row comes from Arrow, where None among a call's arguments is padding too.

    Raises:
        InvalidMessage: There are no messages, or one of them is malformed; the error names it.
    """
    if not isinstance(row, Mapping):
        if isinstance(row, (str, bytes)) or not isinstance(row, Sequence):
            raise InvalidMessage(
                f"the row is a {type(row).__name__}, not a list of messages or an object that holds one"
            )
        row = {"messages": row}
    elif is_message(row) and "role" in row:
        raise InvalidMessage("the row is one message, not a conversation")
    raw, prompt = row_parts(row)
    if not raw:
        raise InvalidMessage("the conversation is empty")
    stored = []
    for index, message in enumerate(raw):
        try:
            stored.append(stored_message(message))
        except InvalidMessage as error:
            raise InvalidMessage(f"message {index}: {error}") from None
    for index, fields in enumerate(stored):
        if not any(value is not None for key, value in fields.items() if key not in _SAYS_NOTHING):
            raise InvalidMessage(
                f"message {index}: the {fields['role']} message has neither content nor tool calls"
            )
    messages = openai_messages(stored)
    if padded:
        for message in messages:
            if "tool_calls" in message:
                message["tool_calls"] = without_none(message["tool_calls"])
    return Conversation(messages, row_tools(row), row_variables(row), prompt)


def without_none(value: Any) -> Any:
    """Return the value without the keys of its dicts, at any depth, that hold None; lists keep theirs."""
    if isinstance(value, Mapping):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [without_none(item) for item in value]
    return value


def is_conversation(value: Any) -> bool:
    """Whether a JSON list is one conversation, its first item a message, and not a list of rows."""
    if not isinstance(value, list) or not value or not isinstance(value[0], Mapping):
        return False
    return "role" in value[0] or "from" in value[0]


def row_tools(row: Mapping[str, Any]) -> list[Any] | None:
    """Return the tools that a row brings, as schemas; None where it has none.

    Raises:
        InvalidMessage: They are no list of schemas, nor JSON of one.
    """
    tools = next((row[key] for key in _TOOL_KEYS if row.get(key) is not None), None)
    if tools is None:
        return None
    if isinstance(tools, str):
        # Columns of one type hold tools of many forms as JSON.
        try:
            tools = json.loads(tools) if tools.strip() else None
        except (ValueError, RecursionError) as error:
            raise InvalidMessage(f"the tools are a string that is not JSON ({error})") from error
    if tools is None:
        return None
    if not isinstance(tools, (list, tuple)):
        raise InvalidMessage(f"the tools are a {type(tools).__name__}, not a list of schemas")
    parsed = [_tool(number, tool) for number, tool in enumerate(tools)]
    return parsed or None


def _tool(number: int, tool: Any) -> Any:
    if isinstance(tool, str):
        try:
            tool = json.loads(tool)
        except (ValueError, RecursionError) as error:
            raise InvalidMessage(f"tool {number} is a string that is not JSON ({error})") from error
    if not isinstance(tool, Mapping):
        raise InvalidMessage(f"tool {number} is a {type(tool).__name__}, not a schema")
    return without_none(tool)


def row_variables(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template variables that a row brings, which columns of one type hold as JSON.

    Raises:
        InvalidMessage: ``chat_template_kwargs`` is no mapping, or sets what is no variable.
    """
    variables = row.get("chat_template_kwargs")
    if isinstance(variables, str):
        try:
            variables = json.loads(variables) if variables.strip() else None
        except (ValueError, RecursionError) as error:
            raise InvalidMessage(
                f"chat_template_kwargs is a string that is not JSON ({error})"
            ) from error
    if variables is None:
        return {}
    if not isinstance(variables, Mapping):
        raise InvalidMessage("chat_template_kwargs is not a mapping")
    found = {str(key): value for key, value in variables.items() if value is not None}
    reserved = reserved_variables(found)
    if reserved:
        raise InvalidMessage(f"chat_template_kwargs sets {reserved}, which is no template variable")
    return found


def reserved_variables(names: Iterable[str]) -> str:
    """Return which of the names are no template variables, with commas between; "" where all are."""
    return ", ".join(sorted(_RESERVED.intersection(names)))
