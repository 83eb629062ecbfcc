"""The dialects keep the contract of the conformance kit; what the official templates get wrong is named."""

from __future__ import annotations

from antiphon.testing import FamilyContract

ENDLESS = "The template prints no end token behind an answer."
EMPTY = "An empty answer leaves a space that is neither the header's nor the turn's for sure."
CALLS = "A call takes the place of the whole turn, header and end token."
STRINGS = "Arguments that are strings are printed as strings."
ARGLESS = ("tool-call", "tool-call-nested-args", "tool-call-string-args", "tool-call-no-args")
CALLING = (
    *(*ARGLESS, "tool-call-none-content", "tool-parallel", "tool-round", "tool-round-prompt"),
    *("tool-round-reasoning", "tool-two-rounds"),
)

KNOWN_FALCON = {
    "closing": ENDLESS,
    "generation_tags/empty-contents": EMPTY,
    **{f"generation_tags/{case}": EMPTY for case in ARGLESS},
}


class TestFalcon(FamilyContract, expected_failures=KNOWN_FALCON):
    names = ("falcon",)
    system = True


KNOWN_FALCON2 = {
    "closing": ENDLESS,
    **{f"tokens/{case}": EMPTY for case in (*ARGLESS, "tool-round-prompt")},
}


class TestFalcon2(FamilyContract, expected_failures=KNOWN_FALCON2):
    names = ("falcon-11b",)
    system = True


KNOWN_FALCON3 = {
    "arguments": STRINGS,
    **{f"{check}/{case}": CALLS for check in ("turns", "tokens", "samples") for case in CALLING},
}


class TestFalcon3(FamilyContract, expected_failures=KNOWN_FALCON3):
    names = ("falcon3",)
    system = tools = calls = parallel_calls = tool_results = True


class TestFalconH1(FamilyContract):
    names = ("falcon-h1",)
    system = tools = tool_results = True


class TestFalconMamba(FamilyContract):
    names = ("falcon-mamba",)
    system = tool_results = True
