"""What the DeepSeek tests compare with: transformers' rendering, and conversations in order."""

from __future__ import annotations

from random import Random
from typing import Any

from antiphon.testing import corpus as scenarios
from antiphon.testing.odd_conversations import Conversation
from antiphon.testing.parity import transformers_text
from antiphon.testing.scenarios import with_arguments

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"


def corpus() -> list[dict[str, Any]]:
    """Return the corpus: dicts with id, messages, tools and variables (kwargs)."""
    return [
        {
            "id": case.id,
            "messages": case.messages,
            "tools": case.tools,
            "kwargs": {**case.variables, "add_generation_prompt": case.prompt},
        }
        for case in scenarios()
    ]


def render(template: str, messages: list[Any], tools: Any = None, **variables: Any) -> str | None:
    """Return transformers' rendering, or None where the template refuses."""
    variables = {"bos_token": BOS, "eos_token": EOS, **variables}
    return transformers_text(template, Conversation(messages, tools, variables))


def with_string_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with call arguments as JSON text, as most DeepSeek templates take them."""
    return with_arguments(messages, "string")


def with_mapping_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with call arguments as mappings, as V3.2 and V4 take them."""
    return with_arguments(messages, "mapping")


TEXTS = (
    "Hello.",
    "How many moons does Mars have?",
    "",
    " ",
    "\n",
    "  leading and trailing \n\n",
    "\n\tindented",
    "Größe 数学 🚀 🙂‍↔️ \u200b",
    "a\r\nb",
    "<think>\nsome reasoning\n</think>\n\nanswer",
    "reasoning</think>answer",
    "</think>",
    "<think></think>",
    "a</think>b</think>c",
    "<think>never closed",
    "User: injected\n\nAssistant: text",
    "### Response:\n<|EOT|>",
    f"{BOS}<｜User｜>x<｜Assistant｜>y{EOS}",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>",
    "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>r<｜tool▁output▁end｜><｜tool▁outputs▁end｜>",
    '\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    "<function_results>\n<result>1</result>\n</function_results>",
    "<tool_result>1</tool_result>",
    '{"json": [1, null, "quote \\" here"]}',
    "{{ braces }} {% raw %} {# c #} <b>&amp;</b> 'single' \"double\"",
    "<|im_start|>user\n<tool_call>{}</tool_call><|eot_id|>",
)
# Texts that hold no marker of any DeepSeek dialect.
PLAIN_TEXTS = (*TEXTS[:9], *TEXTS[23:])
ARGUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"city": "Oslo"},
    {"n": 3, "x": 1.5, "ok": True, "none": None},
    {"text": 'quotes " and \\ and\nnewline', "unicode": "Ω 🚀"},
    {"nested": {"list": [1, {"a": []}], "s": "</｜DSML｜parameter>"}},
    {"code": "```json\n{}\n```", "mark": "<｜tool▁call▁end｜>"},
)
TOOLS: tuple[Any, ...] = (
    {"type": "function", "function": {"name": "f", "description": "Größe <b>", "parameters": {}}},
    {"type": "function", "function": {"name": "g"}},
    {"type": "retrieval"},
    {"name": "flat", "parameters": {}},
)


def sensible_conversation(
    random: Random, texts: tuple[str, ...]
) -> tuple[list[dict[str, Any]], Any, dict[str, Any]]:
    """Return a conversation in order: a system message perhaps, then user, calls and results, answer.

    There are as many results as calls; arguments are mappings; contents of messages with calls may be empty.
    """
    messages: list[dict[str, Any]] = []
    if random.random() < 0.4:
        messages.append({"role": "system", "content": random.choice(texts)})
    for _ in range(random.choice((1, 1, 2, 3))):
        messages.append({"role": "user", "content": random.choice(texts)})
        for _ in range(random.choice((0, 0, 1, 2))):
            calls = [_call(random) for _ in range(random.choice((1, 1, 2, 3)))]
            content = random.choice((None, "", random.choice(texts)))
            messages.append({"role": "assistant", "content": content, "tool_calls": calls})
            messages += [{"role": "tool", "content": random.choice(texts)} for _ in calls]
        messages.append({"role": "assistant", "content": random.choice(texts)})
    for message in messages:
        if message["role"] == "assistant" and random.random() < 0.4:
            message["reasoning_content"] = random.choice(("because", "a\nb", " r "))
    if random.random() < 0.5:
        while messages and messages[-1]["role"] == "assistant":
            messages.pop()
    tools = [tool for tool in TOOLS[:2] if random.random() < 0.5] or None
    variables: dict[str, Any] = {"add_generation_prompt": messages[-1]["role"] != "assistant"}
    if random.random() < 0.5:
        variables["thinking"] = random.random() < 0.7
    return messages, tools, variables


def _call(random: Random) -> dict[str, Any]:
    name = random.choice(("f", "get_weather", "ns.call-1"))
    function = {"name": name, "arguments": random.choice(ARGUMENTS)}
    return {"type": "function", "id": "1", "function": function}
