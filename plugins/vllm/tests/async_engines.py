"""Engines in processes of their own, started once for all tests that share them."""

from __future__ import annotations

import atexit

from antiphon_transformers.backend import TransformersBackend
from antiphon_vllm.async_engine import AsyncVLLMBackend
from tiny_models import build
from tiny_tokenizer import byte_tokenizer

_running = {}


def engine(name="llama", **options):
    """Return a backend, the trainer's model and a backend that computes with the latter."""
    key = (name, *sorted(options.items()))
    if key not in _running:
        model = build(name, **options)
        model.began_with = {name: value.clone() for name, value in model.state_dict().items()}
        backend = AsyncVLLMBackend(model, tokenizer=byte_tokenizer())
        atexit.register(backend.close)
        _running[key] = backend, model, TransformersBackend(model, tokenizer=byte_tokenizer())
    return _running[key]


def taken(name="llama", **options):
    """Return such a backend for good, for a test that closes it."""
    backend, _, _ = engine(name, **options)
    del _running[(name, *sorted(options.items()))]
    return backend
