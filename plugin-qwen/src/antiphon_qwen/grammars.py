"""How the Qwen dialects are read back: one `Grammar` for each, built from a few shared parts."""

from __future__ import annotations

from dataclasses import replace

from antiphon.reading.grammar import (
    CHATML_ROLES,
    CallForm,
    Grammar,
    ParamForm,
    ReasoningForm,
    RoleForm,
    Slot,
    ToolsForm,
    chatml_role,
)

_END_TOKENS = ("<|im_end|>", "<|endoftext|>")
_USER = "<|im_start|>user\n"
_END = "<|im_end|>\n"
_HELPFUL = "You are a helpful assistant."
_CREATED = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
_COMPUTER = "You are Qwen, a helpful AI assistant that can interact with a computer to solve tasks."
_STEPS = (
    "You are a helpful and harmless assistant. You are Qwen developed by Alibaba. "
    "You should think step-by-step."
)
_BOXED = r"Please reason step by step, and put your final answer within \boxed{}."

# Some templates refuse or drop a system message that is not the first.
_SYSTEM_FIRST = (chatml_role("system", after=("",)), *CHATML_ROLES[1:])
# Templates before tools print any role as it is, a tool's among them.
_ANY_ROLE = RoleForm("other", ("<|im_start|>", Slot("role"), "\n"), _END)
_RESULTS = RoleForm(
    "tool",
    "<tool_response>\n",
    "\n</tool_response>",
    separator="\n",
    group_opener=_USER,
    group_closer=_END,
)

_JSON_TOOLS = ToolsForm(
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>",
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
    separator="\n\n",
)
_XML_TOOLS = ToolsForm(
    "# Tools\n\nYou have access to the following functions:\n\n<tools>",
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO "
    "suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\n"
    "value_1\n</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second "
    "parameter\nthat can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n"
    "<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner "
    "<function=...></function> block must be nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n- You may provide optional reasoning for your "
    "function call in natural language BEFORE the function call, but NOT after\n- If there is no "
    "function call available, answer the question like normal with your current knowledge and do "
    "not tell the user about function calls\n</IMPORTANT>",
    separator="\n\n",
)

_JSON_CALLS = CallForm(
    "json",
    opener="<tool_call>\n",
    closer="\n</tool_call>",
    separator="\n",
    lead="\n",
    printed="exactly",
)
_XML_CALLS = CallForm(
    "params",
    opener="<tool_call>\n<function=",
    name_closer=">\n",
    closer="</function>\n</tool_call>",
    separator="\n",
    lead="\n\n",
    printed="exactly",
    param=ParamForm("<parameter=", ">\n", "\n</parameter>\n"),
)

_REASONING = ReasoningForm(
    "<think>\n", "\n</think>\n\n", empty=("<think>\n\n</think>\n\n",), earlier=False
)


def _with_default(text: str, *others: RoleForm) -> tuple[RoleForm, ...]:
    """Return the ChatML roles where a first turn with this system text is nobody's message."""
    first = chatml_role("system", after=("",), default=(text,))
    later = replace(first, default=(), after=("system", "user", "assistant", "tool", "other"))
    return first, later, *CHATML_ROLES[1:], *others


# Other stacks write a tool's message under a role of its own; the templates never do.
_BARE_TOOL = chatml_role("tool")


def _python_values(form: CallForm) -> CallForm:
    """Return the form for a template that writes True and None where JSON has true and null."""
    assert form.param is not None
    return replace(form, param=replace(form.param, values="python"))


QWEN2 = Grammar("qwen2", _with_default(_HELPFUL, _ANY_ROLE), end_tokens=_END_TOKENS)
QWEN2_BASE = replace(
    QWEN2, name="qwen2-base", roles=_with_default(_HELPFUL.removesuffix("."), _ANY_ROLE)
)
QWEN1_5 = replace(QWEN2_BASE, name="qwen1.5")
QWEN2_5_VL = replace(QWEN2, name="qwen2.5-vl")
QVQ = replace(QWEN2, name="qvq", roles=_with_default(_STEPS, _ANY_ROLE))

