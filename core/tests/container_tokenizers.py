"""A small tokenizer of our own for the tests of the containers: bytes, ChatML's control tokens, no files."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@cache
def small_tokenizer(bos: bool = False, template: str | None = CHATML) -> Any:
    """A transformers tokenizer of some 400 tokens; with `bos` it puts <s> before what it encodes."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(
        ["How many moons has Mars? system user assistant tool\n"] * 3, trainer
    )
    if bos:
        backend.post_processor = tokenizers.processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", backend.token_to_id("<s>"))]
        )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    tokenizer.chat_template = (
        template if template is None or not bos else "{{ bos_token }}" + template
    )
    return tokenizer
