"""Antiphon on Ray: rows that many workers share, models on other machines, collectors in parallel."""

from __future__ import annotations

from antiphon.lazy import lazy_exports

_EXPORTS = {
    "RayBackend": "antiphon_ray.backend",
    "RayCollector": "antiphon_ray.collector",
    "RayDataLoadingPrimer": "antiphon_ray.data",
    "check_nodes": "antiphon_ray.workers",
}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
