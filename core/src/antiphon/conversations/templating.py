"""A `History` through a chat template, as text or tokens, and back.

Conversations come here as message lists. What a stored message has and no template knows (`is_complete`, sampled
ids) is left out of what the template sees, call arguments are handed over in the form that the template takes,
and an answer that was cut off is rendered cut off.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from antiphon.conversations.arguments import said, short
from antiphon.conversations.template_forms import renderable
from antiphon.errors import FamilyNotFound, InvalidParameter, PluginError, RenderError
from antiphon.families import ModelFamily

if TYPE_CHECKING:
    from antiphon.engine.growing import GrowingRenderer
    from antiphon.engine.rendering import Rendering

Message = dict[str, Any]


@dataclass(frozen=True)
class Template:
    """Which template renders, and with what.

    Attributes:
        tokenizer: the tokenizer; None where the template is given and no ids are wanted.
        chat_template: an explicit template.
        name: the name of a dialect, or one of TorchRL's template names.
        variables: tools and whatever else the template reads.
    """

    tokenizer: Any = None
    chat_template: str | None = None
    name: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what is no template and no name.

        Raises:
            InvalidParameter: says what it is.
        """
        if not isinstance(self.chat_template, (str, type(None))):
            raise InvalidParameter(
                f"chat_template must be Jinja source, got {said(self.chat_template)}"
            )
        if not isinstance(self.name, (str, ModelFamily, type(None))):
            raise InvalidParameter(
                f"chat_template_name must be the name of a dialect, got {said(self.name)}"
            )

    @functools.cached_property
    def family(self) -> str | None:
        """The dialect to render and read with; None leaves it to the tokenizer."""
        if self.name is None and self.chat_template is None:
            return _added_for(self.tokenizer)
        return self.name

    @functools.cached_property
    def reader(self) -> Any:
        """What `antiphon.parse` is to read by."""
        if self.name is None and self.chat_template is not None:
            return given_family(self.chat_template)
        return self.family

    @functools.cached_property
    def grammar(self) -> Any:
        """The grammar that reads the template's renderings, looked up once for a batch.

        ChatML where nothing says what it is: that is what is rendered then.
        """
        from antiphon.reading.resolve import resolve_grammar

        try:
            return resolve_grammar(self.tokenizer, self.reader)
        except FamilyNotFound:
            if self.reader is not None or getattr(self.tokenizer, "chat_template", None):
                raise
            warnings.warn("No chat template was given or found; ChatML is read.", stacklevel=2)
            return resolve_grammar(self.tokenizer, "chatml")

    def growing(self, add_generation_prompt: bool) -> GrowingRenderer:
        """What renders conversations; made once for a batch."""
        from antiphon.engine.growing import GrowingRenderer

        return GrowingRenderer(
            self.tokenizer,
            chat_template=self.source,
            add_generation_prompt=add_generation_prompt,
            **self.variables,
        )

    def visible(self, messages: Sequence[Message]) -> list[Message]:
        """The messages as the template is to see them."""
        return renderable(messages, self.source)

    @functools.cached_property
    def source(self) -> str:
        """The template's Jinja source, chosen once for a batch."""
        from antiphon.engine.source import choose_template

        tools = self.variables.get("tools")
        return choose_template(self.tokenizer, self.chat_template, self.family, tools)[1]

    def demand(self) -> Template:
        """Return this, if anything says which template it is: a model that is sampled must not get a guess.

        Raises:
            FamilyNotFound: The tokenizer has no template, none is given, and no family was detected.
        """
        from antiphon.engine.source import find_template

        if find_template(self.tokenizer, self.chat_template, self.family) is None:
            name = getattr(self.tokenizer, "name_or_path", "") or type(self.tokenizer).__name__
            raise FamilyNotFound(
                f"The tokenizer {name} has no chat template and none was detected, so no row's history can be "
                'rendered; pass chat_template=, or chat_template_name= ("chatml_format" is ChatML).'
            )
        return self

    def render_all(
        self,
        conversations: Sequence[Sequence[Message]],
        add_generation_prompt: bool,
        continues: bool = False,
    ) -> list[Rendering]:
        """Render conversations of stored or OpenAI-style messages; an error names the conversation."""
        from antiphon.engine.rendering import render

        growing = self.growing(add_generation_prompt)

        def render_one(messages: Sequence[Message]) -> Rendering:
            # Where the ids of the cut-off answer are known, they end the row; its text is rendered whole.
            cut = (
                not add_generation_prompt
                and is_cut_off(messages)
                and messages[-1].get("token_ids") is None
            )
            visible = self.visible(messages)
            if not (continues or cut):
                return growing(visible)
            return render(
                visible,
                self.tokenizer,
                chat_template=self.source,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=True,
                **self.variables,
            )

        return render_each(render_one, conversations)


def render_each(
    render_one: Callable[[Sequence[Message]], Rendering],
    conversations: Sequence[Sequence[Message]],
) -> list[Rendering]:
    """Render conversations one by one; an error names the one it is about, where there are several."""
    renderings = []
    for i, messages in enumerate(conversations):
        try:
            renderings.append(render_one(messages))
        except RenderError as error:
            if len(conversations) == 1:
                raise
            raise type(error)(f"conversation {i}: {error}") from error
    return renderings


def is_cut_off(messages: Sequence[Message]) -> bool:
    """Whether the conversation ends inside an answer: rendering it must not add an end token."""
    if not messages:
        return False
    last = messages[-1]
    return (
        last["role"] == "assistant"
        and last.get("is_complete") is False
        and bool(last.get("content"))
    )


