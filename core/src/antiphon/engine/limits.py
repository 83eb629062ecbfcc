"""Bounds on templates, which are code that strangers wrote: time, work and size.

A render runs inside `limited`. Loops and macro calls count as work and look at the clock; whatever builds text or lists
checks the size first. So a template that loops for ever, or builds gigabytes, is refused in seconds and the process
lives. Sources of unbounded work in Jinja: loops, macros that call themselves, and operators or filters that multiply.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from antiphon.errors import TemplateLimitExceeded

MAX_SECONDS = 5.0
"""Seconds that one rendering may take (input as long as `MIN_SIZE`; longer input gets more)."""

MIN_SIZE = 32 * 2**20
"""Characters that one string may have, however short the input is."""

MAX_STEPS = 5_000_000
"""Loop iterations and macro calls in one rendering."""

_WATCHED_LENGTH = (
    64  # loops over fewer items are counted at once, which costs nothing per iteration
)


class _Budget:
    __slots__ = ("deadline", "size", "steps")

    def __init__(self, size: int) -> None:
        self.size = max(MIN_SIZE, 16 * size)
        self.steps = MAX_STEPS + size
        self.deadline = time.monotonic() + MAX_SECONDS * self.size / MIN_SIZE


_budget: ContextVar[_Budget | None] = ContextVar("antiphon_template_budget", default=None)


@contextmanager
def limited(size: int) -> Iterator[None]:
    """Bound all rendering inside; ``size`` is the length of the input in characters."""
    token = _budget.set(_Budget(size))
    try:
        yield
    finally:
        _budget.reset(token)


def step(count: int = 1) -> str:
    """Count work; return "" so that a template can print it.

    Raises:
        TemplateLimitExceeded: The template has used up its steps or its time.
    """
    budget = _budget.get()
    if budget is not None:
        budget.steps -= count
        if budget.steps < 0:
            raise TemplateLimitExceeded(
                f"The template loops more than {MAX_STEPS} times; it was stopped."
            )
        if time.monotonic() > budget.deadline:
            raise TemplateLimitExceeded(
                f"The template ran longer than {MAX_SECONDS:g} seconds; it was stopped."
            )
    return ""


def check_size(size: int) -> None:
    """Refuse text of ``size`` characters (or a list of so many items) that is longer than the budget allows.

    Raises:
        TemplateLimitExceeded: It is.
    """
    budget = _budget.get()
    limit = budget.size if budget is not None else MIN_SIZE
    if size > limit:
        raise TemplateLimitExceeded(
            f"The template builds text of {size} characters, more than the {limit} allowed for this input."
        )


def checked(value: Any) -> Any:
    """Return ``value`` if it is not too large; templates assign through this, since growth needs assignment."""
    if isinstance(value, (str, list, tuple)) and len(value) > 4096:
        check_size(len(value))
        step()
    return value


def watched(iterable: Iterable[Any]) -> Iterable[Any]:
    """Return ``iterable``, counted; a long one looks at the clock in every iteration."""
    try:
        length = len(iterable)  # type: ignore[arg-type]
    except TypeError:
        return _watch(iterable)
    step(length + 1)
    return iterable if length <= _WATCHED_LENGTH else _watch(iterable)


def _watch(iterable: Iterable[Any]) -> Iterator[Any]:
    for item in iterable:
        step()
        yield item
