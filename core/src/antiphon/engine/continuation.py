"""Render a conversation that ends inside its last message, for the model to go on."""

from __future__ import annotations

from typing import Any

from antiphon.engine.provenance import REASONING_FIELDS, SpanTuple, concat, traced_whole
from antiphon.engine.source import Source
from antiphon.errors import InvalidMessage, TemplateRefused

_CONTINUE_TAG = "ANTIPHON_CONTINUES_HERE "


def continued(source: Source, name: str) -> tuple[str, list[SpanTuple]]:
    """Render up to the end of the last message's field ``name``.

    The text is cut where a tag behind the field comes out, and trailing white space with it where the template trims
    the field: transformers' rule. Where the template rewrites the message, so that transformers refuses, the prompt
    and the message as it is are the text: what is being continued is the current turn.
    """
    if not source.messages:
        raise InvalidMessage(
            "continue_final_message needs a message to continue, and the conversation is empty."
        )
    last = source.messages[-1]
    value = last.get(name)
    if value is None:
        raise InvalidMessage(
            f"continue_final_message: the last message has no {name!r} to continue."
        )
    names = (
        [key for key in REASONING_FIELDS if last.get(key) == value]
        if name in REASONING_FIELDS
        else [name]
    )
    tagged = type(last)(last)
    tagged._antiphon_origin = last._antiphon_origin
    if isinstance(value, str):
        for key in names:
            tagged[key] = _tag(value, len(source.messages) - 1, key)
    elif isinstance(value, list) and any(
        isinstance(part, dict) and "text" in part for part in value
    ):
        index = max(i for i, part in enumerate(value) if isinstance(part, dict) and "text" in part)
        part = type(value[index])(value[index])
        part._antiphon_origin = value[index]._antiphon_origin
        value, part["text"] = part["text"], _tag(part["text"], *part._antiphon_origin)
        tagged[name] = type(tagged[name])(tagged[name])
        tagged[name]._antiphon_origin = last[name]._antiphon_origin
        tagged[name][index] = part
    else:
        raise InvalidMessage(
            f"continue_final_message: {name!r} of the last message holds no text to continue."
        )
    try:
        text, spans = source.pieces([*source.messages[:-1], tagged], False)
    except TemplateRefused:
        text, spans = "", []
    tag = _CONTINUE_TAG.strip()
    if tag not in text or value.strip() not in text:
        return _prompt_and_prefix(source, _whole(last[name], name), name)
    end = text.rindex(tag)
    cut = text[:end] if text.startswith(_CONTINUE_TAG, end) else text[:end].rstrip()
    return cut, [(a, min(b, len(cut)), origin) for a, b, origin in spans if a < len(cut)]


def _whole(value: Any, name: str) -> str:
    """Return all text of a field, of parts one behind the other.

    Raises:
        InvalidMessage: A part is no text, so that nobody can say what would stand for it.
    """
    if isinstance(value, str):
        return value
    parts = [part.get("text") if isinstance(part, dict) else part for part in value]
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) < len(parts):
        raise InvalidMessage(
            f"continue_final_message: the template does not print {name!r} of the last message, and not all its parts"
            " are text; give its text alone."
        )
    return concat(texts)


def _tag(text: str, message: int, *path: Any) -> str:
    if path and isinstance(path[0], tuple):
        path = path[0]
    return concat((text, traced_whole(_CONTINUE_TAG, (message, tuple(path)))))


def _prompt_and_prefix(source: Source, prefix: str, name: str) -> tuple[str, list[SpanTuple]]:
    text, spans = source.pieces(source.messages[:-1], True)
    # The prompt may have opened what the prefix opens again, such as a reasoning block.
    overlap = max(
        size for size in range(min(len(prefix), len(text)) + 1) if text.endswith(prefix[:size])
    )
    start = len(text) - overlap
    origin = (len(source.messages) - 1, (name,))
    return text[:start] + str.__str__(prefix), [*spans, (start, start + len(prefix), origin)]
