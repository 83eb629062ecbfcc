"""How the DeepSeek dialects are read back: one `Grammar` for each, built from a few shared parts.

Calls come in three generations: fenced JSON behind the type and the name (up to R1-0528), JSON behind the name
(V3.1), and DSML, parameter by parameter (V3.2 and V4).
"""

from __future__ import annotations

from dataclasses import replace

from antiphon.reading.grammar import (
    CallForm,
    Grammar,
    ParamForm,
    ReasoningForm,
    RoleForm,
    ToolsForm,
)

_BOS = "<｜begin▁of▁sentence｜>"
_EOS = "<｜end▁of▁sentence｜>"
_USER = "<｜User｜>"
_ASSISTANT = "<｜Assistant｜>"
_RESULT = ("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>")
_RESULTS_BEGIN = "<｜tool▁outputs▁begin｜>"
_RESULTS_END = "<｜tool▁outputs▁end｜>"

# System messages have no header: they stand in front and end where the first turn begins, or, where the template
# leaves them in their place, behind an answer as well.
_SYSTEM = RoleForm("system", "", "", after=("",))
# An answer that comes first has no header either, but an end.
_FIRST = RoleForm("assistant", "", _EOS, after=("",))
_ANYWHERE = RoleForm("system", "", "", after=("", "assistant"))
_PARAGRAPH = RoleForm("system", "", "\n\n", after=("", "assistant"))
_MOVED = "System messages that stood elsewhere come back in front, several as one."
_UNMARKED = (
    "A round of calls that follows a user message has no header: from text alone it can't be told from the same "
    "markers at the end of the user's own text, and is read as calls."
)

# --- Words and headings: LLM, V2, Coder ---------------------------------------------------------------------

V2 = Grammar(
    name="deepseek-v2",
    bos=_BOS,
    roles=(
        _PARAGRAPH,
        RoleForm("user", "User: ", "\n\n"),
        RoleForm("assistant", "Assistant: ", _EOS),
    ),
    end_tokens=(_EOS,),
    generation_prompts=("Assistant:",),
    notes=("A system message that follows a user message is read as part of it.",),
)

_CODER_SYSTEM = (
    "You are an AI programming assistant, utilizing the Deepseek Coder model, developed by Deepseek "
    "Company, and you only answer questions related to computer science. For politically sensitive "
    "questions, security and privacy issues, and other non-computer science questions, you will refuse "
    "to answer"
)
CODER = Grammar(
    name="deepseek-coder",
    bos=_BOS,
    roles=(
        # Either the default text or a system message stands in front, be it empty.
        replace(_ANYWHERE, default=(f"{_CODER_SYSTEM}\n",)),
        RoleForm("user", "### Instruction:\n", "\n", after=("system", "user", "assistant")),
        RoleForm(
            "assistant", "### Response:\n", "\n<|EOT|>\n", after=("system", "user", "assistant")
        ),
    ),
    end_tokens=("<|EOT|>", _EOS),
    notes=("Tool results stand under the heading of a response and are read as one.",),
)
PROVER = Grammar(
    name="deepseek-prover",
    prefix=f"{_CODER_SYSTEM}.\n",
    roles=(
        _ANYWHERE,
        RoleForm("user", "### Instruction:\n", "\n"),
        RoleForm("assistant", "### Response:\n", "\n<|EOT|>\n"),
    ),
    end_tokens=("<|EOT|>", _EOS),
    notes=CODER.notes,
)

# --- Role tokens, calls as fenced JSON: V2-0628 to R1-0528 --------------------------------------------------

_HEADED = (RoleForm("user", _USER), RoleForm("assistant", _ASSISTANT, _EOS))
V2_0628 = Grammar(
    name="deepseek-v2-0628",
    bos=_BOS,
    roles=(_PARAGRAPH, *_HEADED),
    end_tokens=(_EOS,),
    notes=V2.notes,
)

_FENCED = CallForm(
    "named",
    block_opener="<｜tool▁calls▁begin｜>",
    opener="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    name_closer="\n```json\n",
    closer="\n```<｜tool▁call▁end｜>",
    separator="\n",
    block_closer="<｜tool▁calls▁end｜>",
    printed="exactly",
)
# The calls of a second round follow the question without a header.
_LATER_CALLS = RoleForm("assistant", "\n", _EOS, after=("user",), begins=_FENCED.opener)
_THINK = ReasoningForm("<think>\n", "\n</think>\n\n", separate=False)


