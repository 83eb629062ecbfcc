"""Messages as people write them, and as `History` stores them: plain dicts on both sides, no tensors.

Taken in: OpenAI-style messages; the flat tool call ``{"name", "arguments"}`` and the older ``function_call``;
``reasoning`` under any of the names that templates and servers use; ShareGPT turns (``from``/``value``); data-set
rows (``messages``, ``conversations``, ``prompt`` with ``completion``). Keys whose value is None are as good as
absent. A key that is unknown here is kept in ``extra`` and handed out again: templates may read it.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from antiphon.conversations.arguments import short
from antiphon.conversations.dataset_rows import is_message, listed, row_messages
from antiphon.engine.sampled import fits_as_found, found_mark
from antiphon.errors import InvalidMessage

# The fields of a stored message in the order of History.
FIELDS = (
    "role",
    "content",
    "is_complete",
    "tool_calls",
    "tool_responses",
    "reasoning",
    "name",
    "tool_call_id",
    "token_ids",
    "log_probs",
    "sampled_as",
    "extra",
)
# Placeholder role of a message that isn't there (it pads a batch); never rendered.
NO_ROLE = "<none>"

_REASONING = ("reasoning", "reasoning_content", "thinking")
_SHAREGPT_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "claude": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "tool_call": "assistant",
    "developer": "developer",
    "system": "system",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
    "tool_response": "tool",
}
_CALLING = ("function_call", "tool_call")
# Where messages of such data sets have their text, if not in their content.
_TEXT_KEYS = ("value", "text")
_KNOWN = frozenset((*FIELDS, *_REASONING, "function_call"))
_PLAIN_FIELDS = 3  # role, content and is_complete
_TOOL_ROLES = frozenset(("tool", "function", "ipython"))


# Messages in


def stored_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of one message that are not None, `is_complete` always among them.

    Raises:
        InvalidMessage: no mapping, no role, neither content nor anything else, or a malformed field.
    """
    if type(message) is dict and len(message) == 2:
        role, content = message.get("role"), message.get("content")
        if type(role) is str and type(content) is str:  # what most messages are
            return {"role": role, "content": content, "is_complete": True}
    return _stored_in_full(message)


def _stored_in_full(message: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidMessage(
            f"a message must be a mapping with a role, got {type(message).__name__} {short(message)}"
        )
    if "role" not in message and "from" in message:
        message = _from_sharegpt(message)
    role = message.get("role")
    if not isinstance(role, str):
        raise InvalidMessage(
            f"a message needs a role that is a string, got {short(role)} in {short(dict(message))}"
        )
    stored: dict[str, Any] = {"role": role}
    content = message.get("content")
    if content is None and not message.get("tool_calls"):
        key = next((key for key in _TEXT_KEYS if isinstance(message.get(key), str)), None)
        if key is not None:
            content = message[key]
            message = {name: value for name, value in message.items() if name != key}
    if content is not None:
        stored["content"] = _content(content)
    complete = message.get("is_complete")
    try:
        stored["is_complete"] = True if complete is None else bool(complete)
    except (RuntimeError, TypeError, ValueError) as error:  # a tensor of several values, for one
        raise InvalidMessage(f"is_complete must be true or false, got {short(complete)}") from error
    calls = message.get("tool_calls")
    function_call = message.get("function_call")
    if calls is None and function_call is not None:
        calls = [function_call]
    if calls is not None and (stored_calls := _tool_calls(calls)):
        stored["tool_calls"] = stored_calls
    responses = message.get("tool_responses")
    if responses is not None:
        if isinstance(responses, str) or not isinstance(responses, Sequence):
            raise InvalidMessage(f"tool_responses must be a list, got {short(responses)}")
        stored["tool_responses"] = list(responses)
    for name in _REASONING:
        reasoning = message.get(name)
        if reasoning is not None:
            stored["reasoning"] = _string(name, reasoning)
            break
    for name in ("name", "tool_call_id"):
        value = message.get(name)
        if value is not None:
            stored[name] = _string(name, value)
    if message.get("token_ids") is not None:
        stored["token_ids"] = _token_ids(message["token_ids"])
    log_probs = message.get("log_probs")
    if log_probs is not None:
        stored["log_probs"] = _log_probs(log_probs)
    if "token_ids" in stored:
        # From here on an edit is noticed, wherever it happens.
        mark = message.get("sampled_as")
        stored["sampled_as"] = found_mark(message) if mark is None else _string("sampled_as", mark)
    extra = {
        key: value for key, value in message.items() if key not in _KNOWN and value is not None
    }
    nested = message.get("extra")
    if nested is not None:
        if not isinstance(nested, Mapping):
            raise InvalidMessage(f"extra must be a mapping of further keys, got {short(nested)}")
        extra = {**nested, **extra}
    if extra:
        stored["extra"] = extra
    if len(stored) == 2 and "content" not in message and role != NO_ROLE:
        raise InvalidMessage(
            f"the {role} message has neither content nor tool calls: {short(dict(message))}"
        )
    if "content" not in stored:
        stored["content"] = None
    return stored


def _string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidMessage(f"{name} must be a string, got {type(value).__name__} {short(value)}")
    return value


def _token_ids(value: Any) -> list[int]:
    try:
        ids = list(map(operator.index, value.tolist() if hasattr(value, "tolist") else value))
    except (TypeError, RuntimeError) as error:  # the latter of tensors without data
        raise InvalidMessage(f"token_ids must be a list of ids, got {short(value)}") from error
    if ids and min(ids) < 0:
        raise InvalidMessage(f"token_ids hold {min(ids)}, which is no id")
    return ids


def _log_probs(value: Any) -> list[float]:
    try:
        return list(map(float, value.tolist() if hasattr(value, "tolist") else value))
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InvalidMessage(f"log_probs must be a list of numbers, got {short(value)}") from error


def _content(content: Any) -> Any:
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        content = [content]
    if isinstance(content, Sequence):
        return [_part(part) for part in content]
    to_parts = getattr(content, "to_parts", None)  # a Content of ours
    if to_parts is not None:
        return to_parts()
    raise InvalidMessage(
        f"content must be a string or a list of parts, got {type(content).__name__} {short(content)}"
    )


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, Mapping):
        # Data sets with one column type for all parts fill the other keys with None.
        return {key: value for key, value in part.items() if value is not None}
    to_parts = getattr(part, "to_parts", None)
    if to_parts is not None:
        parts = to_parts()
        if len(parts) == 1:
            return dict(parts[0])
    raise InvalidMessage(f"a content part must be a mapping with a type, got {short(part)}")


