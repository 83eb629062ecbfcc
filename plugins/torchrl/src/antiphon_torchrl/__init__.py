"""Antiphon's environments as TorchRL's."""

from __future__ import annotations

from antiphon.lazy import lazy_exports

_EXPORTS = {
    "RaggedTransformedEnv": "antiphon_torchrl.transformed",
    "TorchRLEnv": "antiphon_torchrl.env",
    "to_torchrl": "antiphon_torchrl.env",
    "to_torchrl_spec": "antiphon_torchrl.specs",
}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
