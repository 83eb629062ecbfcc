"""One conversation between a model and a task, token-exact from turn to turn.

A `Conversation` never changes: an answer or a reply gives a new one. The ids of its prompt start
with all ids of the turn before and with what was sampled then; only what is new is encoded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from antiphon.envs.tasks import Message
from antiphon.errors import FamilyNotFound, GrammarUnavailable, TemplateRefused

if TYPE_CHECKING:
    from antiphon.engine.tokenization import TokenizedRendering


@dataclass(frozen=True)
class Conversation:
    """A conversation as it stands.

    Attributes:
        messages: OpenAI-style; sampled ones carry ``token_ids`` and ``log_probs``.
        prompt: What the model is given for its next turn, or was given for its last.
        turns: How many messages the model has written.
    """

    messages: tuple[Message, ...]
    prompt: TokenizedRendering
    turns: int = 0


class Prompter:
    """Makes prompts of messages and messages of sampled ids, for one model.

    Args:
        tokenizer: The model's tokenizer.
        family: A dialect in place of the tokenizer's own template.
        chat_template: A template in place of the tokenizer's own.
        tools: Schemas or functions, handed to the template.
        template_kwargs: Further variables of the template.
        role: The role of the model's messages.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        family: str | None = None,
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        role: str = "assistant",
    ) -> None:
        self.tokenizer = tokenizer
        self.family = family
        self.chat_template = chat_template
        self.tools = None if tools is None else list(tools)
        self.template_kwargs = dict(template_kwargs or {})
        self.role = role

    @property
    def options(self) -> dict[str, Any]:
        """What `antiphon.render` and `antiphon.extend` are called with."""
        return {
            "tokenizer": self.tokenizer,
            "family": self.family,
            "chat_template": self.chat_template,
            "tools": self.tools,
            **self.template_kwargs,
        }

    def begin(self, messages: Sequence[Message]) -> Conversation:
        """Return a conversation that waits for the model's first answer.

        Args:
            messages: What the conversation starts with, in OpenAI form.

        Raises:
            RenderError: The template refuses the messages.
        """
        from antiphon.engine.extension import extend

        prompt = extend(None, list(messages), add_generation_prompt=True, **self.options)
        return Conversation(tuple(messages), prompt)

    def answered(
        self,
        conversation: Conversation,
        ids: Sequence[int],
        log_probs: Sequence[float] | None = None,
    ) -> Conversation:
        """Return the conversation with what the model sampled behind its prompt.

        The message is read from the ids and carries them. It is complete where an end token was
        sampled.

        Args:
            conversation: One that waits for an answer.
            ids: The sampled ids, the end token included where there was one.
            log_probs: One for each, in nats; None where they are not known.
        """
        from antiphon.engine.sampled import attach

        message = {key: value for key, value in self._read(conversation, ids).items() if value}
        message["role"] = self.role
        message.setdefault("content", "")
        message = attach(message, ids, log_probs, self.tokenizer)
        # An answer that was not replied to is gone on with: these ids are all of it.
        before = conversation.messages[: len(conversation.prompt.rendering.messages)]
        return replace(conversation, messages=(*before, message), turns=conversation.turns + 1)

    def proceed(self, conversation: Conversation, replies: Sequence[Message]) -> Conversation:
        """Return the conversation with ``replies`` behind its last answer and a prompt for the
        next.

        Where the template rewrites what was sampled before, the prompt has ``starts_anew`` set and
        its ``breaks`` say what was rewritten.

        Raises:
            RenderError: The template refuses the replies.
        """
        from antiphon.engine.extension import extend

        known = len(conversation.prompt.rendering.messages)
        new = [*conversation.messages[known:], *replies]
        try:
            prompt = extend(conversation.prompt, new, add_generation_prompt=True, on_break="split")
        except TemplateRefused:
            # A call that the model misspelt may be more than the template takes. The ids stand for
            # the message anyway, so its text will do.
            plain = [self._as_text(message) for message in new]
            if plain == new:
                raise
            prompt = extend(
                conversation.prompt, plain, add_generation_prompt=True, on_break="split"
            )
        return replace(conversation, messages=(*conversation.messages, *replies), prompt=prompt)

    def _read(self, conversation: Conversation, ids: Sequence[int]) -> Message:
        from antiphon.reading import parse_response

        try:
            return parse_response(
                list(ids),
                prompt=conversation.prompt.input_ids,
                tokenizer=self.tokenizer,
                family=self.family,
                tools=self.tools,
            )
        except (FamilyNotFound, GrammarUnavailable):
            # Nobody can say what is what in this dialect, so all of it is content.
            return {"content": self._text(ids)}

    def _text(self, ids: Sequence[int]) -> str:
        from antiphon.engine.tokenizers import view

        special = {
            token for token, (_, is_special) in view(self.tokenizer).added.items() if is_special
        }
        return view(self.tokenizer).decode([token for token in ids if token not in special])

    def _as_text(self, message: Message) -> Message:
        if not message.get("tool_calls") or message.get("token_ids") is None:
            return message
        kept: Message = {
            key: message[key] for key in ("role", "token_ids", "log_probs") if key in message
        }
        return {**kept, "content": self._text(message["token_ids"])}

    @property
    def template_fingerprint(self) -> str:
        """16 hexadecimal digits of the template that prompts are made with."""
        from antiphon.engine.source import choose_template

        source = choose_template(self.tokenizer, self.chat_template, self.family, self.tools).source
        return hashlib.sha256(source.encode()).hexdigest()[:16]

    @property
    def tokenizer_fingerprint(self) -> str:
        """16 hexadecimal digits of the vocabulary, the added tokens and how text is cut."""
        from antiphon.fingerprints import tokenizer_fingerprint

        return tokenizer_fingerprint(self.tokenizer)
