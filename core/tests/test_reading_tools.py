"""Tools that the caller gives: what is wrong with them is said at once, whatever the model writes."""

from __future__ import annotations

from typing import Any

import pytest
from antiphon.errors import ToolSchemaInvalid
from antiphon.reading import parse, parse_response, stream_parser
from reading_grammars import QWEN3, QWEN_XML

TEXT = '<tool_call>\n{"name": "find", "arguments": {"near": 3}}\n</tool_call><|im_end|>'


def tool(parameters: Any, name: str = "find") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def status(tools: list[Any], text: str = TEXT) -> str:
    (call,) = parse_response(text, family=QWEN3, tools=tools)["tool_calls"]
    return str(call["status"])


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"near": {"type": "strng"}}},
        {"type": "object", "properties": {"near": {"type": ["string", "nil"]}}},
        {"type": "object", "required": "near"},
        {"type": "object", "properties": ["near"]},
        {"type": "object", "properties": {"near": {"pattern": "["}}},
        {"type": "object", "properties": {"near": {"$ref": "#/$defs/place"}}},
        {"type": "object", "properties": {"near": {"$ref": "https://example.com/place.json"}}},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/a"}}},
        "object",
        ["near"],
    ],
)
def test_a_broken_schema_is_an_error_that_names_the_tool(parameters: Any) -> None:
    pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    given = [tool({"type": "object"}, "other"), tool(parameters)]
    with pytest.raises(ToolSchemaInvalid, match="'find'"):
        parse_response(TEXT, family=QWEN3, tools=given)
    with pytest.raises(ToolSchemaInvalid, match="'find'"):
        stream_parser(family=QWEN3, tools=given)
    with pytest.raises(ToolSchemaInvalid, match="'find'"):
        parse("<|im_start|>user\nq<|im_end|>\n", family=QWEN_XML, tools=given)


def test_a_tool_without_a_name_is_an_error() -> None:
    for given in ({"type": "function", "function": {}}, {"parameters": {}}, "find"):
        with pytest.raises(ToolSchemaInvalid, match="Tool 0"):
            parse_response("Hi.", family=QWEN3, tools=[given])


def test_a_schema_whose_fault_only_a_call_shows_says_so_on_the_call() -> None:
    pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    endless = {
        "type": "object",
        "properties": {"near": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"$ref": "#/$defs/a"}},
    }
    assert status([tool(endless)]) == "unchecked"


def test_schemas_of_every_kind_judge() -> None:
    pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    place = {"$defs": {"place": {"type": "string"}}}
    for near, expected in (
        ({"type": "integer"}, "ok"),
        ({"type": "string"}, "invalid_arguments"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "invalid_arguments"),
        ({"$ref": "#/$defs/place"}, "invalid_arguments"),
        ({"enum": [1, 2, 3]}, "ok"),
        ({}, "ok"),
    ):
        assert status([tool({"type": "object", "properties": {"near": near}, **place})]) == expected
    assert status([tool({"properties": {"far": {}}, "required": ["far"]})]) == "invalid_arguments"
    assert status([tool(None)]) == status([tool({})]) == "ok"
    assert status([tool({}, "other")]) == "unknown_tool"
    assert status([{"name": "find", "parameters": {"type": "object"}}]) == "ok"


def test_functions_are_tools_as_in_rendering() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")

    def find(near: str) -> str:
        """Finds places.

        Args:
            near: Where.
        """
        return near

    pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    assert status([find]) == "invalid_arguments"
    text = (
        "<tool_call>\n<function=find>\n<parameter=near>\n3\n</parameter>\n</function>\n</tool_call>"
    )
    (call,) = parse_response(text, family=QWEN_XML, tools=[find])["tool_calls"]
    assert (call["function"]["arguments"], call["status"]) == ({"near": "3"}, "ok")


def test_what_a_server_brings_along_itself_is_no_tool_to_judge_by() -> None:
    assert status([{"type": "web_search"}, tool({})]) == "ok"
