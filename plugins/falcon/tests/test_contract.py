"""The dialects keep the contract of the conformance kit."""

from __future__ import annotations

from antiphon.testing import FamilyContract


class TestFalcon(FamilyContract):
    names = ("falcon", "falcon-11b")
    system = True


class TestFalcon3(FamilyContract):
    names = ("falcon3",)
    system = tools = calls = parallel_calls = tool_results = True


class TestFalconH1(FamilyContract):
    names = ("falcon-h1",)
    system = tools = tool_results = True


class TestFalconMamba(FamilyContract):
    names = ("falcon-mamba",)
    system = tool_results = True
