"""What checks say: failures that name every case, results, and the report for people and machines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from antiphon.errors import GrammarUnavailable
from antiphon.plugins.events import unobserved

Status = Literal["passed", "failed", "xfailed", "xpassed", "skipped", "differs"]

#: What is expected of one check: reasons by case, ``""`` for all of it.
Expected = Mapping[str, str]

_SHOWN = 3  # cases that a failure spells out; it counts the rest


class Problem(NamedTuple):
    """What is wrong in one case; ``where`` is the case's name."""

    where: str
    text: str


class CheckFailed(AssertionError):
    """A check failed; the message says what to look at.

    Attributes:
        problems: One entry per case that failed.
    """

    def __init__(self, message: str, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message, problems)
        self.problems = problems

    def __str__(self) -> str:
        return str(self.args[0])


class CheckSkipped(Exception):
    """A check does not apply; the message says why."""


class Problems:
    """Collects what is wrong case by case, so that one failure does not hide another.

    Args:
        hint: Where to look, the end of the message.
    """

    def __init__(self, hint: str) -> None:
        self.found: list[Problem] = []
        self.looked_at = 0
        self._hint = hint

    @contextmanager
    def case(self, where: str) -> Iterator[None]:
        """Note what is raised within as this case's problem."""
        self.looked_at += 1
        try:
            yield
        except CheckSkipped:
            self.looked_at -= 1
        except GrammarUnavailable:
            raise  # of the template, not of this case
        except CheckFailed as error:
            self.found.append(Problem(where, str(error)))
        except Exception as error:  # plugins are foreign code: whatever they raise is their fault
            self.found.append(Problem(where, f"{type(error).__name__}: {error}"))

    def settle(self, *, at_least: int = 0) -> None:
        """Raise if something was wrong, or if too few cases applied.

        Raises:
            CheckFailed: Something was wrong.
            CheckSkipped: Fewer cases applied than the check needs to show anything.
        """
        if self.found:
            raise CheckFailed(self._message(), tuple(self.found))
        if self.looked_at < at_least:
            raise CheckSkipped(f"only {self.looked_at} cases apply")

    def _message(self) -> str:
        lines = [f"{len(self.found)} of {self.looked_at} cases fail. {self._hint}"]
        lines += [f"  {problem.where}: {problem.text}" for problem in self.found[:_SHOWN]]
        rest = [problem.where for problem in self.found[_SHOWN:]]
        if rest:
            lines.append(f"  and {len(rest)} more: {', '.join(dict.fromkeys(rest))}")
        return "\n".join(lines)


def fail(message: str) -> None:
    """Raise `CheckFailed`."""
    raise CheckFailed(message)


def demand(condition: object, message: str) -> None:
    """Raise `CheckFailed` unless something holds."""
    if not condition:
        raise CheckFailed(message)


