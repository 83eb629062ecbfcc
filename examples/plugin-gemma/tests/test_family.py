"""Gemma 3 keeps the contract of the conformance kit."""

from __future__ import annotations

from antiphon.testing import FamilyContract


class TestGemma3(FamilyContract):
    names = ("gemma3",)
    system = parts = True
