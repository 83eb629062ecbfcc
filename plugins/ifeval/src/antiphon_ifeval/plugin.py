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
            name="ifeval",
            factory="antiphon_ifeval.env:IFEvalEnv",
            summary="Prompts with instructions that a program can check.",
        )
    ]


@hookimpl
def antiphon_register_rewards() -> Iterable[RewardSpec]:
    """Register the reward."""
    return [
        RewardSpec(
            name="ifeval",
            factory="antiphon_ifeval.task:IFEvalReward",
            summary="Strict and loose, on prompt and instruction level, weighted.",
        )
    ]
