"""Plugins that change the process, end it or keep it waiting: put back, or told of by the doctor."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from installing import antiphon, environment, install, records, run

# What a program has in common with its plugins, as seen before and after they are loaded.
STATE = """
import builtins, json, locale, logging, os, random, signal, socket, sys, warnings
import antiphon.families, antiphon.engine.environment, antiphon.lazy, jinja2
from antiphon.plugins import get_host
locale.setlocale(locale.LC_ALL, "C")
os.environ["PARROT_CAGE"] = "locked"
warnings.simplefilter("default")
random.seed(11)
dumps, show = json.dumps, repr

def state():
    return [
        dict(os.environ), os.getcwd(), list(sys.path), sys.getrecursionlimit(), show(sys.excepthook),
        logging.root.level, show(logging.root.handlers), logging.root.manager.disable,
        show(warnings.filters), show(signal.getsignal(signal.SIGTERM)), socket.getdefaulttimeout(),
        locale.setlocale(locale.LC_ALL), len(random.getstate()[1]), hash(random.getstate()),
        show(builtins.print), show(json.dumps), show(antiphon.families.ModelFamily.load_template),
        antiphon.families.TEMPLATE_NAMES, sorted(vars(antiphon.lazy)),
        show(jinja2.Template.render), show(jinja2.defaults.DEFAULT_FILTERS["trim"]),
    ]

before = state()
host = get_host(quiet=True)
print(dumps([before == state(), [s for r in host.records for s in r.changed]]))
"""
CHANGES = (
    "environment variables HF_HUB_OFFLINE, PARROT_CAGE, PARROT_HOME",
    "the working folder",
    "sys.path",
    "the interpreter's excepthook, recursionlimit",
    "the root logger's disabled below, handlers, level",
    "the filters of warnings",
    "the handlers of SIGTERM",
    "the locale",
    "the state of random",
    "the time-out of sockets",
    "builtins.print",
    "json.dumps",
    "antiphon.families.ModelFamily.load_template",
    "antiphon.families.TEMPLATE_NAMES",
    "antiphon.lazy.squawk",
)


def test_what_a_plugin_changes_while_it_is_loaded_is_put_back_and_told(tmp_path: Path) -> None:
    distribution = install(tmp_path, "meddles_at_import")
    done = run(["-c", STATE], tmp_path)
    assert done.returncode == 0, done.stderr
    same, (told,) = json.loads(done.stdout)
    assert same
    assert told.startswith(f"Plugin 'meddles_at_import' of {distribution} 1.0 changed ")
    for change in CHANGES:
        assert f"{change}," in told or f"{change} while" in told, change
    assert "that was put back" in told
    assert records(tmp_path)[distribution]["status"] == "loaded"


def test_process_in_which_nobody_meddles_is_accused_of_nothing(tmp_path: Path) -> None:
    install(tmp_path, "healthy")
    done = run(["-c", STATE], tmp_path)
    assert json.loads(done.stdout) == [True, []], done.stderr


def test_plugin_that_fails_half_way_leaves_nothing_behind(tmp_path: Path) -> None:
    install(tmp_path, "raises_half_done")
    same, (told,) = json.loads(run(["-c", STATE], tmp_path).stdout)
    assert same
    assert "environment variables PARROT_HOME, the state of random while it was loaded" in told


def test_run_is_warned_of_what_was_changed_and_a_strict_one_ends(tmp_path: Path) -> None:
    install(tmp_path, "raises_half_done")
    install(tmp_path, "meddles_at_import")
    code = "from antiphon.registry import get_family; get_family('chatml'); get_family('chatml')"
    done = run(["-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("PluginWarning: Plugin 'meddles_at_import' of") == 1
    strict = run(
        ["-c", code], tmp_path, ANTIPHON_STRICT_PLUGINS="1", ANTIPHON_PLUGINS="meddles_at_import"
    )
    assert "PluginError: Plugin 'meddles_at_import' of" in strict.stderr


def test_doctor_tells_of_what_was_changed_and_fails(tmp_path: Path) -> None:
    install(tmp_path, "meddles_at_import")
    done = antiphon("plugins", "doctor", site=tmp_path)
    assert done.returncode == 1
    assert "FAIL Plugin 'meddles_at_import' of" in done.stdout
    assert "1 thing to put right" in done.stdout
    told = json.loads(antiphon("plugins", "doctor", "--json", site=tmp_path).stdout)
    assert len(told["faults"]) == 1


def test_functions_that_a_plugin_exchanged_where_it_was_the_first_are_told(tmp_path: Path) -> None:
    distribution = install(tmp_path, "exchanges_jinja")
    (told,) = records(tmp_path)[distribution]["changed"]
    assert "exchanged " in told
    assert "jinja2.environment.Template.render" in told
    assert "jinja2.defaults.DEFAULT_FILTERS.trim" in told
    assert "can't be undone: leave it out with ANTIPHON_DISABLE_PLUGINS=exchanges_jinja" in told


def test_functions_that_a_plugin_exchanged_in_what_was_there_are_put_back(tmp_path: Path) -> None:
    install(tmp_path, "exchanges_jinja")
    same, (told,) = json.loads(run(["-c", STATE], tmp_path).stdout)
    assert same
    assert "jinja2.environment.Template.render" in told
    assert "that was put back" in told


TORCH = """
import sys
import threading
if "first" in sys.argv:
    import torch
    torch.manual_seed(3)
