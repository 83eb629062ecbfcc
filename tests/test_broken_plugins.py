"""Plugins broken on purpose: each is caught, told in the right words, and harms nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from installing import antiphon, install, records, run

# The module in broken_plugins/, the status that it ends in, what its error must say.
BROKEN = [
    ("import_error", "failed", ["a_module_that_nobody_has", "install"]),
    ("raises_at_import", "failed", ["RuntimeError", "no licence found", "doctor"]),
    ("exits_at_import", "failed", ["SystemExit", "unsupported platform"]),
    ("bad_signature", "failed", ["antiphon_register_families", "signature", "config"]),
    ("misspelt_hook", "failed", ["antiphon_register_familys", "mean antiphon_register_families"]),
    ("unmarked_hook", "failed", ["antiphon_register_families", "without @hookimpl"]),
    ("no_hook", "failed", ["implements no hook", "antiphon_register_families"]),
    ("hook_raises", "failed", ["antiphon_register_families", "KeyError", "the other half"]),
    ("hook_exits", "failed", ["antiphon_register_backends", "SystemExit", "3"]),
    ("returns_number", "failed", ["returned 5", "list of ModelFamily"]),
    ("returns_nothing", "failed", ["returned None", "list of ModelFamily"]),
    ("returns_strings", "failed", ["'gemma3'", "must be a ModelFamily"]),
    ("wrong_kind", "failed", ["BackendSpec", "must be a ModelFamily"]),
    ("same_name_twice", "failed", ["'twice' twice"]),
    ("claims_every_name", "failed", ["'.*'", "matches every model"]),
    ("bad_pattern", "failed", ["'(qwen'", "no regular expression"]),
    ("bad_factory", "failed", ["'my_module.my_function'", "module:attribute"]),
    ("asks_for_host", "failed", ["asked for the plugin host while"]),
    ("async_hook", "failed", ["asynchronous antiphon_register_families", "plain one"]),
    ("endless_hook", "failed", ["antiphon_register_families", "must come to an end"]),
    ("mute_error", "failed", ["MuteError: it can't say what", "doctor"]),
    ("panics", "failed", ["Panic: index out of bounds: the len is 3"]),
    ("takes_a_line", "failed", ["'qwen'", "TorchRL", "another name"]),
    ("odd_descriptor", "failed", ["antiphon_register_backends", "no factory today"]),
]

# What a run that uses none of the broken plugins does: list the families and render with core's
# own.
HEALTHY_RUN = """
import json
from antiphon.registry import families, get_family
names = [family.name for family in families()]
print(json.dumps([names, get_family("chatml").load_template()]))
"""


@pytest.fixture(scope="module")
def healthy_output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the run prints without any of the broken plugins."""
    done = run(["-c", HEALTHY_RUN], tmp_path_factory.mktemp("nobody"))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("module", ["interrupts_at_import", "hook_interrupts"])
def test_an_interrupt_gets_through_and_names_the_plugin_it_came_in(site: Path, module: str) -> None:
    distribution = install(site, module)
    done = run(["-c", HEALTHY_RUN], site)
    assert done.returncode not in (0, 1)  # as Ctrl-C ends a program
    assert f"{distribution} 1.0 was interrupted while it was loaded" in done.stderr
    assert "ANTIPHON_DISABLE_PLUGINS" in done.stderr


@pytest.mark.parametrize(("module", "status", "words"), BROKEN, ids=[case[0] for case in BROKEN])
def test_broken_plugin_is_recorded_and_harms_nobody(
    site: Path, module: str, status: str, words: list[str], healthy_output: str
) -> None:
    distribution = install(site, module)
    found = records(site)
    record = found.pop(distribution)
    assert record["status"] == status
    for word in words:
        assert word in record["error"]
    assert "\n" not in record["error"]
    assert distribution in record["error"]
    assert record["provides"] == []
    assert {each["status"] for each in found.values()} == {"loaded"}
    after = run(["-c", HEALTHY_RUN], site)
    assert after.returncode == 0
    assert after.stdout == healthy_output


