"""How the Llama dialects are read back."""

from __future__ import annotations

from dataclasses import replace

from antiphon.reading import CallForm, ContentForm, Grammar, RoleForm, Slot

# Llama 2 and Code Llama

_SYSTEM_END = "\n<</SYS>>\n\n"

LLAMA2 = Grammar(
    name="llama2",
    roles=(
        RoleForm("system", "<s>[INST] <<SYS>>\n", _SYSTEM_END, after=("",)),
        RoleForm("user", "", " [/INST]", after=("system",), trims="right"),
        # Without a text of his own what separates the system's from it is stripped as well.
        RoleForm("user", "\n<</SYS>> [/INST]", after=("system",), unclosed=True),
        RoleForm("user", "<s>[INST] ", " [/INST]", after=("", "assistant", "user"), trims="both"),
        RoleForm("assistant", " ", " </s>", after=("user",), trims="both"),
    ),
    end_tokens=("</s>",),
    notes=("Messages that the template drops can't come back.",),
)

CODELLAMA = replace(LLAMA2, name="codellama")

# Llama 3


def _header(role: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n"


_LLAMA3_ANY = RoleForm(
    "other",
    ("<|start_header_id|>", Slot("role"), "<|end_header_id|>\n\n"),
    "<|eot_id|>",
    trims="both",
)
_LLAMA3_ENDS = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")

LLAMA3 = Grammar(
    name="llama3",
    roles=(
        *(
            RoleForm(role, _header(role), "<|eot_id|>", trims="both")
            for role in ("system", "user", "assistant")
        ),
        _LLAMA3_ANY,
    ),
    bos="<|begin_of_text|>",
    end_tokens=("<|eot_id|>", "<|end_of_text|>"),
)

# Llama 3.1 to 3.3

_CALL_FORMAT = (
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and '
    "its value}.Do not use variables.\n\n"
)
_TOOLS_IN_SYSTEM = (
    "You have access to the following functions. To call a function, please respond with JSON for "
    f"a function call.{_CALL_FORMAT}"
)
_TOOLS_IN_USER = (
    "Given the following functions, please respond with a JSON for a function call with its proper "
    f"arguments that best answers the given prompt.\n\n{_CALL_FORMAT}"
)


def _announced(text: str) -> tuple[tuple[str | Slot, ...], ...]:
    """Return how tools are announced before a message: with tools, and with an empty list."""
    return ((text, Slot("tools"), "\n}\n\n"), (text,))


_DATES = "Cutting Knowledge Date: December 2023\nToday Date: "
_DATE: tuple[str | Slot, ...] = (Slot("date_string"), "\n\n")
_PARAMETERS = ("parameters", "arguments")

LLAMA31 = Grammar(
    name="llama3.1",
    roles=(
        RoleForm(
            "system",
            _header("system"),
            "<|eot_id|>",
            after=("",),
            drop_empty=True,
            preambles=tuple(
                (*lines, *tools)
                for lines in (
                    ("Environment: ipython\nTools: ", Slot("tools"), f"\n\n{_DATES}", *_DATE),
                    (f"Environment: ipython\n{_DATES}", *_DATE),
                    (_DATES, *_DATE),
                )
                for tools in (*_announced(_TOOLS_IN_SYSTEM), ())
            ),
            trims="both",
        ),
        RoleForm(
            "user",
            _header("user"),
            "<|eot_id|>",
            after=("system",),
            preambles=_announced(_TOOLS_IN_USER),
            trims="both",
        ),
        *(
            RoleForm(role, _header(role), "<|eot_id|>", trims="both")
            for role in ("system", "user", "assistant")
        ),
        RoleForm("tool", _header("ipython"), "<|eot_id|>", value="json"),
        _LLAMA3_ANY,
    ),
    bos="<|begin_of_text|>",
    end_tokens=_LLAMA3_ENDS,
    pending_tokens=("<|eom_id|>",),
    calls=(
        CallForm(
            "json",
            opener="<|python_tag|>",
            separator=";",
            argument_keys=_PARAMETERS,
            printed="never",
        ),
        CallForm(
            "pythonic",
            opener="<|python_tag|>",
            call_suffix=".call",
            printed="exactly",
            announced=True,
            alone=True,
            single=True,
        ),
        CallForm(
            "named",
            opener="<|python_tag|>",
            fixed_name="code_interpreter",
            fixed_argument="code",
            printed="never",
        ),
        CallForm(
            "json",
            bare=True,
            separator=";",
            argument_keys=_PARAMETERS,
            printed="exactly",
            alone=True,
            single=True,
        ),
    ),
    arguments="mapping",
    notes=(
        "An answer that is nothing but the JSON of a call is read as that call.",
        "A system message without text can't be told from none.",
        "A message whose first line is a brace, right after the list of tools, is read as one of them.",
    ),
)

LLAMA32 = replace(
    LLAMA31,
    name="llama3.2",
    # What the model writes where the tools stand in a system text of somebody's own.
    calls=(*LLAMA31.calls, CallForm("pythonic", bare=True, listed=True, printed="never")),
)

# Llama 4


def _header4(role: str) -> str:
    return f"<|header_start|>{role}<|header_end|>\n\n"


LLAMA4 = Grammar(
    name="llama4",
    roles=(
        RoleForm(
            "system",
            _header4("system"),
            "<|eot|>",
            after=("",),
            preambles=(
                *(("Environment: ipython\n", *tools) for tools in _announced(_TOOLS_IN_SYSTEM)),
                "Environment: ipython\n",
            ),
            trims="both",
        ),
        RoleForm(
            "user",
            _header4("user"),
            "<|eot|>",
            after=("", "system"),
            preambles=_announced(_TOOLS_IN_USER),
        ),
        *(RoleForm(role, _header4(role), "<|eot|>") for role in ("system", "user", "assistant")),
        RoleForm("tool", _header4("ipython"), "<|eot|>", value="json"),
        RoleForm("other", ("<|header_start|>", Slot("role"), "<|header_end|>\n\n"), "<|eot|>"),
    ),
    bos="<|begin_of_text|>",
    end_tokens=("<|eot|>", "<|eom|>", "<|end_of_text|>"),
    pending_tokens=("<|eom|>",),
    content=ContentForm("<|python_start|>", "<|python_end|>", with_calls=True),
    calls=(
        CallForm("pythonic", bare=True, listed=True, printed="never"),
        CallForm("json", bare=True, argument_keys=_PARAMETERS, printed="exactly"),
    ),
    arguments="mapping",
)