def _tool_calls(calls: Any) -> list[dict[str, Any]]:
    if isinstance(calls, str):  # columns of one type hold calls as JSON
        try:
            calls = json.loads(calls)
        except (ValueError, RecursionError) as error:
            raise InvalidMessage(
                f"tool_calls must be a list of calls, or JSON of one, got {short(calls)}"
            ) from error
    if isinstance(calls, Mapping):
        calls = [calls] if len(calls) else []  # a tensordict is a mapping, and has no truth
    if isinstance(calls, str) or not isinstance(calls, Sequence):
        raise InvalidMessage(f"tool_calls must be a list of calls, got {short(calls)}")
    return [stored_call(call) for call in calls]


def stored_call(call: Any) -> dict[str, Any]:
    """A tool call in OpenAI form: type, id where it has one, function with name and arguments.

    Arguments that are a string holding a JSON object become that mapping; another string stays as it is.

    Raises:
        InvalidMessage: not a mapping, or no function name and no raw text of a malformed call either.
    """
    if not isinstance(call, Mapping):
        raise InvalidMessage(f"a tool call must be a mapping with a name, got {short(call)}")
    outer = {key: value for key, value in call.items() if value is not None}
    function = outer.pop("function", None)
    if isinstance(function, Mapping):
        inner = {key: value for key, value in function.items() if value is not None}
    else:
        # The flat form: all that isn't known to be the call's own belongs to the function.
        inner = {key: outer.pop(key) for key in ("name", "arguments", "parameters") if key in outer}
        if isinstance(function, str):
            inner["name"] = function
        if "parameters" in inner:
            inner.setdefault("arguments", inner.pop("parameters"))
    if not isinstance(inner.get("name"), str) and "raw" not in outer:
        raise InvalidMessage(f"a tool call needs the name of its function, got {short(dict(call))}")
    if "arguments" in inner:
        inner["arguments"] = _arguments(inner["arguments"])
    stored = {"type": outer.pop("type", "function")}
    if "id" in outer:
        stored["id"] = outer.pop("id")
    stored["function"] = inner
    status = outer.get("status")
    if (
        isinstance(status, str) and status == "ok"
    ):  # what the reader says of a call that has nothing wrong with it
        del outer["status"]
    stored.update(outer)
    return stored


def _arguments(arguments: Any) -> Any:
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except ValueError:
            return arguments
        return parsed if isinstance(parsed, dict) else arguments
    if isinstance(arguments, Mapping):
        return dict(arguments)
    return arguments


def _from_sharegpt(message: Mapping[str, Any]) -> dict[str, Any]:
    source = message["from"]
    role = _SHAREGPT_ROLES.get(source.lower()) if isinstance(source, str) else None
    if role is None:
        raise InvalidMessage(
            f"'from' names an unknown speaker {short(source)}; known: {', '.join(sorted(_SHAREGPT_ROLES))}"
        )
    value = message.get("value")
    rest = {key: item for key, item in message.items() if key not in ("from", "value")}
    if source.lower() in _CALLING and value is not None:
        return {"role": role, **_said_calls(source, value), **rest}
    return {"role": role, "content": value, **rest}