def test_run_that_meets_a_broken_plugin_warns_of_it_once(site: Path) -> None:
    install(site, "import_error")
    code = "from antiphon.registry import get_family; get_family('chatml'); get_family('chatml')"
    done = run(["-c", code], site)
    assert done.returncode == 0
    assert done.stderr.count("PluginWarning: Plugin 'import_error' of stranger-import-error") == 1
    strict = run(["-W", "error", "-c", code], site)
    assert "PluginWarning" in strict.stderr


def test_run_that_needs_no_plugin_is_not_warned(site: Path) -> None:
    install(site, "import_error")
    code = """
import warnings, antiphon
warnings.simplefilter("error")
print(antiphon.render([{"role": "user", "content": "x"}], chat_template="{{ messages[0].content }}").text)
warnings.simplefilter("always")
from antiphon.registry import get_family
get_family("chatml"), get_family("chatml")
"""
    done = run(["-c", code], site)
    assert done.stdout == "x\n", done.stderr
    assert done.stderr.count("PluginWarning: Plugin 'import_error'") == 1


@pytest.mark.parametrize("module", ["import_error", "hook_raises", "misspelt_hook"])
def test_strict_mode_raises_what_is_recorded_otherwise(site: Path, module: str) -> None:
    install(site, module)
    done = antiphon("plugins", "list", site=site, ANTIPHON_STRICT_PLUGINS="1")
    assert done.returncode == 1
    assert f"stranger-{module.replace('_', '-')}" in done.stderr
    assert "Traceback" not in done.stderr
    debugged = antiphon("plugins", "list", "--debug", site=site, ANTIPHON_STRICT_PLUGINS="1")
    assert debugged.returncode == 1
    assert "Traceback" in debugged.stderr


def test_doctor_prints_the_traceback_and_fails(site: Path) -> None:
    install(site, "raises_at_import")
    done = antiphon("plugins", "doctor", site=site)
    assert done.returncode == 1
    assert 'raise RuntimeError("no licence found")' in done.stdout
    told = json.loads(antiphon("plugins", "doctor", "--json", site=site).stdout)
    assert [r["status"] for r in told["plugins"] if r["name"] == "raises_at_import"] == ["failed"]


def test_incompatible_plugin_is_not_imported(site: Path) -> None:
    distribution = install(site, "wrong_core_range", requires="antiphon>=7,<8")
    record = records(site)[distribution]
    assert record["status"] == "incompatible"
    assert "antiphon" in record["error"]
    assert ">=7" in record["error"]
    assert record["traceback"] is None


def test_core_range_of_an_extra_or_of_another_platform_does_not_count(site: Path) -> None:
    extra = install(site, "healthy", requires="antiphon>=7; extra == 'future'")
    assert records(site)[extra]["status"] == "loaded"


def test_disabled_plugin_is_not_imported(site: Path) -> None:
    distribution = install(site, "exits_at_import")
    for switch in ("exits_at_import", "Stranger_Exits.At-Import", "other, exits-at-import"):
        record = records(site, ANTIPHON_DISABLE_PLUGINS=switch)[distribution]
        assert (record["status"], record["error"]) == ("disabled", None)


def test_plugins_that_are_not_asked_for_are_not_imported(site: Path) -> None:
    broken, healthy = install(site, "exits_at_import"), install(site, "healthy")
    found = records(site, ANTIPHON_PLUGINS="healthy")
    assert found[broken]["status"] == "disabled"
    assert found[healthy]["status"] == "loaded"
    assert found["antiphon"]["status"] == "loaded"


def test_asking_for_a_plugin_that_nobody_installed_is_told(site: Path) -> None:
    found = records(site, ANTIPHON_PLUGINS="helthy")
    assert found[""]["status"] == "failed"
    assert "helthy" in found[""]["error"]


def test_name_claimed_twice_is_nobodys_and_the_rest_goes_on(site: Path) -> None:
    stranger = install(site, "claims_chatml")
    found = records(site)
    assert found[stranger]["status"] == found["antiphon"]["status"] == "conflict"
    for record in (found[stranger], found["antiphon"]):
        assert stranger in record["error"]
        assert "antiphon 0" in record["error"]
        assert f"ANTIPHON_DISABLE_PLUGINS={stranger}" in record["error"]
    used = run(["-c", "from antiphon.registry import get_family; get_family('chatml')"], site)
    assert "PluginConflict" in used.stderr
    other = run(["-c", "from antiphon.registry import get_family; get_family('parrot')"], site)
    assert other.returncode == 0, other.stderr
    remedy = records(site, ANTIPHON_DISABLE_PLUGINS=stranger)
    assert remedy["antiphon"]["status"] == "loaded"


