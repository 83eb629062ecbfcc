"""Inferring a grammar from a template, so that any model is read without a plugin.

Conversations of known words are rendered; what stands around the words is the format. The result
is checked by reading back further conversations and refused if one differs: a template that can't
be read is never read wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from antiphon.errors import GrammarUnavailable
from antiphon.reading.grammar import Grammar, Source
from antiphon.reading.infer_answers import add_answers
from antiphon.reading.infer_contents import add_contents
from antiphon.reading.infer_others import add_others
from antiphon.reading.infer_plain import plain_problem, tells_prompts
from antiphon.reading.infer_turns import MARKER, Turns, probe_turns, prompts_of, role_forms
from antiphon.reading.probing import Prober, conversation, word

_KEPT: dict[object, Grammar | str] = {}
_MAX_KEPT = 64
_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


def infer_grammar(
    template: str, *, tokenizer: Any = None, name: str = "", **variables: Any
) -> Grammar:
    """Return the grammar that a template's renderings show.

    Args:
        template: The template's source.
        tokenizer: Its special tokens become template variables.
        name: What to call the grammar.
        **variables: Template variables such as ``bos_token``.

    Raises:
        GrammarUnavailable: The template's renderings can't be read back for sure; the message says
            why.
    """
    given = {**_special_tokens(tokenizer), **variables}
    key = (template, name, tuple(sorted((item, repr(value)) for item, value in given.items())))
    kept = _KEPT.get(key)
    if kept is None:
        try:
            kept = _infer(Prober(template, given), name or "inferred")
        except GrammarUnavailable as error:
            kept = str(error)
        if len(_KEPT) >= _MAX_KEPT:
            _KEPT.clear()
        _KEPT[key] = kept
    if isinstance(kept, str):
        raise GrammarUnavailable(kept)
    return kept


def _infer(prober: Prober, name: str) -> Grammar:
    problem = ""
    # Some templates print contents that are given as parts with something else around them.
    for both_ways in (False, True):
        grammar, prober, turns = _attempt(prober, name, both_ways)
        found = plain_problem(grammar, prober)
        if not found:
            return _completed(grammar, prober, turns)
        if grammar.reasoning is not None and grammar.reasoning.separate:
            # Templates may print the block at one place and leave it to the content at another.
            kept = replace(grammar, reasoning=replace(grammar.reasoning, separate=False))
            if not plain_problem(kept, prober):
                return _completed(kept, prober, turns)
        problem = problem or found
    raise GrammarUnavailable(
        f"The grammar inferred for {name!r} does not read the template's own rendering back "
        f"({problem}); declare a grammar for it."
    )


def _completed(grammar: Grammar, prober: Prober, turns: Turns) -> Grammar:
    """Return a grammar that reads the usual roles with what asks for an answer and with messages of
    other roles, as far as both can be told from the rest.
    """
    prompts = prompts_of(turns)
    made = replace(grammar, generation_prompts=prompts)
    if prompts and tells_prompts(made, prober) and not plain_problem(made, prober):
        grammar = made
    made = add_others(grammar, prober, turns)
    if made != grammar and not plain_problem(made, prober):
        grammar = made
    source = Source(prober.template, tuple(prober.variables.items()), prober.as_parts)
    return replace(grammar, source=source)


def _attempt(prober: Prober, name: str, both_ways: bool) -> tuple[Grammar, Prober, Turns]:
    """Read a grammar off a template; returns it with the form of contents that shows it, and what
    stands between messages.
    """
    try:
        turns = probe_turns(prober, both_ways)
    except GrammarUnavailable:
        text = prober.render(conversation("ua"))
        if text is not None and (word("u", 0) in text or word("a", 1) in text):
            raise
        # Templates of models that see as well as read may take contents only as lists of parts.
        prober = replace(prober, as_parts=True)
        turns = probe_turns(prober)
    closer = turns.closers.get("a", "")
    texts = [closer] if closer.strip() else turns.ends["a"]
    marks = [MARKER.match(text.strip()) for text in texts]
    ends = list(dict.fromkeys(mark.group() for mark in marks if mark is not None))
    eos = prober.variables.get("eos_token")
    if isinstance(eos, str) and eos and eos not in ends:
        ends.append(eos)
    grammar = Grammar(name=name, roles=role_forms(turns), end_tokens=tuple(ends))
    grammar = add_contents(add_answers(grammar, prober, turns), prober)
    return grammar, prober, turns


def _special_tokens(tokenizer: Any) -> Mapping[str, Any]:
    if tokenizer is None:
        return {}
    tokens = getattr(tokenizer, "special_tokens_map", None)
    if isinstance(tokens, Mapping):
        return {key: str(value) for key, value in tokens.items() if isinstance(key, str)}
    return {key: str(getattr(tokenizer, key)) for key in _TOKENS if getattr(tokenizer, key, None)}