def same_text(ours: str, theirs: str, what: str, *, names: tuple[str, str]) -> None:
    """Raise `CheckFailed` with the first difference unless two texts are equal."""
    if ours == theirs:
        return
    pairs = enumerate(zip(ours, theirs, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
    near = slice(max(0, at - 30), at + 40)
    raise CheckFailed(
        f"{what} differs at character {at}: {names[0]} {ours[near]!r}, {names[1]} {theirs[near]!r}"
    )


@dataclass(frozen=True)
class CheckResult:
    """How one check went.

    Attributes:
        name: The check's name.
        status: ``"passed"``; ``"failed"``; ``"xfailed"``, where it was known to fail and did;
            ``"xpassed"``, where something known to fail passes; ``"skipped"``, where it does not
            apply; ``"differs"``, where a model's own template is another one than the family's, which
            is nobody's failure.
        message: What is wrong, the reason why that is known, or why it was skipped.
        seconds: How long it took.
        cases: The names of the cases that failed.
    """

    name: str
    status: Status
    message: str = ""
    seconds: float = 0.0
    cases: tuple[str, ...] = ()


_MARKS: Mapping[Status, str] = {
    "passed": "ok",
    "failed": "FAILED",
    "xfailed": "fails as known",
    "xpassed": "passes, known to fail",
    "skipped": "skipped",
    "differs": "differs",
}
_BADGES: Mapping[Status, str] = {
    "passed": "passes",
    "failed": "**fails**",
    "xfailed": "fails as known",
    "xpassed": "passes",
    "skipped": "does not apply",
    "differs": "differs",
}


@dataclass(frozen=True)
class Report:
    """How all checks of one subject went.

    Attributes:
        subject: What was checked.
        kind: ``"family"``, ``"template"`` (of a model of no known family), ``"backend"`` or
            ``"environment"``.
        versions: Versions of what took part, by name.
        results: One entry per check, in order.
        notes: What else is to be said, one sentence each.
        facts: What was found out about the subject, by name: plain data.
    """

    subject: str
    kind: str
    versions: dict[str, str]
    results: tuple[CheckResult, ...]
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(result for result in self.results if result.status == "failed")

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [f"{self.kind} {self.subject} ({versions})"]
        width = max((len(result.name) for result in self.results), default=0)
        why = [result.message for result in self.results if result.status == "skipped"]
        common = {reason for reason in why if why.count(reason) > _SHOWN}
        for result in self.results:
            if result.status == "skipped" and result.message in common:
                continue  # told once, below
            lines.append(f"  {result.name:{width}}  {_MARKS[result.status]}{_reason(result)}")
            if result.status == "failed":
                lines += [f"      {line}" for line in result.message.splitlines()]
        for reason in sorted(common):
            names = ", ".join(r.name for r in self.results if r.message == reason)
            lines.append(f"  skipped, since {reason}: {names}")
        counts = {_MARKS[status]: self._count(status) for status in _MARKS}
        told = [
            f"{count} {mark}" for mark, count in counts.items() if count or mark in ("ok", "FAILED")
        ]
        lines.append("  " + ", ".join(told))
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the report as one line of JSON."""
        return json.dumps({"ok": self.ok, **asdict(self)}, ensure_ascii=False)

    def to_markdown(self) -> str:
        """Return a table for a README."""
        good = self._count("passed") + self._count("xpassed")
        count = f"{good} of {len(self.results) - self._count('skipped')} checks pass"
        lines = [f"| {self.kind} `{self.subject}` | {count} |", "|---|---|"]
        for result in self.results:
            known = f": {result.message}" if result.status in ("xfailed", "differs") else ""
            told = f"{_BADGES[result.status]}{known}".replace("|", "\\|")
            lines.append(f"| {result.name.replace('_', ' ')} | {told} |")
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return "\n".join([*lines, "", f"Checked with {versions}.", ""])

    def _count(self, status: Status) -> int:
        return sum(result.status == status for result in self.results)


def _reason(result: CheckResult) -> str:
    return f" ({result.message})" if result.status not in ("passed", "failed") else ""


def judge(name: str, error: CheckFailed | None, expected: Expected) -> tuple[Status, str]:
    """Tell what a check's outcome is worth, given what was known, with the sentence for it.

    Args:
        name: The check's name.
        error: How it failed, None where it passed.
        expected: What is known to fail.
    """
    if error is None:
        if not expected or name == "random":  # chance may not find the counterexample
            return "passed", ""
        return "xpassed", f"{name} is expected to fail and passes: take it out of what is known."
    if "" in expected:
        return "xfailed", expected[""]
    failed = {problem.where for problem in error.problems}
    if not failed or not failed <= set(expected):
        return "failed", str(error)
    gone = sorted(set(expected) - failed)
    if gone:
        return "xpassed", f"{name} passes on {', '.join(gone)}: take it out of what is known."
    return "xfailed", "; ".join(dict.fromkeys(expected.values()))


def expected_of(name: str, known: Mapping[str, str], subject: str) -> dict[str, str]:
    """Return what is expected of one check.

    Args:
        name: The check's name.
        known: Reasons by check (``"parse"``), by case (``"parse/think-inline"``), each perhaps of
            one subject alone (``"qwen3: parse/think-inline"``).
        subject: The subject's name.
    """
    found = {}
    for key, reason in known.items():
        whose, colon, rest = key.rpartition(": ")
        named, _, case = rest.partition("/")
        if named == name and (not colon or whose == subject):
            found[case] = reason
    return found


def run_check(
    name: str, check: Callable[[Any], None], subject: Any, expected: Expected | None = None
) -> CheckResult:
    """Run one check and return how it went; nothing that it raises gets out, and nobody is told of it."""
    began = time.perf_counter()
    failed: CheckFailed | None = None
    try:
        with unobserved():
            check(subject)
    except (CheckSkipped, GrammarUnavailable) as error:
        # Nobody declared the grammar, and the template shows none: then nothing is to be read.
        return CheckResult(name, "skipped", str(error), time.perf_counter() - began)
    except CheckFailed as error:
        failed = error
    except Exception as error:  # plugins are foreign code: whatever they raise is their fault
        failed = CheckFailed(f"it raised {type(error).__name__}: {error}")
    status, message = judge(name, failed, expected or {})
    cases = () if failed is None else tuple(problem.where for problem in failed.problems)
    return CheckResult(name, status, message, time.perf_counter() - began, cases)
