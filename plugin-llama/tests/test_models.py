"""Which models are Llama's, and what callers hand over: names, templates, padded rows, BOS."""

from __future__ import annotations

import antiphon
import pytest
from antiphon_llama.families import FAMILIES

PREAMBLE = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
)
OURS = {family.name for family in FAMILIES}


def detected(model: object) -> str | None:
    return antiphon.detect_family(model).family


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("meta-llama/Llama-2-7b-chat-hf", "llama2"),
        ("TheBloke/Llama-2-13B-chat-GPTQ", "llama2"),
        ("codellama/CodeLlama-34b-Instruct-hf", "codellama"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama3"),
        ("meta-llama/Llama-3.1-8B", "llama3.1"),
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "llama3.1"),
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic", "llama3.1"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3.1"),
        ("unsloth/Llama-3.2-1B-Instruct-bnb-4bit", "llama3.2"),
        ("unsloth/Llama-4-Scout-17B-16E-Instruct-unsloth-bnb-4bit", "llama4"),
        ("/data/qwen/Llama-3.2-3B-Instruct", "llama3.2"),
    ],
)
def test_names_of_the_line_are_known(name, dialect):
    assert detected(name) == dialect


@pytest.mark.parametrize(
    "name",
    [
        "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
        "unsloth/DeepSeek-R1-Distill-Llama-70B",
        "NousResearch/Hermes-2-Pro-Llama-3-8B",
        "NousResearch/Hermes-3-Llama-3.1-8B",
        "allenai/Llama-3.1-Tulu-3-8B",
        "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF",
        "nvidia/Llama-3.1-Nemotron-Nano-8B-v1",
        "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
        "cognitivecomputations/dolphin-2.9-llama3-8b",
        "meta-llama/Llama-3.2-11B-Vision-Instruct",
        "codellama/CodeLlama-70b-Instruct-hf",
        "baseten/Llama-3.2-3B-Instruct-pythonic",
        "/models/llama/gemma-2-9b-it",
        "/data/llama-runs/qwen2.5-0.5b",
    ],
)
def test_look_alikes_are_not_taken_for_llama(name):
    assert detected(name) not in OURS


class Tokenizer:
    """A tokenizer that is only a template, a vocabulary and a name."""

    def __init__(self, template: str | None, tokens: tuple[str, ...], name: str) -> None:
        self.chat_template = template
        self.name_or_path = name
        self._tokens = tokens
        self.special_tokens_map = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}

    def get_vocab(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self._tokens)}


LLAMA31_TOKENS = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|python_tag|>",
)


def test_the_vocabulary_tells_31_from_3():
    name = "some-run/Llama-3.1-8B-Instruct"
    assert detected(Tokenizer(None, LLAMA31_TOKENS, name)) == "llama3.1"
    assert detected(Tokenizer(None, LLAMA31_TOKENS[:5], "checkpoint-500")) == "llama3"


def test_a_foreign_template_on_a_llama_vocabulary_is_not_llama():
    tulu = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}\n{% endfor %}"
    assert detected(Tokenizer(tulu, LLAMA31_TOKENS, "Llama-3.1-8B-Instruct")) not in OURS


def test_chatml_tokens_in_the_vocabulary_speak_against_llama():
    tokens = (*LLAMA31_TOKENS, "<|im_start|>", "<|im_end|>")
    assert detected(Tokenizer(None, tokens, "Llama-3.1-8B-Instruct")) not in OURS


@pytest.mark.parametrize("name", ["llama3", "llama3.1", "llama3.2", "llama4"])
def test_our_own_template_on_the_vocabulary_of_its_line_is_known_again(name):
    family = next(family for family in FAMILIES if family.name == name)
    tokenizer = Tokenizer(family.load_template(), family.required_tokens, "checkpoint-500")
    assert detected(tokenizer) == name


# What callers hand over


def test_keys_that_a_table_padded_with_none_are_as_if_absent():
    rows = [
        {"role": "user", "content": "a", "tool_calls": None, "name": None},
        {"role": "assistant", "content": "b", "tool_calls": None},
    ]
    history = antiphon.History.from_chats([rows])[0]
    text = antiphon.render(history, family="llama3.1", bos_token="<|begin_of_text|>").text
    assert text == (
        f"{PREAMBLE}<|start_header_id|>user<|end_header_id|>\n\na<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nb<|eot_id|>"
    )


@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {}])
def test_a_call_renders_alike_without_content_with_none_and_with_an_empty_one(content):
    call = {"type": "function", "function": {"name": "f", "arguments": {"city": "Zürich 🦙"}}}
    rows = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [call], **content},
    ]
    history = antiphon.History.from_chats([rows])[0]
    text = antiphon.render(history, family="llama3.1", bos_token="<|begin_of_text|>").text
    assert text.endswith('{"name": "f", "parameters": {"city": "Zürich 🦙"}}<|eot_id|>')


def test_a_continued_answer_ends_where_it_broke_off():
    messages = [
        {"role": "user", "content": "Capital of France?"},
        {"role": "assistant", "content": "The capital of France is "},
    ]
    text = antiphon.render(
        messages, family="llama3.1", bos_token="<|begin_of_text|>", continue_final_message=True
    ).text
    assert text.rstrip(" ").endswith("<|end_header_id|>\n\nThe capital of France is")


def test_contents_are_trimmed_up_to_llama_32_and_not_in_llama_4():
    messages = [
        {"role": "user", "content": "  indented question\n"},
        {"role": "assistant", "content": "    return x\n"},
    ]
    for name in ("llama3", "llama3.1", "llama3.2"):
        text = antiphon.render(messages, family=name, bos_token="").text
        assert "\n\nindented question<|eot_id|>" in text
        assert text.endswith("\n\nreturn x<|eot_id|>")
    text = antiphon.render(messages, family="llama4", bos_token="").text
    assert "\n\n  indented question\n<|eot|>" in text
    assert text.endswith("\n\n    return x\n<|eot|>")
