"""A model small enough to learn something within minutes on one core, and a task for it.

The tokenizer is a real one (byte-level BPE with ChatML's control tokens), trained on the spot; the
model is a Llama with random weights.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from antiphon.envs import FunctionTask, Reply
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TIMES = 4  # how often a digit is to be repeated
DIGITS = "123456789"
CONTROLS = ["<|im_end|>", "<|im_start|>"]


def repeat_rows(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Return questions that ask for a digit several times over, with their answers."""
    rng = random.Random(seed)
    asked = [rng.choice(DIGITS) for _ in range(count)]
    return [{"question": f"Repeat {digit}", "answer": digit * TIMES} for digit in asked]


def babble_rows(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Return the same questions with answers of the right form and without any sense."""
    rng = random.Random(seed + 1)
    rows = repeat_rows(count, seed)
    return [{**row, "answer": "".join(rng.choices(DIGITS, k=TIMES))} for row in rows]


def repeat_task() -> FunctionTask:
    """Return the task of these rows: an answer is worth the share of it that is right, 0 to 1."""
    return FunctionTask(_judge, data_key="question", max_turns=1)


def _judge(messages: Sequence[Mapping[str, Any]], row: Mapping[str, Any], turn: int) -> Reply:
    said, wanted = str(messages[-1]["content"]), row["answer"]
    right = sum(a == b for a, b in zip(said, wanted, strict=False))
    return Reply(reward=right / max(len(said), len(wanted)), terminated=True)


def tiny_model(
    seed: int = 0, head_dim: int = 16
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Return a random Llama of some 100,000 weights and its tokenizer, which has no template."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    texts = ["user assistant Repeat", *(row["question"] for row in repeat_rows(99))]
    trainer = trainers.BpeTrainer(
        vocab_size=280,
        special_tokens=CONTROLS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=CONTROLS[0])
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_dim,
        max_position_embeddings=256,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config), tokenizer
