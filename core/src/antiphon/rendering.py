"""Render a conversation with any chat template, and know where each character came from.

The text is exactly what transformers 5 renders (``render_jinja_template``): messages are taken as they are, None values
kept, a message's reasoning given every name templates know for it. Beside the text stand the spans that came from
messages and the turns that the model writes.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2

from antiphon import limits
from antiphon.environment import compile_template
from antiphon.errors import AntiphonError, InvalidMessage, TemplateLimitExceeded, TemplateRefused
from antiphon.provenance import (
    REASONING_FIELDS,
    SpanTuple,
    Traced,
    concat,
    spans_of,
    trace,
    traced_whole,
)

if TYPE_CHECKING:
    from antiphon.tokenization import TokenizedRendering
    from antiphon.turns import Turn

_TEXT_FIELDS = ("content", "tool_calls", *REASONING_FIELDS)
_CONTINUE_TAG = "ANTIPHON_CONTINUES_HERE "


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
class Source:
    """What a rendering is made from: enough to render a prefix of the conversation the same way.

    Attributes:
        messages: The messages, traced.
        variables: Everything else the template sees.
        template: The template's source.
        name: What to call the template in messages to people.
        size: Characters of the input, about.
        end_tokens: Special tokens that may end a turn: all that are known but the one that begins a text.
    """

    messages: list[Any]
    variables: dict[str, Any]
    template: str
    name: str
    size: int
    end_tokens: frozenset[str] = frozenset()

    def pieces(
        self, messages: list[Any], add_generation_prompt: bool
    ) -> tuple[str, list[SpanTuple]]:
        """Render ``messages`` and return the text and the spans of every origin, in order.

        Raises:
            TemplateRefused: The template raised.
            TemplateLimitExceeded: The template ran out of its bounds.
        """
        template = compile_template(self.template)
        try:
            with limits.limited(self.size):
                context = template.new_context(
                    {
                        "messages": messages,
                        "add_generation_prompt": add_generation_prompt,
                        **self.variables,
                    }
                )
                pieces = list(template.root_render_func(context))
        except (RecursionError, MemoryError) as error:
            raise TemplateLimitExceeded(
                f"The template {self.name} nests too deep or builds too much; it was stopped."
            ) from error
        except AntiphonError:
            raise
        except Exception as error:  # a template is foreign code and may raise anything
            raise TemplateRefused(_refusal(self.name, error, messages)) from error
        spans: list[SpanTuple] = []
        position = 0
        for piece in pieces:
            if piece.__class__ is not str and isinstance(piece, Traced):
                for start, end, origin in piece._antiphon_spans:
                    spans.append((start + position, end + position, origin))
            position += len(piece)
        return "".join(pieces), spans


@dataclass(frozen=True)
class Rendering:
    """A rendered conversation.

    Attributes:
        text: Exactly what the template gives.
        spans: The parts of the text that came from messages, sorted, not overlapping.
        input_spans: The parts that came from tools, documents and other variables; their message is -1.
        messages: The messages, as the template saw them.
    """

    text: str
    spans: list[Span]
    input_spans: list[Span]
    source: Source = field(repr=False)
    add_generation_prompt: bool = False
    continued: bool = False
    tokenizer: Any = field(default=None, repr=False, compare=False)
    plans: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def messages(self) -> list[Any]:
        """The messages that were rendered."""
        return self.source.messages

    @functools.cached_property
    def _located(self) -> tuple[list[Turn], dict[int, str]]:
        from antiphon.turns import locate_turns

        return locate_turns(self)

    @property
    def turns(self) -> list[Turn]:
        """The turns of the assistant messages that the text shows, in order."""
        return self._located[0]

    @property
    def unlocated(self) -> dict[int, str]:
        """Assistant messages whose turn could not be found, with the reason."""
        return self._located[1]

    @functools.cached_property
    def dropped(self) -> list[Dropped]:
        """Fields that hold text of which the template printed nothing."""
        shown = {
            (span.message, key) for span in self.spans for key in span.field[:1] or _TEXT_FIELDS
        }
        return [
            Dropped(index, name)
            for index, message in enumerate(self.messages)
            for name, value in message.items()
            if name in _TEXT_FIELDS
            and (index, name) not in shown
            and _is_own(name, value)
            and _has_text(value)
        ]

    def tokenize(
        self, tokenizer: Any = None, *, allow_control_tokens: bool = False
    ) -> TokenizedRendering:
        """Encode the text; see `antiphon.tokenization`.

        Args:
            tokenizer: The tokenizer; by default the one given to `render`.
            allow_control_tokens: Let control tokens that messages or tools spell out become control ids, as
                transformers does.
        """
        from antiphon.tokenization import tokenize

        return tokenize(
            [self], tokenizer or self.tokenizer, allow_control_tokens=allow_control_tokens
        )[0]

    def explain(self, *, color: bool = False) -> str:
        """Return the text marked up for a terminal; `explain_data` gives the same as data."""
        from antiphon.explanation import explain

        return explain(self, color=color)

    def explain_data(self) -> list[dict[str, Any]]:
        """Return the text as a list of parts: text, kind (scaffold, content, input), message, field, turn."""
        from antiphon.explanation import explain_data

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
    """
    source = prepare(
        messages,
        tokenizer,
        chat_template=chat_template,
        family=family,
        tools=tools,
        documents=documents,
        template_kwargs=template_kwargs,
    )
    return render_source(source, tokenizer, add_generation_prompt, continue_final_message)