QWEN2_5 = Grammar(
    "qwen2.5",
    _with_default(_CREATED, _RESULTS, _BARE_TOOL),
    end_tokens=_END_TOKENS,
    calls=(replace(_JSON_CALLS, string_twice=True),),
    tools=(_JSON_TOOLS,),
    arguments="mapping",
)
QWEN2_5_BASE = replace(QWEN2_5, name="qwen2.5-base", roles=_with_default(_HELPFUL, _RESULTS))
QWEN2_5_MATH = replace(QWEN2_5, name="qwen2.5-math", roles=_with_default(_BOXED, _RESULTS))
QWQ_PREVIEW = replace(QWEN2_5, name="qwq-preview", roles=_with_default(_STEPS, _RESULTS))
QWQ = replace(
    QWEN2_5,
    name="qwq",
    roles=(*CHATML_ROLES, _RESULTS),
    # What was thought stays in the content, the only place where the template prints it.
    reasoning=replace(_REASONING, opened="always", separate=False, empty=()),
    # Without a system message the empty lines before the tools stand there all the same.
    tools=(replace(_JSON_TOOLS, opener="\n\n" + _JSON_TOOLS.opener, separator=""),),
)

QWEN3 = Grammar(
    "qwen3",
    (*CHATML_ROLES, _RESULTS, _BARE_TOOL),
    end_tokens=_END_TOKENS,
    reasoning=replace(_REASONING, empty_last=True),
    calls=(_JSON_CALLS,),
    tools=(_JSON_TOOLS,),
)
QWEN3_THINKING_2507 = replace(
    QWEN3,
    name="qwen3-thinking-2507",
    reasoning=replace(_REASONING, empty_last=True, opened="always"),
)
QWEN3_INSTRUCT_2507 = replace(QWEN3, name="qwen3-instruct-2507", reasoning=None)
QWEN3_VL = replace(QWEN3_INSTRUCT_2507, name="qwen3-vl", roles=(*_SYSTEM_FIRST, _RESULTS))

# Results that come first stand in no turn, those after them in the same one.
_CODER_RESULTS = replace(_RESULTS, closer="\n</tool_response>\n", separator="")
QWEN3_CODER = Grammar(
    "qwen3-coder",
    (
        *CHATML_ROLES,
        _ANY_ROLE,
        _CODER_RESULTS,
        replace(_CODER_RESULTS, group_opener="", after=("", "system")),
    ),
    end_tokens=_END_TOKENS,
    calls=(_python_values(_XML_CALLS),),
    # Where tools are announced and there is no system message, the template makes one up.
    tools=(
        replace(_XML_TOOLS, opener=f"{_COMPUTER}\n\n{_XML_TOOLS.opener}", separator=""),
        _XML_TOOLS,
    ),
    arguments="mapping",
)
_FIRST_RESULTS = replace(_RESULTS, opener="\n<tool_response>\n", separator="", group_opener="")
QWEN3_CODER_NEXT = replace(
    QWEN3_CODER,
    name="qwen3-coder-next",
    roles=(
        *CHATML_ROLES,
        _ANY_ROLE,
        _RESULTS,
        replace(_FIRST_RESULTS, after=("", "system")),
    ),
    calls=(_XML_CALLS,),
)

# Contents are stripped, but not what stands behind a block inside of one.
_STRIPPED = replace(_SYSTEM_FIRST[2], trims="both")
QWEN3_5 = Grammar(
    "qwen3.5",
    (*_SYSTEM_FIRST[:2], _STRIPPED, _RESULTS, replace(_FIRST_RESULTS, after=("", "system"))),
    end_tokens=_END_TOKENS,
    reasoning=replace(_REASONING, opened="always"),
    calls=(_python_values(_XML_CALLS),),
    tools=(replace(_XML_TOOLS, place="before"),),
    arguments="mapping",
)
QWEN3_5_NOTHINK = replace(QWEN3_5, name="qwen3.5-nothink", reasoning=_REASONING)
QWEN3_6 = replace(QWEN3_5, name="qwen3.6", calls=(_XML_CALLS,))
