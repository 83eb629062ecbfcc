"""What this distribution registers."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.families import EnvSpec
from antiphon.plugins import RewardSpec, hookimpl


@hookimpl
def antiphon_register_envs() -> Iterable[EnvSpec]:
    """Register the environment."""
    return [
        EnvSpec(
            name="gsm8k",
            factory="antiphon_gsm8k.env:GSM8KEnv",
            summary="Grade-school word problems with a numeric answer.",
        )
    ]


@hookimpl
def antiphon_register_rewards() -> Iterable[RewardSpec]:
    """Register the reward."""
    return [
        RewardSpec(
            name="gsm8k",
            factory="antiphon_gsm8k.reward:GSM8KReward",
            summary="1.0 for a right number, 0.1 for a marked wrong one, else 0.",
        )
    ]
