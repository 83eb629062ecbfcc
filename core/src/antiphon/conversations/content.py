"""`Content`: a part of a message."""

# mypy: disable-error-code="type-arg,name-defined,attr-defined,override,misc,assignment,no-any-return"
# TensorClass builds its classes as they are defined (fields become properties, the methods of tensordict are added),
# and its stub knows neither its options in brackets nor that fields may be called `type` or `data`.

from __future__ import annotations

from typing import Any

from tensordict import TensorClass

from antiphon.conversations.rows import message_fields


class Content(TensorClass["nocast", "shadow"]):
    """A part of a message: text, an image, audio, video, a file or a function call.

    `Content(type="text", text="...")` is one part; a stack of parts (one batch dimension) is a message's
    content.

    Attributes:
        type: "text", "image", "audio", "video", "file" or "function_call".
        text: the text.
        url: where the data is.
        data: the data, base64.
        mime_type: such as "image/jpeg".
        name: file name or description.
        size: in bytes.
        function_name: of a function call.
        function_args: of a function call.
    """

    type: str
    text: str | None = None
    url: str | None = None
    data: str | None = None
    mime_type: str | None = None
    name: str | None = None
    size: int | None = None
    function_name: str | None = None
    function_args: dict[str, Any] | None = None

    def to_parts(self) -> list[dict[str, Any]]:
        """The parts as plain dicts, without what is None."""
        return content_parts(self._tensordict)


# The name that TorchRL has for it.
ContentBase = Content


def content_parts(td: Any) -> list[dict[str, Any]]:
    """The parts in the storage of a `Content` of zero or one batch dimensions."""
    if td.ndim:
        return [part for member in td.unbind(0) for part in content_parts(member)]
    return [message_fields(td)]
