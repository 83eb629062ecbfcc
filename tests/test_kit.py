"""The kit is right about what is right, and every check of it finds what is broken on purpose."""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import kit_backends
import kit_envs
import kit_families
import pytest
from antiphon.errors import FamilyNotFound, InvalidParameter, PluginError
from antiphon.registry import families, register_family, unregister_family
from antiphon.testing import (
    BACKEND_CHECKS,
    ENV_CHECKS,
    FAMILY_CHECKS,
    Capabilities,
    CheckFailed,
    FamilySubject,
    Report,
    check_backend,
    check_environment,
    check_family,
    check_model,
)
from antiphon.testing.capabilities import FLAGS, check_capabilities
from antiphon.testing.random_checks import check_random
from antiphon.testing.results import CheckResult, run_check
from antiphon.testing.running import load_check
from hypothesis import given, settings
from hypothesis import strategies as st
from installing import antiphon, run

CAN = Capabilities(system=True, calls=True, parallel_calls=True, tool_results=True)


def result_of(kind: str, check: str, make: Callable[[], Any]) -> CheckResult:
    if kind == "family":
        function = check_random if check == "random" else load_check(FAMILY_CHECKS[check])
        return run_check(check, function, make())
    if kind == "backend":
        return run_check(check, load_check(BACKEND_CHECKS[check]), kit_backends.subject(make))
    return run_check(check, load_check(ENV_CHECKS[check]), make())


ALL = [
    pytest.param(kind, check, make, words, id=f"{check}: {what}")
    for kind, module in (
        ("family", kit_families),
        ("backend", kit_backends),
        ("env", kit_envs),
    )
    for check, entries in module.BROKEN.items()
    for what, make, words in entries
]


@pytest.mark.parametrize(("kind", "check", "make", "words"), ALL)
def test_what_is_broken_is_noticed(
    kind: str, check: str, make: Callable[[], Any], words: str
) -> None:
    result = result_of(kind, check, make)
    assert result.status == "failed", result.message
    assert words in result.message


def test_each_check_has_something_broken_for_it() -> None:
    # Names need a registered family, and flags a contract: their tests stand below.
    assert set(kit_families.BROKEN) | {"own_names"} == {*FAMILY_CHECKS, "random"}
    assert set(kit_backends.BROKEN) == set(BACKEND_CHECKS)
    assert set(kit_envs.BROKEN) == set(ENV_CHECKS)


@pytest.fixture
def parakeet() -> Iterator[str]:
    register_family(kit_families.FAMILY)
    yield kit_families.FAMILY.name
    unregister_family(kit_families.FAMILY.name)


def test_a_family_that_is_right_passes(parakeet: str) -> None:
    template = kit_families.TEMPLATE
    report = check_family(parakeet, kit_families.with_template(template).tokenizer)
    assert [result for result in report.results if result.status != "passed"] == []
    check_random(kit_families.subject())
    check_capabilities(kit_families.subject(), CAN)


def test_a_family_that_others_take_the_models_of_is_noticed(parakeet: str) -> None:
    thief = replace(kit_families.FAMILY, name="thief", priority=1)
    register_family(thief)
    try:
        (result,) = check_family(parakeet, only=["own_names"]).results
    finally:
        unregister_family("thief")
    assert result.status == "failed"
    assert "it is taken for thief" in result.message


@pytest.mark.parametrize(("takes_it", "status"), [(False, "passed"), (True, "failed")])
def test_a_copy_under_a_models_own_name_must_lead_to_its_own_family(
    parakeet: str, takes_it: bool, status: str
) -> None:
    """Another organisation has a Parakeet-1B too, which speaks another dialect."""
    copy = "mirror/Parakeet-1B"
    other = replace(kit_families.FAMILY, name="macaw", line="macaw", model_ids=(copy,))
    own = kit_families.FAMILY
    taken = replace(own, model_ids=(*own.model_ids, copy), priority=1)
    unregister_family(own.name)
    for family in (other, taken if takes_it else own):
        register_family(family)
    try:
        (result,) = check_family(own.name, only=["foreign_names"]).results
    finally:
        unregister_family("macaw")
    assert result.status == status
    assert ("claims mirror/Parakeet-1B" in result.message) == takes_it


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_that_does_not_say_what_is_so_is_noticed(flag: str) -> None:
    wrong = replace(CAN, **{flag: not getattr(CAN, flag)})
    with pytest.raises(CheckFailed, match=flag):
        check_capabilities(kit_families.subject(), wrong)


