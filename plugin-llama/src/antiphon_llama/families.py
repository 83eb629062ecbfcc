"""Descriptors of the Llama dialects: which models speak them, and by what they are known.

A fine-tune often keeps "Llama" in its name and speaks another format (Hermes, Tulu, Nemotron and
the DeepSeek distills do): whatever a model is called, its template's digest or its exact name decides.
"""

from __future__ import annotations

from antiphon.families import ModelFamily
from antiphon.naming import known_models, own_names

_MODELS = known_models("antiphon_llama")
_META = r"(?:meta[-_. ]?)?"


def _names(line: str, words: str = "instruct|it", *, without: str = "") -> tuple[str, ...]:
    """Return the pattern of a line's own names."""
    return own_names(_META + line, words, org="meta-llama", without=without)


_LLAMA3_TOKENS = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_LLAMA31_TOKENS = ("<|eom_id|>", "<|python_tag|>")
_FOREIGN_TOKENS = ("<|im_start|>", "<|im_end|>", "<｜User｜>", "<｜Assistant｜>")
_LLAMA3_ENDS = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")

_ONE_FORMAT_FOR_CALLS = (
    "tool_calls refuses more than one call, an empty list and None.",
    "The content of a message with tool_calls is not printed.",
    "A message with tool_calls becomes an assistant's whatever its role says.",
    "The result of a tool is printed as JSON even where it is a string: text gains quotes.",
    "An empty list of tools still prints the instructions for calls.",
    "Contents are trimmed; parts and None are printed as Python prints them.",
    "With tools the first message after the system's becomes the user's, whatever its role says.",
)

LLAMA2 = ModelFamily(
    name="llama2",
    line="llama",
    template="antiphon_llama:templates/llama2.jinja",
    grammar="antiphon_llama.grammars:LLAMA2",
    digests=("e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf",),
    model_ids=(
        "meta-llama/Llama-2-7b-chat-hf",
        "meta-llama/Llama-2-13b-chat-hf",
        "meta-llama/Llama-2-70b-chat-hf",
        *_MODELS.get("llama2", ()),
    ),
    other_ids=_MODELS.get("not llama2", ()),
    name_patterns=_names(r"llama[-_. ]?2", "chat"),
    end_tokens=("</s>",),
    notes=(
        "The system text stands inside the first user turn, and only there: without a user message "
        "it is not printed, and a system message further on is refused or dropped.",
        "Any role but user is accepted at every second place; all but the assistant's are dropped.",
        "Calls and tools are not printed.",
        "A space stands before and after an answer.",
        "Contents that are not text are refused, None among them.",
    ),
)

CODELLAMA = ModelFamily(
    name="codellama",
    line="llama",
    template="antiphon_llama:templates/codellama.jinja",
    grammar="antiphon_llama.grammars:CODELLAMA",
    digests=("ea2472f29dbd93c3eb696795f6403228fcc4b775518869c771f83fbae5c11dbf",),
    model_ids=_MODELS.get("codellama", ()),
    other_ids=_MODELS.get("not codellama", ()),
    # The 70B model has a format of its own.
    name_patterns=_names(r"code[-_]?llama(?![-_. ]?70b)"),
    end_tokens=("</s>",),
    notes=(
        *LLAMA2.notes[:-1],
        "Contents that are None or parts are printed as Python prints them.",
    ),
)

LLAMA3 = ModelFamily(
    name="llama3",
    line="llama",
    template="antiphon_llama:templates/llama3.jinja",
    grammar="antiphon_llama.grammars:LLAMA3",
    digests=(
        "ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122",
        "47d5a7b4840c2ff2dfa0828b2465a654bef3a6cdfe032e5e105f395e4ceee812",
        "4f46ecd43418f216df8c26936c60e5d04bcc81db47db5d86fbe889f64212dd4c",
    ),
    model_ids=(
        "meta-llama/Meta-Llama-3-8B-Instruct",
        "meta-llama/Meta-Llama-3-70B-Instruct",
        *_MODELS.get("llama3", ()),
    ),
    required_tokens=_LLAMA3_TOKENS,
    excluded_tokens=(*_LLAMA31_TOKENS, *_FOREIGN_TOKENS),
    other_ids=_MODELS.get("not llama3", ()),
    # The other sizes are those of 3.1 and 3.2: a name that has one lacks its point.
    name_patterns=_names(
        r"llama[-_. ]?3(?![-_. ]\d[-_. ])", without=r"[-_. ](?:[123]|11|90|405)b(?![a-z0-9])"
    ),
    end_tokens=("<|eot_id|>", "<|end_of_text|>"),
    notes=(
        "Contents are trimmed; parts and None are printed as Python prints them.",
        "Calls and tools are not printed; a tool's message gets a header with its own role.",
        "Without a message the token that begins the text is missing.",
    ),
)

