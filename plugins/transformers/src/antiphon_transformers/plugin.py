"""What this distribution registers."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.families import BackendSpec
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_backends() -> Iterable[BackendSpec]:
    """Register the transformers backend."""
    return [
        BackendSpec(
            name="transformers",
            factory="antiphon_transformers.backend:TransformersBackend",
            summary="Generates and scores with transformers models, on CPU or GPU.",
            requires=("transformers",),
        )
    ]
