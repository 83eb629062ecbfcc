"""Plugins that use old names of hooks and arguments go on working, and are told what to change."""

from __future__ import annotations

import json
from pathlib import Path

from installing import antiphon, install, run

# A later core, in which a hook and an argument have a new name.
LATER_CORE = """
import sys, warnings
from antiphon.plugins import hookspecs, renames

@hookspecs._spec
def antiphon_register_commands(app, cli):
    pass

hookspecs.antiphon_register_commands = antiphon_register_commands
renames.RENAMED = (
    renames.Renamed("antiphon_register_dialects", "antiphon_register_families", "0.4"),
    renames.Renamed("cli", "app", "0.4", hook="antiphon_register_commands"),
)
"""
HOOK = (
    "Plugin 'old_style' of stranger-old-style 1.0 implements antiphon_register_dialects, which is"
    " called antiphon_register_families now; antiphon 0.4 will not know the old name: use the new"
    " one."
)
ARGUMENT = (
    "Plugin 'old_style' of stranger-old-style 1.0 takes 'cli' in antiphon_register_commands, which"
    " is called 'app' now; antiphon 0.4 will not know the old name: use the new one."
)


def test_old_names_work_and_are_told_once_each(tmp_path: Path) -> None:
    install(tmp_path, "old_style")
    code = """
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    from antiphon.plugins import get_host
    from antiphon.registry import get_family
    get_host(), get_host()
    print(get_family("blackbird").line)
print(*(f"{w.category.__name__}: {w.message}" for w in told), sep="\\n")
from antiphon.cli import run
sys.exit(run(["whistle"]))
"""
    done = run(["-c", LATER_CORE + code], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "bird",
        f"DeprecationWarning: {ARGUMENT}",
        f"DeprecationWarning: {HOOK}",
        "tweet",
    ]


def test_old_names_are_in_the_record_and_no_fault(tmp_path: Path) -> None:
    install(tmp_path, "old_style")
    code = "from antiphon.cli import run; sys.exit(run(['plugins', 'doctor', *sys.argv[1:]]))"
    done = run(["-c", LATER_CORE + code], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert HOOK in done.stdout
    assert ARGUMENT in done.stdout
    told = json.loads(run(["-c", LATER_CORE + code, "--json"], tmp_path).stdout)
    record = next(each for each in told["plugins"] if each["name"] == "old_style")
    assert (record["status"], record["deprecated"]) == ("loaded", [ARGUMENT, HOOK])


def test_plugin_for_both_cores_is_asked_by_the_new_name_alone(tmp_path: Path) -> None:
    install(tmp_path, "old_and_new_style")
    code = """
warnings.simplefilter("error")
from antiphon.registry import get_family
print(get_family("thrush").line)
"""
    done = run(["-c", LATER_CORE + code], tmp_path)
    assert done.stdout == "bird\n", done.stderr
    assert antiphon("plugins", "doctor", site=tmp_path).returncode == 0


def test_name_that_this_core_never_knew_is_a_misspelt_one(tmp_path: Path) -> None:
    install(tmp_path, "old_style")
    done = antiphon("plugins", "doctor", site=tmp_path)
    assert done.returncode == 1
    assert "cli" in done.stdout


def test_trace_tells_who_was_asked_what_and_what_was_answered(tmp_path: Path) -> None:
    install(tmp_path, "healthy")
    install(tmp_path, "hook_raises")
    install(tmp_path, "exits_at_import")
    done = antiphon(
        "plugins", "list", site=tmp_path, ANTIPHON_TRACE_PLUGINS="1",
        ANTIPHON_DISABLE_PLUGINS="exits_at_import",
    )  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if line.startswith("antiphon: trace: ")]
    who = "antiphon: trace: Plugin 'healthy' of stranger-healthy 1.0: "
    assert f"{who}importing stranger_healthy" in lines
    assert f"{who}antiphon_register_families() -> 1 ModelFamily: parrot" in lines
    assert any("failed in antiphon_register_families (KeyError: " in line for line in lines)
    assert (
        "antiphon: trace: Plugin 'exits_at_import' of stranger-exits-at-import 1.0: disabled"
        in lines
    )
    assert "trace" not in done.stdout
    asked = antiphon("plugins", "doctor", "--trace", "--json", site=tmp_path)
    assert json.loads(asked.stdout)["plugins"]
    assert "antiphon_register_commands(app=" in asked.stderr
    assert "trace" not in antiphon("plugins", "list", site=tmp_path).stderr
