"""What this distribution registers."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.families import BackendSpec
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_backends() -> Iterable[BackendSpec]:
    """Register the vLLM backends."""
    return [
        BackendSpec(
            name="vllm",
            factory="antiphon_vllm.backend:VLLMBackend",
            summary="Generates and scores with vLLM's engine in this process, on CPU or GPU.",
            requires=("vllm",),
        ),
        BackendSpec(
            name="vllm-async",
            factory="antiphon_vllm.async_engine:AsyncVLLMBackend",
            summary="Generates and scores with vLLM's engine in processes of its own, many calls at once.",
            requires=("vllm",),
        ),
        BackendSpec(
            name="vllm-server",
            factory="antiphon_vllm.server:VLLMServerBackend",
            summary="Generates and scores with a running vLLM server; the model is its address.",
            requires=("httpx",),
        ),
    ]
