"""Fixtures: engines started once and shared; without the engine, all but its own tests are left out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from antiphon_vllm import _compat
from packaging.version import Version

if _compat.installed() is None:
    # What is left tests what importing costs, and what is said where the engine is missing.
    collect_ignore = [
        path.name
        for path in Path(__file__).parent.glob("test_*.py")
        if path.name != "test_plugin.py"
    ]
    print("antiphon-vllm: vLLM is not installed, so the tests that need an engine are left out.")
else:
    _compat.engine()


def pytest_collection_modifyitems(items):
    """Run what needs experts first, and let be what the engine warns of inside itself."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for module in ("vllm", "torch", "transformers", "importlib", "xgrammar"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore:::{module}"))
    # In one process the engine can't start a mixture of experts after a dense model.
    items.sort(key=lambda item: "deepseek" not in item.nodeid and "experts" not in item.nodeid)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer():
    from tiny_tokenizer import byte_tokenizer

    return byte_tokenizer()


@pytest.fixture(scope="session")
def engine_of(tokenizer):
    """Start an engine for a tiny model, once per model; returns the backend and the trainer's model."""
    from antiphon_vllm.backend import VLLMBackend
    from tiny_models import build

    made = {}

    def get(name, **options):
        key = (name, *sorted(options.items()))
        if key not in made:
            model = build(name, **options)
            if name == "deepseek_v3" and Version(_compat.installed()[1]) < Version("0.32"):
                pytest.skip("before 0.32 the engine's build for processors has no such attention")
            backend = VLLMBackend(model, tokenizer=tokenizer, kv_cache_memory_bytes=1 << 26)
            made[key] = backend, model
        return made[key]

    yield get
    for backend, _ in made.values():
        backend.close()
