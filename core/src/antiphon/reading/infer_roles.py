"""Reading off a template how it prints roles that it does not know: a tool's, where it knows no tools."""

from __future__ import annotations

from dataclasses import replace

from antiphon.reading.grammar import Grammar, RoleForm, Slot
from antiphon.reading.infer_turns import Turns
from antiphon.reading.probing import Prober, word
from antiphon.reading.turn_forms import SHORT

_ROLES = ("rolqwx", "eroqwy")


def any_role(grammar: Grammar, prober: Prober, turns: Turns) -> RoleForm | None:
    """Return the form of messages of any role; None where the template prints none, or prints
    tools' messages in a way of their own.
    """
    if grammar.forms("tool"):
        return None
    later = {"user", "assistant"}
    if not any(form.after is None or later & {*form.after} for form in grammar.forms("system")):
        # A form for any role would let a system text stand where the template prints none.
        return None
    found = [_form(grammar, prober, turns, role) for role in _ROLES]
    return found[0] if found[0] == found[1] else None


def with_any_role(grammar: Grammar, form: RoleForm) -> Grammar:
    """Return the grammar with this form beside its own, behind which go on those that go on behind
    a message of another side.
    """
    asked = grammar.forms("user")
    form = replace(form, finals=asked[0].finals if asked else ())

    def settled(known: RoleForm) -> RoleForm:
        before = "assistant" if known.role == "user" else "user"
        if known.after is None or before not in known.after:
            return known
        return replace(known, after=(*known.after, form.role))

    return replace(grammar, roles=(*map(settled, grammar.roles), form))


def _form(grammar: Grammar, prober: Prober, turns: Turns, role: str) -> RoleForm | None:
    """Return what stands around a message of this role, between a question and an answer."""
    question, said, answer = word("u", 0), word("t", 1), word("a", 2)
    text = prober.render(
        [
            {"role": "user", "content": question},
            {"role": role, "content": said},
            {"role": "assistant", "content": answer},
        ]
    )
    if text is None or any(text.count(each) != 1 for each in (question, role, said, answer)):
        return None
    before, _, rest = text.partition(question)[2].partition(role)
    header, _, rest = rest.partition(said)
    behind = rest.partition(answer)[0]
    ended = turns.closers.get("u", "")
    openers = sorted(
        (form.opener for form in grammar.forms("assistant") if isinstance(form.opener, str)),
        key=len,
        reverse=True,
    )
    opener = next((each for each in openers if each and behind.endswith(each)), None)
    if opener is None or not before.startswith(ended):
        return None
    before, closer = before[len(ended) :], behind[: len(behind) - len(opener)]
    # Either tells where such a message begins: its opener, or the end of the one before.
    if not before.strip() or (len(before.strip()) < SHORT and not closer.strip()):
        return None
    return RoleForm("other", (before, Slot("role"), header), closer)
