"""Descriptors of the DeepSeek dialects: which models speak them, and by what they are known.

Two descriptors may share a template and a grammar where models with other vocabularies speak the same dialect.
"""

from __future__ import annotations

from antiphon.families import ModelFamily
from antiphon.naming import known_models, own_names

_PROMPT = r"'<｜Assistant｜><think>\n'"
_UNOPENED = ((_PROMPT, "'<｜Assistant｜>'"),)
_JOINED = r"state.system + ('' if loop.first else '\n\n') + message.content"
_EOS = "<｜end▁of▁sentence｜>"
_ROLES = ("<｜User｜>", "<｜Assistant｜>")
# In every vocabulary from V3 on, and in none before.
_V3 = (*_ROLES, "<｜tool▁calls▁begin｜>", "<｜place▁holder▁no▁0｜>")
# R1, R1-0528 and V3.1 can't be told apart by these; a template or a name has to.
_R1 = (*_V3, "<think>", "</think>")
_DSML = "｜DSML｜"
_REMINDER = "<｜latest_reminder｜>"

_OPENERS = (
    "A second round of calls or of results lacks its opener, since the template never forgets the first.",
)
_NO_TOOLS = ("Tools are not announced to the model.",)
_UNCLOSED = (
    "Content in parts is refused, and so is a user's that is None.",
    "After one call neither the call list nor the turn is closed; after three both are closed twice.",
    "Calls are printed only if the content is None; with any other content they are dropped.",
    *_OPENERS,
    *_NO_TOOLS,
)
_NO_PROMPT = ("After a tool result no generation prompt is printed.",)
_NO_PARTS = "Content in parts is refused."
_NO_NULL = "Content in parts is refused, and None in a turn without calls."
_TEXT_ONLY = "Contents that are not text are refused, None among them."
_PLAIN = ("Calls, tool results and tools are dropped without a word.", _TEXT_ONLY)


_MODELS = known_models("antiphon_deepseek")


# From V3 on a line has one size, which hubs count as 671 or 685. Smaller ones are distills, under a name
# that does not say so: deepseek-r1-7b speaks otherwise than DeepSeek-R1.
_OTHER_SIZE = r"[-_. ](?!671b|685b)\d+(?:[._]\d+)?b(?![a-z0-9])"


def _names(line: str, words: str = "", *, without: str = "") -> tuple[str, ...]:
    """Return the pattern of a line's own names."""
    return own_names(line, words, org="deepseek-ai", without=without)


def _dialect(
    name: str,
    grammar: str,
    *,
    template: str = "",
    models: str = "",
    patterns: tuple[str, ...] = (),
    **fields: object,
) -> ModelFamily:
    """Return a descriptor; `models` are official names of the organisation, separated by blanks."""
    official = tuple(f"deepseek-ai/{model}" for model in models.split())
    return ModelFamily(
        name=name,
        line="deepseek",
        template=f"antiphon_deepseek:templates/{template or name}.jinja",
        grammar=f"antiphon_deepseek.grammars:{grammar}",
        model_ids=tuple(dict.fromkeys((*official, *_MODELS.get(name, ())))),
        other_ids=_MODELS.get(f"not {name}", ()),
        name_patterns=patterns,
        **{"end_tokens": (_EOS,), **fields},  # type: ignore[arg-type]
    )


# What is kept of dialects that no public Jinja template speaks; the tests hold them to their encoders.
_KEPT = "antiphon_deepseek:renderings.json"
# The Python encoders that V3.2 and V4 have at their origin differ from the public Jinja templates in these.
_TOOLS_APART = ("{{- '\\n\\n' if state.system -}}", "{{- '\\n\\n' -}}")
_EMPTY_LINE = (
    "{{- '</｜DSML｜invoke>\\n' }}",
    "{{- '</｜DSML｜invoke>\\n' if call.function.arguments else '\\n</｜DSML｜invoke>\\n' }}",
)
_CLOSED = ("'<think></think>'", "'</think>'")
_DENSE = tuple(
    (text, text.replace("\n\n", "\n"))
    for text in (
        "## Tools\n\nYou",
        "function_calls>\n\nString",
        "objects).\n\nIf",
        "example:\n\n",
        "function_calls>\n\n<function_results>",
        "</function_results>\n\n<think>",
        "results</think>\n\nHere",
    )
)
_ENCODER = (
    "Renders as the Python encoder does where system messages come first and questions and answers take turns.",
    "A call without arguments holds an empty line.",
    "Content in parts is refused or printed as Python prints it; the encoder knows parts of text.",
    "What the encoder refuses (an answer without reasoning where thinking is on) is printed.",
)