LLAMA31 = ModelFamily(
    name="llama3.1",
    line="llama",
    template="antiphon_llama:templates/llama3.1.jinja",
    grammar="antiphon_llama.grammars:LLAMA31",
    digests=("e10ca381b1ccc5cf9db52e371f3b6651576caee0a630b452e2816b2d404d4b65",),
    model_ids=(
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.1-70B-Instruct",
        "meta-llama/Llama-3.1-405B-Instruct",
        "meta-llama/Llama-3.1-405B-Instruct-FP8",
        "meta-llama/Meta-Llama-3.1-8B-Instruct",
        "meta-llama/Meta-Llama-3.1-70B-Instruct",
        "meta-llama/Meta-Llama-3.1-405B-Instruct",
        "meta-llama/Meta-Llama-3.1-405B-Instruct-FP8",
        "meta-llama/Llama-3.3-70B-Instruct",
        *_MODELS.get("llama3.1", ()),
    ),
    required_tokens=(*_LLAMA3_TOKENS, *_LLAMA31_TOKENS),
    excluded_tokens=_FOREIGN_TOKENS,
    other_ids=_MODELS.get("not llama3.1", ()),
    name_patterns=_names(r"llama[-_. ]?3[-_. ]?[13]"),
    arguments="mapping",
    end_tokens=_LLAMA3_ENDS,
    notes=(
        "The system turn is always printed; without date_string it says 26 Jul 2024.",
        *_ONE_FORMAT_FOR_CALLS,
        "Arguments of built-in tools must be strings, and quotes in them are not escaped.",
        "With builtin_tools every call ends in <|eom_id|>, also calls of other functions.",
    ),
)

LLAMA32 = ModelFamily(
    name="llama3.2",
    line="llama",
    template="antiphon_llama:templates/llama3.2.jinja",
    grammar="antiphon_llama.grammars:LLAMA32",
    digests=(
        "5816fce10444e03c2e9ee1ef8a4a1ea61ae7e69e438613f3b17b69d0426223a4",
        "d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f",
    ),
    model_ids=(
        "meta-llama/Llama-3.2-1B-Instruct",
        "meta-llama/Llama-3.2-3B-Instruct",
        *_MODELS.get("llama3.2", ()),
    ),
    required_tokens=(*_LLAMA3_TOKENS, *_LLAMA31_TOKENS),
    excluded_tokens=_FOREIGN_TOKENS,
    other_ids=_MODELS.get("not llama3.2", ()),
    # Vision stands between size and Instruct: those models have a template of their own.
    name_patterns=_names(r"llama[-_. ]?3[-_. ]?2"),
    arguments="mapping",
    end_tokens=_LLAMA3_ENDS,
    notes=(
        "The system turn is always printed; without date_string it says the day of the rendering, "
        "so prompts change from day to day: pass date_string.",
        *_ONE_FORMAT_FOR_CALLS,
    ),
)

LLAMA4 = ModelFamily(
    name="llama4",
    line="llama",
    template="antiphon_llama:templates/llama4.jinja",
    grammar="antiphon_llama.grammars:LLAMA4",
    digests=("01a91bfb2e84c8055bf7b635898fef3cae0b69e42ac5634c212d308e0e9091bd",),
    model_ids=(
        "meta-llama/Llama-4-Scout-17B-16E-Instruct",
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8",
        *_MODELS.get("llama4", ()),
    ),
    required_tokens=("<|begin_of_text|>", "<|header_start|>", "<|header_end|>", "<|eot|>"),
    excluded_tokens=("<|start_header_id|>", *_FOREIGN_TOKENS),
    other_ids=_MODELS.get("not llama4", ()),
    name_patterns=_names(r"llama[-_. ]?4[-_. ](?:scout|maverick)"),
    arguments="mapping",
    end_tokens=("<|eot|>", "<|eom|>", "<|end_of_text|>"),
    notes=(
        "The content of a message with calls stands between python markers, which are printed "
        "without a content too.",
        "Calls follow each other without a separator.",
        "A message with an empty list of tool_calls is dropped; tool_calls None and a content None "
        "are refused.",
        "Of a system message in parts only the first one's text is printed.",
        "With tools, the parts of the first user message are printed as Python prints them.",
        "The system text is trimmed, all other contents are not.",
        "The result of a tool is printed as JSON even where it is a string.",
        "An empty list of tools still prints the instructions for calls.",
        "Without a system message, tools_in_user_message=False does not print the tools at all.",
    ),
)

FAMILIES = (LLAMA2, CODELLAMA, LLAMA3, LLAMA31, LLAMA32, LLAMA4)
