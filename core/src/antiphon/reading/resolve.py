"""Which grammar reads a text."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from antiphon.errors import FamilyNotFound
from antiphon.families import ModelFamily
from antiphon.reading.grammar import Grammar

_FOUND: weakref.WeakKeyDictionary[Any, tuple[object, Grammar]] = weakref.WeakKeyDictionary()


def resolve_grammar(
    tokenizer: Any = None, family: str | ModelFamily | Grammar | None = None
) -> Grammar:
    """Return the grammar to read by: the one that is named, the detected family's, or an inferred
    one.

    Args:
        tokenizer: The tokenizer; its template settles the family where none is named.
        family: A name, a descriptor or a grammar.

    Raises:
        FamilyNotFound: Nothing says which dialect is meant.
        GrammarUnavailable: The dialect has no grammar and none could be inferred from its template.
    """
    if isinstance(family, Grammar):
        return family
    if isinstance(family, ModelFamily):
        return _family_grammar(family, tokenizer)
    if isinstance(family, str):
        from antiphon.registry import resolve_template_name

        chosen = resolve_template_name(family, tokenizer)
        return _family_grammar(chosen, tokenizer, detected=chosen.line == family != chosen.name)
    if tokenizer is None:
        raise FamilyNotFound(
            "Neither a tokenizer nor a family was given, so nothing says how the text is to be read; "
            "give one of them."
        )
    template = getattr(tokenizer, "chat_template", None)
    try:
        kept = _FOUND.get(tokenizer)
    except TypeError:
        kept = None
    if kept is not None and kept[0] == template:
        return kept[1]
    grammar = _detected(tokenizer, template)
    # A tokenizer that can't be referred to weakly is looked at each time.
    with contextlib.suppress(TypeError):
        _FOUND[tokenizer] = (template, grammar)
    return grammar


def _family_grammar(family: ModelFamily, tokenizer: Any, *, detected: bool = False) -> Grammar:
    from antiphon.engine.fit import tell_if_unfit

    tell_if_unfit(family, tokenizer, detected=detected, stacklevel=5)
    grammar = family.load_grammar()
    if grammar is not None:
        return grammar
    from antiphon.reading.infer import infer_grammar

    return infer_grammar(family.load_template(), tokenizer=tokenizer, name=family.name)


def _detected(tokenizer: Any, template: object) -> Grammar:
    from antiphon.detection import detect_family
    from antiphon.registry import get_family

    detection = detect_family(tokenizer)
    if detection.family is not None:
        return _family_grammar(get_family(detection.family), tokenizer, detected=True)
    if isinstance(template, dict):
        template = template.get("tool_use") or template.get("default")
    if not isinstance(template, str):
        raise FamilyNotFound(
            "The tokenizer has no chat template and belongs to no known family; name one with family=."
        )
    from antiphon.reading.infer import infer_grammar

    return infer_grammar(template, tokenizer=tokenizer)
