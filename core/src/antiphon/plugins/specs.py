"""Descriptors of the smaller things that plugins bring: transforms and rewards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from antiphon.families import load_object


@dataclass(frozen=True)
class TransformSpec:
    """A transform: ``factory`` is ``"module:attribute"`` of a callable that builds it."""

    name: str
    factory: str
    summary: str = ""
    requires: tuple[str, ...] = ()

    def load(self) -> Callable[..., Any]:
        """Return the factory."""
        return cast("Callable[..., Any]", load_object(self.factory))


@dataclass(frozen=True)
class RewardSpec:
    """A reward: ``factory`` is ``"module:attribute"`` of a callable that scores an answer."""

    name: str
    factory: str
    summary: str = ""
    requires: tuple[str, ...] = ()

    def load(self) -> Callable[..., Any]:
        """Return the factory."""
        return cast("Callable[..., Any]", load_object(self.factory))
