"""The dialect keeps the contract of the conformance kit."""

from __future__ import annotations

from antiphon.testing import FamilyContract


class TestDialoGPT(FamilyContract):
    names = ("dialogpt",)
    system = tool_results = True
