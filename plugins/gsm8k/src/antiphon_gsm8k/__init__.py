"""GSM8K: grade-school word problems, with a reward that reads answers as models write them."""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "GSM8KEnv": "antiphon_gsm8k.env",
    "GSM8KReward": "antiphon_gsm8k.reward",
    "GSM8KTask": "antiphon_gsm8k.reward",
    "SYSTEM_PROMPT": "antiphon_gsm8k.reward",
}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'antiphon_gsm8k' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
