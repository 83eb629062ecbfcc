"""Breaks templates and grammars in small ways and says whether the conformance kit notices.

    python tests/mutate_plugins.py                  a sample of every installed family's mutants
    python tests/mutate_plugins.py qwen3 --all      all mutants of one family

A mutant counts as noticed when a check fails on a case on which it does not fail without the
mutation. What no conversation of the corpus shows can't be noticed and is left out: templates that
print the whole corpus as before, and changes in a form that the grammar could do without.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from antiphon.registry import families, get_family
from antiphon.testing import FAMILY_CHECKS, FamilySubject
from antiphon.testing.capabilities import observe
from antiphon.testing.results import run_check
from antiphon.testing.running import load_check

#: The checks that look at templates and grammars, those that notice most first.
CHECKS = (
    *("parity", "turns", "render_again", "parse", "generation_tags", "responses", "closing"),
    *("tokens", "template", "streams", "descriptor", "arguments", "hostile", "kept"),
)
_LITERAL = re.compile(r"'((?:[^'\\]|\\.)+)'|\"((?:[^\"\\]|\\.)+)\"")
_CONDITION = re.compile(r"\{%-? (?:el)?if (.+?) -?%\}", re.DOTALL)
_TAGS = re.compile(r"\{%-? (?:end)?generation -?%\}")
#: The parts of a grammar that renderings must match. The others name things, choose between ways of
#: writing values, or allow what models write and templates don't.
_MATCHED = frozenset(
    {
        *(
            "roles",
            "bos",
            "prefix",
            "end_tokens",
            "reasoning",
            "content",
            "calls",
            "tools",
            "param",
        ),
        *("opener", "closer", "group_opener", "group_closer", "separator"),
        *("name_closer", "key_closer", "flag_closer"),
    }
)


class Mutant(NamedTuple):
    """A family with something broken: what was done, and the template or the grammar in its place.

    ``without`` is the grammar without the whole form that was broken.
    """

    family: str
    what: str
    template: str | None = None
    grammar: Any = None
    without: Any = None


def template_mutants(family: str, source: str) -> Iterator[Mutant]:
    """Yield templates with one literal shortened or dropped, one condition negated, one tag too late."""
    for found in _LITERAL.finditer(source):
        group = 1 if found[1] is not None else 2
        text, (start, end) = found[group], found.span(group)
        if " + " in text or not _is_printed(source, found.start()):
            continue
        shorter = re.sub(r"(\\.|.)\Z", "", text, flags=re.DOTALL)
        for what, new in (("without its last character", shorter), ("doubled", text * 2)):
            told = f"the text {text[:30]!r} at {start} {what}"
            yield Mutant(family, told, source[:start] + new + source[end:])
    for found in _CONDITION.finditer(source):
        start, end = found.span(1)
        told = f"the condition {found[1][:40]!r} at {start} negated"
        yield Mutant(family, told, f"{source[:start]}not ({found[1]}){source[end:]}")
    for found in _TAGS.finditer(source):
        printed = source.find("}}", found.end())
        if "end" in found[0] or printed < 0:
            continue
        late = source[found.end() : printed + 2] + found[0] + source[printed + 2 :]
        told = f"the tags at {found.start()} begin one print late"
        yield Mutant(family, told, source[: found.start()] + late)


def _is_printed(source: str, place: int) -> bool:
    """Whether a literal stands in a print statement, outside of a comparison."""
    opened = source.rfind("{", 0, place - 1)
    statement = max(source.rfind("{%", 0, place), source.rfind("{#", 0, place))
    printed = source.rfind("{{", 0, place)
    before = source[max(opened, printed) : place]
    return printed > statement and not re.search(r"(==|!=|in|\[|\()\s*\Z", before)


def grammar_mutants(family: str, grammar: Any) -> Iterator[Mutant]:
    """Yield grammars with one literal shortened or one form gone."""
    for path, value in _parts(grammar):
        if isinstance(value, str) and value.strip():
            new = value.rstrip()[:-1] + value[len(value.rstrip()) :]
            told = f"{_told(path)} {value[:30]!r} without its last sign"
            item = max((i + 1 for i, part in enumerate(path) if isinstance(part, int)), default=0)
            without = _with(grammar, path[:item], None) if item else None
            yield Mutant(family, told, None, _with(grammar, path, new), without)
        elif dataclasses.is_dataclass(value) and isinstance(path[-1], int):
            told = f"{_told(path)} gone"
            yield Mutant(family, told, grammar=_with(grammar, path, None))


def _parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if path:
        yield path, value
    if dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            if each.name in _MATCHED:
                yield from _parts(getattr(value, each.name), (*path, each.name))
    elif isinstance(value, tuple) and not hasattr(value, "_fields"):
        for index, item in enumerate(value):
            yield from _parts(item, (*path, index))


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy of a dataclass with a part exchanged; None takes a tuple's item away."""
    if not path:
        return new
    first, rest = path[0], path[1:]
    if isinstance(first, int):
        made = None if not rest and new is None else _with(value[first], rest, new)
        middle = () if made is None else (made,)
        return (*value[:first], *middle, *value[first + 1 :])
    return dataclasses.replace(value, **{first: _with(getattr(value, first), rest, new)})


