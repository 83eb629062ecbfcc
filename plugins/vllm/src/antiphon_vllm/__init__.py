"""Generation and scoring with vLLM.

``vLLMWrapper`` is the constructor that users of TorchRL know; ``VLLMBackend`` is what it drives.
``AsyncVLLMBackend`` answers many calls at once, ``VLLMServerBackend`` asks a running server.
"""

from __future__ import annotations

from antiphon.lazy import lazy_exports

_EXPORTS = {
    "AsyncVLLMBackend": "antiphon_vllm.async_engine",
    "VLLMServerBackend": "antiphon_vllm.server",
    "VLLMBackend": "antiphon_vllm.backend",
    "vLLMWrapper": "antiphon_vllm.constructor",
}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
