"""The dialects keep the contract of the conformance kit; what the official templates get wrong is named."""

from __future__ import annotations

from antiphon.testing import FamilyContract

PARTS = "Content in parts is dropped without a word, and then no empty reasoning block is printed."
OPEN = "The last message has no end token unless an answer is asked for."
SPLIT = "White space behind a reasoning block that stood in the content is read as the format's."

KNOWN_CHAT = {
    f"qwen1.5: {check}": OPEN
    for check in ("closing", "generation_tags", "parse", "render_again", "random")
}


class TestChat(FamilyContract, expected_failures=KNOWN_CHAT):
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


KNOWN_THINKING = {
    f"{name}: render_again/content-parts": PARTS for name in ("qwen3", "qwen3-thinking-2507")
}


class TestThinking(FamilyContract, expected_failures=KNOWN_THINKING):
    names = ("qwen3", "qwen3-first", "qwen3-thinking-2507")
    system = tools = calls = parallel_calls = tool_results = reasoning = True


class TestCallingAndSeeing(FamilyContract):
    names = ("qwen3-vl",)
    system = tools = calls = parallel_calls = tool_results = parts = True


KNOWN_THINKING_AND_SEEING = {
    f"{name}: random": SPLIT for name in ("qwen3.5", "qwen3.5-nothink", "qwen3.6")
}


class TestThinkingAndSeeing(FamilyContract, expected_failures=KNOWN_THINKING_AND_SEEING):
    names = ("qwen3-vl-thinking", "qwen3.5", "qwen3.5-nothink", "qwen3.6")
    system = tools = calls = parallel_calls = tool_results = reasoning = parts = True
