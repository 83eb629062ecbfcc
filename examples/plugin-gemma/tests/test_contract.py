"""Gemma 3 keeps the contract of the conformance kit; what its template can't tell apart is named."""

from __future__ import annotations

from antiphon.testing import FamilyContract

TRIMMED = "The system text is not trimmed, and read back as the user's beginning, which is."
KNOWN = {
    f"{check}/{case}": TRIMMED
    for check in ("parse", "render_again")
    for case in ("whitespace-edges", "empty-contents")
}


class TestGemma3(FamilyContract, expected_failures=KNOWN):
    names = ("gemma3",)
    system = parts = True
