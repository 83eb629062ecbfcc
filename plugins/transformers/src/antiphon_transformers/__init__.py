"""Generation and scoring with transformers.

``TransformersWrapper`` is the constructor that users of TorchRL know; ``TransformersBackend`` is
what it drives.
"""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "TransformersBackend": "antiphon_transformers.backend",
    "TransformersWrapper": "antiphon_transformers.constructor",
    "embedded_folder": "antiphon_transformers.embedded",
    "load_model": "antiphon_transformers.loading",
}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'antiphon_transformers' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
