"""How DialoGPT is read back: users and assistants in turns, told apart by the order alone."""

from __future__ import annotations

from antiphon.reading import Grammar, RoleForm

DIALOGPT = Grammar(
    name="dialogpt",
    roles=(
        RoleForm("user", "", "<|endoftext|>", after=("", "assistant")),
        RoleForm("assistant", "", "<|endoftext|>", after=("user",)),
    ),
    end_tokens=("<|endoftext|>",),
    notes=("Who spoke is not in the text: the first message is read as a user's.",),
)
