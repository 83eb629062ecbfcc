"""The dialects keep the contract of the conformance kit; what is known to be wrong is named."""

from __future__ import annotations

from antiphon.testing import FamilyContract

NO_HEADER = "An assistant message that comes first has no header."
NO_PROMPT = "Behind tool results the template asks for no answer in the way it prints one."
CLOSED = "The prompt ends with the reasoning closed, and the turn is printed with the closer again."
BARE = "A call that is closed by nothing is read from ids as an empty answer."


def each(reason: str, check: str, *cases: str) -> dict[str, str]:
    return {f"{check}/{case}": reason for case in cases}


class TestUserAssistant(FamilyContract):
    names = ("deepseek-v2", "deepseek-v2-0628")
    system = True


RESULTS = (
    *("deepseek-coder", "deepseek-prover", "deepseek-coder-v2-0724", "deepseek-v2.5"),
    *("deepseek-v3", "deepseek-r1-distill", "deepseek-r1-distill-first"),
)
KNOWN_RESULTS = {
    "deepseek-coder-v2-0724: parse/empty-contents": "An empty system message is lost.",
    "deepseek-coder-v2-0724: render_again/empty-contents": "An empty system message is lost.",
    **{f"{name}: render_again/tool-call-none-content": BARE for name in RESULTS[2:]},
}


class TestResults(FamilyContract, expected_failures=KNOWN_RESULTS):
    names = RESULTS
    system = tool_results = True


KNOWN_CALLING = {
    **{
        f"{name}: {check}/assistant-first": NO_HEADER
        for name in ("deepseek-r1-0528", "deepseek-r1-0528-distill")
        for check in ("turns", "tokens", "samples", "parse")
    },
    "deepseek-v3.1: parse/assistant-first": NO_HEADER,
}


class TestCalling(FamilyContract, expected_failures=KNOWN_CALLING):
    names = (
        *("deepseek-r1", "deepseek-r1-first", "deepseek-r1-0528", "deepseek-r1-0528-distill"),
        "deepseek-v3.1",
    )
    system = calls = parallel_calls = tool_results = True


KNOWN_ANNOUNCING = {
    f"deepseek-v3.2: {key}": reason
    for key, reason in {
        **each(CLOSED, "generation_tags", "empty-contents", "tool-round-prompt", "tool-call"),
        **each(CLOSED, "generation_tags", "tool-call-nested-args", "tool-call-no-args"),
        **each(CLOSED, "generation_tags", "tool-call-none-content", "tool-call-string-args"),
        **{
            f"{check}/{case}": NO_PROMPT
            for check in ("turns", "tokens", "samples")
            for case in (
                "tool-parallel",
                "tool-round",
                "tool-round-reasoning",
                "tool-two-rounds",
            )
        },
        "parse/assistant-first": NO_HEADER,
        "render_again/tool-round-prompt": NO_PROMPT,
    }.items()
}


class TestAnnouncing(FamilyContract, expected_failures=KNOWN_ANNOUNCING):
    names = ("deepseek-v3.2", "deepseek-v4")
    system = tools = calls = parallel_calls = tool_results = True
