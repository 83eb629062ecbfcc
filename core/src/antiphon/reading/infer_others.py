"""Reading off a template how it prints messages of roles beside the usual ones.

The template's source says which roles it asks for (``developer``, ``ipython``); whether it prints
any role in one form, as ChatML does, two names that nobody has thought of show.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from jinja2 import nodes

from antiphon.reading.grammar import OTHER, Grammar, Literals, RoleForm, Slot
from antiphon.reading.infer_turns import MARKER, Turns, lead_of, whole_markers, without
from antiphon.reading.other_roles import WAYS, is_literal, name_place, with_form
from antiphon.reading.probing import (
    ROLES,
    TOOLS,
    Prober,
    around_tools,
    common_prefix,
    cut,
    with_dates,
    word,
)

_SEQUENCES = (
    "x",
    "xua",
    "ux",
    "uxa",
    "uaxu",
    "uax",
    "uaxa",
    "sx",
    "sxua",
    "suxa",
    "uxxa",
    "uxua",
    "xsua",
    "uaxsu",
)
_NAMES = ("rolqwx", "eroqwy")
_MAX_NAMES = 12
"""How many roles of its own a template is asked for."""

_Between = dict[tuple[str, str], list[Literals]]
"""For each pair of neighbours the texts between them, the other role's being ``"x"``."""


def add_others(grammar: Grammar, prober: Prober, turns: Turns) -> Grammar:
    """Return the grammar with the forms of roles that the template knows by name, and with those
    of any role (`Grammar.others`) where it prints one like the other.
    """
    grammar = _with_results_anywhere(grammar, prober, turns)
    for name in _names(prober.template):
        if not grammar.forms(name):
            for form in _forms(grammar, prober, turns, name):
                grammar = with_form(grammar, form)
    one, two = (
        [_with_slots(form, name) for form in _forms(grammar, prober, turns, name)]
        for name in _NAMES
    )
    return replace(grammar, others=tuple(one)) if one == two and _is_sure(one, turns) else grammar


def _with_results_anywhere(grammar: Grammar, prober: Prober, turns: Turns) -> Grammar:
    """Return the grammar with results of calls also where no call stands before them."""
    between, _ = _between(prober, "tool")
    closers = {**turns.closers, "": ""}
    places: dict[Literals, list[str]] = defaultdict(list)
    for (before, after), texts in between.items():
        for text in texts:
            if after == "x" != before and lead_of(text).startswith(closers.get(before, "")):
                places[without(text, closers.get(before, ""))].append({**ROLES, "": ""}[before])
    for form in grammar.forms("tool"):
        quote = '"' if form.value == "json" else ""
        found = places.get(f"{form.group_opener}{form.opener}{quote}", [])
        if isinstance(form.opener, str) and found and not form.unclosed:
            grammar = with_form(grammar, replace(form, after=tuple(found)))
    return grammar


def _names(template: str) -> list[str]:
    """Return the names that a template compares roles with, and tools'."""
    from antiphon.engine.environment import compile_template

    tree = compile_template(template).environment.parse(template)
    found: dict[str, None] = {}
    for node in tree.find_all(nodes.Compare):
        if _asks_for_role(node):
            for item in node.find_all(nodes.Const):
                if isinstance(item.value, str) and item.value.isidentifier():
                    found[item.value] = None
    names = [name for name in found if name not in ("role", *ROLES.values())]
    # A template that prints no calls may print what looks like their results.
    return ["tool", *names[:_MAX_NAMES]]


def _asks_for_role(node: nodes.Compare) -> bool:
    """Whether a role is compared with something."""
    keys = [item.arg for item in node.find_all(nodes.Getitem)]
    return (
        any(isinstance(key, nodes.Const) and key.value == "role" for key in keys)
        or any(item.attr == "role" for item in node.find_all(nodes.Getattr))
        or any("role" in item.name for item in node.find_all(nodes.Name))
    )


def _forms(grammar: Grammar, prober: Prober, turns: Turns, name: str) -> list[RoleForm]:
    """Return the forms in which messages of a role stand, and those of the usual roles behind
    them; none where nothing tells them from messages of the usual roles.
    """
    between, ends = _between(prober, name)
    behind = [
        text
        for (before, _), texts in between.items()
        for text in texts
        if before == "x" and isinstance(text, str)
    ]
    if not behind:
        return []
    closer = whole_markers(common_prefix([*behind, *ends]), [*behind, *ends])
    closers = {**turns.closers, "x": closer, "": ""}
    names = {**ROLES, "x": name, "": ""}
    finals = {text[len(closer) :] for text in ends} - {""}
    made: dict[tuple[Literals, bool], list[str]] = defaultdict(list)
    following: list[RoleForm] = []
    for (before, after), texts in between.items():
        for text in texts:
            is_closed = lead_of(text).startswith(closers.get(before, ""))
            opener = with_dates(without(text, closers.get(before, "")))
            if after == "x":
                made[opener, not is_closed].append(names[before])
            else:
                following += _following(grammar, ROLES[after], opener, name)
    heads = [_last(opener) for opener, _ in made]
    results = {_last(form.opener) for form in grammar.forms("tool") if isinstance(form.opener, str)}
    if not all(heads) or any(
        is_literal(grammar, head) or head.startswith(tuple(results - {""})) for head in heads
    ):
        return []
    own = [
        RoleForm(
            name,
            opener,
            closer,
            after=tuple(dict.fromkeys(places)),
            unclosed=unclosed,
            finals=tuple(sorted(finals, key=len, reverse=True)),
        )
        for (opener, unclosed), places in made.items()
    ]
    return [*own, *dict.fromkeys(following)] if own else []


