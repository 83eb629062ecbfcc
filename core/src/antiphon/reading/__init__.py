"""Reading text and ids back into messages: grammars, the reader, the stream."""

from __future__ import annotations

from antiphon.reading.grammar import (
    CHATML_ROLES,
    CallForm,
    ContentForm,
    Grammar,
    ParamForm,
    ReasoningForm,
    RoleForm,
    Slot,
    ToolsForm,
    chatml_role,
)

__all__ = [
    "CHATML_ROLES",
    "CallForm",
    "ContentForm",
    "Grammar",
    "ParamForm",
    "ReasoningForm",
    "RoleForm",
    "Slot",
    "ToolsForm",
    "chatml_role",
]
