"""What a rendering is made from: messages, variables and a template, checked and traced."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jinja2

from antiphon.engine import limits
from antiphon.engine.environment import compile_template
from antiphon.engine.fit import spelled_out, tell_if_unfit
from antiphon.engine.provenance import REASONING_FIELDS, SpanTuple, Traced
from antiphon.engine.tracing import trace
from antiphon.errors import AntiphonError, InvalidMessage, TemplateLimitExceeded, TemplateRefused
from antiphon.families import ModelFamily

# Our own classes in what Python says of a template's mistakes: people gave plain strings, dicts and lists.
_TRACED = re.compile(r"(?:antiphon(?:\.\w+)+\.)?\b(?:Safe)?Traced(Bytes|Dict|List|\b)")

# What reading says of a call: `antiphon.reading.parse_response` tells what each means.
_VERDICTS = frozenset(
    ("ok", "malformed", "incomplete", "foreign", "unknown_tool", "invalid_arguments", "unchecked")
)


class ChosenTemplate(NamedTuple):
    """The template that a rendering is made with.

    Attributes:
        name: What to call it in messages to people.
        source: Its Jinja source.
        family: The dialect whose template it is, None where it is somebody's own.
    """

    name: str
    source: str
    family: str | None = None


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
        family: The dialect whose template it is, None where it is somebody's own.
    """

    messages: list[Any]
    variables: dict[str, Any]
    template: str
    name: str
    size: int
    end_tokens: frozenset[str] = frozenset()
    family: str | None = None

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
            raise TemplateRefused(self._refusal(error, messages)) from error
        spans: list[SpanTuple] = []
        position = 0
        for piece in pieces:
            if piece.__class__ is not str and isinstance(piece, Traced):
                for start, end, origin in piece._antiphon_spans:
                    spans.append((start + position, end + position, origin))
            position += len(piece)
        return "".join(pieces), spans

    def _refusal(self, error: Exception, messages: list[Any]) -> str:
        roles = ", ".join(str(message.get("role")) for message in messages[:8])
        more = ", …" if len(messages) > 8 else ""
        kind = "" if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: "
        said = _TRACED.sub(lambda match: (match[1] or "str").lower(), str(error))
        told = f"The template {self.name} refuses the conversation ({roles}{more}): {kind}{said}"
        missing = re.match(r"'(\w+_token)' is undefined", str(error))
        if missing is None or missing[1] in self.variables:
            return told
        return f"{told}; give the model's tokenizer, or {missing[1]}=… as a template variable."


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
    chosen = choose_template(tokenizer, chat_template, family, tools)
    specials = special_tokens(tokenizer)
    setting = trace_variables(chosen, specials, tools, documents, template_kwargs)
    return trace_input(untraced(messages, chosen.source), setting)


def untraced(messages: Any, template: str) -> Any:
    """Return message dicts in the form that the template takes, where a History was given."""
    if not hasattr(messages, "to_chats"):
        return messages
    from antiphon.conversations.template_forms import renderable

    return renderable(messages.to_chats(), template)


def trace_variables(
    chosen: ChosenTemplate,
    specials: Mapping[str, Any],
    tools: Sequence[Any] | None,
    documents: Sequence[Mapping[str, Any]] | None,
    template_kwargs: Mapping[str, Any],
) -> Source:
    """Give the text of tools, documents and variables its origin; the source has no messages yet."""
    variables = dict(specials)
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
    return Source([], variables, chosen.source, chosen.name, 0, end_tokens, chosen.family)


def trace_input(messages: Any, setting: Source) -> Source:
    """Give the text of messages its origin, and put them into ``setting`` (see `trace_variables`)."""
    traced_messages = trace_messages(messages)
    size = sum(len(v) for m in traced_messages for v in m.values() if isinstance(v, str))
    return replace(setting, messages=traced_messages, size=size)


def trace_messages(messages: Any, first: int = 0) -> list[Any]:
    """Check messages and give their text its origins; their numbers count from ``first``.

    Raises:
        InvalidMessage: A message is not a mapping.
    """
    messages = getattr(messages, "messages", messages)
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise InvalidMessage(
            f"A conversation is a list of message dicts, not {type(messages).__name__}."
        )
    result = []
    for index, message in enumerate(messages, first):
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
        if item.get("tool_calls"):
            item = _without_verdicts(item)
        result.append(item)
    return result


def _without_verdicts(message: Any) -> Any:
    """Leave out what reading says of calls, which some templates would print with them, and what it took for
    calls in another format: their text stands in the content.
    """
    calls = message["tool_calls"]
    if not isinstance(calls, list) or not any(map(_verdict, calls)):
        return message
    own = [_unjudged(call) for call in calls if _verdict(call) != "foreign"]
    result = {key: value for key, value in message.items() if own or key != "tool_calls"}
    if own:
        result["tool_calls"] = _like(calls, own)
    return _like(message, result)


