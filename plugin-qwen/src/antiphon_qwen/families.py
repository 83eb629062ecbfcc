"""The Qwen dialects: which template and grammar each has and how its models are known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from antiphon.errors import PluginError
from antiphon.families import ModelFamily


@dataclass(frozen=True)
class QwenFamily(ModelFamily):
    """A dialect whose template is a file of this package with a few texts exchanged.

    Revisions of one dialect often differ in a sentence. Such a revision names the file of the dialect and what
    it changes there; the result is a complete template of its own.

    Attributes:
        edits: Pairs (text in the file, text in its place); each text occurs there exactly once.
    """

    edits: tuple[tuple[str, str], ...] = ()

    def load_template(self) -> str:
        """Return the Jinja source of the template.

        Raises:
            PluginError: An edit does not fit the file.
        """
        return _edited(super().load_template(), self.edits, self.name)


@lru_cache(maxsize=64)
def _edited(source: str, edits: tuple[tuple[str, str], ...], name: str) -> str:
    for old, new in edits:
        if source.count(old) != 1:
            raise PluginError(
                f"The template of {name!r} can't be made: {old!r} must stand exactly once in its file."
            )
        source = source.replace(old, new)
    return source


_COMMON = {
    "line": "qwen",
    "end_tokens": ("<|im_end|>", "<|endoftext|>"),
}


def _template(file: str) -> str:
    return f"antiphon_qwen:templates/{file}.jinja"


_HELPFUL = "You are a helpful assistant."
_CREATED = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
_STEP_BY_STEP = (
    "You are a helpful and harmless assistant. You are Qwen developed by Alibaba. "
    "You should think step-by-step."
)
_BOXED = r"Please reason step by step, and put your final answer within \\boxed{}."
_JSON_UNLESS_TEXT = "value | string if value is string else value | tojson"
_TEXT_UNLESS_LIST = (
    "value | tojson if value is iterable and value is not string else value | string"
)

FAMILIES = (
    QwenFamily(name="qwen1.5", template=_template("qwen1.5"), line="qwen"),
    QwenFamily(name="qwen2", template=_template("qwen2"), line="qwen"),
    QwenFamily(name="qwen2-base", template=_template("qwen2"), line="qwen", edits=((_HELPFUL, _HELPFUL[:-1]),)),
    QwenFamily(name="qwen2.5", template=_template("qwen2.5"), line="qwen"),
    QwenFamily(name="qwen2.5-base", template=_template("qwen2.5"), line="qwen", edits=((_CREATED, _HELPFUL),)),
    QwenFamily(name="qwen2.5-math", template=_template("qwen2.5"), line="qwen", edits=((_CREATED, _BOXED),)),
    QwenFamily(name="qwq-preview", template=_template("qwen2.5"), line="qwen", edits=((_CREATED, _STEP_BY_STEP),)),
    QwenFamily(name="qwq", template=_template("qwq"), line="qwen"),
    QwenFamily(name="qwen2.5-vl", template=_template("qwen2.5-vl"), line="qwen"),
    QwenFamily(name="qvq", template=_template("qwen2.5-vl"), line="qwen", edits=((_HELPFUL, _STEP_BY_STEP),)),
    QwenFamily(name="qwen3", template=_template("qwen3"), line="qwen"),
    QwenFamily(name="qwen3-first", template=_template("qwen3"), line="qwen", edits=(
        ("set content = message.content if message.content is string else ''", "set content = message.content"),
        ("said is string and not (", "not ("),
        ("set given = message.reasoning_content is string", "set given = message.reasoning_content is defined and message.reasoning_content is not none"),
    )),
    QwenFamily(name="qwen3-instruct-2507", template=_template("qwen3-instruct-2507"), line="qwen"),
    QwenFamily(name="qwen3-thinking-2507", template=_template("qwen3"), line="qwen", edits=(
        (r"'<think>\n\n</think>\n\n' if enable_thinking is false else ''", r"'<think>\n'"),)),
    QwenFamily(name="qwen3-coder", template=_template("qwen3-coder"), line="qwen"),
    QwenFamily(name="qwen3-coder-next", template=_template("qwen3-coder"), line="qwen", edits=(
        (_TEXT_UNLESS_LIST, _JSON_UNLESS_TEXT),
        (r"'<|im_start|>user\n'", "'<|im_start|>user'"),
        (r"'<tool_response>\n'", r"'\n<tool_response>\n'"),
        (r"'\n</tool_response>\n'", r"'\n</tool_response>'"),
    )),
    QwenFamily(name="qwen3-vl", template=_template("qwen3-vl"), line="qwen"),
    QwenFamily(name="qwen3.5", template=_template("qwen3.5"), line="qwen"),
    QwenFamily(name="qwen3.5-nothink", template=_template("qwen3.5"), line="qwen", edits=(
        (r"'<think>\n\n</think>\n\n' if enable_thinking is false else '<think>\n'", r"'<think>\n' if enable_thinking is true else '<think>\n\n</think>\n\n'"),)),
    QwenFamily(name="qwen3.6", template=_template("qwen3.5"), line="qwen", edits=(
        (_TEXT_UNLESS_LIST, _JSON_UNLESS_TEXT),
        ("set kept = loop", "set kept = preserve_thinking is true or loop"),
    )),
)
