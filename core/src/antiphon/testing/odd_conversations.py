"""Random conversations for comparing templates: in order, odd, and broken ones.

One `random.Random` decides everything, so a seed names a conversation. Texts and variables come from
the template itself: what it looks for is what may tell it from another.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

_TEXTS = (
    *("Hello.", "What is basalt?", "", " ", "\n", "\n\n", "\t", "  both ends \n\n", "\n\tindented"),
    *(
        "a\n\n\n\nb",
        "x\r\ny",
        "Größe 数学 🚀 \u200b",
        "\u00a0z\u2003",
        "line\u2028next\u0085",
        "\x00 \x1f",
    ),
    *(
        "{{ x }} {% raw %} {# y #}",
        "{% endgeneration %}",
        "'q' \"d\" \\n & <b>",
        "true",
        "12",
        "None",
    ),
    *(
        "<think>\nwhy\n</think>\n\nso",
        "<think>\n\n</think>\n\n",
        "<think>open",
        "a</think>b</think>\n\nc",
    ),
)
_ROLES = ("system", "user", "assistant", "tool")
_OTHER_ROLES = ("developer", "ipython", "function", "Assistant", "model", "", None, 3)
_ODD: tuple[Any, ...] = (None, 7, 1.5, True, False, [], {}, ["a"], {"a": 1}, ["text", None])
_NAMES = ("f", "get_weather", "größe", 'a"b', "ns.call-1", "")
_VALUES: tuple[Any, ...] = (
    *("Oslo", "", "\nindented\n    code\n", 'quote " and \\', "true", "数学", 0, -3, 2.5, 1e100),
    *(True, False, None, [], [1, "a", None, True], {}, {"deep": {"n": None, "b": False}}),
)
_CALLS: tuple[Any, ...] = (None, [], {}, "", "x", 0, True, {"a": 1}, [None], ["f"], [{}])
_REASONING = ("reasoning_content", "thinking", "reasoning", "thought")
_MISSING = object()
_MARKER = re.compile(r"<[^<>\s]{1,48}>|\[/?[A-Z_]{2,}\]")


class Conversation(NamedTuple):
    """What a template is given: messages, tools, and everything else by name."""

    messages: list[Any]
    tools: Any
    variables: dict[str, Any]


@dataclass(frozen=True)
class Vocabulary:
    """What a template looks at.

    Attributes:
        texts: Its own short texts and markers.
        names: The variables that it reads, besides messages, tools and those that are always there.
        keys: Keys of messages that it reads, besides the usual ones.
    """

    texts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


@functools.lru_cache(maxsize=256)
def vocabulary_of(*templates: str) -> Vocabulary:
    """Return what some templates look at, all of them together.

    Raises:
        TemplateRefused: One of them is no Jinja.
    """
    from jinja2 import meta, nodes

    from antiphon.engine.environment import compile_template

    texts: dict[str, None] = {}
    names: set[str] = set()
    keys: set[str] = set()
    for template in templates:
        environment = compile_template(template).environment
        tree = environment.parse(template)
        read = meta.find_undeclared_variables(tree) - set(environment.globals)
        # What a template sets itself is its own, unless that is a default for what was not given.
        names |= read - (_set_in(tree) - _defaulted(tree))
        found = [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
        found += [each for text in found for each in _MARKER.findall(text)]
        found += _MARKER.findall(template)
        texts |= dict.fromkeys(text for text in found if 0 < len(text) <= 40)
        called = {id(call.node) for call in tree.find_all(nodes.Call)}
        keys |= {node.attr for node in tree.find_all(nodes.Getattr) if id(node) not in called}
    always = {"messages", "tools", "add_generation_prompt", "raise_exception", "strftime_now"}
    usual = {"role", "content", "tool_calls", *_REASONING, "name", "tool_call_id"}
    rare = keys - usual - {"function", "arguments", "type", "text"}
    return Vocabulary(tuple(texts), tuple(sorted(names - always)), tuple(sorted(rare)))


def _set_in(node: Any) -> set[str]:
    """Return the names that ``{% set %}`` gives a value within a part of a template."""
    from jinja2 import nodes

    targets = [assignment.target for assignment in node.find_all(nodes.Assign)]
    names = [name for target in targets for name in (target, *target.find_all(nodes.Name))]
    return {name.name for name in names if isinstance(name, nodes.Name)}


def _defaulted(tree: Any) -> set[str]:
    """Return the names to which a template gives a default."""
    from jinja2 import nodes

    names = {
        node.node.name
        for node in tree.find_all(nodes.Filter)
        if node.name in ("default", "d") and isinstance(node.node, nodes.Name)
    }
    for branch in tree.find_all(nodes.If):
        for test in branch.test.find_all(nodes.Test):
            if test.name == "defined" and isinstance(test.node, nodes.Name):
                names |= {test.node.name} & _set_in(branch)
    return names


def odd_conversation(random: Random, vocabulary: Vocabulary | None = None) -> Conversation:
    """Return a conversation; most are in order, some odd, a few broken.

    Args:
        random: The only source of chance.
        vocabulary: What the templates that are compared look at.
    """
    return _Maker(random, vocabulary or Vocabulary()).conversation()


def conversations_about(vocabulary: Vocabulary) -> Iterator[Conversation]:
    """Yield short conversations that bring up each text, key and variable in turn."""

    def asked(content: Any = "Hi.", role: Any = "user", **more: Any) -> list[Any]:
        first = {"role": "user", "content": "Hello."}
        return [
            first,
            {"role": "assistant", "content": "Yes."},
            {"role": role, "content": content, **more},
        ]

    tokens = {name: f"<{name}>" for name in ("bos_token", "eos_token")}
    for text in vocabulary.texts:
        for messages in (
            asked(text),
            asked(role=text),
            asked([{"type": text, text: "x"}]),
            asked([{text: "x"}, {"type": "text", "text": text}]),
            asked(f"a{text}b", "assistant"),
            asked(**{text: "x"}),
        ):
            yield Conversation(messages, None, tokens)
    for key in vocabulary.keys:
        for value in (True, "x", ["x"]):
            yield Conversation(asked(**{key: value}), None, tokens)
    for name in vocabulary.names:
        for given in (True, False, "x", *vocabulary.texts):
            yield Conversation(
                asked(), None, {**tokens, name: given, "add_generation_prompt": True}
            )


class _Maker:
    def __init__(self, random: Random, vocabulary: Vocabulary) -> None:
        self.random = random
        self.vocabulary = vocabulary
        # Most conversations hold nothing odd, or a template would refuse nearly all.
        self.oddity = random.choice((0.0, 0.0, 0.0, 0.02, 0.05, 0.3))
        self.parts = random.choice((0.0, 0.0, 0.0, 0.1, 0.6))
        self.text_arguments = random.random() < 0.5

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def text(self) -> str:
        own = self.vocabulary.texts
        pool: Sequence[str] = own if own and self.chance(0.25) else _TEXTS
        text = self.random.choice(pool)
        return text + self.text() if self.chance(0.25) else text

    def conversation(self) -> Conversation:
        order: Callable[[], list[Any]] = self.random.choice(
            (self.alternating, self.in_order, self.in_order, self.any_order)
        )
        messages = order()
        tools: Any = None
        if self.chance(0.45):
            tools = [self.tool() for _ in range(self.random.choice((0, 1, 1, 2)))]
            if self.chance(self.oddity):
                tools = self.random.choice(_ODD)
        return Conversation(messages, tools, self.variables())

    def alternating(self) -> list[Any]:
        """Users and assistants in turns, few strays among the answers."""
        messages = [self.message("system")] if self.chance(0.4) else []
        for _ in range(self.random.choice((1, 1, 2, 3))):
            stray = self.random.choice(("system", "tool", "developer"))
            answers = "assistant" if not self.chance(self.oddity) else stray
            messages += [self.message("user", calls=False), self.message(answers, calls=False)]
        return messages[: self.random.randint(1, len(messages))] if self.chance(0.5) else messages

    def in_order(self) -> list[Any]:
        """A system message perhaps, then users, calls with their results, answers."""
        messages = [self.message("system")] if self.chance(0.4) else []
        for _ in range(self.random.choice((1, 1, 2, 3))):
            messages.append(self.message("user", calls=False))
            for _ in range(self.random.choice((0, 0, 1, 2))):
                calling = self.message("assistant", calls=True)
                messages.append(calling)
                calls = calling.get("tool_calls")
                count = len(calls) if isinstance(calls, list) else 1
                messages += [self.message("tool") for _ in range(count)]
            messages.append(self.message("assistant", calls=False))
        return messages[: self.random.randint(1, len(messages))] if self.chance(0.5) else messages

    def any_order(self) -> list[Any]:
        roles = (*_ROLES, *_ROLES, *(_OTHER_ROLES if self.chance(self.oddity * 3) else ()))
        count = self.random.choice((0, 1, 2, 2, 3, 4, 5))
        messages: list[Any] = [self.message(self.random.choice(roles)) for _ in range(count)]
        if messages and self.vocabulary.texts and self.chance(0.2):
            self.random.choice(messages)["role"] = self.random.choice(self.vocabulary.texts)
        if self.chance(self.oddity / 3):
            messages.append(self.random.choice((None, "text", [], {}, 3)))
        return messages

    def message(self, role: Any, *, calls: bool | None = None) -> dict[str, Any]:
        """Return a message; ``calls`` says whether it calls, None leaves that to chance."""
        random = self.random
        message: dict[str, Any] = {"role": role, "content": self.content()}
        if calls or (calls is None and role == "assistant" and self.chance(0.3)):
            message["tool_calls"] = [self.call() for _ in range(random.choice((1, 1, 1, 2, 3)))]
            message["content"] = random.choice((None, "", message["content"], _MISSING))
        if self.chance(self.oddity):
            message["tool_calls"] = random.choice((*_CALLS, [self.call()]))
        if role == "assistant" and self.chance(0.35):
            value = random.choice((self.text(), self.text(), None, ""))
            message[random.choice(_REASONING)] = (
                random.choice(_ODD) if self.chance(self.oddity) else value
            )
        if role == "tool" and self.chance(0.5):
            message |= {"name": random.choice(_NAMES), "tool_call_id": "call12345"}
        if self.vocabulary.keys and self.chance(0.1):
            values: tuple[Any, ...] = (self.text(), True, False, None, [], {"a": 1})
            message[random.choice(self.vocabulary.keys)] = random.choice(values)
        if self.chance(self.oddity):
            message[random.choice(("role", "content", "name", "prefix"))] = random.choice(
                (*_ODD, _MISSING)
            )
        return {key: value for key, value in message.items() if value is not _MISSING}

    def content(self) -> Any:
        if self.chance(self.oddity):
            return self.random.choice((*_ODD, _MISSING, self.content()))
        if self.chance(self.parts):
            return [self.part() for _ in range(self.random.choice((0, 1, 1, 2, 3)))]
        return self.text()

    def part(self) -> Any:
        text = self.text()
        parts: tuple[Any, ...] = (
            *({"type": "text", "text": text},) * 6,
            *({"type": "image"}, {"type": "image", "image": "a.png"}, {"type": "video"}),
            *({"type": "image_url", "image_url": {"url": "u"}}, {"type": "audio", "audio": "a"}),
        )
        odd: tuple[Any, ...] = (
            *({"text": text}, {"type": "text"}, {"type": "text", "text": None}, {"video": "v"}),
            *({"image": "i", "text": text}, text, None, 4, {}),
        )
        if self.vocabulary.texts and self.chance(0.1):
            word = self.random.choice(self.vocabulary.texts)
            return self.random.choice(({"type": word, word: "x"}, {"type": word}, {word: text}))
        return self.random.choice(odd if self.chance(self.oddity * 2) else parts)

    def call(self) -> Any:
        random = self.random
        keys = random.sample(("city", "days", "größe", "a b", "", "items"), random.randint(0, 3))
        arguments: Any = {key: random.choice(_VALUES) for key in keys}
        if self.text_arguments != self.chance(self.oddity):
            arguments = json.dumps(arguments, ensure_ascii=False, indent=random.choice((None, 2)))
        if self.chance(self.oddity):
            arguments = random.choice((None, [], "", "{bad", 5, [1], {1: "a"}))
        function = {"name": random.choice(_NAMES[:4]), "arguments": arguments}
        if self.chance(self.oddity):
            function[random.choice(("name", "arguments"))] = random.choice(_ODD)
        if self.chance(self.oddity):
            del function[random.choice(("name", "arguments"))]
        call: dict[str, Any] = {"id": "call12345", "type": "function", "function": function}
        for key in ("id", "type"):
            if self.chance(0.3):
                del call[key]
        if self.chance(0.05 + self.oddity):
            return random.choice((function, function, None, "call", {}, []))
        return call

    def tool(self) -> Any:
        random = self.random
        function: dict[str, Any] = {"name": random.choice(_NAMES)}
        if self.chance(0.8):
            function["description"] = random.choice(("Wetter <heute> & 'so' \"da\"", "", None))
        if self.chance(0.8):
            city = {"type": "string", "description": self.text(), "enum": ["a", "é"]}
            schema = {"type": "object", "properties": {"city": city}, "required": ["city"]}
            function["parameters"] = random.choice((schema, schema, {}, None))
        tools = ({"type": "function", "function": function},) * 4 + (function,)
        odd: tuple[Any, ...] = (
            {"type": "retrieval"},
            {"type": "function"},
            {},
            None,
            "tool",
            {"function": None},
        )
        return random.choice(odd if self.chance(self.oddity) else tools)

    def variables(self) -> dict[str, Any]:
        random = self.random
        found: dict[str, Any] = {}
        if self.chance(0.7):
            found["add_generation_prompt"] = random.choice((True, True, False))
        values: tuple[Any, ...] = (True, False, True, False, None, "", "yes", 0, 1, [])
        for name in self.vocabulary.names:
            if name.endswith("_token"):
                text = f"<{name}>"
                found[name] = (
                    random.choice((None, "", _MISSING)) if self.chance(self.oddity) else text
                )
            elif self.chance(0.4):
                lists = (
                    [random.choice(_NAMES)],
                    [self.tool()],
                    {"a": 1},
                    ["code_interpreter", "f"],
                )
                pool: Sequence[Any] = (*values, *values, *lists, self.text())
                if self.vocabulary.texts and self.chance(0.3):
                    pool = self.vocabulary.texts
                found[name] = random.choice(pool)
        return {name: value for name, value in found.items() if value is not _MISSING}
