"""ChatML keeps the contract of the conformance kit."""

from __future__ import annotations

from antiphon.testing import FamilyContract


class TestChatML(FamilyContract):
    names = ("chatml", "chatml-bos")
    system = tool_results = True
