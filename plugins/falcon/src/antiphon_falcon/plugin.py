"""The plugin: registers the Falcon dialects."""

from __future__ import annotations

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families() -> list[ModelFamily]:
    """Register the dialects of Falcon 7B, 11B, 3, H1 and Mamba."""
    from antiphon_falcon.families import FAMILIES

    return list(FAMILIES)
