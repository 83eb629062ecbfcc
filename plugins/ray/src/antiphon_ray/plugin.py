"""What this distribution registers."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.families import BackendSpec
from antiphon.plugins import TransformSpec, hookimpl


@hookimpl
def antiphon_register_backends() -> Iterable[BackendSpec]:
    """Register the backend whose model lives in Ray actors."""
    return [
        BackendSpec(
            name="ray",
            factory="antiphon_ray.backend:RayBackend",
            summary="Another backend's model in Ray actors, on any machine of the cluster.",
            requires=("ray",),
        )
    ]


@hookimpl
def antiphon_register_transforms() -> Iterable[TransformSpec]:
    """Register the primer that shares its rows."""
    return [
        TransformSpec(
            name="ray_data",
            factory="antiphon_ray.data:RayDataLoadingPrimer",
            summary="Rows of one data set, shared by many workers, each handed out once.",
        )
    ]
