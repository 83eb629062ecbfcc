"""Descriptors of the smaller things that plugins bring: transforms and rewards."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.families import FactorySpec


@dataclass(frozen=True)
class TransformSpec(FactorySpec):
    """A transform: ``factory`` names a callable that builds it."""


@dataclass(frozen=True)
class RewardSpec(FactorySpec):
    """A reward: ``factory`` names a callable that scores an answer."""