FAMILIES = (
    _dialect(
        "deepseek-v2",
        "V2",
        patterns=(
            *_names(r"deepseek[-_]?(?:coder[-_])?v2", "chat|lite|instruct|base"),
            *_names(r"deepseek[-_](?:llm|moe|math)", "chat|instruct|base|rl"),
        ),
        digests=("8aeba567270fa9a8d5372caf4b04affea947c4421d96adc01e3ff94021b0ae8e",),
        notes=_PLAIN,
    ),
    _dialect(
        "deepseek-coder",
        "CODER",
        patterns=_names(r"deepseek[-_]coder", r"instruct|base|v1\.5"),
        end_tokens=("<|EOT|>", _EOS),
        digests=("993c0af704bad76aeba4263a5318f7873a06420a8eb7d40b72a49c39599c0a66",),
        notes=(
            "Every role but system and user stands under the heading of a response, tool results too.",
            "A message's calls are dropped.",
            _TEXT_ONLY,
        ),
    ),
    _dialect(
        "deepseek-prover",
        "PROVER",
        models="deepseek-vl2 deepseek-vl2-tiny",
        patterns=_names(r"deepseek[-_]prover[-_]v1(?:[.p_]5)?", "base|sft|rl"),
        end_tokens=("<|EOT|>", _EOS),
        variant_of="deepseek-coder",
        digests=("8ba1ca9a4c606d3f324a0c800a5004ae2e08eea7e917e1cb04c6b38fb5feebfc",),
        notes=(
            "The default system text is printed even where there is a system message.",
            "A generation prompt is printed even where none is asked for; there is no BOS.",
            "A message's calls are dropped.",
            _TEXT_ONLY,
        ),
    ),
    _dialect(
        "deepseek-v2-0628",
        "V2_0628",
        patterns=_names(r"deepseek[-_]?v2(?=.*0628)", "chat|0628"),
        digests=("980c96c053071fb6157ca0c0d56d6f542bfdd8196259e401c9d3c782190ea607",),
        notes=_PLAIN,
    ),
    _dialect(
        "deepseek-coder-v2-0724",
        "CODER_V2_0724",
        template="deepseek-v3",
        edits=((_JOINED + " %}", "message.content %}{{ '        ' }}"),),
        patterns=_names(r"deepseek[-_]coder[-_]v2(?=.*0724)", "instruct|0724"),
        arguments="string",
        digests=("cac8d3ea82bac9a92114e474c67bed1497208570426258f9c447a1b355322117",),
        notes=(
            "Eight spaces stand before BOS for every system message; only the last one's text is printed.",
            *_UNCLOSED,
            *_NO_PROMPT,
        ),
    ),
    _dialect(
        "deepseek-v2.5",
        "V2_5",
        template="deepseek-v3",
        edits=((_JOINED, "message.content"),),
        patterns=_names(r"deepseek[-_]?v2[.p_]5", "1210"),
        arguments="string",
        digests=("54d400beedcd17f464e10063e0577f6f798fa896266a912d8a366f8a2fcc0bca",),
        notes=("Only the last system message's text is printed.", *_UNCLOSED, *_NO_PROMPT),
    ),
    _dialect(
        "deepseek-v3",
        "V3",
        models="DeepSeek-V3 DeepSeek-V3-Base DeepSeek-V3-0324",
        patterns=_names(r"deepseek[-_]?v3", "base|0324", without=_OTHER_SIZE),
        required_tokens=_V3,
        excluded_tokens=(_DSML,),
        arguments="string",
        digests=(
            "3b8267e54b67df6500f231ffa969955cc9d26b3444a291ced4eb96ca7d3ca1ea",
            "c03b9f24789a92b4bfab159476e6271b5b396318feacbdccc802ab305e4f0260",
        ),
        notes=(*_UNCLOSED, *_NO_PROMPT),
    ),
    _dialect(
        "deepseek-r1",
        "R1",
        models="DeepSeek-R1",
        patterns=_names(r"deepseek[-_]?r1", without=_OTHER_SIZE),
        required_tokens=_R1,
        excluded_tokens=(_DSML,),
        arguments="string",
        digests=("563b1ce7d61d50a9b4c7439a912a1116f095b712df5b5e4d3e1116049874eb64",),
        notes=(
            "Answers lose the text up to the last </think>, but for those that follow a tool result.",
            "tool_calls=[] prints the closing markers alone and loses the content; None is refused.",
            _NO_NULL,
            "From the second message with calls on its content is dropped; results follow without a newline.",
            *_OPENERS,
            *_NO_TOOLS,
            *_NO_PROMPT,
        ),
    ),
    _dialect(
        "deepseek-r1-first",
        "R1_FIRST",
        template="deepseek-r1",
        edits=_UNOPENED,
        variant_of="deepseek-r1",
        arguments="string",
        digests=("3a3036eeb96ca0e48565fc1f19b4d7d3fa17ada32bb1b3d5ed539ae74cf22923",),
        notes=("As deepseek-r1, but the generation prompt does not open the reasoning.",),
    ),
    _dialect(
        "deepseek-r1-0528",
        "R1_0528",
        models="DeepSeek-R1-0528",
        patterns=_names(r"deepseek[-_]?r1[-_]0528", without=_OTHER_SIZE),
        required_tokens=_R1,
        excluded_tokens=(_DSML,),
        arguments="string",
        digests=("53671bac29bcb3e1f95f51b8c77d85a6011b66dc38bd23dce64eef04384a976b",),
        notes=(
            "The answer's header is printed with every user message, even where no prompt is asked for.",
            "Content None is refused, in messages with calls too; tool_calls=[] loses the content.",
            _NO_PARTS,
            "All answers lose the text up to the last </think>, the one just given too.",
            *_NO_TOOLS,
            *_NO_PROMPT,
        ),
    ),
    _dialect(
        "deepseek-r1-0528-distill",
        "R1_0528",
        template="deepseek-r1-0528",
        models="DeepSeek-R1-0528-Qwen3-8B",
        patterns=_names(r"deepseek[-_]?r1[-_]0528[-_]qwen3"),
        required_tokens=(*_ROLES, "<think>", "</think>"),
        excluded_tokens=("<｜tool▁calls▁begin｜>",),
        variant_of="deepseek-r1-0528",
        arguments="string",
        renderings=_KEPT,
        notes=("As deepseek-r1-0528, on Qwen 3's vocabulary.",),
    ),
    _dialect(
        "deepseek-r1-distill",
        "R1_DISTILL",
        models=" ".join(
            f"DeepSeek-R1-Distill-{size}"
            for size in ("Qwen-1.5B", "Qwen-7B", "Qwen-14B", "Qwen-32B", "Llama-8B", "Llama-70B")
        ),
        patterns=_names(r"deepseek[-_]?r1[-_.]?distill(?:[-_](?:qwen|llama))?"),
        required_tokens=(*_ROLES, "<think>", "</think>"),
        excluded_tokens=("<｜tool▁calls▁begin｜>",),
        arguments="string",
        digests=(
            "56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f",
            "dd2675619a64a449cdcdd2b93e605a0a50764cee41e344f244752bc93643936c",
        ),
        notes=(
            "Answers lose the text up to the last </think>, but for those that follow a tool result.",
            "Only the last system message's text is printed.",
            *_UNCLOSED,
            *_NO_PROMPT,
        ),
    ),
    _dialect(
        "deepseek-r1-distill-first",
        "R1_DISTILL_FIRST",
        template="deepseek-r1-distill",
        edits=_UNOPENED,
        variant_of="deepseek-r1-distill",
        arguments="string",
        digests=("b6835114b7303ddd78919a82e4d9f7d8c26ed0d7dfc36beeb12d524f6144eab1",),
        notes=("As deepseek-r1-distill, but the generation prompt does not open the reasoning.",),
    ),
    _dialect(
        "deepseek-v3.1",
        "V3_1",
        models="DeepSeek-V3.1 DeepSeek-V3.1-Base DeepSeek-V3.1-Terminus DeepSeek-V3.2-Exp",
        patterns=_names(
            r"deepseek[-_]?v3[.p_](?:1|2[-_]?exp)", "base|terminus", without=_OTHER_SIZE
        ),
        required_tokens=_R1,
        excluded_tokens=(_DSML,),
        arguments="string",
        digests=("45690185067ea25c073bff2d3e425a45ee2564d2bbf6cdf7d885e139d460b8e0",),
        notes=(
            "Answers lose the text up to the first </think>, but for those that follow a tool result.",
            "The header of an answer is printed after a user message only.",
            "tool_calls=[] prints the closing markers alone and loses the content.",
            _NO_NULL,
            *_NO_TOOLS,
            *_NO_PROMPT,
        ),
    ),
    _dialect(
        "deepseek-v3.2",
        "V3_2",
        models="DeepSeek-V3.2 DeepSeek-V3.2-Speciale",
        patterns=_names(r"deepseek[-_]?v3[.p_]2", "speciale", without=_OTHER_SIZE),
        required_tokens=(*_ROLES, "<think>", "</think>", _DSML),
        excluded_tokens=(_REMINDER,),
        arguments="mapping",
        digests=("8e5a13fcc4bdd4d943311fc59064b805770fdeddfccbd7f1c252cc16e8acaf3d",),
        notes=(
            "With thinking off the prompt ends in <think></think>, earlier answers begin with </think> alone.",
            "A developer message is not printed, but counts as the last user message.",
            "Reasoning is printed only after the last user message and only with thinking on.",
            "Results are counted by their distance from the calls: a message between shifts the block's ends.",
            _NO_PARTS,
        ),
    ),
    _dialect(
        "deepseek-v4",
        "V4",
        models="DeepSeek-V4 DeepSeek-V4-Flash DeepSeek-V4-Pro",
        patterns=_names(r"deepseek[-_]?v4", "flash|pro"),
        required_tokens=(*_ROLES, "<think>", "</think>", _DSML, _REMINDER),
        arguments="mapping",
        digests=("b6f8261e0d132011f6420590294c9811f715fc9a51fb376d939d1f1d7150e967",),
        notes=(
            "With thinking off or reasoning dropped an earlier answer begins with </think> alone.",
            "Reasoning effort, response formats and tasks of the Python encoder are not printed.",
            "Content in parts is printed as Python prints it.",
        ),
    ),
    _dialect(
        "deepseek-v3.2-encoder",
        "V3_2_ENCODER",
        template="deepseek-v3.2",
        edits=(_TOOLS_APART, _EMPTY_LINE, _CLOSED, *_DENSE),
        variant_of="deepseek-v3.2",
        arguments="mapping",
        renderings=_KEPT,
        notes=("Earlier answers begin with </think> alone where thinking is off.", *_ENCODER),
    ),
    _dialect(
        "deepseek-v4-encoder",
        "V4_ENCODER",
        template="deepseek-v4",
        edits=(
            _TOOLS_APART,
            _EMPTY_LINE,
            # It drops earlier reasoning unless told otherwise or tools are given.
            (
                "not drop_thinking or state.results or loop",
                "drop_thinking is false or tools or loop",
            ),
        ),
        variant_of="deepseek-v4",
        renderings=_KEPT,
        arguments="mapping",
        notes=(
            "With thinking off or reasoning dropped an earlier answer begins with </think> alone.",
            "Reasoning before the last question is dropped where no tools are given, unless drop_thinking is false.",
            *_ENCODER,
        ),
    ),
)