from antiphon.plugins import get_host
told = [s for r in get_host(quiet=True).records for s in r.changed]
import torch
print(torch.get_default_dtype(), torch.is_grad_enabled(), torch.rand(1).item())
print(*told)
"""


@pytest.mark.parametrize("first", [True, False], ids=["torch first", "plugin first"])
def test_seed_and_settings_of_torch_are_put_back(tmp_path: Path, first: bool) -> None:
    arguments = ["-c", TORCH, *(["first"] if first else [])]
    whole = run(arguments, tmp_path, ANTIPHON_PLUGINS="chatml").stdout.split()
    install(tmp_path, "seeds_torch")
    done = run(arguments, tmp_path, ANTIPHON_PLUGINS="seeds_torch")
    state, told = done.stdout.splitlines()
    assert state.split()[:2] == whole[:2] == ["torch.float32", "True"], done.stderr
    linear = "torch.nn.modules.linear.Linear.forward"
    if first:
        assert state.split()[2] == whole[2]
        assert f"changed torch's dtype, gradients, random state, {linear} while" in told
    else:  # the generator begins anywhere, and what was done to it nobody can tell
        assert "changed torch's dtype, gradients while" in told
        assert f"exchanged {linear} while it was loaded, which can't be undone" in told


def test_thread_that_a_plugin_starts_is_told(tmp_path: Path) -> None:
    distribution = install(tmp_path, "starts_thread")
    (told,) = records(tmp_path)[distribution]["changed"]
    assert "started threads (parrot-watch) while it was loaded, which can't be undone" in told


def test_settings_are_left_alone_while_other_threads_may_change_them(tmp_path: Path) -> None:
    install(tmp_path, "raises_half_done")
    code = """
import os, threading
from antiphon.plugins import get_host
done = threading.Event()
other = threading.Thread(target=done.wait)
other.start()
records = get_host(quiet=True).records
done.set()
other.join()
print(os.environ.get("PARROT_HOME"), [s for r in records for s in r.changed])
"""
    assert run(["-c", code], tmp_path).stdout == "/parrot []\n"


def test_what_a_command_hook_prints_or_changes_is_kept_from_the_program(tmp_path: Path) -> None:
    install(tmp_path, "command_chatters")
    done = antiphon("plugins", "doctor", "--json", site=tmp_path)
    told = json.loads(done.stdout)
    assert any("changed the state of random" in fault for fault in told["faults"])
    assert "squawk!" in done.stderr
    # Other commands ask the hook too, for the names of commands.
    helped = antiphon("--help", site=tmp_path)
    assert "squawk!" not in helped.stdout
    assert "Say it loudly." in helped.stdout


@pytest.mark.parametrize(
    ("module", "ending", "limit"),
    [
        ("ends_process", "ends the process (exit code 5)", 600),
        ("hook_ends_process", "ends the process (exit code 0)", 600),
        ("command_ends_process", "ends the process (exit code 3)", 600),
        ("crashes", "crashes the process (SIGSEGV)", 600),
        # The one beside it must be loaded by then on a busy machine too.
        ("hangs_at_import", "does not come to an end within 10 seconds", 10),
    ],
)
def test_doctor_lives_to_name_a_plugin_that_ends_the_process(
    tmp_path: Path, module: str, ending: str, limit: int
) -> None:
    if sys.platform == "win32" and module == "crashes":
        pytest.skip("this platform has no signals for it")
    distribution = install(tmp_path, module)
    install(tmp_path, "listens")
    only = f"{module}, listens"
    asked = ["plugins", "doctor", "--limit", str(limit)]
    done = antiphon(*asked, site=tmp_path, ANTIPHON_PLUGINS=only)
    assert done.returncode == 1, done.stderr
    who = f"Plugin '{module}' of {distribution} 1.0"
    assert f"FAIL {who} {ending} when it is loaded: leave it out with" in done.stdout
    assert "ok   listens (stranger-listens 1.0): loaded" in done.stdout
    assert "1 thing to put right" in done.stdout


def test_plugin_that_is_long_in_loading_is_named_on_standard_error(tmp_path: Path) -> None:
    install(tmp_path, "hangs_at_import")
    code = """
from antiphon.plugins import containment, get_host
containment.PATIENCE = 0.2
get_host()
"""
    hangs = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path, ANTIPHON_PLUGINS="hangs_at_import"),
    )
    guard = threading.Timer(600, hangs.kill)
    guard.start()
    with hangs:
        assert hangs.stderr is not None
        told = hangs.stderr.readline()
        hangs.kill()
    guard.cancel()
    assert "Plugin 'hangs_at_import' of stranger-hangs-at-import 1.0 is still being loaded" in told
