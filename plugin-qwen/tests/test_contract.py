"""The dialects keep the contract of the conformance kit."""

from __future__ import annotations

from antiphon.testing import FamilyContract


class TestChat(FamilyContract):
    names = ("qwen1.5", "qwen2", "qwen2-base")
    system = tool_results = True


class TestSeeing(FamilyContract):
    names = ("qvq", "qwen2.5-vl")
    system = tool_results = parts = True


class TestCalling(FamilyContract):
    names = (
        *("qwen2.5", "qwen2.5-base", "qwen2.5-math", "qwq", "qwq-preview"),
        *("qwen3-instruct-2507", "qwen3-coder", "qwen3-coder-next"),
    )
    system = tools = calls = parallel_calls = tool_results = True


class TestThinking(FamilyContract):
    names = ("qwen3", "qwen3-first", "qwen3-thinking-2507")
    system = tools = calls = parallel_calls = tool_results = reasoning = True


class TestCallingAndSeeing(FamilyContract):
    names = ("qwen3-vl",)
    system = tools = calls = parallel_calls = tool_results = parts = True


class TestThinkingAndSeeing(FamilyContract):
    names = ("qwen3-vl-thinking", "qwen3.5", "qwen3.5-nothink", "qwen3.6")
    system = tools = calls = parallel_calls = tool_results = reasoning = parts = True