def _last(literals: Literals) -> str:
    """Return the last literal's text."""
    last = literals if isinstance(literals, str) else literals[-1]
    return last.strip() if isinstance(last, str) else ""


def _between(prober: Prober, name: str) -> tuple[_Between, list[str]]:
    """Return what stands before and behind messages of a role, and what ends them."""
    between: _Between = defaultdict(list)
    ends: list[str] = []
    for sequence, prompt in _asked():
        words = [word(role, number) for number, role in enumerate(sequence)]
        messages = [
            {"role": ROLES.get(role, name), "content": text}
            for role, text in zip(sequence, words, strict=True)
        ]
        text = prober.render(messages, prompt=prompt)
        parts = cut(text, words) if text is not None else None
        if parts is None:
            continue
        for before, after, part in zip(("", *sequence), sequence, parts, strict=False):
            if "x" in (before, after) and part not in between[before, after]:
                between[before, after].append(part)
        if sequence.endswith("x") and parts[-1] not in ends:
            ends.append(parts[-1])
    between["", "x"] += _announced(prober, name, between["", "x"])
    return {pair: texts for pair, texts in between.items() if texts}, ends


def _announced(prober: Prober, name: str, usual: list[Literals]) -> list[Literals]:
    """Return what stands before a first message of a role where tools are announced, if that is
    something else and ends with a header that names the role.
    """
    text = word("x", 0)
    messages = [{"role": name, "content": text}, {"role": "user", "content": word("u", 1)}]
    shown = []
    for tools in TOOLS:
        made = prober.render(messages, tools=tools)
        parts = cut(made, [text]) if made is not None else None
        shown += [parts[0]] if parts is not None else []
    found = [around_tools(*shown)] if len(shown) == len(TOOLS) else []
    headers = [way(name) for way in WAYS.values()]
    return [
        item
        for item in found
        if item not in usual and any(header in _last(item) for header in headers)
    ]


def _asked() -> Iterator[tuple[str, bool]]:
    """Yield sequences of roles, and whether an answer is asked for behind them."""
    for sequence in _SEQUENCES:
        yield sequence, False
        if sequence.endswith("x"):
            yield sequence, True


def _following(grammar: Grammar, role: str, opener: Literals, name: str) -> list[RoleForm]:
    """Return the forms of a usual role behind another one, in each variant that it has behind the
    usual ones.
    """
    forms = grammar.forms(role)
    alike = next((form for form in forms if form.opener == opener), None)
    if alike is None:
        return [replace(form, opener=opener, after=(name,), unclosed=False) for form in forms[:1]]
    if role != "assistant" or alike.after is None:
        return [replace(alike, after=(name,))]
    places = {*alike.after}
    found = [form for form in forms if form.after is None or places & {*form.after}]
    return [replace(form, after=(name,)) for form in found]


def _with_slots(form: RoleForm, name: str) -> RoleForm:
    """Return a form with a slot wherever a role's name stands in it."""
    after = form.after and tuple(OTHER if role == name else role for role in form.after)
    return replace(
        form,
        role=OTHER if form.role == name else form.role,
        opener=_slotted(form.opener, name),
        closer=_slotted(form.closer, name),
        after=after,
    )


def _slotted(literals: Literals, name: str) -> Literals:
    parts = (literals,) if isinstance(literals, str) else literals
    made: list[str | Slot] = []
    for part in parts:
        way = next((way for way in WAYS if isinstance(part, str) and WAYS[way](name) in part), None)
        if way is None or not isinstance(part, str):
            made.append(part)
            continue
        for number, piece in enumerate(part.split(WAYS[way](name))):
            made += [Slot(way)] if number else []
            made += [piece] if piece else []
    return literals if made == list(parts) else tuple(made)


def _is_sure(forms: list[RoleForm], turns: Turns) -> bool:
    """Whether a marker shows the header, before the role's name or around it, or at the end of the
    message before: else a line of a text that ends with a colon would pass for a header.
    """
    closers = {role: turns.closers.get(letter, "") for letter, role in ROLES.items()}
    own = [form for form in forms if form.role == OTHER]
    for form in own:
        place = name_place(form.opener)
        if place is None or not isinstance(form.opener, tuple):
            return False
        behind = form.opener[place + 1 :]
        before = form.opener[place - 1] if place else ""
        if not isinstance(before, str) or not before.strip() or not lead_of(behind):
            return False
        if lead_of(behind)[0].isalnum():
            return False
        if MARKER.search(before):
            continue
        ends = [closers.get(role, lead_of(form.closer)) for role in form.after or () if role]
        around = MARKER.search(f"{before}role{lead_of(behind)}")
        if not all(MARKER.search(end) or (around and end) for end in ends):
            return False
    return bool(own)
