"""A byte-level tokenizer for tiny models, with a few merges and ChatML's control tokens; it needs no files."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

END = 1
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_tokenizer() -> Any:
    """Return a tokenizer of some 270 tokens; its end token, which pads too, is ``END``."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<|pad|>": 0, "<|im_end|>": END, "<|im_start|>": 2, "<|eot|>": 3}
    for letter in alphabet:
        vocabulary[letter] = len(vocabulary)
    merges = [(".", "."), ("..", "."), ("W", "e"), ("l", "l")]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(
        [AddedToken(t, special=True) for t in ("<|pad|>", "<|im_end|>", "<|im_start|>", "<|eot|>")]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        chat_template=CHATML,
        clean_up_tokenization_spaces=False,
    )
