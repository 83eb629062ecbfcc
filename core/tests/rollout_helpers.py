"""A tokenizer and a backend for rollouts without a model: what is sampled is a function of the seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from antiphon.generation.backends import Generation, Scores, TokenBatch
from antiphon.generation.sampling import SamplingParams

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
END = 258
# A template with calls and tool results, as Hermes writes them.
HERMES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer(chat_template: str = CHATML) -> Any:
    """Return a fast tokenizer with a token per byte, and ChatML's control tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [AddedToken(text, special=True) for text in ("<pad>", "<|im_start|>", "<|im_end|>")]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<pad>"
    )
    tokenizer.chat_template = chat_template
    return tokenizer


class FakeBackend:
    """Answers with a number drawn from the row's seed, now and then cut off, now and then wrong.

    Log-probs are a function of the ids, so scoring agrees with sampling.
    """

    name = "fake"
    vocab_size = 259
    max_context = 4096
    end_ids = frozenset({END})
    extra_parameters = frozenset()
    weight_version = 0

    def __init__(self, model: str = "fake", *, tokenizer: Any = None, answers: Any = None) -> None:
        self.tokenizer = byte_tokenizer() if tokenizer is None else tokenizer
        self.answers = answers or self.drawn_answer
        self.calls = 0
        self.batch_sizes: list[int] = []
        self.prompts: list[list[int]] = []
        self.closed = False

    def drawn_answer(self, prompt: list[int], seed: int) -> str:
        drawn = random.Random(seed)
        return f"I think #### {drawn.randint(0, 30)}" + drawn.choice(["", " or so", ".\n"])

    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        self.calls += 1
        self.params = params
        self.batch_sizes.append(len(batch))
        self.prompts += [list(row) for row in batch.rows]
        rows, log_probs, finish = [], [], []
        for row, seed in zip(batch.rows, batch.seeds or [0] * len(batch), strict=True):
            ids = self.tokenizer.encode(self.answers(row, seed), add_special_tokens=False)
            if random.Random(seed).random() < 0.8:
                ids.append(END)
                finish.append("end")
            else:
                finish.append("length")
            ids = ids[: params.max_new_tokens]
            rows.append(ids)
            log_probs.append(self._log_probs([*row, *ids])[len(row) :])
        return Generation(rows, log_probs, finish)

    def score(
        self,
        batch: TokenBatch,
        *,
        starts: Sequence[int] | None = None,
        temperature: float = 1.0,
        entropy: bool = False,
        requires_grad: bool = False,
    ) -> Scores:
        starts = starts or [0] * len(batch)
        return Scores(
            [self._log_probs(row)[start:] for row, start in zip(batch.rows, starts, strict=True)]
        )

    def _log_probs(self, ids: Sequence[int]) -> torch.Tensor:
        return -torch.tensor([1 + (i * 7 + token) % 11 for i, token in enumerate(ids)]) / 4

    def load_weights(self, weights: Any, version: Any = None) -> None: ...

    def close(self) -> None:
        self.closed = True


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
