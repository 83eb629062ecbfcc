r"""Ways of writing calls that models have and no family here declares.

With the grammars of the registered families they are what a reading is looked through for, so that
a call in another format than the grammar's does not pass for an answer; see
`antiphon.reading.foreign`.
"""

from __future__ import annotations

from antiphon.reading.grammar import CallForm, ParamForm

_NAMED_PARAM = ParamForm('<parameter name="', '">', "</parameter>\n")
_INVOKED = CallForm(
    "params",
    block_opener="<function_calls>\n",
    opener='<invoke name="',
    name_closer='">\n',
    closer="</invoke>\n",
    block_closer="</function_calls>",
    param=_NAMED_PARAM,
)

FORMATS: tuple[tuple[str, CallForm], ...] = (
    ("GLM", CallForm(
        "params", opener="<tool_call>", closer="</tool_call>",
        param=ParamForm("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
    )),
    ("Kimi", CallForm(
        "named", block_opener="<|tool_calls_section_begin|>", opener="<|tool_call_begin|>",
        name_closer="<|tool_call_argument_begin|>", closer="<|tool_call_end|>",
        block_closer="<|tool_calls_section_end|>", name_prefix="functions.", named_by_id=True,
    )),
    ("Mistral", CallForm("json", block_opener="[TOOL_CALLS] ", listed=True)),
    ("Mistral", CallForm(
        "named", opener="[TOOL_CALLS]", id_opener="[CALL_ID]", name_closer="[ARGS]"
    )),
    ("Mistral", CallForm("named", opener="[TOOL_CALLS]")),
    ("harmony", CallForm(
        "named", opener="<|channel|>commentary to=functions.",
        name_closer="<|constrain|>json<|message|>", closer="<|call|>",
    )),
    ("harmony", CallForm(
        "named", opener=" to=functions.", name_closer="<|channel|>commentary json<|message|>",
        closer="<|call|>",
    )),
    ("Gemma 4", CallForm(
        "named", opener="<|tool_call>call:", closer="<tool_call|>", values="braces", quote='<|"|>'
    )),
    ("FunctionGemma", CallForm(
        "named", opener="<start_function_call>call:", closer="<end_function_call>",
        values="braces", quote="<escape>",
    )),
    ("Olmo 3", CallForm(
        "pythonic", block_opener="<function_calls>", block_closer="</function_calls>",
        separator="\n",
    )),
    ("invoke tags", _INVOKED),
    ("Llama's function tags", CallForm(
        "named", opener="<function=", name_closer=">", closer="</function>"
    )),
    # The same tags around parameters (Seed-OSS and others put a block of their own around them).
    ("function tags with parameters", CallForm(
        "params", opener="<function=", name_closer=">\n", closer="</function>",
        param=ParamForm("<parameter=", ">\n", "\n</parameter>\n"),
    )),
    ("JSON objects", CallForm("json", bare=True)),
    ("Python calls", CallForm("pythonic", bare=True, listed=True)),
)  # fmt: skip
"""Formats by name. JSON objects and lists of Python calls behind any marker need no entry."""
