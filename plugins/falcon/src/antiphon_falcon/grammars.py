"""How the Falcon dialects are read back."""

from __future__ import annotations

from antiphon.reading import (
    CHATML_ROLES,
    CallForm,
    Grammar,
    RoleForm,
    Slot,
    ToolsForm,
)

FALCON = Grammar(
    name="falcon",
    roles=(
        RoleForm("user", "\n\nUser: ", trims="both", value="halved"),
        RoleForm("assistant", "\n\nAssistant: ", after=("user",), trims="both", value="halved"),
        RoleForm("system", "", after=("",), drop_empty=True, trims="both"),
    ),
    end_tokens=("<|endoftext|>",),
    generation_prompts=("\n\nAssistant:",),
    notes=(
        "A blank line and a speaker's name inside a text are read as the next turn.",
        "Of line breaks in a row every second one is not printed; those that are come back with the others.",
    ),
)

FALCON_11B = Grammar(
    name="falcon-11b",
    roles=(
        RoleForm("system", "System: ", "\n"),
        RoleForm("user", "User: \n", "\n"),
        RoleForm("assistant", "Falcon:\n", "\n"),
    ),
    end_tokens=("<|endoftext|>",),
    notes=("A line that begins with a speaker's name inside a text is read as the next turn.",),
)

_TAG = "<|assistant|>\n"

FALCON3 = Grammar(
    name="falcon3",
    roles=(
        RoleForm("system", "<|system|>\n", "\n"),
        RoleForm("user", "<|user|>\n", "\n"),
        RoleForm("tool", f"{_TAG}<tool_response>\n", "\n</tool_response>\n"),
        RoleForm("assistant", _TAG, "<|endoftext|>\n"),
        # An answer that only calls has no header of its own, nor has, with tools, one that says nothing.
        *(
            RoleForm(
                "assistant",
                "",
                "<|endoftext|>\n",
                after=("user", "tool", "system", "assistant"),
                begins=begins,
            )
            for begins in ("\n<tool_call>\n[\n", "<|endoftext|>\n")
        ),
    ),
    end_tokens=("<|endoftext|>",),
    calls=(
        CallForm(
            "json",
            block_opener="<tool_call>\n",
            block_closer="\n</tool_call>",
            lead="\n",
            lead_always=True,
            listed=True,
            announced=True,
        ),
        CallForm(
            "json", opener="<tool_call>\n", closer="\n</tool_call>", lead="\n", printed="never"
        ),
    ),
    tools=(
        ToolsForm(
            "You are a Falcon assistant skilled in function calling. You are helpful, respectful, "
            "and concise.\n\n# Tools\n\nYou have access to the following functions. You MUST use "
            "them to answer questions when needed. For each function call, you MUST return a JSON "
            "object inside <tool_call></tool_call> tags.\n\n<tools>",
            "</tools>\n\n# Output Format\n\nYour response MUST follow this format when making "
            'function calls:\n<tool_call>\n[\n  {"name": "function_name", "arguments": {"arg1": '
            '"value1", "arg2": "value2"}},\n  {"name": "another_function", "arguments": {"arg": '
            '"value"}}\n]\n</tool_call>\nIf no function calls are needed, respond normally without '
            "the tool_call tags.",
        ),
    ),
    generation_prompts=(_TAG,),
)

_OTHER = RoleForm("other", ("<|im_start|>", Slot("role"), "\n"), "<|im_end|>\n")
_H1_TOOLS = (
    "You are a function calling AI model. You are provided with function signature within <tools> "
    "</tools> XML tags. You may call one or more functions to assist with the user query. Don't "
    "make assumptions about what values to plug into functions.\n<tools>\n"
)

_H1_TOOLS_END = "\n</tool_call>\n"

FALCON_H1 = Grammar(
    name="falcon-h1",
    roles=(
        *CHATML_ROLES,
        # With tools the turn ends where the text that announces them ends.
        RoleForm("system", "<|im_start|>system\n", _H1_TOOLS_END, after=("",)),
        _OTHER,
    ),
    bos="<|begin_of_text|>",
    end_tokens=("<|im_end|>", "<|end_of_text|>"),
    # The template drops calls; it shows the model how to write one as a Python dictionary.
    calls=(
        CallForm(
            "json",
            values="python",
            opener="<tool_call>\n",
            closer="\n</tool_call>",
            separator="\n",
            printed="never",
        ),
    ),
    tools=(
        ToolsForm(
            _H1_TOOLS,
            "\n</tools>\nFor each function call, return a json object with function name and "
            "arguments within <tool_call> </tool_call> tags with the following schema:\n"
            "<tool_call>\n{'arguments': <args-dict>, 'name': <function-name>}",
            separator="\n\n",
        ),
    ),
)

FALCON_MAMBA = Grammar(
    name="falcon-mamba",
    roles=(*CHATML_ROLES, _OTHER),
    bos="<|begin_of_text|>",
    end_tokens=("<|im_end|>", "<|endoftext|>"),
)
