"""Whether a dialect's template writes the text that a tokenizer's own template writes.

Both render a few probe conversations: a plain one, one with tools, one without a system message,
one with reasoning. Two templates that both refuse a conversation agree on it. Agreement on probes
is evidence and not proof; digests are proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from antiphon.errors import RenderError
from antiphon.families import ModelFamily


@dataclass(frozen=True)
class Difference:
    """Where two templates first differ.

    Attributes:
        probe: The probe conversation's name.
        ours: The dialect's text from a few characters before the difference, or why it refused.
        theirs: The same of the other template.
    """

    probe: str
    ours: str
    theirs: str

    def __str__(self) -> str:
        return f"on the {self.probe} probe it writes {self.ours!r} and not {self.theirs!r}"


_PLAIN: list[dict[str, Any]] = [
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": "What is the capital of Peru?"},
    {"role": "assistant", "content": "Lima"},
    {"role": "user", "content": "And of Chile?"},
]
_CALL = {
    "id": "call12345",
    "type": "function",
    "function": {"name": "weather", "arguments": {"city": "Lima", "days": 2}},
}
_TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Forecast.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
_WITH_TOOLS: list[dict[str, Any]] = [
    {"role": "system", "content": "Use tools."},
    {"role": "user", "content": "Will it rain in Lima?"},
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "name": "weather", "tool_call_id": "call12345", "content": "no rain"},
]
_WITH_REASONING: list[dict[str, Any]] = [
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "4", "reasoning_content": "Two and two."},
    {"role": "user", "content": "3 + 3?"},
    {"role": "assistant", "content": "6", "reasoning_content": "Three and three."},
]

# A dialect's text is the model's own only if these two agree; the others tell near dialects apart.
_DECISIVE: dict[str, dict[str, Any]] = {
    "plain": {"messages": _PLAIN, "add_generation_prompt": True},
    "tools": {"messages": _WITH_TOOLS, "tools": [_TOOL], "add_generation_prompt": True},
}
_FINER: dict[str, dict[str, Any]] = {
    "no-system": {"messages": _PLAIN[1:], "add_generation_prompt": True},
    "reasoning": {"messages": _WITH_REASONING},
    "no prompt": {"messages": _PLAIN[:3]},
    "tools without a system message": {"messages": _WITH_TOOLS[1:], "tools": [_TOOL]},
    "thinking off": {
        "messages": _PLAIN[1:],
        "add_generation_prompt": True,
        "enable_thinking": False,
    },
}


def first_difference(
    family: ModelFamily, template: str, special_tokens: Mapping[str, str]
) -> Difference | None:
    """Return where a dialect's template first differs from another on the decisive probes.

    Args:
        family: The dialect.
        template: The source of the other template.
        special_tokens: ``bos_token``, ``eos_token``, ... that both templates see.

    Returns:
        None where the two agree.
    """
    return _differing(family, template, special_tokens, _DECISIVE)


def finer_difference(
    family: ModelFamily, template: str, special_tokens: Mapping[str, str]
) -> Difference | None:
    """Return where a dialect's template first differs from another on the finer probes, None where nowhere."""
    return _differing(family, template, special_tokens, _FINER)


def finer_agreement(family: ModelFamily, template: str, special_tokens: Mapping[str, str]) -> int:
    """Return on how many of the finer probes the two agree."""
    return sum(
        _differing(family, template, special_tokens, {name: probe}) is None
        for name, probe in _FINER.items()
    )


def _differing(
    family: ModelFamily,
    template: str,
    special_tokens: Mapping[str, str],
    probes: Mapping[str, dict[str, Any]],
) -> Difference | None:
    variables = tuple(sorted(special_tokens.items()))
    own = family.load_template()
    for name in probes:
        ours, theirs = _text(own, name, variables), _text(template, name, variables)
        if ours != theirs and not (ours is None and theirs is None):
            return Difference(name, *_around_difference(ours, theirs))
    return None


@lru_cache(maxsize=2048)
def _text(template: str, probe: str, variables: tuple[tuple[str, str], ...]) -> str | None:
    """Return the text of a probe, None where the template refuses it."""
    # Rendering needs detection and detection this: the import stands here to cut the circle.
    from antiphon.engine.rendering import render
    from antiphon.plugins.events import unobserved

    arguments = {**dict(variables), **(_DECISIVE | _FINER)[probe]}
    try:
        with unobserved():
            return render(chat_template=template, **arguments).text
    except RenderError:
        return None


def _around_difference(ours: str | None, theirs: str | None) -> tuple[str, str]:
    if ours is None or theirs is None:
        refused = "(a refusal)"
        return (refused if ours is None else ours[:30], refused if theirs is None else theirs[:30])
    pairs = enumerate(zip(ours, theirs, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
    start = max(at - 10, 0)
    return ours[start : at + 20], theirs[start : at + 20]