def test_two_distributions_with_one_plugin_name_are_both_told(site: Path) -> None:
    first = install(site, "healthy", plugin="bird", distribution="first-bird")
    second = install(site, "healthy", plugin="bird", distribution="second-bird")
    found = records(site)
    for distribution in (first, second):
        assert found[distribution]["status"] == "conflict"
        assert first in found[distribution]["error"]
        assert second in found[distribution]["error"]
    asked = antiphon("plugins", "which", "parrot", site=site)
    assert asked.returncode == 1
    assert "claimed by" in asked.stderr
    remedy = records(site, ANTIPHON_DISABLE_PLUGINS=second)
    assert remedy[first]["status"] == "loaded"


def test_twins_conflict_even_where_their_families_differ(site: Path) -> None:
    install(site, "healthy", plugin="bird", distribution="first-bird")
    install(site, "claims_chatml", plugin="bird", distribution="second-bird")
    code = "from antiphon.registry import get_family; get_family('parrot')"
    assert "PluginConflict" in run(["-c", code], site).stderr


def test_distribution_that_is_on_the_path_twice_counts_once(site: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    install(site, "healthy")
    install(again, "healthy", version="0.9")
    done = run(["-m", "antiphon.cli", "plugins", "list", "--json"], site, again)
    versions = [r["version"] for r in json.loads(done.stdout) if r["name"] == "healthy"]
    assert versions == ["1.0"]


def test_half_installed_distribution_is_told(site: Path) -> None:
    info = site / "ghost-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[antiphon.plugins]\nghost = ghost\n", encoding="utf-8")
    done = antiphon("plugins", "list", "--json", site=site)
    assert done.returncode == 0, done.stderr
    ghost = next(record for record in json.loads(done.stdout) if record["name"] == "ghost")
    assert ghost["status"] == "failed"
    assert "install it again" in ghost["error"]


def test_plugin_commands_run_and_their_faults_are_told(site: Path) -> None:
    install(site, "healthy")
    install(site, "command_raises")
    install(site, "claims_command")
    assert antiphon("squawk", site=site).stdout == "squawk!\n"
    assert antiphon("shout", site=site).stdout == "squawk!\n"
    listed = antiphon("--help", site=site).stdout
    assert "squawk" in listed
    assert "Say it loudly." in listed
    doctor = antiphon("plugins", "doctor", site=site)
    assert doctor.returncode == 1
    assert "no terminal" in doctor.stdout
    assert "'plugins'" in doctor.stdout


def test_command_claimed_twice_is_run_by_neither(site: Path) -> None:
    install(site, "healthy", plugin="one", distribution="first-bird")
    install(site, "healthy", plugin="two", distribution="second-bird")
    done = antiphon("squawk", site=site)
    assert done.returncode == 1
    assert "first-bird" in done.stderr
    assert "second-bird" in done.stderr


def test_what_a_plugin_prints_stays_out_of_the_output(site: Path) -> None:
    distribution = install(site, "prints_at_import")
    assert records(site)[distribution]["status"] == "loaded"
    done = run(["-c", HEALTHY_RUN], site)
    assert json.loads(done.stdout)
    assert "Thank you for installing Parrot!\nregistering parrots\n" in done.stderr


def test_entry_point_may_name_an_object_with_hooks(site: Path) -> None:
    distribution = install(site, "objects", attribute="good")
    record = records(site)[distribution]
    assert (record["status"], record["provides"]) == ("loaded", ["family:finch"])


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        ("number", "implements no hook"),
        ("shy", "not now"),
        ("absent", "has no attribute 'absent'"),
    ],
)
def test_entry_point_that_names_something_else_is_told(
    site: Path, attribute: str, words: str
) -> None:
    distribution = install(site, "objects", attribute=attribute)
    found = records(site)
    assert found[distribution]["status"] == "failed"
    assert words in found[distribution]["error"]
    assert found["antiphon"]["status"] == "loaded"


