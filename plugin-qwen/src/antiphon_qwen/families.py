"""The Qwen dialects: which template and grammar each has and how its models are known."""

from __future__ import annotations

from functools import partial
from typing import Any

from antiphon.families import ModelFamily
from antiphon.naming import known_models, own_names

_KNOWN = known_models("antiphon_qwen")
# Words that leave a dialect what it is. Those of other dialects (coder, thinking, vl) are named where they belong:
# a Qwen3.6-Coder that is to come may speak otherwise.
_WORDS = "instruct|chat|it|base|preview|moe|turbo"


def _dialect(
    name: str, *, file: str = "", models: tuple[str, ...] = (), **fields: Any
) -> ModelFamily:
    """Return a descriptor: the template stands in a file and the grammar under a name like the dialect's.

    Args:
        name: The dialect.
        file: The template's file, where that is another dialect's, with edits.
        models: Hub names besides those in the list of known models.
        fields: The rest of the descriptor.
    """
    return ModelFamily(
        name=name,
        line="qwen",
        template=f"antiphon_qwen:templates/{file or name}.jinja",
        model_ids=tuple(dict.fromkeys((*models, *_KNOWN.get(name, ())))),
        other_ids=_KNOWN.get(f"not {name}", ()),
        end_tokens=("<|im_end|>", "<|endoftext|>"),
        **{"grammar": _grammar(name), **fields},
    )


def _grammar(name: str) -> str:
    constant = name.upper().replace("-", "_").replace(".", "_")
    return f"antiphon_qwen.grammars:{constant}"


def _ids(pattern: str, sizes: str = "") -> tuple[str, ...]:
    """Return hub names of the organisation: the pattern with each size in place of ``*``."""
    return tuple(f"Qwen/{pattern.replace('*', size)}" for size in sizes.split() or [""])


def _named(start: str, words: str = "", *, without: str = "") -> tuple[str, ...]:
    """Return the pattern of the line's own names that begin so, with words of the dialect's own."""
    known = "|".join(filter(None, (_WORDS, words)))
    return own_names(start, known, org="qwen", without=without)


# The first three are in every ChatML vocabulary, so that Qwen 1.5 and 2 can't be told by them.
_CHATML = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_V25 = (*_CHATML, *_VISION, "<tool_call>", "</tool_call>", "<|fim_prefix|>")
_V3 = (*_V25, "<tool_response>", "</tool_response>", "<think>", "</think>")
_V35 = (*_V3, "<|audio_start|>", "<|audio_pad|>", "<tts_pad>")
_DEEPSEEK = ("<｜User｜>", "<｜Assistant｜>")

_Early = partial(_dialect, excluded_tokens=("<tool_call>", "<tool_response>", *_DEEPSEEK))
_Seeing = partial(
    _dialect,
    required_tokens=(*_CHATML, *_VISION),
    excluded_tokens=("<tool_response>", *_DEEPSEEK),
)
_Qwen25 = partial(_dialect, required_tokens=_V25, excluded_tokens=("<tool_response>", *_DEEPSEEK))
_Qwen3 = partial(_dialect, required_tokens=_V3, excluded_tokens=("<|audio_start|>", *_DEEPSEEK))
_Qwen35 = partial(_dialect, required_tokens=_V35, excluded_tokens=_DEEPSEEK, arguments="mapping")


_HELPFUL = "You are a helpful assistant."
_CREATED = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
_STEPS = (
    "You are a helpful and harmless assistant. You are Qwen developed by Alibaba. "
    "You should think step-by-step."
)
_BOXED = r"Please reason step by step, and put your final answer within \\boxed{}."
_THINKING_UNLESS_OFF = r"'<think>\n\n</think>\n\n' if enable_thinking is false else '<think>\n'"
_OFF_UNLESS_THINKING = r"'<think>\n' if enable_thinking is true else '<think>\n\n</think>\n\n'"
_JSON_IF_LIST = "value | tojson if value is iterable and value is not string else value | string"
_JSON_IF_NOT_TEXT = "value | string if value is string else value | tojson"

