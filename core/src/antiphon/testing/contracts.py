"""Contract classes: the checks as tests for pytest, for an author to subclass.

A subclass says what is under test and what it can do; the tests are there. What is known to be wrong
is said with a reason, for a check or one case of it: by a family in its descriptor, as
``known_failures``, and by backends and environments here. Such a failure is an xfail, and an error
as soon as it is gone::

    class TestParrot(FamilyContract):
        names = ("parrot",)

    class TestMine(BackendContract, expected_failures={"seeds": "The engine draws by itself."}):
        ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from antiphon.errors import GrammarUnavailable
from antiphon.plugins.events import unobserved
from antiphon.testing.backend_checks import BackendSubject
from antiphon.testing.capabilities import FLAGS, Capabilities, check_capabilities
from antiphon.testing.env_checks import EnvSubject
from antiphon.testing.results import CheckFailed, CheckSkipped, expected_of, judge
from antiphon.testing.running import BACKEND_CHECKS, ENV_CHECKS, FAMILY_CHECKS, load_check
from antiphon.testing.subject import FamilySubject


class _Contract:
    """What the contracts share."""

    #: Reasons by check (``"parse"``), by case (``"parse/think-inline"``), each perhaps of one subject
    #: alone (``"qwen3: parse/think-inline"``).
    expected_failures: ClassVar[Mapping[str, str]] = {}
    _checks: ClassVar[Mapping[str, str]] = {}
    _subjects: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(
        cls, *, expected_failures: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        cls._subjects = {}
        if expected_failures is not None:
            cls.expected_failures = dict(expected_failures)
        if cls.__module__ == __name__:
            return
        own = {name for name in vars(cls) if name.startswith("test_")}
        taken = sorted(own & {f"test_{name}" for name in (*cls._checks, "capabilities", "random")})
        if taken:
            raise TypeError(
                f"{cls.__name__} overrides {', '.join(taken)}. A contract's checks can't be changed:"
                " say in expected_failures what is known to fail, and why."
            )
        for key, reason in cls.expected_failures.items():
            check = key.rpartition(": ")[2].partition("/")[0]
            if check not in (*cls._checks, "capabilities", "random"):
                raise TypeError(
                    f"{cls.__name__} expects {key!r} to fail, and there is no check {check!r}; there"
                    f" are {', '.join(cls._checks)}."
                )
            if not reason:
                raise TypeError(f"{cls.__name__} expects {key!r} to fail and gives no reason.")

    def _run(self, name: str, subject: Any, check: Callable[[Any], None] | None = None) -> None:
        family = getattr(subject, "family", None)
        known = {**self.expected_failures, **dict(getattr(family, "known_failures", ()))}
        expected = expected_of(name, known, subject.name)
        failed = None
        try:
            with unobserved():
                (check or load_check(self._checks[name]))(subject)
        except (CheckSkipped, GrammarUnavailable) as error:
            if expected:
                pytest.fail(f"{name} is expected to fail and does not apply: {error}")
            pytest.skip(str(error))
        except CheckFailed as error:
            failed = error
        # Outside of the clause, so that pytest shows one failure, not two.
        status, message = judge(name, failed, expected)
        if status == "xfailed":
            pytest.xfail(f"{name}: {message}")
        if status == "xpassed":
            pytest.fail(message, pytrace=False)
        if failed is not None:
            rest = [problem for problem in failed.problems if problem.where not in expected]
            lines = [f"  {problem.where}: {problem.text}" for problem in rest[3:]]
            pytest.fail("\n".join([f"{name}: {message}", *lines]), pytrace=False)


def _test(name: str, doc: str) -> Callable[[Any, Any], None]:
    def test(self: Any, subject: Any) -> None:
        self._run(name, subject)

    test.__name__ = f"test_{name}"
    test.__doc__ = doc
    return test


def _with_checks(checks: Mapping[str, str]) -> Callable[[type], type]:
    """Give a contract one test per check."""

    def add(contract: type) -> type:
        contract._checks = checks  # type: ignore[attr-defined]
        for name in checks:
            setattr(contract, f"test_{name}", _test(name, f"The check {name!r} of the kit."))
        return contract

    return add


@_with_checks(FAMILY_CHECKS)
class FamilyContract(_Contract):
    """What a family must do.

    Attributes:
        names: Names of registered families; each is tested on its own.
        tokenizer: A tokenizer of their models; None makes a stand-in. May be overridden by a method
            or a property, which may skip.
        templates: Sources of official templates; see `FamilySubject`.
        variables: Template variables for all renderings.
    """

    names: ClassVar[tuple[str, ...]] = ()
    tokenizer: Any = None
    templates: ClassVar[tuple[str, ...]] = ()
    variables: ClassVar[Mapping[str, Any]] = {}

    # What the dialect prints, see `Capabilities`.
    system: ClassVar[bool] = False
    tools: ClassVar[bool] = False
    calls: ClassVar[bool] = False
    parallel_calls: ClassVar[bool] = False
    tool_results: ClassVar[bool] = False
    reasoning: ClassVar[bool] = False
    kept_reasoning: ClassVar[bool] = False
    parts: ClassVar[bool] = False

    @pytest.fixture
    def subject(self, family_name: str) -> FamilySubject:
        """The family under test; the tests of a class share its renderings."""
        subjects = self._subjects
        if family_name not in subjects:
            tokenizer = self.tokenizer
            subjects[family_name] = FamilySubject(
                family_name,
                tokenizer() if _is_maker(tokenizer) else tokenizer,
                templates=self.templates,
                variables=dict(self.variables),
            )
        found: FamilySubject = subjects[family_name]
        return found

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test for each name."""
        contract: Any = metafunc.cls
        if "family_name" in metafunc.fixturenames:
            metafunc.parametrize("family_name", contract.names or ("",))

    def test_capabilities(self, subject: FamilySubject) -> None:
        """The flags say what the template does."""
        declared = Capabilities(**{flag: getattr(self, flag) for flag in FLAGS})
        self._run("capabilities", subject, lambda each: check_capabilities(each, declared))

    def test_random(self, subject: FamilySubject) -> None:
        """Random conversations read back from their ids."""
        pytest.importorskip("hypothesis", reason="hypothesis makes the conversations")
        from antiphon.testing.random_checks import check_random

        self._run("random", subject, check_random)


def _is_maker(tokenizer: Any) -> bool:
    return callable(tokenizer) and not hasattr(tokenizer, "encode")


@_with_checks(BACKEND_CHECKS)
class BackendContract(_Contract):
    """What a backend must do.

    A subclass defines ``make_subject``, which returns a `BackendSubject`.
    """

    @pytest.fixture
    def subject(self) -> BackendSubject:
        """The backend under test, made once per class."""
        if "" not in self._subjects:
            self._subjects[""] = self.make_subject()
        found: BackendSubject = self._subjects[""]
        return found

    def make_subject(self) -> BackendSubject:
        """Return what is under test."""
        raise NotImplementedError(
            f"{type(self).__name__} must define make_subject and return a BackendSubject."
        )


@_with_checks(ENV_CHECKS)
class EnvContract(_Contract):
    """What an environment must do.

    A subclass defines ``make_subject``, which returns an `EnvSubject`.
    """

    @pytest.fixture
    def subject(self) -> EnvSubject:
        """The environment under test."""
        return self.make_subject()

    def make_subject(self) -> EnvSubject:
        """Return what is under test."""
        raise NotImplementedError(
            f"{type(self).__name__} must define make_subject and return an EnvSubject."
        )
