"""The plugin host as an object: order, switches, records, processes and threads."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest
from antiphon.errors import PluginConflict, PluginError
from antiphon.families import BackendSpec, ModelFamily
from antiphon.plugins import PluginHost, PluginRecord, get_host, hookimpl
from antiphon.plugins.discovery import PluginSource, core_range_of, installed_plugins
from packaging.specifiers import SpecifierSet


def family(name: str) -> ModelFamily:
    return ModelFamily(name, name, "nowhere:template.jinja")


def source(
    name: str, distribution: str, *families: ModelFamily, requires: str = "", version: str = "1.0"
) -> PluginSource:
    def load() -> object:
        module = types.ModuleType(name)

        @hookimpl
        def antiphon_register_families() -> list[ModelFamily]:
            return list(families)

        module.antiphon_register_families = antiphon_register_families  # type: ignore[attr-defined]
        return module

    return PluginSource(name, distribution, version, "a.module", load, SpecifierSet(requires))


def host(*sources: PluginSource, **environ: str) -> PluginHost:
    return PluginHost(sources, environ)


def test_registered_families_are_found_and_sorted() -> None:
    built = host(source("b", "dist-b", family("zebra")), source("a", "dist-a", family("ant")))
    assert [each.name for each in built.all("family", ModelFamily)] == [
        "ant",
        "chatml",
        "chatml-bos",
        "zebra",
    ]
    assert built.get("family", "ant") == family("ant")
    assert built.get("family", "nobody") is None
    assert built.get("backend", "ant") is None
    record = built.owner("family", "zebra")
    assert record is not None
    assert (record.distribution, record.provides) == ("dist-b", ("family:zebra",))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import a_module_that_nobody_has", "No module named 'a_module_that_nobody_has'"),
        ("", "has no attribute 'Backend'"),
    ],
)
def test_heavy_part_that_fails_when_it_is_loaded_is_told_by_its_name(
    source: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"heavy_{abs(hash(source))}"
    (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError) as raised:
        BackendSpec("heavy", f"{name}:Backend").load()
    assert f"'{name}:Backend' could not be loaded: " in str(raised.value)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    "path", ["antiphon:no/such.jinja", "no_such_package:a.jinja", "json.jinja"]
)
def test_template_that_is_not_there_is_told_by_its_name(path: str) -> None:
    with pytest.raises(PluginError, match=f"'{path}' can't be read"):
        ModelFamily("bird", "bird", path).load_template()


def test_records_are_frozen_and_cross_processes() -> None:
    record = host(source("a", "dist-a", family("ant"))).records[-1]
    assert pickle.loads(pickle.dumps(record)) == record
    with pytest.raises(AttributeError):
        record.status = "failed"  # type: ignore[misc]
    assert isinstance(record, PluginRecord)
    assert record.ok


def test_installed_plugins_come_in_the_order_of_their_names() -> None:
    names = [(each.name, each.distribution) for each in installed_plugins()]
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        (["antiphon>=0.1,<0.2", "torch"], "<0.2,>=0.1"),
        (["Antiphon ~= 0.3"], "~=0.3"),
        (["antiphon[data]>=0.1"], ">=0.1"),
        (["antiphon-qwen>=7", "antiphonal"], ""),
        (["antiphon>=7; extra == 'future'"], ""),
        (["antiphon>=7; sys_platform == 'nowhere'", "antiphon<8"], "<8"),
        ([], ""),
    ],
)
def test_core_range_is_read_from_requirements(requirements: list[str], expected: str) -> None:
    assert str(core_range_of(requirements)) == str(SpecifierSet(expected))


def test_incompatible_plugin_is_not_loaded() -> None:
    def load() -> object:
        raise AssertionError("loaded")

    needy = PluginSource("a", "dist-a", "2.0", "a", load, SpecifierSet(">=9"))
    record = PluginHost([needy], {}).records[-1]
    assert record.status == "incompatible"
    assert record.requires_core == ">=9"


def test_strict_host_raises_with_the_cause() -> None:
    def load() -> object:
        raise ZeroDivisionError("boom")

    broken = PluginSource("a", "dist-a", "1.0", "a", load)
    with pytest.raises(PluginError, match=r"dist-a 1\.0 failed to import") as caught:
        PluginHost([broken], {"ANTIPHON_STRICT_PLUGINS": "1"})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert PluginHost([broken], {"ANTIPHON_STRICT_PLUGINS": "0"}).records[-1].status == "failed"


def test_contested_name_raises_and_other_names_of_both_work() -> None:
    built = host(
        source("a", "dist-a", family("same"), family("own-a")),
        source("b", "dist-b", family("same"), family("own-b")),
    )
    with pytest.raises(PluginConflict, match=r"'same' is claimed by dist-a .* and dist-b"):
        built.get("family", "same")
    names = {each.name for each in built.all("family", ModelFamily)}
    assert names >= {"chatml", "own-a", "own-b"}
    assert "same" not in names
    assert [each.name for each in built.contested("family", ModelFamily)] == ["same", "same"]
    assert [record.status for record in built.records] == ["loaded", "conflict", "conflict"]


def test_one_name_for_two_kinds_is_no_conflict() -> None:
    def load() -> object:
        module = types.ModuleType("b")

        @hookimpl
        def antiphon_register_backends() -> list[BackendSpec]:
            return [BackendSpec("same", "json:loads")]

        module.antiphon_register_backends = antiphon_register_backends  # type: ignore[attr-defined]
        return module

    backend = PluginSource("b", "dist-b", "1.0", "b", load)
    built = host(source("a", "dist-a", family("same")), backend)
    assert built.get("family", "same") is not None
    assert built.get("backend", "same") == BackendSpec("same", "json:loads")


def test_fingerprint_tells_names_and_versions_and_not_order() -> None:
    first, second = source("a", "dist-a", family("ant")), source("b", "dist-b", family("bee"))
    assert host(first, second).fingerprint() == host(second, first).fingerprint()
    newer = source("b", "dist-b", family("bee"), version="1.1")
    assert host(first, second).fingerprint() != host(first, newer).fingerprint()
    assert host(first, second).fingerprint() != host(first).fingerprint()
    disabled = host(first, second, ANTIPHON_DISABLE_PLUGINS="b")
    assert disabled.fingerprint() == host(first).fingerprint()


def test_processes_with_other_plugins_are_told_apart() -> None:
    driver = host(source("a", "dist-a", family("ant")))
    worker = host(source("a", "dist-a", family("ant"), version="2.0"))
    driver.check_same(host(source("a", "dist-a", family("ant"))).inventory())
    with pytest.raises(PluginError, match=r"a: dist-a 2\.0 here, dist-a 1\.0 there"):
        worker.check_same(driver.inventory())


def test_hook_of_another_core_may_be_marked_optional() -> None:
    module = types.ModuleType("later")

    @hookimpl(optional=True)
    def antiphon_register_weather() -> list[str]:
        return []

    @hookimpl
    def antiphon_register_families() -> list[ModelFamily]:
        return [family("ant")]

    module.antiphon_register_weather = antiphon_register_weather  # type: ignore[attr-defined]
    module.antiphon_register_families = antiphon_register_families  # type: ignore[attr-defined]
    built = PluginHost([PluginSource("later", "dist", "1", "later", lambda: module)], {})
    assert built.records[-1].status == "loaded"


def test_host_is_built_once_by_many_threads() -> None:
    code = """
