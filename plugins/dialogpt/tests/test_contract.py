"""The dialect keeps the contract of the conformance kit."""

from __future__ import annotations

from antiphon.testing import FamilyContract

NO_ROLES = "There are no roles in the text: the first message is read as the user's."

KNOWN_DIALO_GPT = {f"{check}/assistant-first": NO_ROLES for check in ("turns", "tokens", "samples")}


class TestDialoGPT(FamilyContract, expected_failures=KNOWN_DIALO_GPT):
    names = ("dialogpt",)
    system = tool_results = True