def prepare(
    messages: Any,
    tokenizer: Any = None,
    *,
    chat_template: str | None = None,
    family: str | None = None,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    template_kwargs: Mapping[str, Any],
) -> Source:
    """Check and trace the input of a rendering."""
    name, template = choose_template(tokenizer, chat_template, family, tools)
    if hasattr(messages, "to_chats"):
        from antiphon.templating import renderable

        messages = renderable(messages.to_chats(), template)
    variables = _special_tokens(tokenizer)
    for key, value in template_kwargs.items():
        # Special tokens are the template's; other text that callers pass in is content.
        variables[key] = (
            value if key.endswith("_token") and isinstance(value, str) else trace(value, -1, (key,))
        )
    end_tokens = frozenset(
        value
        for key, value in variables.items()
        if key.endswith("_token")
        and key not in ("bos_token", "unk_token")
        and isinstance(value, str)
        and value
    )
    variables["tools"] = _trace_tools(tools)
    variables["documents"] = _trace_documents(documents)
    traced_messages = trace_messages(messages)
    size = sum(len(v) for m in traced_messages for v in m.values() if isinstance(v, str))
    return Source(traced_messages, variables, template, name, size, end_tokens)


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
        text, spans = _continued(
            source, "content" if continue_final_message is True else continue_final_message
        )
    else:
        text, spans = source.pieces(source.messages, add_generation_prompt)
    own = [Span(start, end, *origin) for start, end, origin in spans if origin[0] >= 0]
    inputs = (
        [Span(start, end, *origin) for start, end, origin in spans if origin[0] < 0]
        if len(own) < len(spans)
        else []
    )
    return Rendering(
        text, own, inputs, source, add_generation_prompt, bool(continue_final_message), tokenizer
    )


def trace_messages(messages: Any) -> list[Any]:
    """Check messages and give their text its origins.

    Raises:
        InvalidMessage: A message is not a mapping.
    """
    messages = getattr(messages, "messages", messages)
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise InvalidMessage(
            f"A conversation is a list of message dicts, not {type(messages).__name__}."
        )
    result = []
    for index, message in enumerate(messages):
        try:
            item = trace(message, index)
        except RecursionError as error:
            raise InvalidMessage(f"Message {index} is nested too deeply to be rendered.") from error
        if not isinstance(item, dict):
            raise InvalidMessage(
                f"Message {index} is a {type(message).__name__}; chat messages should be dicts, dataclasses or "
                "pydantic models."
            )
        if not item.keys().isdisjoint(REASONING_FIELDS):
            item = _alias_reasoning(item)
        result.append(item)
    return result