def test_a_backend_that_is_right_passes() -> None:
    report = check_backend(kit_backends.subject())
    assert [result for result in report.results if result.status != "passed"] == []


def test_an_environment_that_is_right_passes() -> None:
    report = check_environment(kit_envs.subject())
    assert [result for result in report.results if result.status != "passed"] == []


# The report


@pytest.fixture(scope="module")
def report() -> Report:
    return check_family(replace(kit_families.FAMILY, grammar="kit_families:STRIPS"))


def test_a_report_says_what_failed_and_crosses_processes(report: Report) -> None:
    assert not report.ok
    assert {"parse", "render_again"} <= {result.name for result in report.failed}
    assert pickle.loads(pickle.dumps(report)) == report
    assert json.loads(report.to_json())["ok"] is False
    assert "FAILED" in str(report)
    assert "whitespace-edges" in str(report)
    assert "| parse | **fails** |" in report.to_markdown()
    with pytest.raises(AttributeError):
        report.subject = "other"  # type: ignore[misc]


def test_only_some_checks_are_run_and_unknown_ones_refused() -> None:
    report = check_family(kit_families.FAMILY, kit_families.TOKENIZER, only=["parse", "turns"])
    assert [result.name for result in report.results] == ["parse", "turns"]
    with pytest.raises(InvalidParameter, match="no check named 'prase'"):
        check_family(kit_families.FAMILY, only=["prase"])


def test_a_model_of_no_known_family_is_checked_by_its_own_template() -> None:
    tokenizer = kit_families.with_template(kit_families.TEMPLATE).tokenizer
    report = check_model(tokenizer)
    assert report.facts["grammar"] == "inferred"
    assert report.facts["inferred"]["end_tokens"] == ["<|end|>"]
    assert report.facts["capabilities"]["calls"]
    with pytest.raises(FamilyNotFound, match="no chat template"):
        check_model(kit_families.TOKENIZER)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% if %}", "not valid Jinja"),
        ("{{ raise_exception('no') }}", "refuses every conversation"),
    ],
)
def test_of_a_template_that_prints_nothing_only_that_is_said(template: str, words: str) -> None:
    report = check_model(kit_families.with_template(template).tokenizer, name="org/broken")
    assert (report.subject, report.kind) == ("org/broken", "template")
    told = {result.name: result.status for result in report.results}
    assert [result.name for result in report.failed] == ["template"]
    assert words in report.failed[0].message
    assert told["parity"] == told["turns"] == told["parse"] == "skipped"
    assert report.notes[0].startswith("org/broken: ")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "{%- if add_generation_prompt -%}",
            "{%- if true -%}",
            "it ends with the generation prompt even where none is asked for.",
        ),
        (
            "{{- message.content + '<|end|>' -}}",
            "{{- message.content | trim + '<|end|>' -}}",
            "whitespace-edges: The text differs at character",
        ),
    ],
)
def test_a_model_with_a_template_of_its_own_is_told_of_it_and_fails_nothing(
    parakeet: str, old: str, new: str, words: str
) -> None:
    own = kit_families.TEMPLATE.replace(old, new)
    tokenizer = kit_families.with_template(own, name="parakeet-1b").tokenizer
    report = check_model(tokenizer, name="org/parakeet", only=["parity", "turns"])
    told = {result.name: result for result in report.results}
    assert report.ok
    assert told["parity"].status == "differs"
    assert "that org/parakeet brings is not what parakeet is known by" in told["parity"].message
    assert words in told["parity"].message
    assert "1 ok, 0 FAILED, 1 differs" in str(report)
    assert "| parity | differs: the template" in report.to_markdown()
    assert check_family(parakeet, tokenizer, only=["parity"]).failed


def test_a_family_that_prints_something_else_than_its_official_template_fails_on_its_model() -> (
    None
):
    official = kit_families.TEMPLATE.replace("'<|end|>'", "'<|end|>' + ''")
    digest = hashlib.sha256(official.encode()).hexdigest()
    wrong = replace(
        kit_families.FAMILY,
        source=kit_families.TEMPLATE.replace("'<|' + message.role", "'<| ' + message.role"),
        digests=(digest,),
    )
    register_family(wrong)
    try:
        report = check_model(kit_families.with_template(official).tokenizer, only=["parity"])
    finally:
        unregister_family(wrong.name)
    assert [result.name for result in report.failed] == ["parity"]


