"""All checks by name, in the order in which they are run, and the functions that run them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from antiphon.errors import AntiphonError
from antiphon.families import ModelFamily, load_object
from antiphon.plugins.events import unobserved
from antiphon.testing.results import CheckResult, Report, expected_of, run_check

if TYPE_CHECKING:
    from antiphon.testing.subject import FamilySubject

Check = Callable[[Any], None]


def _named(module: str, names: str) -> dict[str, str]:
    return {name: f"antiphon.testing.{module}:check_{name}" for name in names.split()}


#: The checks of a family by name: where each function is. It takes a `FamilySubject`.
FAMILY_CHECKS: Mapping[str, str] = {
    **_named("family_checks", "descriptor pickling template arguments parity"),
    **_named("kept", "kept"),
    **_named("family_checks", "agreement"),
    **_named("family_checks", "turns closing generation_tags"),
    **_named("family_tokens", "control_tokens tokens batch samples hostile"),
    **_named("family_reading", "parse render_again responses streams"),
    **_named("family_detection", "own_names foreign_names"),
}

# What is asked of a plugin's descriptor, whatever its template is like.
_OF_DESCRIPTORS = ("descriptor", "pickling", "own_names", "foreign_names", "kept")

#: The checks of a backend; each takes a `BackendSubject`.
BACKEND_CHECKS: Mapping[str, str] = _named(
    "backend_checks",
    "protocol echo log_probs temperature scores order seeds ends stops lengths prompt_log_probs"
    " context errors empty closing",
)

#: The checks of an environment; each takes an `EnvSubject`.
ENV_CHECKS: Mapping[str, str] = _named(
    "env_checks", "specs reset step isolation partial_reset seeds closing"
)


def load_check(path: str) -> Check:
    """Return the function that a check's entry names."""
    check: Check = load_object(path)  # type: ignore[assignment]
    return check


def check_family(
    name: str | ModelFamily,
    tokenizer: Any = None,
    *,
    templates: tuple[str, ...] = (),
    variables: dict[str, Any] | None = None,
    only: Iterable[str] | None = None,
) -> Report:
    """Run the checks of a family and return how they went.

    Args:
        name: A registered family's name, or a descriptor.
        tokenizer: A tokenizer of one of its models. Its own template is held against the family's;
            without one a stand-in with the family's control tokens is made.
        templates: Sources of official templates that the family's own must equal.
        variables: Template variables for all renderings.
        only: Names of the checks to run; all by default.

    Raises:
        FamilyNotFound: No dialect has the name.
    """
    from antiphon.testing.subject import FamilySubject

    subject = FamilySubject(name, tokenizer, templates=templates, variables=variables)
    return _family_report(subject, only)


def check_model(
    tokenizer: Any, *, name: str | None = None, only: Iterable[str] | None = None
) -> Report:
    """Run the checks on the dialect that a tokenizer's models speak.

    Where none is known, on its own template with the grammar that this shows.

    Args:
        tokenizer: The tokenizer.
        name: What to call the model in the report; the tokenizer's own name by default.
        only: Names of the checks to run; all by default.

    Raises:
        FamilyAmbiguous: Several dialects hold equally well.
        FamilyNotFound: There is neither a family nor a template.
    """
    from antiphon.detection import detect_family
    from antiphon.errors import FamilyNotFound
    from antiphon.testing.subject import FamilySubject

    detection = detect_family(tokenizer)
    called = name or detection.subject
    note = detection.explain().splitlines()[0].replace(detection.subject, called, 1)
    if detection.family is not None:
        subject = FamilySubject(detection.family, tokenizer)
        report = _family_report(subject, only)
        results = tuple(_as_finding(result, subject, called) for result in report.results)
        return replace(report, results=results, notes=(note, *report.notes))
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):
        template = template.get("default")
    if not isinstance(template, str):
        raise FamilyNotFound(
            f"{called} belongs to no known family and has no chat template to look at: give the file with"
            " its template (--template FILE), or check a family on it (antiphon check FAMILY --tokenizer"
            " FOLDER)."
        )
    from antiphon.conversations.template_forms import call_form

    end = getattr(tokenizer, "eos_token", None)
    family = ModelFamily(
        name=detection.subject,
        line="inferred",
        template="",
        source=template,
        arguments="string" if call_form(template).arguments == "string" else "mapping",
        end_tokens=_ends(template, tokenizer, end),
    )
    if only is None:  # there is no descriptor but the one made here
        only = [name for name in FAMILY_CHECKS if name not in _OF_DESCRIPTORS]
    report = _family_report(FamilySubject(family, tokenizer), only)
    return replace(report, subject=called, kind="template", notes=(note, *report.notes))


