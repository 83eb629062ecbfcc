"""ChatML, the one dialect that core itself brings, with and without a token that begins the text.

Registered as any plugin's dialect is, so that the same rules hold for it. What the official
templates do not print (tool calls, tool lists, reasoning) these do not print either.
"""

from __future__ import annotations

from antiphon.families import ModelFamily
from antiphon.plugins.hookspecs import hookimpl

_NOTES = ("Tools, tool calls and reasoning are not printed.",)

CHATML = ModelFamily(
    name="chatml",
    line="chatml",
    template="antiphon:templates/chatml.jinja",
    grammar="antiphon.chatml_grammar:CHATML",
    digests=("fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e",),
    name_patterns=(r"\bchatml\b", r"\bhermes-[23]\b"),
    end_tokens=("<|im_end|>",),
    notes=_NOTES,
)
CHATML_BOS = ModelFamily(
    name="chatml-bos",
    line="chatml",
    template="antiphon:templates/chatml-bos.jinja",
    grammar="antiphon.chatml_grammar:CHATML_BOS",
    digests=("a805e50fed68938a076b07e2e602639611b50b1ced0e50f11eb92f1ba25be4dc",),
    end_tokens=("<|im_end|>",),
    variant_of="chatml",
    notes=_NOTES,
)


@hookimpl
def antiphon_register_families() -> list[ModelFamily]:
    """Register ChatML."""
    return [CHATML, CHATML_BOS]
