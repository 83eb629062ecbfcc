"""Word problems of our own with checkable answers, for demonstrations and tests.

The file has the form of GSM8K: one JSON object a line, ``{"question": ..., "answer": "... ####
N"}``.
"""

from __future__ import annotations

import importlib.resources
from pathlib import Path


def problems_path() -> Path:
    """Return the path of the word problems that ship with the package."""
    return Path(str(importlib.resources.files(__name__).joinpath("problems.jsonl")))