def _said_calls(source: str, value: Any) -> dict[str, Any]:
    """The calls of a ShareGPT turn that calls: one or a list of them as JSON, perhaps with a thought before.

    Raises:
        InvalidMessage: it holds no call.
    """
    fields: dict[str, Any] = {"content": None}
    calls = value
    if isinstance(value, str):
        thought, end, rest = value.partition("</think>")
        if end and thought.lstrip().startswith("<think>"):
            fields["reasoning"] = thought.lstrip().removeprefix("<think>").strip()
            value = rest
        try:
            calls = json.loads(value)
        except (ValueError, RecursionError):
            calls = None
    calls = [calls] if isinstance(calls, Mapping) else calls
    if not isinstance(calls, list) or not calls or not all(map(_is_call, calls)):
        raise InvalidMessage(
            f"'from' is {source}, and its value is no call as JSON, with name and arguments: {short(value)}"
        )
    return {**fields, "tool_calls": calls}


def _is_call(call: Any) -> bool:
    if not isinstance(call, Mapping):
        return False
    function = call.get("function")
    named = function if isinstance(function, Mapping) else call
    return isinstance(named.get("name"), str) or isinstance(function, str)


# Chats in


def map_chats(chats: Any, conversation: Callable[[list[dict[str, Any]]], Any]) -> tuple[Any, int]:
    """Applies `conversation` to the stored messages of each conversation in `chats`.

    Args:
        chats: a message list, a row, or (nested) lists of those.
        conversation: what to make of one conversation.

    Returns:
        The nested lists of results, in the form of `chats`, and how deep they are nested (0: one
        conversation).

    Raises:
        InvalidMessage: names the conversation and the message by their indices.
    """
    try:
        return _map_chats(chats, conversation, ())
    except RecursionError as error:
        raise InvalidMessage("the lists, or what messages hold, are nested too deeply") from error


def _map_chats(chats: Any, conversation: Any, path: tuple[int, ...]) -> tuple[Any, int]:
    if isinstance(chats, Mapping):
        if is_message(chats):
            raise InvalidMessage(
                f"{_where(path)}expected a list of messages, got one message {short(chats)}"
            )
        try:
            chats = row_messages(chats)
        except InvalidMessage as error:
            raise InvalidMessage(f"{_where(path)}{error}") from None
        return _map_messages(chats, conversation, path), 0
    try:
        items = listed(chats)
    except InvalidMessage as error:
        raise InvalidMessage(f"{_where(path)}{error}") from None
    if items and is_message(items[0]):
        return _map_messages(items, conversation, path), 0
    if not items and path:
        return _map_messages(items, conversation, path), 0
    results = []
    depths = set()
    for i, item in enumerate(items):
        result, depth = _map_chats(item, conversation, (*path, i))
        results.append(result)
        depths.add(depth)
    if len(depths) > 1:
        raise InvalidMessage(
            f"{_where(path)}conversations are nested to different depths: {sorted(depths)}"
        )
    return results, 1 + (depths.pop() if depths else 0)


def _map_messages(messages: list[Any], conversation: Any, path: tuple[int, ...]) -> Any:
    try:
        stored = [stored_message(message) for message in messages]
    except InvalidMessage:
        # Only now is it worth finding out which one.
        for i, message in enumerate(messages):
            try:
                stored_message(message)
            except InvalidMessage as error:
                raise InvalidMessage(f"{_where(path)}message {i}: {error}") from None
        raise
    return conversation(stored)


def _where(path: tuple[int, ...]) -> str:
    return "".join(f"conversation {i}: " for i in path)


# Messages out


def openai_messages(stored: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages in OpenAI form, for templates and files: no None, no placeholder message.

    `is_complete` is there only where it is False, so what comes out goes in again unchanged. A tool message
    that holds several responses and no content becomes one tool message for each.
    """
    messages: list[dict[str, Any]] = []
    for item in stored:
        role, content = item.get("role"), item.get("content")
        if role is None:
            raise InvalidMessage(f"a message has no role: {short(dict(item))}")
        if role == NO_ROLE:
            continue
        if len(item) == _PLAIN_FIELDS and content is not None and item.get("is_complete"):
            messages.append({"role": role, "content": content})  # what most messages are
            continue
        responses = item.get("tool_responses")
        if responses and not item.get("content") and item["role"] in _TOOL_ROLES:
            rest = {key: value for key, value in item.items() if key != "tool_responses"}
            for response in responses:
                text = (
                    response
                    if isinstance(response, str)
                    else json.dumps(response, ensure_ascii=False)
                )
                messages.append(_openai_message({**rest, "content": text}))
            continue
        messages.append(_openai_message(item))
    return messages


def _openai_message(item: Mapping[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": item["role"]}
    for key, value in item.items():
        if value is None or key in ("role", "extra"):
            continue
        if key == "sampled_as" and fits_as_found(item):
            continue  # it came without
        if key == "is_complete":
            if not value:
                message[key] = False
        elif key == "reasoning":
            message["reasoning_content"] = value
        else:
            message[key] = value
    extra = item.get("extra")
    if extra:
        message.update(extra)
    return message
