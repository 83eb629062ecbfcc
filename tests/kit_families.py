"""A small dialect that is right, and the same dialect broken on purpose, once or more for each check.

Each entry of `BROKEN` makes a subject and says what the check's message must point at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from antiphon.families import ModelFamily
from antiphon.reading import CallForm, Grammar, RoleForm
from antiphon.testing import FamilySubject, StandInTokenizer

END = "<|end|>"
TEMPLATE = """
{%- for message in messages -%}
    {%- if message.role not in ('system', 'user', 'assistant', 'tool') -%}
        {{- raise_exception('There is no such role.') -}}
    {%- endif -%}
    {%- if message.content is not string -%}
        {{- raise_exception('Contents are texts.') -}}
    {%- endif -%}
    {{- '<|' + message.role + '|>\\n' -}}
    {%- if message.role == 'assistant' -%}
        {%- generation -%}
        {{- message.content -}}
        {%- for call in message.tool_calls or [] -%}
            {{- '<call>{"name": "' + call.function.name + '", "arguments": ' -}}
            {{- call.function.arguments | tojson -}}
            {{- '}</call>' -}}
        {%- endfor -%}
        {{- '<|end|>' -}}
        {%- endgeneration -%}
    {%- else -%}
        {{- message.content + '<|end|>' -}}
    {%- endif -%}
    {{- '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|assistant|>\\n' -}}
{%- endif -%}
"""
GRAMMAR = Grammar(
    name="parakeet",
    roles=tuple(
        RoleForm(role, f"<|{role}|>\n", f"{END}\n")
        for role in ("system", "user", "assistant", "tool")
    ),
    end_tokens=(END,),
    calls=(CallForm("json", opener="<call>", closer="</call>"),),
)
FAMILY = ModelFamily(
    name="parakeet",
    line="parakeet",
    template="",
    source=TEMPLATE,
    grammar="kit_families:GRAMMAR",
    name_patterns=(r"^parakeet\b",),
    model_ids=("aviary/Parakeet-1B",),
    arguments="mapping",
    end_tokens=(END,),
    renderings="kept:parakeet.json",
)
SPECIAL = (END, *(f"<|{role}|>" for role in ("system", "user", "assistant", "tool")))
TOKENIZER = StandInTokenizer(
    SPECIAL,
    ("<call>", "</call>"),
    special_tokens={"eos_token": END},
    name="parakeet",
)

# Grammars that say something else than the template, where a descriptor can find them.
STRIPS = replace(
    GRAMMAR,
    roles=tuple(
        replace(form, closer=f"\n{form.closer}") if form.role == "assistant" else form
        for form in GRAMMAR.roles
    ),
)
RAISES = replace(GRAMMAR, roles=(None,))  # type: ignore[arg-type]
UNTUPLED = replace(GRAMMAR, calls=GRAMMAR.calls[0])  # type: ignore[arg-type]
NEVER_ENDS = replace(GRAMMAR, end_tokens=("<|stop|>",))
NO_CALLS = replace(GRAMMAR, calls=())
WRONG_ROLE = replace(
    GRAMMAR,
    roles=tuple(
        replace(form, role="user") if form.role == "system" else form for form in GRAMMAR.roles
    ),
)


@dataclass(frozen=True)
class Sticky(ModelFamily):
    """A descriptor that holds what can't be pickled."""

    parser: Any = field(default=lambda text: text, compare=False)


