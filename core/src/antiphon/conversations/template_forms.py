"""The form in which a template takes messages: calls as mappings or JSON, contents as strings or parts.

One conversation is to render on every model, so what a `History` or a row of a data set holds is handed to each
template in the form that it takes. A probe of the template tells which that is.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from antiphon.engine.sampled import SAMPLED_KEYS
from antiphon.errors import AntiphonError, InvalidMessage

Message = dict[str, Any]

_OWN = frozenset(("is_complete", *SAMPLED_KEYS))


class CallForm(NamedTuple):
    """How a template takes an assistant message that calls tools.

    Attributes:
        arguments: "mapping" or "string" (of JSON).
        content: what stands for content where there is none: "" or None.
    """

    arguments: str
    content: str | None


def renderable(messages: Any, template: str | None) -> list[Message]:
    """The messages (a list of dicts) as a template is to see them; what is unchanged is shared.

    Calls and contents stay as they are stored where the template is not known.

    Raises:
        InvalidMessage: a message holds a medium, and the template takes text alone; or what a `History` held is
            one message or a batch.
    """
    if isinstance(messages, Mapping):
        raise InvalidMessage(
            "this is one message, no conversation: call unsqueeze(0) on its History"
        )
    if messages and isinstance(messages[0], list):
        raise InvalidMessage(
            f"this is a batch of {len(messages)} conversations: pass them one by one, or the batch to render_batch()"
        )
    result = []
    taken: set[Any] = set()  # roles whose strings the template takes: most messages end there
    for index, message in enumerate(messages):
        if (
            len(message) == 2
            and isinstance(message.get("content"), str)
            and (template is None or message.get("role") in taken)
        ):
            result.append(message)
            continue
        if not _OWN.isdisjoint(message):
            message = {key: value for key, value in message.items() if key not in _OWN}
        calls = message.get("tool_calls")
        if calls and template is not None:
            form = call_form(template)
            if form.arguments == "string":
                calls = [_with_string(call) for call in calls]
            message = {**message, "tool_calls": calls}
            if not message.get("content"):
                message["content"] = form.content
        content = message.get("content")
        if content and template is not None:
            wanted = content_form(template, message["role"])
            if wanted != "parts":
                taken.add(message["role"])
            if wanted != "any" and isinstance(content, str) != (wanted == "text"):
                message = {**message, "content": _in_form(content, wanted, index)}
        result.append(message)
    return result


def _in_form(content: Any, form: str, index: int) -> Any:
    """A content as the one string that a template takes, or as the parts that it takes."""
    if form == "parts":
        return [{"type": "text", "text": content}]
    for part in content:
        if not isinstance(part.get("text"), str):
            raise InvalidMessage(
                f"message {index} holds {part.get('type', 'a part without text')!r}, and the template takes text alone"
            )
    return "".join(part["text"] for part in content)


def _with_string(call: Message) -> Message:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if arguments is None or isinstance(arguments, str):
        return call
    return {
        **call,
        "function": {**function, "arguments": json.dumps(arguments, ensure_ascii=False)},
    }


@functools.lru_cache(maxsize=256)
def call_form(template: str) -> CallForm:
    """Find out how a template takes calls, by rendering one each way.

    A template that takes mappings prints them as JSON or piece by piece; one that joins strings refuses a mapping,
    or prints it as Python does. Some print calls only where the content is a string, some only where it is None.
    """
    from antiphon.engine.rendering import render
    from antiphon.plugins.events import unobserved

    def shown(content: str | None, arguments: Any) -> str:
        call = {
            "type": "function",
            "id": "call00001",
            "function": {"name": "probe", "arguments": arguments},
        }
        conversation = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": content, "tool_calls": [call]},
        ]
        try:
            with unobserved():  # it is nobody's conversation
                return render(conversation, chat_template=template, bos_token="", eos_token="").text
        except AntiphonError:
            return ""

    for content in ("", None):
        mapping = shown(content, {"Key": "Value"})
        if "Value" in mapping and "'Key': 'Value'" not in mapping:
            return CallForm("mapping", content)
        if "Value" in shown(content, '{"Key": "Value"}'):
            return CallForm("string", content)
    return CallForm("mapping", "")


@functools.lru_cache(maxsize=1024)
def content_form(template: str, role: str) -> str:
    """Find out whether a template takes the content of a role's messages as "text", as "parts", or as "any" of both.

    Many that take strings refuse a list, or print it as Python does; some print nothing of a string.
    """
    from antiphon.engine.rendering import render
    from antiphon.plugins.events import unobserved

    probe = "ProbeQ7"
    call = {"type": "function", "id": "call00001", "function": {"name": "f", "arguments": {}}}
    user: Message = {"role": "user", "content": "x"}
    if role != "user":
        (user,) = renderable([user], template)

    def takes(content: Any) -> bool:
        message = {"role": role, "content": content}
        if role in ("user", "system", "developer"):
            conversation = [message] if role == "user" else [message, user]
        elif role in ("assistant", "model"):
            conversation = [user, message]
        else:
            calling = {"role": "assistant", "content": "", "tool_calls": [call]}
            conversation = [*renderable([user, calling], template), {**message, "name": "f"}]
        try:
            with unobserved():  # it is nobody's conversation
                text = render(conversation, chat_template=template, bos_token="", eos_token="").text
        except AntiphonError:
            return False
        return probe in text and not re.search(rf"[\"']text[\"']:\s*[\"']{probe}", text)

    text, parts = takes(probe), takes([{"type": "text", "text": probe}])
    return "any" if text == parts else "text" if text else "parts"
