"""Whole data sets: conversations in files to tokens, masks and message indices, with what became of every row."""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "Conversation": "antiphon.data.conversations",
    "conversation_of": "antiphon.data.conversations",
    "TrainOn": "antiphon.data.training",
    "SampleOptions": "antiphon.data.training",
    "Sample": "antiphon.data.training",
    "SampleBatch": "antiphon.data.training",
    "Note": "antiphon.data.training",
    "make_samples": "antiphon.data.training",
    "PREFERENCE_COLUMNS": "antiphon.data.preferences",
    "Preference": "antiphon.data.preferences",
    "PreferenceBatch": "antiphon.data.preferences",
    "make_preferences": "antiphon.data.preferences",
    "open_rows": "antiphon.data.sources",
    "RowSource": "antiphon.data.sources",
    "TokenizeJob": "antiphon.data.run",
    "tokenize_dataset": "antiphon.data.run",
    "Totals": "antiphon.data.run",
    "PromptGroup": "antiphon.data.groups",
}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'antiphon.data' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)
