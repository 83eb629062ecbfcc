"""Render conversations that were rendered before with fewer messages.

What a template makes of a conversation it makes anew, whatever was rendered before: it may read anything of it. Only
the messages that are new are traced; the others are the very objects that the shorter rendering has, so what is
remembered of a growing conversation stays small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from antiphon.engine.remembered import frozen_variables, growing_keys, recall, remember
from antiphon.engine.rendering import Rendering, render_source, renderer
from antiphon.engine.source import Source, choose_template, special_tokens, trace_messages
from antiphon.plugins.events import rendering_made

# Messages that a conversation grows by: one, or an answer and what follows it.
_STEPS = (1, 2)


def longer(source: Source, new_messages: Any) -> Source:
    """Return what a conversation is rendered from with more messages behind it."""
    traced = trace_messages(new_messages, len(source.messages))
    size = sum(len(v) for m in traced for v in m.values() if isinstance(v, str))
    return replace(source, messages=[*source.messages, *traced], size=source.size + size)


class GrowingRenderer:
    """Renders conversations as `antiphon.render` does, which are to be message dicts."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        chat_template: str,
        tools: Sequence[Any] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **template_kwargs: Any,
    ) -> None:
        """Look once at what all conversations have in common; arguments are those of `antiphon.render`."""
        chosen = choose_template(tokenizer, chat_template, None, tools)
        specials = special_tokens(tokenizer)
        flags = (add_generation_prompt, False)
        self._common = frozen_variables(
            chosen.source, chosen.name, specials, tools, documents, template_kwargs, flags
        )
        self._tokenizer = tokenizer
        self._prompted = add_generation_prompt
        self._whole = renderer(
            tokenizer,
            chat_template=chat_template,
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            **template_kwargs,
        )

    def __call__(self, messages: Sequence[Any]) -> Rendering:
        """Render a conversation."""
        keys = growing_keys(messages, self._common, _STEPS)
        begun = next((kept for kept in map(recall, keys) if kept is not None), None)
        if begun is None or len(begun.source.messages) == len(messages):
            return self._whole(messages)
        source = longer(begun.source, messages[len(begun.source.messages) :])
        rendering = render_source(source, self._tokenizer, self._prompted)
        remember(keys[0], rendering)
        rendering_made(rendering)
        return rendering

    def knows(self, messages: Sequence[Any]) -> bool:
        """Whether the conversation, or what it was before its last turn, is remembered."""
        keys = growing_keys(messages, self._common, _STEPS)
        return any(recall(key) is not None for key in keys)
