"""Tiny models with random weights of real architectures, and a byte-level tokenizer that needs no files."""

from __future__ import annotations

import functools
import itertools

import torch
from tiny_tokenizer import END
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 320
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": END,
    "pad_token_id": END,
    "bos_token_id": 0,
}


def _gpt2():
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=256,
        n_embd=32,
        n_layer=2,
        n_head=4,
        eos_token_id=END,
        bos_token_id=0,
        pad_token_id=END,
    )
    return GPT2LMHeadModel(config)


def _deepseek():
    config = DeepseekV3Config(
        **{**SIZES, "num_key_value_heads": 4},
        moe_intermediate_size=16,
        n_routed_experts=8,
        n_group=2,
        topk_group=1,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
    )
    return DeepseekV3ForCausalLM(config)


ARCHITECTURES = {
    "gpt2": _gpt2,
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8)),
    "deepseek_v3": _deepseek,
    # Soft caps after the head, tied and scaled embeddings, a sliding window shorter than the rows.
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**SIZES, head_dim=8, sliding_window=8)),
    "falcon": lambda: FalconForCausalLM(
        FalconConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            alibi=True,
            new_decoder_architecture=False,
            eos_token_id=END,
            bos_token_id=0,
        )
    ),
    "mamba": lambda: MambaForCausalLM(
        MambaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_hidden_layers=2,
            state_size=4,
            eos_token_id=END,
            pad_token_id=END,
        )
    ),
}
REQUIRED = ("gpt2", "llama", "qwen3", "deepseek_v3")


def build(name, seed=0):
    torch.manual_seed(seed)
    return randomised(ARCHITECTURES[name]())


def randomised(model):
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:  # far from uniform, so that a wrong mask would be seen
                torch.nn.init.normal_(parameter, std=0.3)
    model.tie_weights()
    return model.eval()


class Scripted(LlamaForCausalLM):
    """A model that says what it is told to: after each id the script's next one, whatever came before."""

    def __init__(self, script):
        super().__init__(LlamaConfig(**{**SIZES, "num_hidden_layers": 1}))
        self.script = dict(itertools.pairwise(script))

    @functools.wraps(LlamaForCausalLM.forward)  # its signature tells how a cache is passed
    def forward(self, *args, **kwargs):
        ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
        out = super().forward(*args, **kwargs)
        keep = out.logits.shape[1]
        for row in range(len(ids)):
            for place in range(keep):
                following = self.script.get(int(ids[row, ids.shape[1] - keep + place]))
                if following is not None:
                    out.logits[row, place, following] = 100.0
        return out
