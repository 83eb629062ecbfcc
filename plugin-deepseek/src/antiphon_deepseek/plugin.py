"""The entry point of the distribution: it registers the DeepSeek dialects."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl

from antiphon_deepseek.families import FAMILIES


@hookimpl
def antiphon_register_families() -> Iterable[ModelFamily]:
    """Register every DeepSeek dialect."""
    return FAMILIES
