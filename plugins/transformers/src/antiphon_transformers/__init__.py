"""Generation and scoring with transformers.

``TransformersWrapper`` is the constructor that users of TorchRL know; ``TransformersBackend`` is
what it drives.
"""

from __future__ import annotations

from antiphon.lazy import lazy_exports

_EXPORTS = {
    "TransformersBackend": "antiphon_transformers.backend",
    "TransformersWrapper": "antiphon_transformers.constructor",
    "embedded_folder": "antiphon_transformers.embedded",
    "load_model": "antiphon_transformers.loading",
}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
