"""How ChatML is read back, apart from its descriptor so that listing families loads no reader."""

from __future__ import annotations

from antiphon.reading.grammar import CHATML_ROLES, Grammar, RoleForm, Slot

# ChatML prints any role as it is named; what no other form fits is read by this one.
_ANY = RoleForm("", ("<|im_start|>", Slot("role"), "\n"), "<|im_end|>\n")

CHATML = Grammar(
    name="chatml",
    roles=(*CHATML_ROLES, _ANY),
    end_tokens=("<|im_end|>",),
)