def _alias_reasoning(message: Any) -> Any:
    """Give a message's reasoning the names that templates know, as transformers does."""
    reasoning = next(
        (message[key] for key in REASONING_FIELDS if message.get(key) is not None), None
    )
    if reasoning is None:
        return message
    result = type(message)({"thinking": reasoning, **message, "reasoning_content": reasoning})
    result._antiphon_origin = message._antiphon_origin
    return result


def choose_template(
    tokenizer: Any,
    chat_template: str | None,
    family: str | None,
    tools: Sequence[Any] | None = None,
) -> tuple[str, str]:
    """Return a name for the template, and its source.

    An explicit template comes first, then an explicit family, then the tokenizer's own template (which is what the
    model was trained on), then the template of the family that is detected, then ChatML with a warning.
    """
    if chat_template is not None and not isinstance(chat_template, str):
        raise InvalidMessage(f"chat_template must be a string, not {type(chat_template).__name__}.")
    if chat_template is not None and ("{" in chat_template or not tokenizer):
        return "given as chat_template", chat_template
    if family is not None:
        from antiphon.registry import resolve_template_name

        chosen = resolve_template_name(family, tokenizer)
        return repr(chosen.name), chosen.load_template()
    own = _own_template(tokenizer, chat_template, tools)
    if own is not None:
        return (
            f"of tokenizer {getattr(tokenizer, 'name_or_path', '') or type(tokenizer).__name__!r}",
            own,
        )
    from antiphon.registry import get_family

    if tokenizer is not None:
        from antiphon.detection import detect_family

        detected = detect_family(tokenizer).family
        if detected is not None:
            return repr(detected), get_family(detected).load_template()
    warnings.warn("No chat template was given or found; ChatML is used.", stacklevel=4)
    return "'chatml'", get_family("chatml").load_template()


def _own_template(tokenizer: Any, name: str | None, tools: Any) -> str | None:
    templates = getattr(tokenizer, "chat_template", None)
    if isinstance(templates, Mapping):
        if name is None:
            name = "tool_use" if tools is not None and "tool_use" in templates else "default"
        if name not in templates:
            raise InvalidMessage(
                f"The tokenizer has no chat template named {name!r}; it has {', '.join(sorted(templates))}."
            )
        return str(templates[name])
    if name is not None:
        return name
    return templates if isinstance(templates, str) else None


def _special_tokens(tokenizer: Any) -> dict[str, Any]:
    inner = getattr(tokenizer, "tokenizer", None)  # of a processor
    tokens = (
        getattr(tokenizer, "special_tokens_map", None)
        or getattr(inner, "special_tokens_map", None)
        or {}
    )
    return {
        key: str(value)
        for key, value in tokens.items()
        if isinstance(value, str) or hasattr(value, "content")
    }


def _trace_tools(tools: Sequence[Any] | None) -> Any:
    if tools is None:
        return None
    schemas = []
    for index, tool in enumerate(tools):
        if isinstance(tool, Mapping):
            schemas.append(trace(dict(tool), -1, ("tools", index)))
        elif callable(tool):
            schemas.append(trace(_schema_of(tool), -1, ("tools", index)))
        else:
            raise InvalidMessage(
                f"Tool {index} is a {type(tool).__name__}; tools are JSON schemas or functions with type hints."
            )
    result = trace([], -1, ("tools",))
    result.extend(schemas)
    return result


def _schema_of(function: Callable[..., Any]) -> Any:
    try:
        from transformers.utils.chat_template_utils import get_json_schema
    except ImportError as error:
        raise InvalidMessage(
            f"The schema of the function {getattr(function, '__name__', function)!r} needs transformers; "
            "install it or give a JSON schema."
        ) from error
    return get_json_schema(function)


