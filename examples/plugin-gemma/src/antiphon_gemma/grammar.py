"""How renderings of Gemma 3 are read back. The system text is the beginning of the user's."""

from __future__ import annotations

from antiphon.reading import Grammar, RoleForm

GEMMA3 = Grammar(
    name="gemma3",
    bos="<bos>",
    roles=(
        RoleForm("user", "<start_of_turn>user\n", "<end_of_turn>\n"),
        RoleForm("assistant", "<start_of_turn>model\n", "<end_of_turn>\n"),
    ),
    end_tokens=("<end_of_turn>",),
)