def _results(separator: str, *, unclosed: bool = False) -> tuple[RoleForm, ...]:
    """Return the forms of tool results and of what follows them.

    Results that follow others by some turns have the separator in the place of the group's opener, calls that
    follow results lack the header.

    Args:
        separator: What stands between two results.
        unclosed: The turn of a single call has neither a closer nor an end token.
    """
    result = RoleForm("tool", *_RESULT, separator=separator, unclosed=unclosed)
    return (
        replace(result, group_opener=_RESULTS_BEGIN),
        replace(result, group_opener=separator),
        result,
        RoleForm("assistant", _RESULTS_END, _EOS, after=("tool",)),
        RoleForm("assistant", "\n", _EOS, after=("tool",)),
    )


V3 = Grammar(
    name="deepseek-v3",
    bos=_BOS,
    roles=(_SYSTEM, *_HEADED, _LATER_CALLS, *_results("\n", unclosed=True)),
    end_tokens=(_EOS,),
    # After the second call and each further one the list and the turn are closed.
    calls=(replace(_FENCED, separator=f"{_EOS}\n", alone=True),),
    arguments="string",
    empty_content=None,
    notes=(_MOVED, _UNMARKED),
)
V2_5 = replace(V3, name="deepseek-v2.5")
_MARGIN = " " * 8  # before the text that begins a conversation, once for each system message
CODER_V2_0724 = replace(
    V3,
    name="deepseek-coder-v2-0724",
    roles=(
        RoleForm("system", _MARGIN + _BOS, after=("", "system")),
        RoleForm("system", _MARGIN, after=("", "system")),
        *V3.roles[1:],
    ),
)
R1_DISTILL = replace(V3, name="deepseek-r1-distill", reasoning=_THINK)
R1_DISTILL_FIRST = replace(R1_DISTILL, name="deepseek-r1-distill-first")
R1 = replace(
    V3,
    name="deepseek-r1",
    roles=(_SYSTEM, *_HEADED, _LATER_CALLS, *_results("")),
    calls=(_FENCED,),
    reasoning=_THINK,
)
R1_FIRST = replace(R1, name="deepseek-r1-first")
R1_0528 = replace(
    R1,
    name="deepseek-r1-0528",
    roles=(
        _SYSTEM,
        _FIRST,
        RoleForm("user", _USER, _ASSISTANT),
        RoleForm("assistant", "", _EOS, after=("user", "assistant")),
        *_results("\n")[:-1],
    ),
    generation_prompts=(_ASSISTANT,),
    empty_content="",
    notes=(_MOVED,),
)

# --- Calls behind their name: V3.1 --------------------------------------------------------------------------

V3_1 = Grammar(
    name="deepseek-v3.1",
    bos=_BOS,
    roles=(
        _SYSTEM,
        replace(_FIRST, cut_behind="</think>"),
        RoleForm("user", _USER),
        RoleForm(
            "assistant", f"{_ASSISTANT}</think>", _EOS, after=("user",), cut_behind="</think>"
        ),
        RoleForm("assistant", _ASSISTANT, _EOS, after=("user",), cut_behind="</think>"),
        RoleForm("assistant", "", _EOS, after=("assistant",), cut_behind="</think>"),
        RoleForm("assistant", "", _EOS, after=("tool",)),
        RoleForm("tool", *_RESULT),
    ),
    end_tokens=(_EOS,),
    reasoning=ReasoningForm("<think>", "</think>", separate=False),
    calls=(
        CallForm(
            "named",
            block_opener="<｜tool▁calls▁begin｜>",
            opener="<｜tool▁call▁begin｜>",
            name_closer="<｜tool▁sep｜>",
            closer="<｜tool▁call▁end｜>",
            block_closer="<｜tool▁calls▁end｜>",
            printed="exactly",
        ),
    ),
    arguments="string",
    notes=(_MOVED,),
)

# --- DSML: V3.2 and V4 --------------------------------------------------------------------------------------

