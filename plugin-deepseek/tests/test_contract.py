"""The dialects keep the contract of the conformance kit."""

from __future__ import annotations

from antiphon.testing import FamilyContract


class TestUserAssistant(FamilyContract):
    names = ("deepseek-v2", "deepseek-v2-0628")
    system = True


class TestResults(FamilyContract):
    names = (
        *("deepseek-coder", "deepseek-prover", "deepseek-coder-v2-0724", "deepseek-v2.5"),
        *("deepseek-v3", "deepseek-r1-distill", "deepseek-r1-distill-first"),
    )
    system = tool_results = True


class TestCalling(FamilyContract):
    names = (
        *("deepseek-r1", "deepseek-r1-first", "deepseek-r1-0528", "deepseek-r1-0528-distill"),
        "deepseek-v3.1",
    )
    system = calls = parallel_calls = tool_results = True


class TestAnnouncing(FamilyContract):
    names = ("deepseek-v3.2", "deepseek-v4", "deepseek-v3.2-encoder", "deepseek-v4-encoder")
    system = tools = calls = parallel_calls = tool_results = True