_ROLES = "Messages with a role that the template does not know are dropped without a word."
_TEXT_ONLY = "Content in parts is refused."
_REFUSED = "Content that is None or in parts is refused."
_SILENT_PARTS = "Content in parts is dropped without a word."
_NO_CALLS = "Tools and tool calls are not printed; a tool's message has a turn of its own."
_NULL = "Content None is refused in any turn without calls."
_TWICE = "String arguments are encoded as JSON a second time."
_BARE_NAME = "A tool's name is printed as it is, so that a quote in it breaks the JSON."
_LAST_CLOSER = "Without reasoning_content, text that speaks of </think> is split at the last one."
_FALSE_BLOCK = "The last turn has an empty reasoning block even with thinking off."
_NO_STRINGS = "String arguments are refused."
_PYTHON_VALUES = "True, False and None are written as Python writes them."
_HEADLESS = "Tool results that come first stand in no turn."

# What of the conformance kit can't hold.
_PARTS = (
    "render_again/content-parts",
    "Content in parts is dropped without a word, and then no empty reasoning block is printed.",
)
_SPLIT = ("random", "White space behind reasoning that stood in the content is printed as it was.")
_OPEN = tuple(
    (check, "The last message has no end token unless an answer is asked for.")
    for check in ("closing", "parse", "render_again", "random")
)