_RESULTS_CLOSED = "\n</function_results>"
_TAGGED = ("\n<result>", "</result>")
_SEPARATE = ReasoningForm(
    "<think>", "</think>", empty=("</think>", "<think></think>"), looks_inside=False
)


def _dsml(block: str, space: str = "") -> CallForm:
    """Return DSML calls in a block of this name, with `space` before each tag's own name."""
    tag = f"｜DSML｜{space}"
    return CallForm(
        "params",
        block_opener=f"\n\n<{tag}{block}>\n",
        opener=f'<{tag}invoke name="',
        name_closer='">\n',
        closer=f"</{tag}invoke>\n",
        block_closer=f"</{tag}{block}>",
        printed="exactly",
        param=ParamForm(
            f'<{tag}parameter name="',
            '" string="',
            f"</{tag}parameter>\n",
            flag_closer='">',
        ),
    )


V3_2 = Grammar(
    name="deepseek-v3.2",
    bos=_BOS,
    roles=(
        _SYSTEM,
        replace(_FIRST, thoughtless=True),
        RoleForm("user", _USER),
        RoleForm("user", f"{_RESULTS_CLOSED}{_USER}", after=("tool",)),
        RoleForm("assistant", _ASSISTANT, _EOS, after=("user",)),
        RoleForm("assistant", f"{_RESULTS_CLOSED}\n\n", _EOS, after=("tool",)),
        RoleForm("assistant", "", _EOS, after=("assistant",), thoughtless=True),
        # The group is closed after as many results as there were calls, and only then.
        RoleForm(
            "tool", *_TAGGED, group_opener="\n\n<function_results>", finals=(_RESULTS_CLOSED,)
        ),
        RoleForm("tool", *_TAGGED, after=("tool",), finals=(_RESULTS_CLOSED,)),
        RoleForm("tool", f"{_RESULTS_CLOSED}{_TAGGED[0]}", _TAGGED[1], after=("tool",)),
    ),
    end_tokens=(_EOS,),
    reasoning=_SEPARATE,
    calls=(_dsml("function_calls"), replace(_dsml("tool_calls"), printed="never")),
    tools=(
        ToolsForm(
            "## Tools\n\nYou have access to a set of tools you can use to answer the user's question.\n",
            "\n</functions>\n",
            separator="\n\n",
        ),
    ),
    arguments="mapping",
    notes=(_MOVED, "A developer message is not printed."),
)
V4 = Grammar(
    name="deepseek-v4",
    bos=_BOS,
    roles=(
        _SYSTEM,
        RoleForm("user", _USER, after=("", "system", "assistant")),
        RoleForm("user", "\n\n", after=("tool",)),
        RoleForm("assistant", _ASSISTANT, _EOS),
        # Elsewhere such a text is a user's, and prints the same.
        RoleForm("tool", f"{_USER}<tool_result>", "</tool_result>", after=("assistant",)),
        RoleForm("tool", "\n\n<tool_result>", "</tool_result>", after=("user", "tool")),
    ),
    end_tokens=(_EOS,),
    reasoning=_SEPARATE,
    # The others are what V3.2 writes, and V4.1, which has no dialect of its own yet.
    calls=(
        _dsml("tool_calls"),
        replace(_dsml("function_calls"), printed="never"),
        replace(_dsml("calls", " "), printed="never"),
    ),
    tools=(
        ToolsForm(
            "## Tools\n\nYou have access to a set of tools to help answer the user's question. ",
            "\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke "
            "tool calls.\n",
            separator="\n\n",
        ),
    ),
    arguments="mapping",
    notes=(_MOVED, "User messages in a row are read as one, developer messages as the user's."),
)

# The Python encoders put an empty line before the tools, with a system text or without.
V3_2_ENCODER = replace(
    V3_2,
    name="deepseek-v3.2-encoder",
    tools=(
        ToolsForm(
            "\n\n## Tools\nYou have access to a set of tools you can use to answer the user's question.\n",
            "\n</functions>\n",
        ),
    ),
)
V4_ENCODER = replace(
    V4,
    name="deepseek-v4-encoder",
    tools=tuple(replace(form, opener=f"\n\n{form.opener}", separator="") for form in V4.tools),
)
