"""What a dialect can express, as flags, and as its template shows it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from antiphon.engine.rendering import Rendering
from antiphon.errors import RenderError
from antiphon.testing.results import CheckFailed
from antiphon.testing.scenarios import with_arguments
from antiphon.testing.subject import FamilySubject


@dataclass(frozen=True)
class Capabilities:
    """What a dialect prints; all False by default.

    Attributes:
        system: System messages.
        tools: The tools.
        calls: Calls.
        parallel_calls: Two calls in one message.
        tool_results: Messages of role ``tool``.
        reasoning: The reasoning of the last answer.
        kept_reasoning: The reasoning of earlier answers too.
        parts: Contents that are lists of parts.
    """

    system: bool = False
    tools: bool = False
    calls: bool = False
    parallel_calls: bool = False
    tool_results: bool = False
    reasoning: bool = False
    kept_reasoning: bool = False
    parts: bool = False


FLAGS = tuple(field.name for field in fields(Capabilities))
_TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Forecast of a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}
_ASKED = {"role": "user", "content": "question"}
_THOUGHT = {"role": "assistant", "content": "answer", "reasoning_content": "thought"}


def _call(number: int) -> dict[str, Any]:
    function = {"name": "weather", "arguments": {"place": f"town{number}"}}
    return {"id": f"call0000{number}", "type": "function", "function": function}


def observe(subject: FamilySubject) -> Capabilities:
    """Return what a dialect's template prints of probes."""
    calls: list[dict[str, Any]] = [
        _ASKED,
        {"role": "assistant", "content": "", "tool_calls": [_call(1)]},
        {"role": "tool", "name": "weather", "tool_call_id": "call00001", "content": "sunny"},
    ]
    two = [_ASKED, {"role": "assistant", "content": "", "tool_calls": [_call(1), _call(2)]}]
    called = _shown(subject, calls[:2], tools=[_TOOL])
    announced = _shown(subject, [_ASKED], tools=[_TOOL])
    return Capabilities(
        system=_prints(_shown(subject, [{"role": "system", "content": "rule"}, _ASKED]), 0, "rule"),
        tools=announced is not None and "Forecast of a place." in announced.text,
        calls=_prints(called, 1, "town1"),
        parallel_calls=all(
            _prints(_shown(subject, two, tools=[_TOOL]), 1, word) for word in ("town1", "town2")
        ),
        tool_results=_prints(_shown(subject, calls, tools=[_TOOL]), 2, "sunny"),
        reasoning=_prints(_shown(subject, [_ASKED, _THOUGHT]), 1, "thought"),
        kept_reasoning=_prints(_shown(subject, [_ASKED, _THOUGHT, _ASKED, _THOUGHT]), 1, "thought"),
        parts=_prints(
            _shown(subject, [{"role": "user", "content": [{"type": "text", "text": "piece"}]}]),
            0,
            "piece",
            whole=True,
        ),
    )


def check_capabilities(subject: FamilySubject, declared: Capabilities) -> None:
    """The flags say what the template does, no less and no more.

    Raises:
        CheckFailed: They don't.
    """
    seen = observe(subject)
    lacking = [name for name in FLAGS if getattr(declared, name) and not getattr(seen, name)]
    silent = [name for name in FLAGS if getattr(seen, name) and not getattr(declared, name)]
    if lacking:
        raise CheckFailed(
            f"the flags {', '.join(lacking)} are set, and the template of {subject.family.name} does"
            " not print that: look at the template, or take the flags back."
        )
    if silent:
        raise CheckFailed(
            f"the template of {subject.family.name} can do more than the contract says: set"
            f" {', '.join(f'{name} = True' for name in silent)}, so that it stays so."
        )


def _shown(subject: FamilySubject, messages: list[Any], **options: Any) -> Rendering | None:
    form = "string" if subject.family.arguments == "string" else "mapping"
    try:
        return subject.render(with_arguments(messages, form), **options)
    except RenderError:
        return None


def _prints(rendering: Rendering | None, index: int, word: str, *, whole: bool = False) -> bool:
    """Whether a text of a message is printed; ``whole`` rules out the list that it stands in."""
    if rendering is None:
        return False
    return any(
        span.message == index
        and word in rendering.text[span.start : span.end]
        and (not whole or rendering.text[span.start : span.end] == word)
        for span in rendering.spans
    )