def _verdict(call: Any) -> str | None:
    status = call.get("status") if isinstance(call, dict) else None
    return status if isinstance(status, str) and status in _VERDICTS else None


def _unjudged(call: Any) -> Any:
    if _verdict(call) is None:
        return call
    aside = ("status", "problem", "raw")
    return _like(call, {key: value for key, value in call.items() if key not in aside})


def _like(traced: Any, value: Any) -> Any:
    """Return a list or dictionary as one that comes from the same place as another."""
    result = type(traced)(value)
    result._antiphon_origin = traced._antiphon_origin
    return result


def _alias_reasoning(message: Any) -> Any:
    """Give a message's reasoning the names that templates know, as transformers does."""
    reasoning = next(
        (message[key] for key in REASONING_FIELDS if message.get(key) is not None), None
    )
    if reasoning is None:
        return message
    return _like(message, {"thinking": reasoning, **message, "reasoning_content": reasoning})


def choose_template(
    tokenizer: Any,
    chat_template: str | None,
    family: str | None,
    tools: Sequence[Any] | None = None,
) -> ChosenTemplate:
    """Return the template to render with; ChatML, with a warning, where none is given or found."""
    found = find_template(tokenizer, chat_template, family, tools)
    if found is not None:
        return found
    from antiphon.registry import get_family

    chatml = get_family("chatml")
    told = "No chat template was given or found; ChatML is used, which prints no calls, tools or reasoning."
    lacking = spelled_out(chatml, tokenizer)
    if lacking:
        told += f" The tokenizer has no token for {' '.join(lacking)}: it becomes ordinary text."
    warnings.warn(f"{told} Give chat_template= or family=.", stacklevel=4)
    return ChosenTemplate(repr(chatml.name), chatml.load_template(), chatml.name)


def find_template(
    tokenizer: Any,
    chat_template: str | None,
    family: str | None,
    tools: Sequence[Any] | None = None,
) -> ChosenTemplate | None:
    """Return the template to render with; None where nothing says what it is.

    An explicit template comes first, then an explicit family, then the tokenizer's own template (which is what the
    model was trained on), then the template of the family that is detected.
    """
    if chat_template is not None and not isinstance(chat_template, str):
        raise InvalidMessage(f"chat_template must be a string, not {type(chat_template).__name__}.")
    if chat_template is not None and ("{" in chat_template or not tokenizer):
        return ChosenTemplate("given as chat_template", chat_template)
    if family is not None:
        from antiphon.registry import resolve_template_name

        chosen = resolve_template_name(family, tokenizer)
        return _of_family(chosen, tokenizer, detected=chosen.line == family != chosen.name)
    own = _own_template(tokenizer, chat_template, tools)
    if own is not None:
        called = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
        return ChosenTemplate(f"of tokenizer {called!r}", own)
    if tokenizer is None:
        return None
    from antiphon.detection import detect_family
    from antiphon.registry import get_family

    detected = detect_family(tokenizer).family
    return None if detected is None else _of_family(get_family(detected), tokenizer, detected=True)


def _of_family(family: ModelFamily, tokenizer: Any, *, detected: bool) -> ChosenTemplate:
    tell_if_unfit(family, tokenizer, detected=detected, stacklevel=6)
    return ChosenTemplate(repr(family.name), family.load_template(), family.name)


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


def special_tokens(tokenizer: Any) -> dict[str, Any]:
    """Return the special tokens of a tokenizer as templates see them: ``bos_token``, …."""
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
    try:
        given = list(tools)
    except TypeError as error:
        raise InvalidMessage(
            f"Tools are a list of JSON schemas or functions, not {type(tools).__name__}."
        ) from error
    schemas = []
    for index, tool in enumerate(given):
        if isinstance(tool, Mapping):
            schemas.append(trace(dict(tool), -1, ("tools", index)))
        elif callable(tool):
            schemas.append(trace(tool_schema(tool), -1, ("tools", index)))
        else:
            raise InvalidMessage(
                f"Tool {index} is a {type(tool).__name__}; tools are JSON schemas or functions with type hints."
            )
    result = trace([], -1, ("tools",))
    result.extend(schemas)
    return result


def tool_schema(function: Callable[..., Any]) -> Any:
    """Return the JSON schema by which templates show a function.

    Raises:
        InvalidMessage: transformers, which makes it, is not installed.
    """
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
    if isinstance(documents, (str, bytes, Mapping)) or not isinstance(documents, Iterable):
        raise InvalidMessage(f"Documents are a list of dicts, not {type(documents).__name__}.")
    for index, document in enumerate(documents):
        if not isinstance(document, Mapping):
            raise InvalidMessage(
                f"Document {index} is a {type(document).__name__}; documents are dicts with 'title' and 'text'."
            )
    return trace(list(documents), -1, ("documents",))
