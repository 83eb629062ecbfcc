"""What this distribution registers."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.families import EnvSpec
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_envs() -> Iterable[EnvSpec]:
    """Register the adapter."""
    return [
        EnvSpec(
            name="torchrl",
            factory="antiphon_torchrl.env:to_torchrl",
            summary="Makes an EnvBase of TorchRL from one of Antiphon's environments.",
            requires=("torchrl",),
        )
    ]
