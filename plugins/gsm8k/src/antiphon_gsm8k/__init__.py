"""GSM8K: grade-school word problems, with a reward that reads answers as models write them."""

from __future__ import annotations

from antiphon.lazy import lazy_exports

_EXPORTS = {
    "GSM8KEnv": "antiphon_gsm8k.env",
    "GSM8KReward": "antiphon_gsm8k.reward",
    "GSM8KTask": "antiphon_gsm8k.reward",
    "SYSTEM_PROMPT": "antiphon_gsm8k.reward",
}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
