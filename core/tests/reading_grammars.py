"""Grammars that the tests of the reader declare for themselves, one for each way of writing calls."""

from __future__ import annotations

from dataclasses import replace

from antiphon.reading import (
    CHATML_ROLES,
    CallForm,
    Grammar,
    ParamForm,
    ReasoningForm,
    RoleForm,
    ToolsForm,
)

QWEN_TOOL = RoleForm(
    "tool",
    "<tool_response>\n",
    "\n</tool_response>",
    separator="\n",
    group_opener="<|im_start|>user\n",
    group_closer="<|im_end|>\n",
)
THINK = ReasoningForm("<think>\n", "\n</think>\n\n", empty=("<think>\n\n</think>\n\n",))
HERMES_CALLS = CallForm(
    "json", opener="<tool_call>\n", closer="\n</tool_call>", separator="\n", lead="\n"
)
XML_PARAM = ParamForm("<parameter=", ">\n", "\n</parameter>\n")

QWEN3 = Grammar(
    name="qwen3",
    roles=(*CHATML_ROLES, QWEN_TOOL),
    end_tokens=("<|im_end|>", "<|endoftext|>"),
    reasoning=THINK,
    calls=(HERMES_CALLS,),
    tools=(
        ToolsForm(
            "# Tools\n\nYou may call one or more functions",
            '"arguments": <args-json-object>}\n</tool_call>',
            separator="\n\n",
        ),
    ),
)
QWEN_XML = replace(
    QWEN3,
    name="qwen3-coder",
    calls=(
        CallForm(
            "params",
            opener="<tool_call>\n<function=",
            name_closer=">\n",
            closer="</function>\n</tool_call>",
            param=XML_PARAM,
            lead="\n\n",
            separator="\n",
        ),
    ),
)
GLM = replace(
    QWEN3,
    name="glm",
    calls=(
        CallForm(
            "params",
            opener="<tool_call>",
            closer="</tool_call>",
            param=ParamForm("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n", typed=True),
        ),
    ),
)
GEMMA = replace(
    QWEN3,
    name="gemma",
    calls=(
        CallForm(
            "named",
            opener="<|tool_call>call:",
            closer="<tool_call|>",
            values="braces",
            quote='<|"|>',
        ),
    ),
)

_HEADER = "<|start_header_id|>{}<|end_header_id|>\n\n"
LLAMA3 = Grammar(
    name="llama3.1",
    bos="<|begin_of_text|>",
    roles=(
        *(
            RoleForm(role, _HEADER.format(role), "<|eot_id|>")
            for role in ("system", "user", "assistant")
        ),
        RoleForm("tool", _HEADER.format("ipython"), "<|eot_id|>", value="json"),
    ),
    end_tokens=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
    pending_tokens=("<|eom_id|>",),
    calls=(
        CallForm("json", opener="<|python_tag|>", argument_keys=("parameters", "arguments")),
        CallForm("pythonic", opener="<|python_tag|>", call_suffix=".call"),
        CallForm("json", bare=True, argument_keys=("parameters", "arguments")),
    ),
)
LLAMA4 = Grammar(
    name="llama4",
    bos="<|begin_of_text|>",
    roles=tuple(
        RoleForm(role, f"<|header_start|>{role}<|header_end|>\n\n", "<|eot|>")
        for role in ("system", "user", "assistant")
    ),
    end_tokens=("<|eot|>", "<|eom|>", "<|end_of_text|>"),
    calls=(
        CallForm(
            "pythonic", block_opener="<|python_start|>", block_closer="<|python_end|>", listed=True
        ),
        CallForm(
            "json",
            block_opener="<|python_start|>",
            block_closer="<|python_end|>",
            argument_keys=("parameters", "arguments"),
        ),
        CallForm("pythonic", listed=True, bare=True),
        CallForm("json", bare=True, argument_keys=("parameters", "arguments")),
    ),
)

_EOS = "<｜end▁of▁sentence｜>"
_DEEPSEEK_ROLES = (
    RoleForm("user", "<｜User｜>", ""),
    RoleForm("assistant", "<｜Assistant｜>", _EOS, after=("user",)),
    RoleForm("assistant", "", _EOS, after=("tool",)),
    RoleForm(
        "tool",
        "<｜tool▁output▁begin｜>",
        "<｜tool▁output▁end｜>",
        separator="\n",
        group_opener="<｜tool▁outputs▁begin｜>",
        group_closer="<｜tool▁outputs▁end｜>",
    ),
    RoleForm("system", "", "", after=("",)),
)
_BOS = "<｜begin▁of▁sentence｜>"
DEEPSEEK_V3 = Grammar(
    name="deepseek-v3",
    bos=_BOS,
    roles=_DEEPSEEK_ROLES,
    end_tokens=(_EOS,),
    calls=(
        CallForm(
            "named",
            block_opener="<｜tool▁calls▁begin｜>",
            block_closer="<｜tool▁calls▁end｜>",
            opener="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            name_closer="\n```json\n",
            closer="\n```<｜tool▁call▁end｜>",
            separator="\n",
        ),
    ),
    arguments="string",
    empty_content=None,
)
DEEPSEEK_V31 = replace(
    DEEPSEEK_V3,
    name="deepseek-v3.1",
    reasoning=ReasoningForm("<think>", "</think>", empty=("</think>", "<think></think>")),
    calls=(
        CallForm(
            "named",
            block_opener="<｜tool▁calls▁begin｜>",
            block_closer="<｜tool▁calls▁end｜>",
            opener="<｜tool▁call▁begin｜>",
            name_closer="<｜tool▁sep｜>",
            closer="<｜tool▁call▁end｜>",
        ),
    ),
)


def dsml(block: str, space: str = "") -> CallForm:
    """Return DeepSeek's DSML calls: V3.2, V4 and V4.1 differ in the block's name and a space."""
    tag = f"｜DSML｜{space}"
    return CallForm(
        "params",
        block_opener=f"\n\n<{tag}{block}>\n",
        block_closer=f"</{tag}{block}>",
        opener=f'<{tag}invoke name="',
        name_closer='">\n',
        closer=f"</{tag}invoke>\n",
        param=ParamForm(
            f'<{tag}parameter name="', '" string="', f"</{tag}parameter>\n", flag_closer='">'
        ),
    )


DEEPSEEK_V32 = replace(DEEPSEEK_V31, name="deepseek-v3.2", calls=(dsml("function_calls"),))
DEEPSEEK_V4 = replace(DEEPSEEK_V31, name="deepseek-v4", calls=(dsml("tool_calls"),))
DEEPSEEK_V41 = replace(DEEPSEEK_V31, name="deepseek-v4.1", calls=(dsml("calls", " "),))

ALL = (
    QWEN3,
    QWEN_XML,
    GLM,
    GEMMA,
    LLAMA3,
    LLAMA4,
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    DEEPSEEK_V32,
    DEEPSEEK_V4,
)
"""Those that the laws are held to."""
