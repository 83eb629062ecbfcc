"""vLLM hands the families' templates contents in the form in which it hands them to the official ones."""

from __future__ import annotations

import pytest
from antiphon.families import ModelFamily
from antiphon.registry import families

hf = pytest.importorskip("vllm.renderers.hf", reason="this vLLM looks at templates elsewhere")

# Dialects whose official template is known to take parts: there vLLM leaves images where they stand.
PARTS = {
    "llama4",
    "qvq",
    "qwen2.5-vl",
    "qwen3-vl",
    "qwen3-vl-thinking",
    "qwen3.5",
    "qwen3.5-nothink",
    "qwen3.6",
}


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_parts_are_handed_to_templates_that_take_them(family: ModelFamily) -> None:
    found = hf._detect_content_format(family.load_template(), default="string")
    assert found == ("openai" if family.name in PARTS else "string")
