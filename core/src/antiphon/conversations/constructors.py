"""The constructors of the containers: lists of strings without a switch, histories that lack their time dimension.

Each is made of the constructor that tensordict gave the class.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from tensordict import is_tensor_collection

from antiphon.conversations.arguments import device_named, shape_of
from antiphon.conversations.fields import field_entry
from antiphon.conversations.history import History

Constructor = Callable[..., None]

_PARTS = ("prompt", "response", "full")


def placed(made: Constructor) -> Constructor:
    """Looks at the batch size and the device."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        _place(kwargs)
        made(self, *args, **kwargs)

    return init


def of_texts(made: Constructor) -> Constructor:
    """Takes texts and lists of them; a list without a batch size is a batch all the same."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.update(zip(_PARTS, args, strict=False))
        size, device = _place(kwargs)
        for name in _PARTS:
            value = kwargs.get(name)
            if isinstance(value, (list, tuple)) and not size:
                # Nobody means one text that is a list.
                kwargs[name] = field_entry(name, value, (len(value),), device)
            elif value is not None and not is_tensor_collection(value):
                kwargs[name] = field_entry(name, value, size, device)
        made(self, **kwargs)

    return init


def of_histories(made: Constructor) -> Constructor:
    """Takes histories and message lists; a History that has no time gets it."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.update(zip(_PARTS, args, strict=False))
        dims = len(_place(kwargs)[0])
        for name in _PARTS:
            value = kwargs.get(name)
            if isinstance(value, (list, tuple)):
                value = History.from_chats(value)
            if not isinstance(value, History):
                continue  # stored as it is, as in TorchRL: whoever reads it says that it is none
            if value.ndim == dims:
                warnings.warn(
                    f"the {name} of a ChatHistory of {dims} dimensions needs one more, for time: it was unsqueezed",
                    stacklevel=2,
                )
                value = value.unsqueeze(-1)
            kwargs[name] = value
        made(self, **kwargs)

    return init


def _place(kwargs: dict[str, Any]) -> tuple[torch.Size, torch.device | None]:
    """The batch size and the device among the arguments of a constructor, which are written back."""
    given = kwargs.get("batch_size")
    size = torch.Size(()) if given is None else shape_of(given)
    device = device_named(kwargs.get("device"))
    kwargs.update(batch_size=size, device=device)
    return size, device
