"""Render a conversation with any chat template, and know where each character came from.

The text is exactly what transformers 5 renders (``render_jinja_template``): messages are taken as they are, None values
kept, a message's reasoning given every name templates know for it. Beside the text stand the spans that came from
messages and the turns that the model writes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon.engine.continuation import continued
from antiphon.engine.fit import tell_if_unfit
from antiphon.engine.provenance import REASONING_FIELDS, SpanTuple, spans_of
from antiphon.engine.remembered import frozen_variables, recall, remember, rendering_key
from antiphon.engine.source import (
    Source,
    choose_template,
    special_tokens,
    trace_input,
    trace_variables,
    untraced,
)
from antiphon.errors import InvalidMessage
from antiphon.plugins.events import rendering_made

if TYPE_CHECKING:
    from antiphon.engine.tokenization import TokenizedRendering
    from antiphon.engine.turns import Turn

_TEXT_FIELDS = ("content", "tool_calls", *REASONING_FIELDS)


class Span(NamedTuple):
    """Characters ``start`` to ``end`` of the text, which came from ``field`` of message ``message``."""

    start: int
    end: int
    message: int
    field: tuple[Any, ...]


class Dropped(NamedTuple):
    """A field with text in it of which the template printed nothing."""

    message: int
    field: str


@dataclass(frozen=True)
class Rendering:
    """A rendered conversation.

    Attributes:
        text: Exactly what the template gives.
        origins: Start, end and origin of each part of the text that the template did not write, sorted, not
            overlapping; the origin is the message (-1: tools, documents and other variables) and the path in it.
        messages: The messages, as the template saw them.
        found: What was found out about the text (turns, pieces, ids); equal renderings share it.
    """

    text: str
    origins: tuple[SpanTuple, ...]
    source: Source = field(repr=False)
    add_generation_prompt: bool = False
    continued: bool = False
    tokenizer: Any = field(default=None, repr=False, compare=False)
    found: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def messages(self) -> list[Any]:
        """The messages that were rendered."""
        return self.source.messages

    @functools.cached_property
    def spans(self) -> list[Span]:
        """The parts of the text that came from messages, sorted, not overlapping."""
        return [Span(start, end, *own) for start, end, own in self.origins if own[0] >= 0]

    @functools.cached_property
    def input_spans(self) -> list[Span]:
        """The parts that came from tools, documents and other variables; their message is -1."""
        return [Span(start, end, *own) for start, end, own in self.origins if own[0] < 0]

    def _located(self) -> tuple[tuple[Turn, ...], dict[int, str]]:
        located: tuple[tuple[Turn, ...], dict[int, str]] | None = self.found.get("turns")
        if located is None:
            from antiphon.engine.turns import locate_turns

            turns, unlocated = locate_turns(self)
            located = self.found["turns"] = (tuple(turns), unlocated)
        return located

    @property
    def turns(self) -> list[Turn]:
        """The turns of the assistant messages that the text shows, in order."""
        return list(self._located()[0])

    @property
    def unlocated(self) -> dict[int, str]:
        """Assistant messages whose turn could not be found, with the reason."""
        return dict(self._located()[1])

    @functools.cached_property
    def dropped(self) -> list[Dropped]:
        """Fields that hold text of which the template printed nothing, or not all parts, not all calls.

        Tools and documents of which nothing was printed are dropped of message -1.
        """
        shown: set[tuple[Any, ...]] = set()
        for _, _, (number, path) in self.origins:
            shown.update((number, key) for key in path[:1] or _TEXT_FIELDS)
            shown.add((number, *path[:2]) if len(path) > 1 else (number, *path, "whole"))
        lost = [
            Dropped(index, name)
            for index, message in enumerate(self.messages)
            for name, value in message.items()
            if name in _TEXT_FIELDS and _is_own(name, value) and _lacks(value, index, name, shown)
        ]
        given = ((name, self.source.variables.get(name)) for name in ("tools", "documents"))
        return lost + [
            Dropped(-1, name)
            for name, value in given
            if _has_text(value) and (-1, name) not in shown
        ]

    def tokenize(
        self, tokenizer: Any = None, *, allow_control_tokens: bool = False
    ) -> TokenizedRendering:
        """Encode the text; see `antiphon.engine.tokenization`.

        Args:
            tokenizer: The tokenizer; by default the one given to `render`.
            allow_control_tokens: Let control tokens that messages or tools spell out become control ids, as
                transformers does.
        """
        from antiphon.engine.tokenization import tokenize

        if tokenizer is not None and tokenizer is not self.tokenizer and self.source.family:
            from antiphon.registry import get_family

            tell_if_unfit(get_family(self.source.family), tokenizer, detected=False)
        return tokenize(
            [self], tokenizer or self.tokenizer, allow_control_tokens=allow_control_tokens
        )[0]

    def expand(self, placeholder: str, expansions: Sequence[str]) -> Rendering:
        """Return the rendering with each placeholder of a medium replaced by what a processor writes for it.

        Spans, turns and everything made of them follow; see `antiphon.engine.media`.
        """
        from antiphon.engine.media import expand_media

        return expand_media(self, placeholder, expansions)

    def explain(self, *, color: bool = False) -> str:
        """Return the text marked up for a terminal; `explain_data` gives the same as data.

        Args:
            color: Whether to mark by terminal colours too.
        """
        from antiphon.engine.explanation import explain

        return explain(self, color=color)

    def explain_data(self) -> list[dict[str, Any]]:
        """Return the text as a list of parts: text, kind (scaffold, content, input), message, field, turn."""
        from antiphon.engine.explanation import explain_data

        return explain_data(self)


def render(
    messages: Any,
    tokenizer: Any = None,
    *,
    chat_template: str | None = None,
    family: str | None = None,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = False,
    continue_final_message: bool | str = False,
    **template_kwargs: Any,
) -> Rendering:
    """Render a conversation.

    Args:
        messages: Message dicts, or a `History`.
        tokenizer: Brings its template and its special tokens as variables (``bos_token``, …).
        chat_template: A Jinja template, or the name of one of the tokenizer's own.
        family: The name of a dialect, whose template is used.
        tools: JSON schemas, or functions with type hints and a Google-style docstring.
        documents: Documents for templates that take them.
        add_generation_prompt: End with what precedes the model's answer.
        continue_final_message: End inside the last message, for the model to go on; a string names the field that it
            continues (``"content"``). What is continued is given, not sampled: its turn is open and its mask is 0.
        **template_kwargs: Further variables of the template; they win over the tokenizer's.

    Raises:
        TemplateRefused: The template refuses the conversation.
        TemplateInvalid: The template is not Jinja.
        InvalidMessage: A message, tool or document is not of a form that templates accept.

    Warns:
        FamilyWarning: The dialect does not fit the tokenizer; see `antiphon.engine.fit`.
    """
    return renderer(
        tokenizer,
        chat_template=chat_template,
        family=family,
        tools=tools,
        documents=documents,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        **template_kwargs,
    )(messages)


def renderer(
    tokenizer: Any = None,
    *,
    chat_template: str | None = None,
    family: str | None = None,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = False,
    continue_final_message: bool | str = False,
    **template_kwargs: Any,
) -> Callable[[Any], Rendering]:
    """Return a function that renders one conversation: what all have in common is looked at once.

    Arguments and errors are those of `render`.
    """
    chosen = choose_template(tokenizer, chat_template, family, tools)
    specials = special_tokens(tokenizer)
    flags = (add_generation_prompt, continue_final_message)
    common = frozen_variables(
        chosen.source, chosen.name, specials, tools, documents, template_kwargs, flags
    )
    setting = trace_variables(chosen, specials, tools, documents, template_kwargs)
    shape = (add_generation_prompt, bool(continue_final_message))

    def render_one(messages: Any) -> Rendering:
        messages = untraced(messages, chosen.source)
        key = rendering_key(messages, common)
        kept = recall(key)
        if kept is None:
            source = trace_input(messages, setting)
            made = render_source(source, tokenizer, *flags)
            remember(key, made)
        else:
            made = Rendering(kept.text, kept.origins, kept.source, *shape, tokenizer, kept.found)
        rendering_made(made)
        return made

    return render_one


def render_source(
    source: Source,
    tokenizer: Any,
    add_generation_prompt: bool,
    continue_final_message: bool | str = False,
) -> Rendering:
    """Render what `prepare` has made."""
    if continue_final_message:
        if add_generation_prompt:
            raise InvalidMessage(
                "continue_final_message and add_generation_prompt exclude each other; give only one of them."
            )
        text, spans = continued(
            source, "content" if continue_final_message is True else continue_final_message
        )
    else:
        text, spans = source.pieces(source.messages, add_generation_prompt)
    return Rendering(
        text, tuple(spans), source, add_generation_prompt, bool(continue_final_message), tokenizer
    )


def _has_text(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, dict):
        return any(_has_text(item) for key, item in value.items() if key not in ("type", "id"))
    return isinstance(value, (list, tuple)) and any(_has_text(item) for item in value)


def _lacks(value: Any, index: int, name: str, shown: set[tuple[Any, ...]]) -> bool:
    """Whether text of a field is not shown: all of a text, any of the calls or of the texts among parts."""
    if not isinstance(value, list) or (index, name, "whole") in shown:
        return _has_text(value) and (index, name) not in shown
    parts = [
        part.get("text") if name == "content" and isinstance(part, dict) else part for part in value
    ]
    return any(
        _has_text(part) and (index, name, number) not in shown for number, part in enumerate(parts)
    )


def _is_own(name: str, value: Any) -> bool:
    """Whether a field is the message's own, not another name for its reasoning."""
    return name not in REASONING_FIELDS or any(
        origin[1][:1] == (name,) for _, _, origin in spans_of(value)
    )
