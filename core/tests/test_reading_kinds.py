"""Kinds of faults that people met in other parsers, for every way of writing calls: what a completion is read as.

Each is read at once and in streams cut everywhere; the text of the reading is the text that went in.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from antiphon.errors import FamilyNotFound
from antiphon.reading import parse_response, read_response, stream_parser, unparse
from antiphon.registry import get_family

Calls = list[tuple[str, Any]]


def read(family: str, text: str, **options: Any) -> dict[str, Any]:
    """Return the message of a completion, after checking that any cut of a stream gives it too."""
    try:
        get_family(family)
    except FamilyNotFound as error:
        pytest.skip(f"the distribution that brings {family} is not installed: {error}")
    reading = read_response(text, family=family, **options)
    assert unparse(reading) == text
    assert parse_response(text, family=family, **options) == reading.message
    for size in (1, 2, 3, 5, 11, 29):
        parser = stream_parser(family=family, **options)
        events = []
        for start in range(0, len(text), size):
            events += parser.feed(text[start : start + size])
        found = parser.finish()
        assert found.message == reading.message
        assert unparse(found) == text
        for number, call in enumerate(found.message["tool_calls"] or ()):
            if call["status"] != "ok":
                continue
            shown = [event for event in [*events, *found.last_events] if event.number == number]
            assert [event.text for event in shown if event.kind == "call"] == [
                call["function"]["name"]
            ]
            whole = "".join(event.text for event in shown if event.kind == "arguments")
            # A schema types bare arguments when the call is over.
            if "tools" not in options:
                assert json.loads(whole, strict=False) == call["function"]["arguments"]
    return reading.message


def calls_of(message: dict[str, Any]) -> Calls:
    return [
        (call["function"]["name"], call["function"]["arguments"])
        for call in message["tool_calls"] or ()
        if call["status"] == "ok"
    ]


def statuses(message: dict[str, Any]) -> list[str]:
    return [call["status"] for call in message["tool_calls"] or ()]


def tag(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


def xml(name: str, *params: tuple[str, str]) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in params)
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


# JSON between tags

END = "<|im_end|>"


@pytest.mark.parametrize("family", ["qwen2.5", "qwen3", "falcon-h1"])
@pytest.mark.parametrize(
    ("body", "calls"),
    [
        ('{"name": "f", "arguments": {"a": {"b": [{"c": "}"}]}}}', [("f", {"a": {"b": [{"c": "}"}]}})]),
        ('{"name": "f", "arguments": {}}', [("f", {})]),
        ('{"name": "f"}', [("f", {})]),
        ('{"name": "f", "arguments": null}', [("f", {})]),
        ('{"name": "f", "arguments": ""}', [("f", {})]),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', [("f", {"a": 1})]),
        ('{"name": "f", "parameters": {"a": 1}}', [("f", {"a": 1})]),
        ('{"arguments": {"name": "x"}, "name": "f"}', [("f", {"name": "x"})]),
        ('{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}', [("f", {"a": 1})]),
        ('{"name": "a.b-c_d/e:1", "arguments": {}}', [("a.b-c_d/e:1", {})]),
        ('{"name": "f", "arguments": {"a": "\\u5317 \\ud83c\\udf38"}}', [("f", {"a": "北 🌸"})]),
        ('{"name": "f", "arguments": {"a": "l1\nl2\t"}}', [("f", {"a": "l1\nl2\t"})]),
        (
            '{"name": "f", "arguments": {"a": "</tool_call> <|im_end|> <tool_call>"}}',
            [("f", {"a": "</tool_call> <|im_end|> <tool_call>"})],
        ),
        (
            '{"name": "f", "arguments": {"a": "12", "b": 1.0, "c": true, "d": null}}',
            [("f", {"a": "12", "b": 1.0, "c": True, "d": None})],
        ),
        (
            '{"name": "f", "arguments": {"a": 1}}\n{"name": "g", "arguments": {"a": "}"}}',
            [("f", {"a": 1}), ("g", {"a": "}"})],
        ),
        (
            '[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]',
            [("f", {"a": 1}), ("g", {})],
        ),
    ],
)  # fmt: skip
def test_json_between_tags(family: str, body: str, calls: Calls) -> None:
    for text in (tag(body) + END, f"<tool_call>{body}</tool_call>\n{END}"):
        message = read(family, text)
        assert calls_of(message) == calls
        assert message["content"] is None
        assert message["is_complete"]


QUOTED = 'Like `<tool_call>{"name": "f", "arguments": {}}</tool_call>`.'


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("A\n{f}\nB\n{g}\nC", "A\nB\nC", ["f", "g"]),
        ("{f}{g}", None, ["f", "g"]),
        ("{f}\n{f}", None, ["f", "f"]),
        ("{f}\n</tool_call>", None, ["f"]),
        ('<tool_call>\n{"name": "f", "arguments": {}}', None, ["f"]),
        ('<tool_call>\n{"name": "f", "arguments": {}}\n{g}', None, ["f", "g"]),
        ("Write `<tool_call>` and `</tool_call>` around it.", "Write `<tool_call>` and `</tool_call>` around it.", []),
        (QUOTED, QUOTED, []),
        ("I run `ls` and `f`{f}", "I run `ls` and `f`", ["f"]),
    ],
)  # fmt: skip
def test_text_and_markers_around_json_calls(
    text: str, content: str | None, calls: list[str]
) -> None:
    for name in "fg":
        text = text.replace(f"{{{name}}}", tag(f'{{"name": "{name}", "arguments": {{}}}}'))
    message = read("qwen2.5", text + END)
    assert message["content"] == content
    assert [name for name, _ in calls_of(message)] == calls


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "f", "arguments": {"a": 1,}}',
        '{"name": "f", "arguments": {"a": True}}',
        "{'name': 'f', 'arguments': {}}",
        '{"name": "f", "arguments": {"a": 1}}}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": 3}',
        '{"name": "", "arguments": {}}',
        '{"arguments": {}}',
        '{"name": "f", "arguments": {"a": 1}} and so on',
    ],
)
def test_what_is_no_json_call_is_malformed_and_whole(body: str) -> None:
    text = tag(body)
    message = read("qwen2.5", text + END)
    assert statuses(message) == ["malformed"]
    assert message["tool_calls"][0]["raw"] == text
    assert message["content"] is None


def test_python_dictionaries_are_calls_where_the_template_shows_them_so() -> None:
    text = tag("{'arguments': {'a': True, 'b': 'it\\'s }', 'c': [1,]}, 'name': 'f'}") + END
    assert calls_of(read("falcon-h1", text)) == [("f", {"a": True, "b": "it's }", "c": [1]})]


# Reasoning


@pytest.mark.parametrize(
    "family", ["qwen3", "qwen3-thinking-2507", "qwen3.5", "qwq", "deepseek-r1"]
)
@pytest.mark.parametrize("opener", ["", "<think>\n", "\n<think>", "<think>"])
def test_an_opener_that_the_model_repeats_is_no_reasoning(family: str, opener: str) -> None:
    header = "<｜Assistant｜>" if family == "deepseek-r1" else "<|im_start|>assistant\n"
    message = read(family, f"{opener}r\n</think>\n\nx", prompt=f"{header}<think>\n")
    assert (message["reasoning_content"], message["content"]) == ("r", "x")
    if opener:
        message = read(family, f"{opener}r\n</think>\n\nx")
        assert (message["reasoning_content"], message["content"]) == ("r", "x")


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "calls"),
    [
        ("<think>\nr\n{f}", "r", None, ["f"]),
        ("<think>\nLike {f} maybe.\n</think>\n\nx", "Like {f} maybe.", "x", []),
        ("<think>\nA <tool_call> hm.\n</think>\n\nx", "A <tool_call> hm.", "x", []),
        ("<think>\nr\n</think>\n\nx <think>y</think>", "r", "x <think>y</think>", []),
        ("<think>r</think>x", "r", "x", []),
        ("<think>\nr", "r", None, []),
    ],
)
def test_calls_and_markers_in_reasoning(
    text: str, reasoning: str, content: str | None, calls: list[str]
) -> None:
    call = tag('{"name": "f", "arguments": {}}')
    message = read("qwen3", text.replace("{f}", call) + END)
    assert message["reasoning_content"] == reasoning.replace("{f}", call)
    assert message["content"] == content
    assert [name for name, _ in calls_of(message)] == calls


# Parameters in XML

TOOL = {
    "name": "f",
    "parameters": {
        "type": "object",
        "properties": {
            "i": {"type": "integer"},
            "b": {"type": "boolean"},
            "n": {"type": "number"},
            "o": {"type": "object"},
            "l": {"type": "array"},
            "s": {"type": "string"},
            "any": {"anyOf": [{"type": "object"}, {"type": "null"}]},
            "maybe": {"type": ["string", "null"]},
            "ref": {"$ref": "#/properties/o"},
            "one": {"enum": [1, 2]},
        },
    },
}


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("i", "3", 3), ("i", " 3 ", 3), ("i", "three", "three"), ("i", "2026-01-15", "2026-01-15"),
        ("b", "true", True), ("b", "True", True), ("b", "FALSE", False), ("b", "yes", "yes"),
        ("n", "2", 2), ("n", "-2.5e3", -2500.0), ("o", '{"x": [1]}', {"x": [1]}),
        ("o", "{'x': None}", {"x": None}), ("o", "{bad", "{bad"), ("l", '[1, "a"]', [1, "a"]),
        ("s", "5", "5"), ("s", "null", "null"), ("s", "{}", "{}"), ("s", "", ""),
        ("any", '{"x": 1}', {"x": 1}), ("any", "null", None), ("maybe", "null", None),
        ("maybe", "x", "x"), ("ref", '{"x": 1}', {"x": 1}), ("one", "2", 2),
    ],
)  # fmt: skip
def test_values_have_the_types_of_their_schema(key: str, text: str, value: Any) -> None:
    (call,) = read("qwen3-coder", xml("f", (key, text)) + END, tools=[TOOL])["tool_calls"]
    found = call["function"]["arguments"][key]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "value",
    [
        "if a < b && c > d: <b>x</b>", "    indented\n  again\n", "x </parameter> y", "</function> z",
        "a\n</parameter>\nb", "&lt;b&gt; &amp;", "", "\n\n", "<|im_end|>", "<tool_call>", '{"a": "</parameter>"}',
        xml("g", ("b", "1")), xml("g", ("b", "1"), ("c", "2")), f"Say {xml('g', ('b', '1'))} twice.",
        "Use <function=g> here.", "<parameter=b>\n1\n</parameter>\nx",
    ],
)  # fmt: skip
def test_values_hold_any_text(value: str) -> None:
    calls = [("f", {"a": value, "z": "1"}), ("h", {})]
    text = f"Hi.\n\n{xml('f', ('a', value), ('z', '1'))}\n{xml('h')}{END}"
    message = read("qwen3-coder", text)
    assert calls_of(message) == calls
    assert message["content"] == "Hi."


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("<tool_call><function=f><parameter=a>x</parameter></function></tool_call>", {"a": "x"}),
        ("<tool_call>\n<function= f >\n<parameter= a >\nx\n</parameter>\n</function>\n</tool_call>", {"a": "x"}),
        ("<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>", {"a": "x"}),
        ("<function=f>\n<parameter=a>\nx\n</parameter>\n</function>", {"a": "x"}),
        ("<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>", {"a": "x"}),
        ("<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</tool_call>", {"a": "x"}),
        ("<tool_call>\n<function=f>\n<parameter=a>\nx\n</function>\n</tool_call>", {"a": "x"}),
        (xml("f", ("a", "x"), ("b", "y")).replace("</parameter>\n", "", 1), {"a": "x", "b": "y"}),
        ("<tool_call>\n<function=f>\n<parameter=a></parameter>\n</function>\n</tool_call>", {"a": ""}),
        ('<tool_call>\n<function=f>\n{"a": "x"}\n</function>\n</tool_call>', {"a": "x"}),
        ("<tool_call>\n<function=f>\n</function>\n</tool_call>", {}),
        ("<tool_call>\n<function=f></function>\n</tool_call>", {}),
        (xml("f", ("a", "1"), ("a", "2")), {"a": "2"}),
        (xml("f", ("x.y-z", "1")), {"x.y-z": "1"}),
    ],
)  # fmt: skip
def test_markers_that_a_model_leaves_out_or_writes_elsewhere(
    text: str, arguments: dict[str, Any]
) -> None:
    message = read("qwen3-coder", text + END)
    assert calls_of(message) == [("f", arguments)]
    assert message["content"] is None


def test_an_argument_without_a_whole_name_spoils_its_own_call_alone() -> None:
    broken = "<tool_call>\n<function=f>\n<parameter=a\nx\n</parameter>\n</function>\n</tool_call>"
    message = read("qwen3-coder", f"{broken}\n{xml('g', ('a', '1'))}{END}")
    assert statuses(message) == ["malformed", "ok"]
    assert message["tool_calls"][0]["raw"] == broken
    assert calls_of(message) == [("g", {"a": "1"})]


# Llama: JSON and Python

F, G = '{"name": "f", "parameters": {"a": "x; y}"}}', '{"name": "g", "parameters": {}}'


@pytest.mark.parametrize("between", ["; ", ";", ";\n", "\n", ", ", ""])
@pytest.mark.parametrize("before", ["", "<|python_tag|>"])
def test_several_json_calls_of_llama(between: str, before: str) -> None:
    message = read("llama3.1", f"{before}{F}{between}{G}<|eom_id|>")
    assert calls_of(message) == [("f", {"a": "x; y}"}), ("g", {})]
    assert message["content"] is None


@pytest.mark.parametrize("before", ["", "<|python_tag|>"])
@pytest.mark.parametrize("family", ["llama3.1", "llama3.2"])
def test_a_call_that_is_cut_off_behind_another_leaves_that_one_whole(
    family: str, before: str
) -> None:
    message = read(family, f'{before}{F}; {{"name": "g", "parameters": {{"a": "unfin')
    assert calls_of(message) == [("f", {"a": "x; y}"})]
    assert statuses(message) == ["ok", "incomplete"]
    assert message["tool_calls"][1]["function"]["name"] == "g"
    assert message["content"] is None


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ('{"type": "function", "name": "f", "parameters": {"a": 1}}', None, [("f", {"a": 1})]),
        ('\n{\n  "name": "f",\n  "parameters": null\n}', None, [("f", {})]),
        (f"Let me see.<|python_tag|>{G}", "Let me see.", [("g", {})]),
        ('<|python_tag|>search.call(query="f(x), b=\\"c\\"")', None, [("search", {"query": 'f(x), b="c"'})]),
        ("<|python_tag|>import math\nprint(1)", None, [("code_interpreter", {"code": "import math\nprint(1)"})]),
        ('<|python_tag|>{"a": 1}\nprint(2)', None, [("code_interpreter", {"code": '{"a": 1}\nprint(2)'})]),
        (f"{G} is JSON.", f"{G} is JSON.", []),
        ('{"name": "Ada", "age": 36}', '{"name": "Ada", "age": 36}', []),
    ],
)  # fmt: skip
def test_calls_of_llama_3(text: str, content: str | None, calls: Calls) -> None:
    message = read("llama3.1", text + "<|eot_id|>")
    assert calls_of(message) == calls
    assert message["content"] == content


@pytest.mark.parametrize(("family", "end"), [("llama4", "<|eot|>"), ("llama3.2", "<|eot_id|>")])
@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('[f(a=1, b="x"), g()]', [("f", {"a": 1, "b": "x"}), ("g", {})]),
        ('[f(q=["a, b", "c(d)"])]', [("f", {"q": ["a, b", "c(d)"]})]),
        ('[f(o={"k": [1, {"z": None}]})]', [("f", {"o": {"k": [1, {"z": None}]}})]),
        ("[f(t=(1, 2))]", [("f", {"t": [1, 2]})]),
        ("[f(a=-3, b=-1.5, c=+2, d=1e-3)]", [("f", {"a": -3, "b": -1.5, "c": 2, "d": 0.001})]),
        ("[f(a=True, b=false, c=null, d=None)]", [("f", {"a": True, "b": False, "c": None, "d": None})]),
        ("[f(a='it\\'s', b=\"]) [x\", c='''l\nm''')]", [("f", {"a": "it's", "b": "]) [x", "c": "l\nm"})]),
        ('[\n  f(\n    a=1,\n  ),\n  mod.g-x(),\n]', [("f", {"a": 1}), ("mod.g-x", {})]),
    ],
)  # fmt: skip
def test_python_lists_of_calls(family: str, end: str, text: str, calls: Calls) -> None:
    message = read(family, text + end)
    assert calls_of(message) == calls
    assert message["content"] is None


# DeepSeek

EOS = "<｜end▁of▁sentence｜>"
DONE = "<｜User｜>q<｜Assistant｜></think>"


def fenced(*calls: tuple[str, str]) -> str:
    inner = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{text}\n```<｜tool▁call▁end｜>"
        for name, text in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def named(*calls: tuple[str, str]) -> str:
    inner = "".join(
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{text}<｜tool▁call▁end｜>"
        for name, text in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"a": {"b": "}"}}', {"a": {"b": "}"}}),
        ('{"a": "```json\\n{}\\n``` <｜tool▁call▁end｜>"}', {"a": "```json\n{}\n``` <｜tool▁call▁end｜>"}),
        ('{\n  "a": 1\n}', {"a": 1}),
        ("{}", {}), ("", {}), ("null", {}),
        ('"{\\"a\\": 1}"', {"a": 1}),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("family", "write"), [("deepseek-v3", fenced), ("deepseek-r1-0528", fenced), ("deepseek-v3.1", named)]
)  # fmt: skip
def test_arguments_behind_deepseeks_markers(
    family: str, write: Any, text: str, arguments: dict[str, Any]
) -> None:
    for whole in (
        write(("f", text), ("a.b-c", "{}")),
        write(("f", text), ("a.b-c", "{}")).replace("<｜tool▁calls▁end｜>", ""),
    ):
        message = read(family, f"Hi.{whole}{EOS}", prompt="<｜User｜>q<｜Assistant｜>")
        assert calls_of(message) == [("f", arguments), ("a.b-c", {})]
        assert message["content"] == "Hi."


def dsml(block: str, *invokes: str) -> str:
    return f"\n\n<｜DSML｜{block}>\n{''.join(invokes)}</｜DSML｜{block}>"


def invoke(name: str, *params: tuple[str, str, str]) -> str:
    inner = "".join(
        f'<｜DSML｜parameter name="{key}" string="{flag}">{value}</｜DSML｜parameter>\n'
        for key, flag, value in params
    )
    return f'<｜DSML｜invoke name="{name}">\n{inner}</｜DSML｜invoke>\n'


@pytest.mark.parametrize("family", ["deepseek-v3.2", "deepseek-v4"])
@pytest.mark.parametrize("block", ["function_calls", "tool_calls"])
@pytest.mark.parametrize(
    ("body", "calls"),
    [
        (invoke("f", ("a", "true", "3"), ("b", "false", '[{"c": null}]')), [("f", {"a": "3", "b": [{"c": None}]})]),
        (invoke("f", ("a", "true", "")) + invoke("g"), [("f", {"a": ""}), ("g", {})]),
        (invoke("f", ("a", "true", ' a < b\n</x> "q"\n ')), [("f", {"a": ' a < b\n</x> "q"\n '})]),
        (invoke("f", ("a", "false", "{bad")), [("f", {"a": "{bad"})]),
        (invoke("f", ("a", "false", "true"), ("b", "false", '"q"')), [("f", {"a": True, "b": "q"})]),
        ('<｜DSML｜invoke name="f"/>\n', [("f", {})]),
        ('<｜DSML｜invoke name="f">\n{"a": 1}\n</｜DSML｜invoke>\n', [("f", {"a": 1})]),
    ],
)  # fmt: skip
def test_dsml_in_either_block(family: str, block: str, body: str, calls: Calls) -> None:
    whole = dsml(block, body)
    bare = body if body.startswith("<") else ""
    dense = whole.replace("\n\n<", "<").replace(">\n<", "><")
    for text in (whole, dense, whole.replace(f"</｜DSML｜{block}>", ""), bare):
        message = read(family, f"Hi.{text}{EOS}", prompt=DONE)
        assert calls_of(message) == calls
        assert message["content"] == "Hi."


@pytest.mark.parametrize("family", ["deepseek-v3.2", "deepseek-v4"])
@pytest.mark.parametrize(
    "param",
    [
        '<parameter name="a">true</｜DSML｜parameter>',
        '<｜DSML｜parameter name="a">x</｜DSML｜parameter>',
    ],
)
def test_a_dsml_parameter_without_its_marks_spoils_its_call(family: str, param: str) -> None:
    broken = f'<｜DSML｜invoke name="f">\n{param}\n</｜DSML｜invoke>'
    message = read(family, dsml("tool_calls", broken + "\n") + EOS, prompt=DONE)
    assert statuses(message) == ["malformed"]
    assert message["tool_calls"][0]["function"]["name"] == "f"
    assert calls_of(message) == []


@pytest.mark.parametrize("family", ["deepseek-v3.2", "deepseek-v4"])
def test_a_call_ends_reasoning_that_nothing_closed(family: str) -> None:
    prompt = "<｜User｜>q<｜Assistant｜><think>"
    for closer in ("</think>", ""):
        message = read(family, f"r{closer}{dsml('tool_calls', invoke('f'))}{EOS}", prompt=prompt)
        assert message["reasoning_content"] == "r"
        assert calls_of(message) == [("f", {})]