@functools.lru_cache(maxsize=64)
def given_family(template: str) -> ModelFamily:
    """A nameless dialect for a template that was handed over as text: its grammar is inferred."""
    return ModelFamily(name="given", line="given", template="", source=template)


# Reading back


def read_chat(text_or_ids: Any, template: Template) -> list[Message]:
    """The messages of a rendering; a parser that came with `add_chat_template` reads its own template's texts."""
    from antiphon.reading.reader import parse

    parser = inverse_parser(template.name or template.family)
    if parser is not None and isinstance(text_or_ids, str):
        messages: Any = parser(text_or_ids)
        return messages.to_chats() if hasattr(messages, "to_chats") else messages  # type: ignore[no-any-return]
    tools = template.variables.get("tools")
    return parse(text_or_ids, tokenizer=template.tokenizer, family=template.grammar, tools=tools)


def read_answer(text_or_ids: Any, prompt: Any, template: Template) -> tuple[Message, str | None]:
    """The message that a completion holds, and the end token that closed it."""
    from antiphon.reading.reader import read_response

    reading = read_response(
        text_or_ids,
        prompt=prompt,
        tokenizer=template.tokenizer,
        family=template.grammar,
        tools=template.variables.get("tools"),
    )
    return reading.message, reading.end_token


# Templates that people bring at run time


@dataclass(frozen=True)
class _Added:
    parser: Callable[[str], Any] | None
    keywords: tuple[str, ...]


# Replaced as a whole, never changed: readers need no lock.
_added: Mapping[str, _Added] = {}


def inverse_parser(name: str | None) -> Callable[[str], Any] | None:
    """The parser that came with a template, if one did."""
    added = _added.get(name) if name is not None else None
    return added.parser if added is not None else None


def _added_for(tokenizer: Any) -> str | None:
    """The template that was added for models of this name: the last one that was."""
    model = str(getattr(tokenizer, "name_or_path", "") or "").lower()
    if not model:
        return None
    for name, added in reversed(list(_added.items())):
        if any(keyword in model for keyword in added.keywords):
            return name
    return None


def add_chat_template(
    template_name: str,
    template: str,
    inverse_parser: Callable[[str], Any] | None = None,
    model_family_keywords: Sequence[str] | None = None,
) -> None:
    """Registers a chat template in this process, as a dialect of its own.

    It is known by its name wherever a template name is taken. Masks and parsing need nothing from it: no
    `{% generation %}` blocks, and its grammar is inferred.

    Args:
        template_name: letters, digits, dots, dashes and underscores; not a name that another dialect has.
        template: the Jinja source.
        inverse_parser: reads a text of this template back, to a History or a message list; without it the
            reader does.
        model_family_keywords: parts of model names (case does not matter). A History is rendered with this
            template where the tokenizer's `name_or_path` has one of them and nothing else was asked for.

    Raises:
        PluginConflict: the name is taken.
        PluginError: the template can't work; says why.
        TemplateInvalid: it is not valid Jinja.
    """
    from antiphon.registry import register_family

    given = () if model_family_keywords is None else model_family_keywords
    if not isinstance(given, (list, tuple)) or not all(isinstance(word, str) for word in given):
        raise PluginError(f"model_family_keywords must be a list of strings, got {said(given)}")
    keywords = tuple(keyword.lower() for keyword in given)
    if any(not keyword.strip() for keyword in keywords):
        raise PluginError(
            "model_family_keywords holds an empty keyword, which would match every model"
        )
    _check_template(template_name, template)
    register_family(
        ModelFamily(
            name=template_name,
            line=template_name,
            template="",
            source=template,
            name_patterns=tuple(re.escape(keyword) for keyword in keywords),
            priority=1,
        )
    )
    global _added  # noqa: PLW0603
    _added = {**_added, template_name: _Added(inverse_parser, keywords)}


def remove_chat_template(template_name: str) -> None:
    """Takes back what `add_chat_template` did.

    Raises:
        FamilyNotFound: no template of this name was added.
    """
    from antiphon.registry import unregister_family

    global _added  # noqa: PLW0603
    if not isinstance(template_name, str) or template_name not in _added:
        raise FamilyNotFound(f"no chat template named {short(template_name)} was added")
    unregister_family(template_name)
    _added = {name: added for name, added in _added.items() if name != template_name}


def _check_template(name: str, template: str) -> None:
    """Renders a short conversation.

    Raises:
        PluginError: the template drops what the user or the assistant says, or refuses the conversation.
    """
    from antiphon.engine.rendering import render
    from antiphon.plugins.events import unobserved

    if not isinstance(template, str):
        raise PluginError(
            f"the template {short(name)} must be Jinja source, got {type(template).__name__}"
        )
    probe = [
        {"role": "user", "content": "QuestionQ7"},
        {"role": "assistant", "content": "AnswerA9"},
    ]
    variables: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}
    try:
        with unobserved():
            rendering = render(probe, chat_template=template, **variables)
            render(probe[:1], chat_template=template, add_generation_prompt=True, **variables)
    except RenderError as error:
        if type(error).__name__ == "TemplateInvalid":
            raise
        raise PluginError(
            f"the template {name!r} does not render a question and an answer: {error}"
        ) from error
    for message in probe:
        if message["content"] not in rendering.text:
            raise PluginError(
                f"the template {name!r} does not print what the {message['role']} says"
            )