def test_two_plugins_of_one_distribution_are_two(site: Path) -> None:
    install(site, "healthy", entry_points="second = {package}_second\n")
    second = (Path(__file__).parent / "broken_plugins" / "listens.py").read_text(encoding="utf-8")
    (site / "stranger_healthy_second.py").write_text(second, encoding="utf-8")
    done = json.loads(antiphon("plugins", "list", "--json", site=site).stdout)
    found = {r["name"]: r["status"] for r in done if r["distribution"] == "stranger-healthy"}
    assert found == {"healthy": "loaded", "second": "loaded"}
    one = antiphon("plugins", "list", "--json", site=site, ANTIPHON_DISABLE_PLUGINS="second")
    found = {r["name"]: r["status"] for r in json.loads(one.stdout)}
    assert (found["healthy"], found["second"]) == ("loaded", "disabled")


def test_one_module_under_two_names_claims_its_families_twice(site: Path) -> None:
    install(site, "healthy", entry_points="again = {package}\n")
    done = json.loads(antiphon("plugins", "list", "--json", site=site).stdout)
    found = [r for r in done if r["distribution"] == "stranger-healthy"]
    assert [r["status"] for r in found] == ["conflict", "conflict"]
    assert "ANTIPHON_DISABLE_PLUGINS=healthy" in found[0]["error"]


@pytest.mark.parametrize(
    "requires", ["antiphon>=>1", "antiphon (0.1", "antiphon~=", "antiphon>=0.1;"]
)
def test_range_that_can_not_be_read_is_told(site: Path, requires: str) -> None:
    distribution = install(site, "exits_at_import", requires=requires)
    found = records(site)
    assert found[distribution]["status"] == "failed"
    assert "a requirement that can't be read" in found[distribution]["error"]
    assert found["antiphon"]["status"] == "loaded"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("METADATA", b"\xff\xfe\x00no metadata"),
        ("METADATA", b""),
        ("entry_points.txt", b"\xff[antiphon.plugins]\nhealthy = stranger_healthy\n"),
        ("entry_points.txt", b"[antiphon.plugins]\nhealthy\n"),
        ("entry_points.txt", b"[antiphon.plugins]\n = \n"),
        ("entry_points.txt", b"[antiphon.plugins\nhealthy = stranger_healthy\n"),
    ],
)
def test_broken_metadata_harm_nobody(
    site: Path, file: str, content: bytes, healthy_output: str
) -> None:
    install(site, "healthy")
    (site / "stranger_healthy-1.0.dist-info" / file).write_bytes(content)
    after = run(["-c", HEALTHY_RUN], site)
    assert after.returncode == 0, after.stderr
    assert json.loads(after.stdout)[1] == json.loads(healthy_output)[1]
    assert antiphon("plugins", "list", site=site).returncode == 0


def test_doctor_finds_what_descriptors_name_in_vain(site: Path) -> None:
    install(site, "dangling")
    done = antiphon("plugins", "doctor", site=site)
    assert done.returncode == 1
    who = "Plugin 'dangling' of stranger-dangling 1.0: the"
    for words in (
        "family 'no-template' can't be used: its template 'antiphon:templates/no-such-bird.jinja'",
        "family 'no-grammar' can't be used: its grammar is 'antiphon.chatml_grammar:NO_SUCH', and"
        " there is no 'NO_SUCH' in 'antiphon.chatml_grammar'",
        "family 'no-jinja' can't be used: its template is wrong: ",
        "backend 'no-module' can't be used: its factory is 'no_such_module:Backend', and there is no"
        " module 'no_such_module'",
        "env 'no-attribute' can't be used: its factory is 'json:NoSuchEnv', and there is no"
        " 'NoSuchEnv' in 'json'",
    ):
        assert f"FAIL {who} {words}" in done.stdout
    assert f"note {who} reward 'needs' needs no-such-distribution" in done.stdout
    assert "5 things to put right" in done.stdout


@pytest.mark.parametrize("name", ["no-template", "no-grammar", "no-jinja"])
def test_family_that_names_something_in_vain_is_told_where_it_is_used(
    site: Path, name: str
) -> None:
    install(site, "dangling")
    conversation = site / "conversation.json"
    conversation.write_text('[{"role": "user", "content": "Hi"}]', encoding="utf-8")
    done = antiphon("check", name, site=site)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr + done.stdout
    assert "FAILED" in done.stdout or "antiphon: " in done.stderr