def _told(path: tuple[Any, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)[1:]


class Judge:
    """Knows what a family's checks say without a mutation, and says what a mutant changes."""

    def __init__(self, family: str) -> None:
        self.family = family
        self._before: dict[str, frozenset[str]] = {}
        self._whole = FamilySubject(family)
        # Both have the same tokens: what is looked at is the template and the grammar.
        self.tokenizer = self._whole.tokenizer
        self.official = self._whole.official
        # What another text is held to; without it, it is another dialect.
        self.has_text = bool(self.official) or self._whole.family.renderings is not None

    def notices(self, mutant: Mutant) -> str:
        """Return the check that notices a mutant, or "" where none does."""
        subject = self._subject(mutant)
        for check in CHECKS:
            if self._failures(subject, check) - self._usual(check):
                return check
        return ""

    def is_shown(self, mutant: Mutant) -> bool:
        """Whether a conversation of the corpus shows what a mutant breaks."""
        if "calls[" in mutant.what and ".separator" in mutant.what:
            return observe(self._whole).parallel_calls
        if "tools[" in mutant.what and "without its last sign" in mutant.what:
            return False  # between the two ends of the announcement all is skipped
        if mutant.without is not None:
            return bool(self.notices(Mutant(self.family, "", grammar=mutant.without)))
        if mutant.template is None or "the tags" in mutant.what:
            return mutant.grammar is None
        subject = self._subject(mutant)
        for case in subject.cases:
            for prompt in (False, True):
                one, two = (each.rendering(case, prompt=prompt) for each in (subject, self._whole))
                if (one and one.text) != (two and two.text):
                    return True
        return False

    def _subject(self, mutant: Mutant) -> FamilySubject:
        subject = FamilySubject(self.family)
        parts = {"tokenizer": self.tokenizer, "official": self.official}
        if mutant.template is not None:
            parts["template"] = mutant.template
        if mutant.grammar is not None:
            parts["grammar"] = mutant.grammar
        vars(subject).update(parts)
        return subject

    def _usual(self, check: str) -> frozenset[str]:
        if check not in self._before:
            self._before[check] = self._failures(self._whole, check)
        return self._before[check]

    @staticmethod
    def _failures(subject: FamilySubject, check: str) -> frozenset[str]:
        result = run_check(check, load_check(FAMILY_CHECKS[check]), subject)
        return frozenset(result.cases or ["all"]) if result.status == "failed" else frozenset()


def mutants_of(name: str) -> list[Mutant]:
    """Return all mutants of a family."""
    family = get_family(name)
    found = list(template_mutants(name, family.load_template()))
    grammar = family.load_grammar()
    return [*found, *(grammar_mutants(name, grammar) if grammar is not None else ())]


def sample(names: list[str], count: int, seed: int = 0) -> Iterator[tuple[Mutant, str]]:
    """Yield ``count`` mutants, spread over families, each with the check that notices it."""
    chance = random.Random(seed)
    judges = {name: Judge(name) for name in names}
    left = {name: mutants_of(name) for name in names}
    for mutants in left.values():
        chance.shuffle(mutants)
    made = 0
    while made < count and any(left.values()):
        for name in names:
            while left[name] and made < count:
                mutant = left[name].pop()
                if mutant.template is not None and not judges[name].has_text:
                    continue
                check = judges[name].notices(mutant)
                if check or judges[name].is_shown(mutant):
                    made += 1
                    yield mutant, check
                    break


def main() -> None:
    """Print each mutant, what noticed it, and how many nobody did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--all", action="store_true", help="all mutants, not a sample")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    names = options.families or [family.name for family in families()]
    count = 10**9 if options.all else options.count
    unnoticed = total = 0
    for mutant, check in sample(names, count, options.seed):
        total += 1
        unnoticed += not check
        print(f"{check or 'NOT NOTICED':16} {mutant.family}: {mutant.what}", flush=True)
    print(f"{total - unnoticed} of {total} noticed")


if __name__ == "__main__":
    main()
