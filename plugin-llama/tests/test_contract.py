"""The dialects keep the contract of the conformance kit."""

from __future__ import annotations

from antiphon.testing import FamilyContract


class TestLlama2(FamilyContract):
    names = ("llama2", "codellama")
    system = True


class TestLlama3(FamilyContract):
    names = ("llama3",)
    system = tool_results = True


class TestCalling(FamilyContract):
    names = ("llama3.1", "llama3.2")
    system = tools = calls = tool_results = True


class TestLlama4(FamilyContract):
    names = ("llama4",)
    system = tools = calls = parallel_calls = tool_results = parts = True