FAMILIES = (
    _Early(
        "qwen1.5",
        digests=("7a2fad4301dcce93b13747dfd6ee5fa696dc12de86b85b86344bea8f649022b3",),
        known_failures=_OPEN,
        notes=(
            "The last message has no end token unless a generation prompt is asked for.",
            "There is no generation prompt after an assistant's message.",
            _REFUSED,
            _NO_CALLS,
        ),
    ),
    _Early(
        "qwen2",
        digests=(
            "793202280c0910ab26bc6eb57c8212c2417324c6d8c4efd0d10d59092ab3e3eb",
            "620301d9f9807b09de932b3aa265b9e274f05a44696ecd8b911e30660f699d29",
        ),
        models=(
            *_ids("CodeQwen1.5-7B-Chat"),
            *_ids("Qwen1.5-*-Chat", "0.5B 1.8B 4B 7B 14B 32B 72B 110B MoE-A2.7B"),
            *_ids("Qwen2-*-Instruct", "0.5B 1.5B 7B 57B-A14B 72B"),
            *_ids("Qwen2-*", "57B-A14B 72B Audio-7B Audio-7B-Instruct"),
        ),
        # Qwen1.5's models have had this text since their first weeks.
        name_patterns=_named(r"(?:code)?qwen-?(?:1[._]5|2(?![._]?\d))", "math"),
        notes=(_REFUSED, _NO_CALLS),
    ),
    _Early(
        "qwen2-base",
        file="qwen2",
        edits=((_HELPFUL, _HELPFUL.removesuffix(".")),),
        digests=("af9c0233881b083b52ff773580215222b5440ac3d0beeeca99b76329b048f8db",),
        models=(
            *_ids("Qwen1.5-*", "0.5B 1.8B 4B 7B 14B 32B 72B MoE-A2.7B"),
            *_ids("Qwen2-*", "0.5B 1.5B 7B"),
        ),
        variant_of="qwen2",
        notes=(_REFUSED, _NO_CALLS),
    ),
    _Qwen25(
        "qwen2.5",
        digests=(
            "cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f",
            "93ece0037c37d0800706044ae1de4bd72a4c1525df8245af7802f5f9d214cef8",
        ),
        models=(
            *_ids("Qwen2.5-*-Instruct", "0.5B 1.5B 3B 7B 14B 32B 72B"),
            *_ids("Qwen2.5-Coder-*-Instruct", "0.5B 1.5B 3B 7B 14B 32B"),
            *_ids("Qwen2.5-Coder-*", "1.5B 7B"),
        ),
        name_patterns=_named(r"qwen-?2[._]?5(?!\d)", "coder", without="1m"),
        arguments="mapping",
        notes=(_TEXT_ONLY, _NULL, _TWICE, _BARE_NAME, _ROLES),
    ),
    _Qwen25(
        "qwen2.5-base",
        file="qwen2.5",
        edits=((_CREATED, _HELPFUL),),
        digests=("44d5f08f3f72b837eaad09f13a54c1f9f4eb58d75240334548b7fd52a5437fa5",),
        models=(
            *_ids("Qwen2.5-*", "0.5B 1.5B 3B 7B 14B 32B 72B 7B-Instruct-1M 14B-Instruct-1M"),
            *_ids("Qwen2.5-Coder-*", "0.5B 3B 14B 32B"),
            *_ids("Qwen3-Embedding-*", "4B 8B"),
        ),
        name_patterns=_named(r"qwen-?2[._]?5-\d+b-instruct-1m"),
        arguments="mapping",
        variant_of="qwen2.5",
        notes=(_TEXT_ONLY, _NULL, _TWICE, _BARE_NAME, _ROLES),
    ),
    _Qwen25(
        "qwen2.5-math",
        file="qwen2.5",
        edits=((_CREATED, _BOXED),),
        digests=("c564d12c9977b8942423753b0c409a11f50142508ced170e9fe1c2f5b803cf70",),
        models=_ids("Qwen2.5-Math-*", "1.5B 1.5B-Instruct 7B 7B-Instruct RM-72B"),
        name_patterns=_named(r"qwen-?2[._]?5[-_]math", "rm"),
        arguments="mapping",
        notes=(_TEXT_ONLY, _NULL, _TWICE, _BARE_NAME, _ROLES),
    ),
    _Seeing(
        "qwen2.5-vl",
        digests=("a0bc6f6fc7a29a80017a433e8f03a1cc1236e838a944a2d034295a60c4f2fddb",),
        models=(
            *_ids("Qwen2-VL-*-Instruct", "2B 7B 72B"),
            *_ids("Qwen2.5-VL-*-Instruct", "3B 7B 32B 72B"),
        ),
        name_patterns=_named(r"qwen-?2(?:[._]?5[-_]?vl|-?vl.*instruct)"),
        notes=("Content None is refused.", _NO_CALLS),
    ),
    _Seeing(
        "qvq",
        file="qwen2.5-vl",
        edits=((_HELPFUL, _STEPS),),
        digests=("4398b8ff490c9a35a9ff80762cf4e19713804efb1bfd18555d93711d4a3cf222",),
        models=_ids("QVQ-72B-Preview"),
        name_patterns=_named("qvq"),
        variant_of="qwen2.5-vl",
        notes=("Content None is refused.", _NO_CALLS),
    ),
    _dialect(
        "qwq",
        required_tokens=_V25,
        excluded_tokens=_DEEPSEEK,
        digests=("16488ad69d85833e5f66c50174f39834b688343337e9337f018deaa21b354117",),
        models=_ids("QwQ-32B"),
        name_patterns=_named("qwq", without="preview"),
        arguments="mapping",
        notes=(
            "reasoning_content is not printed; what was thought stands in the content.",
            "Tools without a system message leave two empty lines at the start of the turn.",
            "A turn that is not the last is cut after its last </think>.",
            _REFUSED,
            _TWICE,
            _BARE_NAME,
            _ROLES,
        ),
    ),
    _Qwen25(
        "qwq-preview",
        file="qwen2.5",
        edits=((_CREATED, _STEPS),),
        digests=("8523238ee7675c71ff297fb3bf4c48da234104b209663a3f63e7eeeef4ca7685",),
        models=_ids("QwQ-32B-Preview"),
        name_patterns=_named("qwq.*preview"),
        arguments="mapping",
        variant_of="qwq",
        notes=(_TEXT_ONLY, _NULL, _TWICE, _BARE_NAME, _ROLES),
    ),
    _Qwen3(
        "qwen3",
        digests=(
            "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8",
            "b2d3c4d81cc138ef3b0c1b8f9c3ac54f15f1ca38ada2eef4c3a8690baece0074",
        ),
        models=(
            *_ids("Qwen3-*", "0.6B 1.7B 4B 8B 14B 32B 30B-A3B 235B-A22B 4B-SafeRL"),
            *_ids("Qwen3Guard-Stream-*", "0.6B 4B 8B"),
        ),
        name_patterns=_named(
            r"qwen-?3(?![._]?\d)",
            without=r"instruct|chat|\dB(?:-A\d+B)?-base",
        ),
        known_failures=(_PARTS,),
        notes=(_LAST_CLOSER, _SILENT_PARTS, _FALSE_BLOCK, _BARE_NAME, _ROLES),
    ),
    _Qwen3(
        "qwen3-first",
        file="qwen3",
        edits=(
            (
                "set content = message.content if message.content is string else ''",
                "set content = message.content",
            ),
            ("said is string and not (", "not ("),
            (
                "set given = message.reasoning_content is string",
                "set given = message.reasoning_content is defined "
                "and message.reasoning_content is not none",
            ),
        ),
        grammar="antiphon_qwen.grammars:QWEN3",
        digests=("87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5",),
        models=(
            *_ids("Qwen3-*-Base", "0.6B 1.7B 4B 8B 14B 30B-A3B"),
            *_ids("Qwen3-Embedding-0.6B"),
            *_ids("WebWorld-*", "8B 14B 32B"),
        ),
        name_patterns=_named(r"qwen-?3(?![._]?\d)(?=.*\dB(?:-A\d+B)?-base)"),
        variant_of="qwen3",
        notes=(
            "Content None is refused in every turn but a tool's.",
            _LAST_CLOSER,
            _FALSE_BLOCK,
            _TEXT_ONLY,
            _BARE_NAME,
            _ROLES,
        ),
    ),
    _Qwen3(
        "qwen3-instruct-2507",
        digests=("64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326",),
        models=(
            *_ids("Qwen3-*-Instruct-2507", "4B 30B-A3B 235B-A22B"),
            *_ids("Qwen3-Next-80B-A3B-Instruct"),
        ),
        name_patterns=_named(r"qwen-?3(?![._]?\d)(?=.*(?:2507|next))(?=.*instruct)", "2507|next"),
        notes=("reasoning_content is not printed.", _SILENT_PARTS, _BARE_NAME, _ROLES),
    ),
    _Qwen3(
        "qwen3-thinking-2507",
        file="qwen3",
        edits=(
            (r"'<think>\n\n</think>\n\n' if enable_thinking is false else ''", r"'<think>\n'"),
            ("with thinking off an empty block", "the reasoning block"),
        ),
        digests=(
            "3802169b2a02b81e6adb7ab4f64f91ff02db753c8c3a64a01c35192d3a61d8d7",
            "0800c03b537cb0d60244f37ac6d717b06c42c4828a40853b1f9853791f9afdae",
        ),
        models=(
            *_ids("Qwen3-*-Thinking-2507", "4B 30B-A3B 235B-A22B"),
            *_ids("Qwen3-Next-80B-A3B-Thinking"),
        ),
        name_patterns=_named(
            r"qwen-?3(?![._]?\d)(?=.*(?:2507|next))(?=.*thinking)", "2507|next|thinking"
        ),
        known_failures=(_PARTS,),
        notes=(_LAST_CLOSER, _SILENT_PARTS, _BARE_NAME, _ROLES),
    ),
    _Qwen3(
        "qwen3-coder",
        digests=("5a38bfa05833266240066aedc497decc9b00cc0d3e3b8cceea98cf530196ab06",),
        models=_ids("Qwen3-Coder-*-Instruct", "30B-A3B 480B-A35B"),
        name_patterns=_named("qwen-?3-coder"),
        arguments="mapping",
        notes=(
            "reasoning_content is not printed.",
            "Content before a call is trimmed and an empty line put after it.",
            _NO_STRINGS,
            _PYTHON_VALUES,
            _HEADLESS,
            _TEXT_ONLY,
            _NULL,
        ),
    ),
    _Qwen3(
        "qwen3-coder-next",
        file="qwen3-coder",
        edits=(
            (_JSON_IF_LIST, _JSON_IF_NOT_TEXT),
            (r"'<|im_start|>user\n'", "'<|im_start|>user'"),
            (r"'<tool_response>\n'", r"'\n<tool_response>\n'"),
            (r"'\n</tool_response>\n'", r"'\n</tool_response>'"),
        ),
        digests=("c79a833039a43602150cce0902403d6e376c50930c1b2a139b2964e1f0c322a0",),
        models=_ids("Qwen3-Coder-Next*", "-Base") + _ids("Qwen3-Coder-Next"),
        name_patterns=_named("qwen-?3-coder-?next"),
        arguments="mapping",
        notes=(
            "reasoning_content is not printed.",
            "Content before a call is trimmed and an empty line put after it.",
            _NO_STRINGS,
            _HEADLESS,
            _TEXT_ONLY,
            _NULL,
        ),
    ),
    _Qwen3(
        "qwen3-vl",
        digests=("3636d0f0bd6bef02654cdffdc447b79cb2cef8ab02cc75267345946291a489e4",),
        models=(
            *_ids("Qwen3-VL-*-Instruct", "2B 4B 8B 32B 30B-A3B 235B-A22B"),
            *_ids("Qwen3-VL-Reranker-*", "2B 8B"),
        ),
        name_patterns=_named("qwen-?3-?vl(?=.*instruct)"),
        notes=(
            "reasoning_content is not printed.",
            "A system message that is not the first is dropped without a word.",
            "Content None is refused.",
            _BARE_NAME,
            _ROLES,
        ),
    ),
    _Qwen3(
        "qwen3-vl-thinking",
        grammar="antiphon_qwen.grammars:QWEN3_THINKING_2507",
        digests=("36e042fe45641f067b1f2381fcc8955d10d956a3ed333ecdf7f7eb0916f68956",),
        models=_ids("Qwen3-VL-*-Thinking", "2B 4B 8B 32B 30B-A3B 235B-A22B"),
        name_patterns=_named("qwen-?3-?vl(?=.*thinking)", "thinking"),
        variant_of="qwen3-vl",
        notes=(_LAST_CLOSER, "Content None is refused.", _BARE_NAME, _ROLES),
    ),
    _Qwen35(
        "qwen3.5",
        digests=("a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715",),
        models=(
            *_ids("Qwen3.5-*", "4B 9B 27B 35B-A3B 122B-A10B 397B-A17B"),
            *_ids("Qwen3.5-*-Base", "4B 9B 35B-A3B"),
        ),
        name_patterns=_named(
            r"qwen-?3[._]?5(?!\d)", without=r"instruct|chat|[-_](?:0[._]8|2)b(?![a-z])"
        ),
        known_failures=(_SPLIT,),
        notes=(
            "A conversation without a user's question is refused.",
            "All content is trimmed.",
            _LAST_CLOSER,
            _NO_STRINGS,
            _PYTHON_VALUES,
            _HEADLESS,
        ),
    ),
    _Qwen35(
        "qwen3.5-nothink",
        file="qwen3.5",
        edits=(
            (_THINKING_UNLESS_OFF, _OFF_UNLESS_THINKING),
            ("with thinking off an empty block", "an empty block unless thinking is on"),
        ),
        digests=("273d8e0e683b885071fb17e08d71e5f2a5ddfb5309756181681de4f5a1822d80",),
        models=(*_ids("Qwen3.5-*", "0.8B 2B"), *_ids("Qwen3.5-*-Base", "0.8B 2B")),
        name_patterns=_named(
            r"qwen-?3[._]?5(?!\d)(?=[-_](?:0[._]8|2)b(?![a-z]))", without="instruct|chat"
        ),
        variant_of="qwen3.5",
        known_failures=(_SPLIT,),
        notes=(
            "A conversation without a user's question is refused.",
            "All content is trimmed.",
            _LAST_CLOSER,
            _NO_STRINGS,
            _PYTHON_VALUES,
            _HEADLESS,
        ),
    ),
    _Qwen35(
        "qwen3.6",
        file="qwen3.5",
        edits=(
            (_JSON_IF_LIST, _JSON_IF_NOT_TEXT),
            ("set kept = loop", "set kept = preserve_thinking is true or loop"),
        ),
        digests=("e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259",),
        models=(*_ids("Qwen3.6-*", "27B 35B-A3B"), *_ids("Qwen-Image-Bench")),
        name_patterns=_named(r"qwen-?3[._]?6(?!\d)", without="instruct|chat"),
        known_failures=(_SPLIT,),
        notes=(
            "A conversation without a user's question is refused.",
            "All content is trimmed.",
            _LAST_CLOSER,
            _NO_STRINGS,
            _HEADLESS,
        ),
    ),
)
