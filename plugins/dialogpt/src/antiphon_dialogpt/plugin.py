"""The plugin: registers DialoGPT."""

from __future__ import annotations

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families() -> list[ModelFamily]:
    """Register DialoGPT."""
    from antiphon_dialogpt.families import FAMILIES

    return list(FAMILIES)
