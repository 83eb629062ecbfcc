"""ChatML, the one dialect that core itself brings.

Registered as any plugin's dialect is, so that the same rules hold for it. What the official
template does not print (tool calls, tool lists, reasoning) this one does not print either.
"""

from __future__ import annotations

from antiphon.families import ModelFamily
from antiphon.plugins.hookspecs import hookimpl

CHATML = ModelFamily(
    name="chatml",
    line="chatml",
    template="antiphon:templates/chatml.jinja",
    digests=("fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e",),
    name_patterns=(r"\bchatml\b", r"\bhermes-[23]\b"),
    end_tokens=("<|im_end|>",),
)


@hookimpl
def antiphon_register_families() -> list[ModelFamily]:
    """Register ChatML."""
    return [CHATML]