class Stripping(StandInTokenizer):
    """A tokenizer whose decoder strips, so that pieces of a text lose their spaces."""

    def __init__(self) -> None:
        super().__init__(SPECIAL, special_tokens={"eos_token": END})
        self._inner = self.backend_tokenizer
        self.backend_tokenizer = None
        self.added_tokens_decoder = self._inner.get_added_tokens_decoder()

    def __len__(self) -> int:
        return int(self._inner.get_vocab_size())

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return list(self._inner.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        return str(self._inner.decode(list(ids), skip_special_tokens=False)).strip()

    def get_vocab(self) -> dict[str, int]:
        return dict(self._inner.get_vocab(with_added_tokens=True))

    def get_added_vocab(self) -> dict[str, int]:
        return {token.content: index for index, token in self.added_tokens_decoder.items()}


def subject(tokenizer: Any = TOKENIZER, **changes: Any) -> FamilySubject:
    """Return the dialect with some fields changed."""
    return FamilySubject(replace(FAMILY, **changes), tokenizer)


def edited(old: str, new: str, tokenizer: Any = TOKENIZER, **changes: Any) -> FamilySubject:
    """Return the dialect with a text of its template exchanged."""
    assert old in TEMPLATE
    return subject(tokenizer, source=TEMPLATE.replace(old, new), **changes)


def with_template(template: str, name: str = "stand-in") -> FamilySubject:
    """Return the dialect with a tokenizer that brings a template of its own."""
    own = StandInTokenizer(
        SPECIAL,
        ("<call>", "</call>"),
        template=template,
        special_tokens={"eos_token": END},
        name=name,
    )
    return FamilySubject(FAMILY, own)


def sticky() -> FamilySubject:
    values = {name: getattr(FAMILY, name) for name in FAMILY.__dataclass_fields__}
    return FamilySubject(Sticky(**values), TOKENIZER)


_ANSWER = "{{- message.content -}}\n        {%- for"
_OTHER = "{{- message.content + '<|end|>' -}}"
_TWICE = "{{- message.content -}}{{- message.content -}}\n        {%- for"
_ECHO = "{%- if add_generation_prompt -%}"
# The last answer is printed again behind everything, so that no one place is its turn.
_ECHOED = (
    "{{- messages[-1].content if messages[-1].role == 'user' else messages[1].content -}}" + _ECHO
)
_JOINED = "{{- message.content.split('<|end|>') | join('<|end|>') + '<|end|>' -}}"

#: By check: what is wrong, who makes it, and words that the message must hold.
BROKEN: dict[str, list[tuple[str, Callable[[], FamilySubject], str]]] = {
    "descriptor": [
        ("a digest that is none", lambda: subject(digests=("abc",)), "no SHA-256"),
        ("no end token", lambda: subject(end_tokens=()), "end_tokens is empty"),
        (
            "a grammar that is not there",
            lambda: subject(grammar="kit_families:MISSING"),
            "could not be loaded",
        ),
        (
            "a text that begins with a token which the grammar does not know",
            lambda: subject(
                StandInTokenizer(SPECIAL, special_tokens={"bos_token": "<s>", "eos_token": END}),
                source="{{- bos_token -}}" + TEMPLATE,
                renderings=None,
            ),
            "the grammar's bos is empty",
        ),
        (
            "one form where a tuple belongs",
            lambda: subject(grammar="kit_families:UNTUPLED"),
            "the grammar.calls is CallForm(style='json'",
        ),
        (
            "a field within that is something else",
            lambda: subject(grammar="kit_families:RAISES"),
            "the grammar.roles is (None,), and must be tuple[RoleForm, ...]",
        ),
        (
            "tokens that are required and excluded",
            lambda: subject(required_tokens=(END,), excluded_tokens=(END,)),
            "no vocabulary fits",
        ),
    ],
    "pickling": [("a descriptor with a function in it", sticky, "can't be pickled")],
    "template": [
        ("a template with a syntax error", lambda: subject(source="{% if %}"), "template's source"),
        (
            "a template that refuses all",
            lambda: subject(source="{{ raise_exception('no') }}"),
            "refuses every conversation",
        ),
        (
            "a template that draws lots",
            lambda: edited(_ECHO, "{{ range(99999) | random }}" + _ECHO),
            "A second rendering",
        ),
    ],
    "arguments": [
        ("strings that are encoded twice", lambda: subject(arguments="either"), "text in a string"),
        (
            "a form that is refused",
            lambda: edited(
                "{{- call.function.arguments | tojson -}}",
                "{{- raise_exception('mapping') if call.function.arguments is mapping else call.function.arguments -}}",
            ),
            "as string only",
        ),
    ],
    "kept": [
        (
            "a prompt that is another one",
            lambda: edited("{{- '<|assistant|>\\n' -}}", "{{- '<|assistant|>' -}}"),
            "not the one that was kept",
        ),
        (
            "what was kept of another family",
            lambda: subject(name="budgerigar"),
            "holds nothing of budgerigar",
        ),
    ],
    "parity": [
        (
            "a space more than the official template",
            lambda: with_template(TEMPLATE.replace("'<|assistant|>\\n'", "'<|assistant|> \\n'")),
            "where its text parts",
        ),
    ],
    "agreement": [
        (
            "a tokenizer of another dialect",
            lambda: with_template("{% for m in messages %}{{ m.role + m.content }}{% endfor %}"),
            "another dialect",
        ),
    ],
    "turns": [
        (
            "an end token that the template does not print",
            lambda: subject(end_tokens=("<|stop|>",)),
            "end token of the descriptor",
        ),
        ("an answer that is printed in two places", lambda: edited(_ECHO, _ECHOED), "turn"),
    ],
    "closing": [
        (
            "answers without an end token",
            lambda: edited(
                "{{- '<|end|>' -}}\n        {%- endgeneration -%}", "{%- endgeneration -%}"
            ),
            "not closed",
        ),
        (
            "a prompt that is not the header",
            lambda: edited("'<|assistant|>\\n' -}}", "'<|robot|>\\n' -}}"),
            "generation prompt",
        ),
    ],
    "generation_tags": [
        (
            "a mask that lacks the end token",
            lambda: edited(
                "{{- '<|end|>' -}}\n        {%- endgeneration -%}",
                "{%- endgeneration -%}\n        {{- '<|end|>' -}}",
            ),
            "endgeneration",
        ),
        (
            "a mask with the line break behind the turn",
            lambda: edited(
                "{{- '<|end|>' -}}\n        {%- endgeneration -%}",
                "{{- '<|end|>\\n' -}}\n        {%- endgeneration -%}",
            ),
            "the tags mark",
        ),
        (
            "a mask that begins one character late",
            lambda: edited(
                "{%- generation -%}\n        {{- message.content -}}",
                "{{- message.content[:1] -}}{%- generation -%}\n        {{- message.content[1:] -}}",
            ),
            "the tags mark",
        ),
        (
            "a mask with the header",
            lambda: edited(
                "{{- '<|' + message.role + '|>\\n' -}}\n"
                "    {%- if message.role == 'assistant' -%}\n        {%- generation -%}",
                "{%- if message.role == 'assistant' -%}\n        {%- generation -%}{{- '<|assistant|>\\n' -}}",
            ),
            "the tags mark",
        ),
    ],
    "control_tokens": [
        (
            "a tokenizer without the end token",
            lambda: subject(StandInTokenizer(SPECIAL[1:])),
            "no control token",
        ),
        (
            "a required token that is not there",
            lambda: subject(required_tokens=("<|wings|>",)),
            "required tokens",
        ),
    ],
    "tokens": [
        (
            "an answer that is printed in two places",
            lambda: edited(_ECHO, _ECHOED),
            "MaskUnavailable",
        ),
        ("a tokenizer that strips", lambda: subject(Stripping()), "decoded text"),
    ],
    "batch": [
        (
            "a template that draws lots",
            lambda: edited(_ECHO, "{{ range(99999) | random }}" + _ECHO),
            "batch",
        )
    ],
    "samples": [
        (
            "an answer that is printed in two places",
            lambda: edited(_ECHO, _ECHOED),
            "MaskUnavailable",
        )
    ],
    "hostile": [
        (
            "content that is split at the end token and joined",
            lambda: edited(_OTHER, _JOINED),
            "print it as it is",
        ),
    ],
    "parse": [
        ("a parser that strips", lambda: subject(grammar="kit_families:STRIPS"), "is read as"),
        ("a parser that raises", lambda: subject(grammar="kit_families:RAISES"), "AttributeError"),
        (
            "a parser that leaves calls in the content",
            lambda: subject(grammar="kit_families:NO_CALLS"),
            "the calls",
        ),
        (
            "a parser that mistakes a role",
            lambda: subject(grammar="kit_families:WRONG_ROLE"),
            "user",
        ),
    ],
    "render_again": [
        ("a template that prints content twice", lambda: edited(_ANSWER, _TWICE), "first"),
        (
            "a parser that strips",
            lambda: subject(grammar="kit_families:STRIPS"),
            "render to the same",
        ),
        ("a parser that raises", lambda: subject(grammar="kit_families:RAISES"), "AttributeError"),
        (
            "a parser that mistakes a role",
            lambda: subject(grammar="kit_families:WRONG_ROLE"),
            "first",
        ),
    ],
    "responses": [
        (
            "a grammar that does not know the end token",
            lambda: subject(grammar="kit_families:NEVER_ENDS"),
            "end tokens",
        ),
        ("a parser that raises", lambda: subject(grammar="kit_families:RAISES"), "AttributeError"),
    ],
    "streams": [
        ("a tokenizer that strips each piece", lambda: subject(Stripping()), "stream of ids")
    ],
    "foreign_names": [
        ("a family that claims every name", lambda: subject(name_patterns=(".*",)), "claims"),
        (
            "a family that claims others' names",
            lambda: subject(name_patterns=("chat|instruct|model",)),
            "match more than its models",
        ),
    ],
    "random": [
        ("a parser that strips", lambda: subject(grammar="kit_families:STRIPS"), "The text"),
    ],
}
