"""The plugin: registers the Llama dialects."""

from __future__ import annotations

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families() -> list[ModelFamily]:
    """Register the dialects of Llama 2, Code Llama, Llama 3, 3.1 (and 3.3), 3.2 and 4."""
    from antiphon_llama.families import FAMILIES

    return list(FAMILIES)