def _as_finding(result: CheckResult, subject: FamilySubject, called: str) -> CheckResult:
    """Return a failed parity as what it is where a model brings its own template: a difference."""
    from antiphon.detection import template_digests
    from antiphon.testing.family_checks import prompts_unasked

    if result.name != "parity" or result.status != "failed":
        return result
    if not set(template_digests(subject.official[0])).isdisjoint(subject.family.digests):
        return result  # it is the official one: then the family is wrong
    family = subject.family.name
    told = "it ends with the generation prompt even where none is asked for"
    why = told if prompts_unasked(subject) else " ".join(result.message.split("\n  ")[1:2])
    count = result.message.split(" cases")[0]
    return replace(
        result,
        status="differs",
        message=(
            f"the template that {called} brings is not what {family} is known by, {count} texts differ:"
            f" {why}. Renderings with this tokenizer follow its own template; family={family!r} asks for"
            " the other"
        ),
    )


def _ends(template: str, tokenizer: Any, end: Any) -> tuple[str, ...]:
    """Return the end tokens that a template shows, or the tokenizer's own."""
    from antiphon.errors import GrammarUnavailable
    from antiphon.reading.infer import infer_grammar

    try:
        return infer_grammar(template, tokenizer=tokenizer).end_tokens
    except GrammarUnavailable:
        return (str(end),) if end else ()


def _family_report(subject: Any, only: Iterable[str] | None) -> Report:
    with unobserved():  # the conversations of the corpus are nobody's
        return _unobserved_report(subject, only)


def _unobserved_report(subject: Any, only: Iterable[str] | None) -> Report:
    from antiphon.testing.capabilities import observe

    family: ModelFamily = subject.family
    known = dict(family.known_failures)
    results = _run(FAMILY_CHECKS, subject, only, known, subject.unusable)
    facts: dict[str, Any] = {"grammar": "declared" if family.grammar else "inferred"}
    try:
        if subject.unusable is None:
            facts["capabilities"] = asdict(observe(subject))
    except Exception as error:  # the checks have said what is wrong with the template
        facts["capabilities"] = f"unknown: {type(error).__name__}: {error}"
    if not family.grammar and subject.unusable is None:
        try:
            facts["inferred"] = _told(subject.grammar)
        except AntiphonError as error:
            facts["inferred"] = str(error)
    notes = list(family.notes)
    if subject.is_stand_in:
        notes.append("No tokenizer was given: a stand-in of bytes took its place.")
    return Report(family.name, "family", _versions(family.name), results, tuple(notes), facts)


def _told(value: Any) -> Any:
    """Return plain data of a dataclass without the fields that have their default."""
    if is_dataclass(value):
        return {
            each.name: _told(getattr(value, each.name))
            for each in fields(value)
            if getattr(value, each.name) != each.default
        }
    return [_told(item) for item in value] if isinstance(value, tuple) else value


def check_backend(subject: Any, *, only: Iterable[str] | None = None) -> Report:
    """Run the checks of a backend and return how they went.

    Args:
        subject: A `BackendSubject`.
        only: The names of the checks to run; None for all.

    Raises:
        InvalidParameter: No check has such a name.
    """
    results = _run(BACKEND_CHECKS, subject, only)
    return Report(subject.name, "backend", _versions(subject.name), results)


def check_environment(subject: Any, *, only: Iterable[str] | None = None) -> Report:
    """Run the checks of an environment and return how they went.

    Args:
        subject: An `EnvSubject`.
        only: The names of the checks to run; None for all.

    Raises:
        InvalidParameter: No check has such a name.
    """
    results = _run(ENV_CHECKS, subject, only)
    return Report(subject.name, "environment", _versions(subject.name), results)


def _run(
    checks: Mapping[str, str],
    subject: Any,
    only: Iterable[str] | None,
    known: Mapping[str, str] | None = None,
    unusable: str | None = None,
) -> tuple[Any, ...]:
    wanted = tuple(checks) if only is None else tuple(only)
    unknown = sorted(set(wanted) - set(checks))
    if unknown:
        from antiphon.errors import InvalidParameter

        raise InvalidParameter(
            f"There is no check named {unknown[0]!r}; there are {', '.join(checks)}."
        )
    return tuple(
        CheckResult(name, "skipped", unusable)
        if unusable and name not in ("template", *_OF_DESCRIPTORS)
        else run_check(
            name, load_check(checks[name]), subject, expected_of(name, known or {}, subject.name)
        )
        for name in wanted
    )


def _versions(name: str) -> dict[str, str]:
    from antiphon.plugins import get_host
    from antiphon.plugins.discovery import core_version

    versions = {"antiphon": core_version() or "unknown"}
    for kind in ("family", "backend", "env"):
        owner = get_host().owner(kind, name)
        if owner is not None and owner.distribution != "antiphon":
            versions[owner.distribution] = owner.version
    for module in ("transformers", "tokenizers"):
        try:
            versions[module] = importlib.metadata.version(module)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
