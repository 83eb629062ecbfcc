"""What checks say: failures that name every case, results, and the report for people and machines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

Status = Literal["passed", "failed", "skipped"]

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
        status: ``"passed"``, ``"failed"`` or ``"skipped"``.
        message: What is wrong, or why it was skipped.
        seconds: How long it took.
        cases: The names of the cases that failed.
    """

    name: str
    status: Status
    message: str = ""
    seconds: float = 0.0
    cases: tuple[str, ...] = ()


_MARKS: Mapping[Status, str] = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}


@dataclass(frozen=True)
class Report:
    """How all checks of one subject went.

    Attributes:
        subject: What was checked.
        kind: ``"family"``, ``"backend"`` or ``"environment"``.
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
        for result in self.results:
            lines.append(f"  {result.name:{width}}  {_MARKS[result.status]}{_reason(result)}")
            if result.status == "failed":
                lines += [f"      {line}" for line in result.message.splitlines()]
        counts = {status: self._count(status) for status in _MARKS}
        lines.append("  " + ", ".join(f"{count} {status}" for status, count in counts.items()))
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the report as one line of JSON."""
        return json.dumps({"ok": self.ok, **asdict(self)}, ensure_ascii=False)

    def to_markdown(self) -> str:
        """Return a table for a README."""
        lines = [f"| {self.kind} `{self.subject}` | |", "|---|---|"]
        for result in self.results:
            mark = {"passed": "passes", "failed": "**fails**", "skipped": "does not apply"}
            lines.append(f"| {result.name.replace('_', ' ')} | {mark[result.status]} |")
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return "\n".join([*lines, "", f"Checked with {versions}.", ""])

    def _count(self, status: Status) -> int:
        return sum(result.status == status for result in self.results)


def _reason(result: CheckResult) -> str:
    return f" ({result.message})" if result.status == "skipped" and result.message else ""


def run_check(name: str, check: Callable[[Any], None], subject: Any) -> CheckResult:
    """Run one check and return how it went; nothing that it raises gets out."""
    began = time.perf_counter()
    try:
        check(subject)
    except CheckSkipped as error:
        return CheckResult(name, "skipped", str(error), time.perf_counter() - began)
    except CheckFailed as error:
        cases = tuple(problem.where for problem in error.problems)
        return CheckResult(name, "failed", str(error), time.perf_counter() - began, cases)
    except Exception as error:  # plugins are foreign code: whatever they raise is their fault
        text = f"it raised {type(error).__name__}: {error}"
        return CheckResult(name, "failed", text, time.perf_counter() - began)
    return CheckResult(name, "passed", "", time.perf_counter() - began)
