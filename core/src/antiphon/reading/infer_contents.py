"""Reading off a template how it writes contents: lists of parts, white space at the ends."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from antiphon.reading.grammar import Grammar, ReasoningForm, RoleForm
from antiphon.reading.probing import Message, Prober, conversation, cut, word
from antiphon.reading.turn_forms import SHORT


def add_contents(grammar: Grammar, prober: Prober) -> Grammar:
    """Return the grammar with what holds of the contents of each role."""
    printed = _printed_as_lists(prober)
    strict = _is_strict(grammar, prober)

    is_merged = _is_merged(grammar, prober)
    if grammar.reasoning is not None:
        grammar = replace(grammar, reasoning=_looked_at(grammar.reasoning, prober))
    is_stripped = grammar.reasoning is not None and _is_stripped(grammar.reasoning, prober)

    def settled(form: RoleForm) -> RoleForm:
        if is_merged and form.role == "assistant" and isinstance(form.closer, str):
            form = replace(form, other_closers=(*form.other_closers, form.closer[1:]))
        if form.role in printed and form.value == "text":
            form = replace(form, value="python")
        if is_stripped and form.role == "assistant":
            form = replace(form, trims="both")
        if strict and form.role == "user" and (form.after is None or "" in form.after):
            form = replace(form, trims="both", strict=True)
        return form

    grammar = replace(grammar, roles=tuple(map(settled, grammar.roles)))
    return replace(grammar, roles=(*grammar.roles, *_emptied(grammar, prober)))


def _printed_as_lists(prober: Prober) -> set[str]:
    """Return the roles whose list of parts a template prints as Python writes it."""
    found = set()
    for sequence in ("ua", "sua"):
        made: list[Message] = []
        for message in conversation(sequence):
            made.append({**message, "content": [{"type": "text", "text": message["content"]}]})
        text = prober.render(made)
        found |= {message["role"] for message in made if text and str(message["content"]) in text}
    return found


def _is_merged(grammar: Grammar, prober: Prober) -> bool:
    """Whether the line break before an empty answer is the one behind it as well."""
    text = prober.render([*conversation("u"), {"role": "assistant", "content": ""}])
    for form in grammar.forms("assistant") if text else ():
        opener, closer = form.opener, form.closer
        if not isinstance(opener, str) or not isinstance(closer, str):
            continue
        if opener.endswith("\n") and closer.startswith("\n") and len(closer.strip()) > SHORT:
            return text is not None and text.endswith(opener + closer[1:])
    return False


def _emptied(grammar: Grammar, prober: Prober) -> list[RoleForm]:
    """Return the form of answers without a text, where another header shows these."""
    one, two = word("u", 0), word("u", 2)
    asked = [{"role": "user", "content": content} for content in (one, two)]
    text = prober.render([asked[0], {"role": "assistant", "content": ""}, asked[1]])
    parts = cut(text, [one, two]) if text is not None else None
    if parts is None:
        return []
    made = []
    for before, answer, behind in product(*map(grammar.forms, ("user", "assistant", "user"))):
        sides = (before.closer, answer.closer, answer.opener, behind.opener)
        if not all(isinstance(side, str) for side in sides) or answer.unclosed:
            continue
        head, tail, usual, _ = map(str, sides)
        tail += str(behind.opener)
        opener = parts[1][len(head) : len(parts[1]) - len(tail)]
        if not answer.closer or parts[1] != head + opener + tail or opener == usual:
            continue
        if opener.strip() and usual.startswith(opener):
            made.append(replace(answer, opener=opener))
    return made[:1]


def _answered(prober: Prober, **fields: str) -> str:
    """Return the rendering of a question and an answer with these fields; "" where it is refused."""
    return prober.render([*conversation("u"), {"role": "assistant", **fields}]) or ""


def _looked_at(reasoning: ReasoningForm, prober: Prober) -> ReasoningForm:
    """Say whether the template looks for a block in contents where the field is missing."""
    inside = f"{word('a', 1)}{reasoning.closer.strip()} {word('a', 2)}"
    is_kept = inside in _answered(prober, content=inside)
    return replace(reasoning, looks_inside=not is_kept)


def _is_stripped(reasoning: ReasoningForm, prober: Prober) -> bool:
    """Whether answers are stripped of white space, but not what stands behind a block in them."""
    answer = f"  {word('a', 1)}"
    behind = f"{reasoning.opener}{word('a', 2)}{reasoning.closer}{answer}"
    return answer not in _answered(prober, content=answer) and answer in _answered(
        prober, content=behind
    )


def _is_strict(grammar: Grammar, prober: Prober) -> bool:
    """Whether white space at the head of a question shows that a system text stands before it.

    So it is where a template strips questions, but not the system text that it makes their
    beginning.
    """
    system, question = f"  {word('s', 0)}", f"  {word('u', 1)}"
    asked = {"role": "user", "content": question}
    text = prober.render([{"role": "system", "content": system}, asked])
    alone = prober.render([asked])
    if text is None or alone is None or system not in text or question in alone:
        return False
    before = text.partition(system)[0]
    openers = {form.opener for form in grammar.forms("user")}
    return before in openers
