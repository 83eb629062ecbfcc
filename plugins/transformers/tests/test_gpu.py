"""The same promises on a CUDA device, in bfloat16 with its tolerance."""

from __future__ import annotations

import copy

import pytest
import torch
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon_transformers.backend import TransformersBackend
from tiny_models import REQUIRED

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
ROWS = [[5, 6, 7, 8, 9, 10, 11], [42], [100, 101, 102] * 5]


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sampling_log_probs_equal_re_scored_ones(models_by_name, name, dtype):
    model = copy.deepcopy(models_by_name(name))
    backend = TransformersBackend(model, device="cuda", dtype=dtype)
    params = SamplingParams(max_new_tokens=10, seed=1, num_return_sequences=2)
    made = backend.generate(TokenBatch(ROWS), params)
    rows = [ROWS[i // 2] + ids for i, ids in enumerate(made.ids)]
    starts = [len(ROWS[i // 2]) for i in range(len(made))]
    tolerance = 1e-3 if dtype == torch.float32 else 0.5
    for requires_grad in (False, True):
        scores = backend.score(TokenBatch(rows), starts=starts, requires_grad=requires_grad)
        for sampled, again in zip(made.log_probs, scores.log_probs, strict=True):
            torch.testing.assert_close(sampled, again.detach().cpu(), atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", REQUIRED)
def test_batched_greedy_ids_equal_single_ones(models_by_name, name):
    backend = TransformersBackend(copy.deepcopy(models_by_name(name)), device="cuda")
    params = SamplingParams(max_new_tokens=10, temperature=0)
    batched = backend.generate(TokenBatch(ROWS), params)
    for row, ids in zip(ROWS, batched.ids, strict=True):
        assert backend.generate(TokenBatch([row]), params).ids == [ids]
