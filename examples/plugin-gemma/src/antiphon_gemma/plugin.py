"""What this distribution registers."""

from __future__ import annotations

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl

TRIMMED = "The system text is not trimmed, and read back as the user's beginning, which is."

FAMILY = ModelFamily(
    name="gemma3",
    line="gemma",
    template="antiphon_gemma:templates/gemma3.jinja",
    grammar="antiphon_gemma.grammar:GEMMA3",
    digests=("7de1c58e208eda46e9c7f86397df37ec49883aeece39fb961e0a6b24088dd3c4",),
    model_ids=tuple(f"google/gemma-3-{size}-it" for size in ("1b", "4b", "12b", "27b")),
    required_tokens=("<start_of_turn>", "<end_of_turn>", "<start_of_image>"),
    name_patterns=(r"^gemma-3-(270m|\d+b)-it\b",),
    end_tokens=("<end_of_turn>",),
    notes=("The system text stands before the first user's and is read back as its beginning.",),
    known_failures=tuple(
        (f"{check}/{case}", TRIMMED)
        for check in ("parse", "render_again")
        for case in ("whitespace-edges", "empty-contents")
    ),
)


@hookimpl
def antiphon_register_families() -> list[ModelFamily]:
    """Register Gemma 3."""
    return [FAMILY]
