"""What the scaffold of a family can know from a template: its grammar as Python, its flags, its end tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from typing import Any

from jinja2 import meta

from antiphon.errors import GrammarUnavailable, InvalidParameter, reason_of
from antiphon.families import ModelFamily
from antiphon.reading.grammar import Grammar
from antiphon.reading.infer import infer_grammar
from antiphon.testing.capabilities import observe
from antiphon.testing.subject import FamilySubject

_WIDTH = 100


@dataclass(frozen=True)
class Seen:
    """What a template shows.

    Attributes:
        grammar: A module that declares its grammar; None where none could be inferred.
        problem: Why none could.
        values: What fills the placeholders of the other files.
    """

    grammar: str | None
    problem: str
    values: dict[str, str]


def look_at(name: str, template: str, tokenizer: Any = None) -> Seen:
    """Return what a template shows of its dialect.

    Args:
        name: The dialect's name.
        template: The source of the official template.
        tokenizer: A tokenizer of its models: its special tokens are template variables.

    Raises:
        TemplateInvalid: It is no template.
        InvalidParameter: It prints special tokens that nothing tells.
    """
    from antiphon.conversations.template_forms import call_form
    from antiphon.engine.environment import compile_template

    environment = compile_template(template).environment
    wanted = meta.find_undeclared_variables(environment.parse(template))
    tokens = sorted(each for each in wanted if each.endswith("_token"))
    if tokens and tokenizer is None:
        raise InvalidParameter(
            f"The template asks for {' and '.join(tokens)}: give --tokenizer, a folder or a hub name,"
            " that says what they are."
        )
    arguments = call_form(template).arguments
    grammar, problem = None, ""
    try:
        grammar = infer_grammar(template, tokenizer=tokenizer, name=name)
    except GrammarUnavailable as error:
        problem = reason_of(error)
    if grammar is not None:
        grammar = _declared(grammar)
    ends = grammar.end_tokens if grammar is not None else ()
    probe = ModelFamily(name, name, "", source=template, arguments=arguments, end_tokens=ends)  # type: ignore[arg-type]
    flags = [
        flag for flag, seen in asdict(observe(FamilySubject(probe, tokenizer))).items() if seen
    ]
    digest = hashlib.sha256(template.encode("utf-8", "replace")).hexdigest()
    return Seen(
        grammar=_module(grammar) if grammar is not None else None,
        problem=problem,
        values={
            "digests": python_of((digest,)),
            "required": "()",
            "ends": python_of(ends),
            "arguments": arguments,
            "flags": f"{' = '.join(flags)} = True" if flags else "system = False",
        },
    )


def _declared(grammar: Grammar) -> Grammar:
    """Return an inferred grammar as an author declares it.

    Contents that Python printed are text: only who renders what was read once more, as with inferred
    grammars, can tell a list from a text that looks like one.
    """
    roles = tuple(
        replace(form, value="text") if form.value == "python" else form for form in grammar.roles
    )
    return replace(grammar, roles=roles, end_tokens=grammar.end_tokens or _closers(grammar))


def _closers(grammar: Grammar) -> tuple[str, ...]:
    """Return what closes answers, where the template has no end token of a known look."""
    closers = [form.closer for form in grammar.roles if form.role == "assistant"]
    texts = [closer.strip() for closer in closers if isinstance(closer, str)]
    return tuple(dict.fromkeys(text for text in texts if text and not text.split()[1:]))


def _module(grammar: Grammar) -> str:
    """Return the module that declares a grammar, as an author would write it."""
    names = sorted(_classes(grammar))
    head = (
        '"""How renderings of the dialect are read back: what its template showed, said as data."""'
    )
    imports = f"from antiphon.reading import {', '.join(names)}"
    if len(imports) > _WIDTH:
        imports = "from antiphon.reading import (\n" + "".join(f"    {n},\n" for n in names) + ")"
    body = python_of(grammar, room=_WIDTH - len("GRAMMAR = "))
    return f"{head}\n\nfrom __future__ import annotations\n\n{imports}\n\nGRAMMAR = {body}\n"


def python_of(value: Any, depth: int = 0, room: int = _WIDTH) -> str:
    """Return Python that makes a value of dataclasses, tuples, texts and plain values, one item a line where long.

    Args:
        value: The value.
        depth: How far lines are indented, in steps of four.
        room: Characters that are left on the first line.
    """
    if isinstance(value, str):
        return _quoted(value)
    if is_dataclass(value) and not isinstance(value, type):
        opener, parts = f"{type(value).__name__}(", list(_arguments(value))
    elif isinstance(value, tuple):
        kind = type(value).__name__ if hasattr(value, "_fields") else ""
        opener, parts = f"{kind}(", [("", item) for item in value]
    else:
        return repr(value)
    line = ", ".join(f"{name}{python_of(item, depth, 10**9)}" for name, item in parts)
    single = "," if opener == "(" and len(parts) == 1 else ""
    if len(opener) + len(line) + len(single) + 1 <= room:
        return f"{opener}{line}{single})"
    pad = "    " * (depth + 1)
    lines = [
        f"{pad}{name}{python_of(item, depth + 1, _WIDTH - len(pad) - len(name) - 1)},\n"
        for name, item in parts
    ]
    return f"{opener}\n{''.join(lines)}{'    ' * depth})"


def _arguments(value: Any) -> Iterable[tuple[str, Any]]:
    """Yield what a dataclass is made with, but for what has its default; a grammar's source is its template's."""
    for each in fields(value):
        own = getattr(value, each.name)
        if each.name != "source" and (each.default is MISSING or own != each.default):
            yield f"{each.name}=", own


def _classes(value: Any) -> set[str]:
    """Return the names of the classes that a value is made of."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return set().union(*map(_classes, value))
    if is_dataclass(value):
        return {type(value).__name__}.union(*(_classes(own) for _, own in _arguments(value)))
    return {type(value).__name__} if isinstance(value, tuple) else set()


def _quoted(text: str) -> str:
    """Return a literal as formatters write it: in double quotes, unless that needs more escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    marks = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", quote: f"\\{quote}"}
    plain = (
        marks.get(char, char if char.isprintable() else char.encode("unicode_escape").decode())
        for char in text
    )
    return f"{quote}{''.join(plain)}{quote}"
