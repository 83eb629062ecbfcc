"""Tracing: which plugin was asked what and what it answered, one line each, on standard error."""

from __future__ import annotations

import sys
from typing import Any

import pluggy

TRACE = "ANTIPHON_TRACE_PLUGINS"
_LONGEST = 160


def note(line: str) -> None:
    """Print a line of the trace."""
    print(f"antiphon: trace: {line}", file=sys.stderr, flush=True)


def watch(manager: pluggy.PluginManager, who: str) -> None:
    """Print each call of a manager's hooks with its arguments and its answer."""

    def before(hook: str, implementations: Any, arguments: Any) -> None:
        """Say nothing yet: a call and its answer are one line."""

    def after(outcome: Any, hook: str, implementations: Any, arguments: Any) -> None:
        if not implementations:
            return
        given = ", ".join(f"{name}={short(value)}" for name, value in arguments.items())
        try:
            answers = outcome.get_result()
        except BaseException as error:  # told here; pluggy raises it to the caller as well
            note(f"{who}: {hook}({given}) raised {told(error)}")
            return
        answer = answers[0] if answers else None
        note(f"{who}: {hook}({given}) -> {short(answer)}")

    manager.add_hookcall_monitoring(before, after)


def short(value: object, longest: int = _LONGEST) -> str:
    """Return a value in one line of bounded length."""
    name = getattr(value, "name", None)
    if isinstance(value, (list, tuple)) and value:
        names = [getattr(item, "name", None) for item in value]
        if all(isinstance(each, str) for each in names):
            noun = f"{type(value[0]).__name__}"
            text = f"{len(value)} {noun}: {', '.join(map(str, names))}"
            return _cut(text, longest)
    if isinstance(name, str):
        return _cut(f"{type(value).__name__} {name}", longest)
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a stranger's __repr__
        text = f"<{type(value).__name__}>"
    return _cut(text, longest)


def told(error: BaseException) -> str:
    """Return a stranger's error in one line, its type first."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # its __str__ may raise, too
        text = "it can't say what"
    return f"{type(error).__name__}: {text}"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."
