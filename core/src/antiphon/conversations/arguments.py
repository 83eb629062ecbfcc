"""What callers pass besides messages: whole numbers, shapes, devices and switches. Wrong ones are refused by name."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from antiphon.errors import AntiphonError, ContainerError, InvalidParameter

if TYPE_CHECKING:
    import torch


def whole(name: str, value: Any) -> int:
    """A whole number.

    Raises:
        InvalidParameter: `value` is something else, True and False among it.
    """
    if not is_flag(value):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise InvalidParameter(f"{name} must be a whole number, got {said(value)}")


def is_flag(value: Any) -> bool:
    """Whether a value is True or False: Python's, numpy's or torch's.

    Numpy's is a whole number too, with a warning, before numpy 2.3, and torch's in every version.
    """
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def switch(name: str, value: Any) -> Any:
    """True, False (0 and 1 likewise), or None where it is left open.

    Raises:
        InvalidParameter: `value` is something else.
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    raise InvalidParameter(f"{name} must be True or False, got {said(value)}")


def plain(name: str, value: Any) -> Any:
    """A number or numbers of numpy or torch as Python's own; anything else as it is.

    Raises:
        InvalidParameter: `value` is a tensor whose numbers can't be read (on the meta device, or sparse).
    """
    if not hasattr(value, "tolist"):
        return value
    try:
        return value.tolist()
    except (RuntimeError, TypeError, ValueError) as error:
        raise InvalidParameter(
            f"{name} is a {type(value).__name__} whose numbers can't be read; pass plain numbers."
        ) from error


def one_of(name: str, value: Any, choices: Sequence[str]) -> None:
    """Make sure that a value is one of some names.

    Raises:
        InvalidParameter: it is none of them.
    """
    if not isinstance(value, str) or value not in choices:
        raise InvalidParameter(
            f"{name} must be {' or '.join(map(repr, choices))}, got {said(value)}"
        )


def of_kind(name: str, value: Any, kinds: Any, what: str) -> None:
    """Make sure that a value is of a type, which ``what`` names.

    Raises:
        InvalidParameter: it is of another.
    """
    if not isinstance(value, kinds):
        raise InvalidParameter(f"{name} must be {what}, got {said(value)}")


def items(name: str, values: Any, what: str) -> Iterator[Any]:
    """What can be walked, item by item.

    Raises:
        InvalidParameter: it can't be.
    """
    try:
        return iter(values)
    except (
        TypeError
    ) as error:  # numbers in an array without dimensions seem to be some, and are none
        raise InvalidParameter(f"{name} must be {what}, got {said(values)}") from error


def shape_of(shape: Any) -> torch.Size:
    """A shape that was given as a number, as several, or as a sequence of them; -1 is a size left open.

    Raises:
        ContainerError: it holds something else.
    """
    import torch  # not above: rendering and commands need `said` alone

    sizes = (shape,) if hasattr(shape, "__index__") and not hasattr(shape, "__len__") else shape
    if isinstance(sizes, tuple) and len(sizes) == 1 and not hasattr(sizes[0], "__index__"):
        sizes = sizes[0]
    try:
        return torch.Size([operator.index(size) for size in sizes])
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ContainerError(
            f"a shape is whole numbers of at most 64 bits, got {said(shape)}"
        ) from error


def device_named(device: Any, refusal: type[AntiphonError] = ContainerError) -> torch.device | None:
    """A device by name, or None where it is left open.

    Raises:
        ContainerError: torch knows no such device; or what is given as ``refusal``.
    """
    import torch

    try:
        return None if device is None else torch.device(device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise refusal(
            f"{said(device)} is no device here; use 'cpu', 'cuda' or 'cuda:0'."
        ) from error


def said(value: Any) -> str:
    """A value as a sentence names it: its type, and what it is where that is short."""
    plain = isinstance(value, (str, bytes, int, float, list, tuple, dict))
    text = literal(value) if plain else ""
    name = "None" if value is None else type(value).__name__
    return f"{name} {text}" if 0 < len(text) <= 60 else name


def short(value: Any) -> str:
    """A value as Python writes it, cut where that is long."""
    text = literal(value)
    return text if len(text) <= 80 else text[:77] + "..."


def literal(value: Any) -> str:
    """A value as Python writes it; its type where it can't be written."""
    try:
        return repr(value)
    except Exception:  # a class may raise anything, and lists may be nested too deeply
        return f"<{type(value).__name__}>"
