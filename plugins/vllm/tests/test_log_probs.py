"""Log-probs are the trainer's: the transformers backend's, on the same ids, in float32."""

from __future__ import annotations

import math

import pytest
import torch
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon_transformers import TransformersBackend
from antiphon_vllm.backend import VLLMBackend

CLOSE = 1e-4
ROWS = [[5, 6, 7], list(range(5, 70)), [9], [9, 8, 7, 9, 8, 7], [5, 6, 7]]
MODELS = [
    ("llama", {}),
    ("llama", {"tie_word_embeddings": True}),
    ("qwen3", {}),
    ("qwen3", {"tie_word_embeddings": True}),
    ("deepseek_v3", {}),
]


@pytest.fixture(params=MODELS, ids=lambda p: f"{p[0]}{'-tied' if p[1] else ''}")
def pair(request, engine_of):
    name, options = request.param
    backend, model = engine_of(name, **options)
    return backend, TransformersBackend(model, tokenizer=backend.tokenizer)


def apart(one, two):
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert a.shape == b.shape
        assert torch.equal(a.isnan(), b.isnan())
    return max((a - b).nan_to_num().abs().max().item() for a, b in zip(one, two, strict=True))


def test_scores_are_the_trainers(pair):
    engine, trainer = pair
    batch = TokenBatch(ROWS)
    assert apart(engine.score(batch).log_probs, trainer.score(batch).log_probs) < CLOSE


def test_sampled_log_probs_are_the_trainers_under_both_conventions(pair):
    engine, trainer = pair
    for convention, divisor in (("raw", 1.0), ("temperature", 0.7)):
        params = SamplingParams(
            max_new_tokens=16,
            temperature=0.7,
            top_k=40,
            top_p=0.9,
            repetition_penalty=1.2,
            log_prob_convention=convention,
            num_return_sequences=2,
            ignore_eos=True,
            seed=1,
        )
        made = engine.generate(TokenBatch(ROWS), params)
        rows = [[*ROWS[i // 2], *ids] for i, ids in enumerate(made.ids)]
        starts = [len(ROWS[i // 2]) for i in range(len(rows))]
        scores = trainer.score(TokenBatch(rows), starts=starts, temperature=divisor)
        assert apart(made.log_probs, scores.log_probs) < CLOSE


def test_scores_follow_the_temperature_and_go_back(engine_of):
    engine, model = engine_of("llama")
    trainer = TransformersBackend(model)
    for temperature in (0.5, 1.0, 2.0, 1.0):
        own = engine.score(TokenBatch(ROWS), temperature=temperature)
        wanted = trainer.score(TokenBatch(ROWS), temperature=temperature)
        assert apart(own.log_probs, wanted.log_probs) < CLOSE


def test_entropies_are_the_trainers(engine_of):
    engine, model = engine_of("qwen3")
    starts = [1, 60, 0, 2, 0]
    own = engine.score(TokenBatch(ROWS), starts=starts, temperature=0.8, entropy=True)
    wanted = TransformersBackend(model).score(
        TokenBatch(ROWS), starts=starts, temperature=0.8, entropy=True
    )
    assert apart(own.log_probs, wanted.log_probs) < CLOSE
    assert apart(own.entropies, wanted.entropies) < CLOSE


def test_top_log_probs_are_the_most_probable_ids(engine_of):
    engine, model = engine_of("llama")
    params = SamplingParams(max_new_tokens=6, logprobs=3, seed=0, ignore_eos=True)
    made = engine.generate(TokenBatch(ROWS), params)
    again = TransformersBackend(model)
    for row, ids, (top_ids, top) in zip(ROWS, made.ids, made.top, strict=True):
        logits = again.logits(TokenBatch([[*row, *ids]]))[0][len(row) - 1 : -1]
        values, order = logits.float().log_softmax(-1).topk(3)
        assert torch.equal(top_ids, order)
        assert torch.allclose(top, values, atol=CLOSE)


def test_prompt_log_probs_come_once_per_prompt_and_begin_with_nan(engine_of):
    engine, model = engine_of("llama")
    params = SamplingParams(
        max_new_tokens=2, prompt_log_probs=True, num_return_sequences=3, seed=0, ignore_eos=True
    )
    made = engine.generate(TokenBatch(ROWS), params)
    wanted = TransformersBackend(model).score(TokenBatch(ROWS)).log_probs
    assert len(made.prompt_log_probs) == len(ROWS)
    assert all(math.isnan(row[0]) for row in made.prompt_log_probs)
    assert apart(made.prompt_log_probs, wanted) < CLOSE


def test_a_row_as_long_as_the_context_is_scored(engine_of):
    engine, model = engine_of("llama")
    row = [(7 * i) % 300 + 4 for i in range(engine.max_context)]
    own = engine.score(TokenBatch([row])).log_probs
    assert apart(own, TransformersBackend(model).score(TokenBatch([row])).log_probs) < CLOSE


def test_nan_weights_are_an_error_that_names_the_row(tokenizer):
    from antiphon.errors import BackendError
    from tiny_models import build

    model = build("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[200] = math.nan
    backend = VLLMBackend(model, tokenizer=tokenizer, kv_cache_memory_bytes=1 << 26)
    with pytest.raises(BackendError, match="row 1 are NaN"):
        backend.score(TokenBatch([[5, 6, 7], [5, 200, 7]]))
    backend.close()