import threading
from antiphon.plugins import host as module
built = []
original = module.PluginHost.__init__
def counting(self, *args, **kwargs):
    built.append(1)
    original(self, *args, **kwargs)
module.PluginHost.__init__ = counting
hosts = []
barrier = threading.Barrier(16)
def ask():
    barrier.wait()
    hosts.append(module.get_host())
threads = [threading.Thread(target=ask) for _ in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(built) == 1 and len({id(host) for host in hosts}) == 1 and len(hosts) == 16
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_process_that_starts_anew_has_the_same_plugins() -> None:
    code = "from antiphon.plugins import get_host; print(get_host().fingerprint())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.strip() == get_host().fingerprint()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_forked_process_has_the_same_plugins() -> None:
    code = """
import os
from antiphon.plugins import get_host
mine = get_host().fingerprint()
child = os.fork()
if child == 0:
    os._exit(7 if get_host().fingerprint() == mine else 8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_child_forked_while_the_lock_is_held_is_not_stuck() -> None:
    code = """
import os, threading
from antiphon.plugins import host
held, done = threading.Event(), threading.Event()
def hold():
    with host._process.lock:
        held.set()
        done.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    host.get_host()
    os._exit(7)
status = os.waitpid(child, 0)[1]
done.set()
thread.join()
assert os.waitstatus_to_exitcode(status) == 7
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=600)


def test_threads_read_one_host() -> None:
    seen: list[PluginHost] = []
    threads = [threading.Thread(target=lambda: seen.append(get_host())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(each) for each in seen} == {id(get_host())}
