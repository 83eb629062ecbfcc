"""A tiny Llama with random weights, for tests that need some model."""

from __future__ import annotations

from typing import Any


def tiny_llama(tokenizer: Any, hidden_size: int = 8, layers: int = 1, heads: int = 1) -> Any:
    """Return the model of seed 0 for a tokenizer's vocabulary and end token."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)
