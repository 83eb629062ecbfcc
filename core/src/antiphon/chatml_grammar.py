"""How ChatML is read back, apart from its descriptor so that listing families loads no reader."""

from __future__ import annotations

from dataclasses import replace

from antiphon.reading.grammar import CHATML_ROLES, Grammar, RoleForm, Slot

# ChatML prints any role as it is named; what no other form fits is read by this one.
_ANY = RoleForm("", ("<|im_start|>", Slot("role"), "\n"), "<|im_end|>\n")

CHATML = Grammar(
    name="chatml",
    roles=(*CHATML_ROLES, _ANY),
    end_tokens=("<|im_end|>",),
)
# Which token begins the text is the tokenizer's: whatever stands before the first header is nobody's.
CHATML_BOS = replace(
    CHATML,
    name="chatml-bos",
    roles=(
        RoleForm("", (Slot(""), "<|im_start|>", Slot("role"), "\n"), "<|im_end|>\n", after=("",)),
        *CHATML.roles,
    ),
)