def _trace_documents(documents: Sequence[Mapping[str, Any]] | None) -> Any:
    if documents is None:
        return None
    for index, document in enumerate(documents):
        if not isinstance(document, Mapping):
            raise InvalidMessage(
                f"Document {index} is a {type(document).__name__}; documents are dicts with 'title' and 'text'."
            )
    return trace(list(documents), -1, ("documents",))


def _continued(source: Source, name: str) -> tuple[str, list[SpanTuple]]:
    """Render up to the end of the last message's field ``name``.

    The text is cut where a tag behind the field comes out, and trailing white space with it where the template trims
    the field: transformers' rule. Where the template rewrites the message, so that transformers refuses, the prompt
    and the message as it is are the text: what is being continued is the current turn.
    """
    if not source.messages:
        raise InvalidMessage(
            "continue_final_message needs a message to continue, and the conversation is empty."
        )
    last = source.messages[-1]
    value = last.get(name)
    if value is None:
        raise InvalidMessage(
            f"continue_final_message: the last message has no {name!r} to continue."
        )
    names = (
        [key for key in REASONING_FIELDS if last.get(key) == value]
        if name in REASONING_FIELDS
        else [name]
    )
    tagged = type(last)(last)
    tagged._antiphon_origin = last._antiphon_origin
    if isinstance(value, str):
        for key in names:
            tagged[key] = _tag(value, len(source.messages) - 1, key)
    elif isinstance(value, list) and any(
        isinstance(part, dict) and "text" in part for part in value
    ):
        index = max(i for i, part in enumerate(value) if isinstance(part, dict) and "text" in part)
        part = type(value[index])(value[index])
        part._antiphon_origin = value[index]._antiphon_origin
        value, part["text"] = part["text"], _tag(part["text"], *part._antiphon_origin)
        tagged[name] = type(tagged[name])(tagged[name])
        tagged[name]._antiphon_origin = last[name]._antiphon_origin
        tagged[name][index] = part
    else:
        raise InvalidMessage(
            f"continue_final_message: {name!r} of the last message holds no text to continue."
        )
    try:
        text, spans = source.pieces([*source.messages[:-1], tagged], False)
    except TemplateRefused:
        text, spans = "", []
    tag = _CONTINUE_TAG.strip()
    if tag not in text or value.strip() not in text:
        return _prompt_and_prefix(source, value, name)
    end = text.rindex(tag)
    cut = text[:end] if text.startswith(_CONTINUE_TAG, end) else text[:end].rstrip()
    return cut, [(a, min(b, len(cut)), origin) for a, b, origin in spans if a < len(cut)]


def _tag(text: str, message: int, *path: Any) -> str:
    if path and isinstance(path[0], tuple):
        path = path[0]
    return concat((text, traced_whole(_CONTINUE_TAG, (message, tuple(path)))))


def _prompt_and_prefix(source: Source, prefix: str, name: str) -> tuple[str, list[SpanTuple]]:
    text, spans = source.pieces(source.messages[:-1], True)
    # The prompt may have opened what the prefix opens again, such as a reasoning block.
    overlap = max(
        size for size in range(min(len(prefix), len(text)) + 1) if text.endswith(prefix[:size])
    )
    start = len(text) - overlap
    origin = (len(source.messages) - 1, (name,))
    return text[:start] + str.__str__(prefix), [*spans, (start, start + len(prefix), origin)]


def _has_text(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, dict):
        return any(_has_text(item) for key, item in value.items() if key not in ("type", "id"))
    return isinstance(value, (list, tuple)) and any(_has_text(item) for item in value)


def _is_own(name: str, value: Any) -> bool:
    """Whether a field is the message's own, not another name for its reasoning."""
    return name not in REASONING_FIELDS or any(
        origin[1][:1] == (name,) for _, _, origin in spans_of(value)
    )


def _refusal(name: str, error: Exception, messages: list[Any]) -> str:
    roles = ", ".join(str(message.get("role")) for message in messages[:8]) + (
        ", …" if len(messages) > 8 else ""
    )
    kind = "" if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: "
    return f"The template {name} refuses the conversation ({roles}): {kind}{error}"