def test_a_template_may_be_given_for_a_model_that_brings_none(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    kit_families.TOKENIZER.backend_tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    without = run(["-m", "antiphon.cli", "check", str(folder)])
    assert without.returncode == 1
    assert "no chat template to look at: give the file with its template" in without.stderr
    file = tmp_path / "template.jinja"
    file.write_text(kit_families.TEMPLATE, encoding="utf-8")
    done = run(["-m", "antiphon.cli", "check", str(folder), "--template", str(file)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 FAILED" in done.stdout


def test_what_can_not_be_read_is_told_and_the_rest_checked() -> None:
    template = "{% for m in messages %}{{ m.content | length }}<|end|>{% endfor %}"
    report = check_model(kit_families.with_template(template).tokenizer)
    told = {result.name: result for result in report.results}
    assert told["parse"].status == "skipped"
    assert "declare a grammar" in told["parse"].message
    assert told["template"].status == told["agreement"].status == "passed"


def candid(*known: tuple[str, str], grammar: str = "NO_CALLS") -> Report:
    """Check a family that says what of it is known to fail."""
    family = replace(
        kit_families.FAMILY, grammar=f"kit_families:{grammar}", known_failures=tuple(known)
    )
    return check_family(family, kit_families.TOKENIZER, only=["descriptor", "parse", "turns"])


def test_known_failures_of_a_descriptor_are_told_apart() -> None:
    found = candid(("parse", "no calls")).results[1]
    assert (found.status, found.message) == ("xfailed", "no calls")
    assert "tool-call" in found.cases
    report = candid(*((f"parse/{case}", "no calls") for case in found.cases))
    assert report.ok
    assert report.results[1].status == "xfailed"
    assert "fails as known (no calls)" in str(report)
    assert "| parse | fails as known: no calls |" in report.to_markdown()
    assert report.to_markdown().startswith("| family `parakeet` | 2 of 3 checks pass |")
    assert json.loads(report.to_json())["results"][1]["status"] == "xfailed"


def test_what_was_known_to_fail_and_passes_is_told_and_no_failure() -> None:
    report = candid(("turns", "was wrong once"), grammar="GRAMMAR")
    assert report.ok
    assert report.results[2].status == "xpassed"
    assert "turns is expected to fail and passes" in str(report)
    cases = [*candid(("parse", "x")).results[1].cases, "one-turn"]
    partly = candid(*((f"parse/{case}", "no calls") for case in cases)).results[1]
    assert (partly.status, "one-turn" in partly.message) == ("xpassed", True)


def test_failure_beside_the_known_ones_is_a_failure() -> None:
    report = candid(("parse/tool-call", "no calls"))
    assert not report.ok
    assert report.results[1].status == "failed"


def test_known_failure_of_a_check_that_is_none_is_noticed() -> None:
    (found, *_) = candid(("prase/tool-call", "no calls")).results
    assert found.status == "failed"
    assert "'prase'" in found.message


@pytest.mark.parametrize("known", [("parse", "why"), (("parse",),), (("parse", ""),), {"parse": 1}])
def test_known_failures_of_another_form_are_refused(known: Any) -> None:
    with pytest.raises(PluginError, match="known_failures"):
        register_family(replace(kit_families.FAMILY, name="odd", known_failures=known))


def test_stand_ins_have_the_control_tokens_of_their_family() -> None:
    for family in families():
        subject = FamilySubject(family)
        assert set(family.end_tokens) <= set(subject.tokenizer.get_vocab()), family.name


# The command


def test_command_prints_reports_and_ends_with_their_verdict(tmp_path: Any) -> None:
    done = antiphon("check", "chatml", site=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "generation_tags  ok" in done.stdout
    assert "prints: system, tool results" in done.stdout
    wrong = tmp_path / "official.jinja"
    wrong.write_text("{% for m in messages %}{{ m.content }}{% endfor %}", encoding="utf-8")
    line = ("check", "chatml", "--only", "parity", "--template", str(wrong), "--json")
    done = antiphon(*line, site=tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stdout)["results"][0]["status"] == "failed"
    done = antiphon("check", "chatml", "--only", "turns", "--markdown", site=tmp_path)
    assert "| turns | passes |" in done.stdout


# The contracts

CONTRACTS = """
import sys
sys.path.insert(0, {here!r})
import kit_families, pytest
from antiphon.registry import register_family
from antiphon.testing import FamilyContract, corpus
register_family(kit_families.FAMILY)
register_family(kit_families.replace(
    kit_families.FAMILY, name="deaf", grammar="kit_families:NO_CALLS", model_ids=(),
    renderings=None))
CALLING = [c.id for c in corpus() if any(m.get("tool_calls") for m in c.messages)]
class TestRight(FamilyContract):
    names = ("parakeet",)
    system = calls = parallel_calls = tool_results = True
KNOWN = {{f"parse/{{case}}": "no calls" for case in CALLING if "none" not in case}}
KNOWN |= {{"deaf: responses": "no calls"}}
class TestKnown(FamilyContract, expected_failures=KNOWN):
    names = ("deaf",)
    system = calls = parallel_calls = tool_results = True
class TestGone(FamilyContract, expected_failures={{"turns": "was wrong once"}}):
    names = ("parakeet",)
    system = calls = parallel_calls = tool_results = True
register_family(kit_families.replace(
    kit_families.FAMILY, name="candid", grammar="kit_families:NO_CALLS", model_ids=(),
    renderings=None,
    known_failures=(*((f"parse/{{case}}", "no calls") for case in CALLING if "none" not in case),
                    ("responses", "no calls"))))
class TestCandid(FamilyContract):
    names = ("candid",)
    system = calls = parallel_calls = tool_results = True
class TestForgotten(FamilyContract):
    names = ("parakeet",)
    system = calls = tool_results = True
"""


def test_contracts_pass_xfail_and_fail_as_they_should(tmp_path: Any) -> None:
    here = str(kit_families.__file__).rsplit("/", 1)[0]
    (tmp_path / "test_it.py").write_text(CONTRACTS.format(here=here), encoding="utf-8")
    done = run(["-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", str(tmp_path)])
    told = done.stdout
    failed = {
        line.split("::", 1)[1].split(" ")[0] for line in told.splitlines() if line[:6] == "FAILED"
    }
    assert failed == {
        "TestGone::test_turns[parakeet]",
        "TestForgotten::test_capabilities[parakeet]",
    }, told
    assert "turns is expected to fail and passes" in told
    assert "set parallel_calls = True" in told
    expected = {
        line.split("::", 1)[1].split(" ")[0] for line in told.splitlines() if line[:5] == "XFAIL"
    }
    assert expected == {
        f"Test{name.capitalize() if name == 'candid' else 'Known'}::test_{check}[{name}]"
        for name in ("deaf", "candid")
        for check in ("parse", "responses")
    }


def test_a_check_can_not_be_overridden() -> None:
    from antiphon.testing import FamilyContract

    with pytest.raises(TypeError, match="test_parse"):
        type("TestSly", (FamilyContract,), {"test_parse": lambda self: None})
    with pytest.raises(TypeError, match="no check 'prase'"):

        class TestTypo(FamilyContract, expected_failures={"prase": "why"}):
            pass

    with pytest.raises(TypeError, match="no reason"):

        class TestMute(FamilyContract, expected_failures={"parse": ""}):
            pass


def test_importing_the_kit_imports_neither_pytest_nor_torch() -> None:
    code = (
        "import sys, antiphon.testing as t; t.check_family, t.corpus, t.FamilySubject;"
        "print([m for m in ('pytest', 'hypothesis', 'torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there_and_no_module_stands_in_its_way() -> None:
    import antiphon.testing
    from antiphon.testing import corpus, hostile_texts

    for name in antiphon.testing.__all__:
        assert not isinstance(getattr(antiphon.testing, name), ModuleType), name
    assert len({case.id for case in corpus()}) == len(corpus()) > 30
    assert any("<|end|>" in text for text in hostile_texts(["<|end|>"]))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.data())
def test_strategies_make_what_they_say(data: st.DataObject) -> None:
    from antiphon.testing import strategies

    text = data.draw(strategies.texts(markers=("<|end|>",)))
    assert "".join(data.draw(strategies.splits(text))) == text
    messages = data.draw(strategies.conversations(system=True))
    roles = [message["role"] for message in messages if message["role"] != "system"]
    assert roles == ["user", "assistant"] * (len(roles) // 2)
    assert json.loads(json.dumps(data.draw(strategies.arguments()))) is not None


FIXTURES = """
pytest_plugins = ["antiphon.testing.fixtures"]

def test_all(antiphon_corpus, antiphon_stand_in, antiphon_check):
    assert antiphon_corpus["one-turn"].messages[0]["role"] == "user"
    assert "<|im_end|>" in antiphon_stand_in("chatml").get_vocab()
    assert antiphon_check("chatml", only=["turns"]).ok

def test_fails(antiphon_check):
    antiphon_check("chatml", only=["parity"], templates=("{{ messages[0].content }}",))
"""


def test_fixtures_serve_and_fail_with_the_report(tmp_path: Any) -> None:
    (tmp_path / "test_it.py").write_text(FIXTURES, encoding="utf-8")
    done = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)])
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "where its text parts from the official one" in done.stdout
