"""ChatML keeps the contract of the conformance kit."""

from __future__ import annotations

from antiphon.testing import FamilyContract

UNSAID = "The inferred grammar takes the generation prompt for the end of the last message."

KNOWN_CHAT_ML = {f"chatml-bos: {check}": UNSAID for check in ("parse", "render_again")}


class TestChatML(FamilyContract, expected_failures=KNOWN_CHAT_ML):
    names = ("chatml", "chatml-bos")
    system = tool_results = True
