"""Tiny models with random weights, in sizes that the engine has kernels for, and a tokenizer without files."""

from __future__ import annotations

import torch
from tiny_tokenizer import END
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 320
CONTEXT = 256
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "eos_token_id": END,
    "pad_token_id": END,
    "bos_token_id": 0,
}


def _deepseek(**options):
    config = DeepseekV3Config(
        **{**SIZES, "num_key_value_heads": 4, **options},
        moe_intermediate_size=32,
        n_routed_experts=8,
        n_group=2,
        topk_group=1,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
        # The sizes of attention are the real ones: the engine has kernels for no others.
        kv_lora_rank=512,
        q_lora_rank=32,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
    )
    return DeepseekV3ForCausalLM(config)


ARCHITECTURES = {
    "llama": lambda **o: LlamaForCausalLM(LlamaConfig(**{**SIZES, **o}, head_dim=32)),
    "qwen3": lambda **o: Qwen3ForCausalLM(Qwen3Config(**{**SIZES, **o}, head_dim=32)),
    "deepseek_v3": _deepseek,
}


def build(name, seed=0, **options):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = ARCHITECTURES[name](**options)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:  # far from uniform, so that a wrong mask would be seen
                    torch.nn.init.normal_(parameter, std=0.2)
    model.tie_weights()
    return model.eval()
