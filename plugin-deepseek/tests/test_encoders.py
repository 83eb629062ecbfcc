"""V3.2 and V4 have a Python encoder at their origin; vLLM carries copies of both (Apache 2.0).

What they give for the corpus is recorded as digests (`data/encoded.json`; this file writes it anew
when it is run as a script). Where vLLM is installed, or its folder `vllm/tokenizers` named by
ANTIPHON_DEEPSEEK_ENCODERS, the texts themselves are compared too, on random conversations as well.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from antiphon.registry import get_family
from antiphon.testing import corpus
from antiphon.testing.odd_conversations import Conversation
from antiphon.testing.parity import transformers_text
from antiphon.testing.scenarios import with_arguments

sys.path.insert(0, str(Path(__file__).parent))
import deepseek_oracle as oracle

RECORDED = Path(__file__).parent / "data" / "encoded.json"
ENCODERS = {
    "deepseek-v3.2-encoder": "deepseek_v32_encoding.py",
    "deepseek-v4-encoder": "deepseek_v4_encoding.py",
}
SETTINGS: dict[str, dict[str, bool]] = {
    "thinking off": {"thinking": False},
    "thinking on": {"thinking": True},
    "thinking kept": {"thinking": True, "drop_thinking": False},
}
# The encoders leave system messages in their place; V3.2's answers each question with a header, V4's
# gives an answer that comes first none; both read parts of text.
APART = {"system-in-middle", "consecutive-users", "assistant-first", "content-parts"}


def encode(encoder: Any, messages: list[Any], tools: Any, settings: dict[str, bool]) -> str | None:
    """Return the encoder's text, None where it refuses."""
    given = copy.deepcopy(messages)
    for message in given:
        if "reasoning_content" in message:
            message["reasoning"] = message.pop("reasoning_content")
    if tools:
        if not given or given[0]["role"] != "system":
            given.insert(0, {"role": "system"})
        given[0]["tools"] = tools
    mode = "thinking" if settings["thinking"] else "chat"
    options = {key: value for key, value in settings.items() if key != "thinking"}
    try:
        return str(encoder.encode_messages(given, thinking_mode=mode, **options))
    except Exception:  # whatever it raises, it refuses
        return None


def ours(name: str, messages: list[Any], tools: Any, settings: dict[str, bool]) -> str | None:
    asks = messages[-1]["role"] != "assistant"
    variables = {"bos_token": oracle.BOS, "add_generation_prompt": asks, **settings}
    template = get_family(name).load_template()
    return transformers_text(template, Conversation(messages, tools, variables))


def load(name: str) -> Any:
    """Return the encoder's module, None where it is not at hand."""
    found = importlib.util.find_spec("vllm")
    origin = Path(found.origin).parent / "tokenizers" if found and found.origin else None
    folder = os.environ.get("ANTIPHON_DEEPSEEK_ENCODERS") or origin
    path = Path(folder) / ENCODERS[name] if folder else None
    if path is None or not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cases() -> list[tuple[str, list[Any], Any]]:
    return [(case.id, with_arguments(case.messages, "mapping"), case.tools) for case in corpus()]


@pytest.mark.parametrize("name", ENCODERS)
def test_the_text_of_the_corpus_is_the_recorded_one(name: str) -> None:
    pytest.importorskip("transformers", reason="transformers renders the template")
    recorded = json.loads(RECORDED.read_text("utf-8"))[name]
    equal, apart = 0, set()
    for case, messages, tools in cases():
        for setting, settings in SETTINGS.items():
            text = ours(name, messages, tools, settings)
            wanted = recorded[setting].get(case)
            if wanted is None:
                continue  # the encoder refuses it
            if text is not None and hashlib.sha256(text.encode()).hexdigest() == wanted:
                equal += 1
            else:
                apart.add(case)
    assert apart <= APART, apart
    assert equal > 60


@pytest.mark.parametrize("name", ENCODERS)
def test_the_text_of_random_conversations_is_the_encoder_s(name: str) -> None:
    pytest.importorskip("transformers", reason="transformers renders the template")
    encoder = load(name)
    if encoder is None:
        pytest.skip("vLLM, which carries the encoder, is not installed here")
    recorded = json.loads(RECORDED.read_text("utf-8"))[name]
    assert digests(encoder) == recorded
    random = Random(name)
    compared = 0
    for _ in range(300):
        messages, tools, _ = oracle.sensible_conversation(random, oracle.PLAIN_TEXTS)
        for settings in SETTINGS.values():
            wanted = encode(encoder, messages, tools, settings)
            if wanted is not None:
                assert ours(name, messages, tools, settings) == wanted, (messages, settings)
                compared += 1
    assert compared > 500


def digests(encoder: Any) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for setting, settings in SETTINGS.items():
        texts = {case: encode(encoder, m, tools, settings) for case, m, tools in cases()}
        found[setting] = {
            case: hashlib.sha256(text.encode()).hexdigest()
            for case, text in texts.items()
            if text is not None
        }
    return found


if __name__ == "__main__":
    written = {name: digests(load(name)) for name in ENCODERS}
    RECORDED.write_text(json.dumps(written, indent=1) + "\n", "utf-8")
