"""The dialects keep the contract of the conformance kit; what is known to be wrong is named."""

from __future__ import annotations

from antiphon.testing import FamilyContract

GROWN = "Behind a prompt with earlier turns an answer is read as what follows the turn."

KNOWN_LLAMA2 = {
    **{f"responses/{case}": GROWN for case in ("three-turns", "think-inline-two-turns")},
    "codellama: responses/tool-call-none-content": "Content None is printed as that word.",
}


class TestLlama2(FamilyContract, expected_failures=KNOWN_LLAMA2):
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
