"""The same promises on a CUDA device, in float32 and in bfloat16 with its tolerance.

``ANTIPHON_GPU_TESTS=cpu`` runs them on the CPU instead, where there is no such device.
"""

from __future__ import annotations

import copy
import os

import pytest
import torch
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon.generation.wrapper import LLMWrapper
from antiphon_transformers.backend import TransformersBackend
from tensordict import TensorDict
from tiny_models import REQUIRED

DEVICE = os.environ.get("ANTIPHON_GPU_TESTS", "cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE == "cuda" and not torch.cuda.is_available(),
        reason="there is no CUDA device; ANTIPHON_GPU_TESTS=cpu runs these tests on the CPU",
    ),
    pytest.mark.parametrize("name", REQUIRED),
    pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"]),
]
ROWS = [[5, 6, 7, 8, 9, 10, 11], [42], [100, 101, 102] * 5]
GREEDY = SamplingParams(max_new_tokens=10, temperature=0.0, ignore_eos=True)
SAMPLED = SamplingParams(max_new_tokens=10, seed=1, num_return_sequences=2, top_p=0.9)
#: Nats, at most and on average: a sum of products in bfloat16 keeps some three digits, and these models' log-probs
#: reach -20. The average holds a wrong mask or position back that rounding of single ids would hide.
MOST = {torch.float32: 1e-3, torch.bfloat16: 0.5}
MEAN = {torch.float32: 1e-4, torch.bfloat16: 0.08}


@pytest.fixture
def model(models_by_name, name, dtype):
    return copy.deepcopy(models_by_name(name)).to(DEVICE, dtype)


@pytest.fixture
def backend(model):
    return TransformersBackend(model)


def assert_near(ours, right, dtype):
    apart = torch.cat(
        [(a.detach().cpu() - b.detach().cpu()).abs() for a, b in zip(ours, right, strict=True)]
    )
    assert not apart.isnan().any()
    if dtype == torch.bfloat16 and len(apart) > 20:
        # A router's choice between two experts that are nearly equal turns on one bit.
        apart = apart.sort().values[: int(0.95 * len(apart))]
    assert float(apart.max()) <= MOST[dtype]
    assert float(apart.mean()) <= MEAN[dtype]


def reference(model, rows, starts):
    """Log-probs of single rows, straight from the model's own logits."""
    found = []
    for row, start in zip(rows, starts, strict=True):
        ids = torch.tensor([row], device=DEVICE)
        log_probs = model(ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
        found.append(log_probs.gather(1, ids[0, 1:, None])[start - 1 :, 0])
    return found


def answered(made, n=1):
    rows = [ROWS[i // n] + ids for i, ids in enumerate(made.ids)]
    return rows, [len(ROWS[i // n]) for i in range(len(rows))]


def test_sampling_log_probs_equal_re_scored_ones_and_the_models_own(model, backend, dtype):
    made = backend.generate(TokenBatch(ROWS), SAMPLED)
    rows, starts = answered(made, 2)
    for requires_grad in (False, True):
        scores = backend.score(TokenBatch(rows), starts=starts, requires_grad=requires_grad)
        assert all(row.dtype == torch.float32 for row in scores.log_probs)
        assert all(row.device.type == DEVICE for row in scores.log_probs)
        assert_near(made.log_probs, scores.log_probs, dtype)
    assert_near(scores.log_probs, reference(model, rows, starts), dtype)


def test_greedy_rows_of_a_batch_are_what_they_are_alone(backend, dtype):
    batched = backend.generate(TokenBatch(ROWS), GREEDY)
    for row, ids, log_probs in zip(ROWS, batched.ids, batched.log_probs, strict=True):
        alone = backend.generate(TokenBatch([row]), GREEDY)
        # In bfloat16 two ids may be equally probable: up to the first that differs, all is equal.
        same = next(
            (i for i, (a, b) in enumerate(zip(ids, alone.ids[0], strict=True)) if a != b), 10
        )
        assert same == 10 or dtype == torch.bfloat16
        assert_near([log_probs[: same + 1]], [alone.log_probs[0][: same + 1]], dtype)


def test_packed_padded_and_shared_rows_score_alike(model, backend, dtype):
    rows = [[5, 6, 7] * 8 + [30 + i] * (i % 3 + 1) for i in range(5)]
    starts = [24] * 5
    right = reference(model, rows, starts)
    shared = backend.score(TokenBatch(rows), starts=starts, entropy=True)
    padded = TransformersBackend(model, pack=False).score(TokenBatch(rows))
    packed = backend.score(TokenBatch(rows))
    assert_near(shared.log_probs, right, dtype)
    assert_near([row[24:] for row in padded.log_probs], right, dtype)
    assert_near([row[24:] for row in packed.log_probs], right, dtype)
    assert all(bool((row >= 0).all()) for row in shared.entropies)


def test_gradients_point_where_the_naive_ones_do(model, backend, dtype):
    rows, starts = [[*row, 7, 8, 9] for row in ROWS], [len(row) for row in ROWS]
    scores = backend.score(TokenBatch(rows), starts=starts, requires_grad=True)
    sum(row.sum() for row in scores.log_probs).backward()
    ours = torch.cat([p.grad.flatten().float() for p in model.parameters() if p.grad is not None])
    model.zero_grad(set_to_none=True)
    sum(row.sum() for row in reference(model, rows, starts)).backward()
    theirs = torch.cat([p.grad.flatten().float() for p in model.parameters() if p.grad is not None])
    assert ours.isfinite().all()
    alike = torch.nn.functional.cosine_similarity(ours, theirs, 0)
    assert alike > (0.9999 if dtype == torch.float32 else 0.97)


def test_the_next_turn_starts_from_kept_states(model, backend, dtype):
    made = backend.generate(TokenBatch(ROWS), GREEDY)
    prompts = [row + ids + [60, 61] for row, ids in zip(ROWS, made.ids, strict=True)]
    again = backend.generate(TokenBatch(prompts), GREEDY)
    assert backend.reuse.tokens > 0
    fresh = TransformersBackend(model, reuse_bytes=0).generate(TokenBatch(prompts), GREEDY)
    firsts = [[row[:1] for row in each.log_probs] for each in (again, fresh)]
    assert_near(*firsts, dtype)


def test_the_wrapper_gives_its_results_where_it_is_told(backend, dtype):
    ids = torch.tensor([[5, 6, 7], [8, 9, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    for device in (None, DEVICE):
        wrapper = LLMWrapper(
            backend,
            input_mode="tokens",
            pad_output=True,
            device=device,
            generate_kwargs={"max_new_tokens": 4, "seed": 1, "ignore_eos": True},
        )
        given = TensorDict({"tokens": {"prompt": ids}, "attention_mask": mask}, batch_size=2)
        out = wrapper(given.to(DEVICE) if device else given)
        where = "cpu" if device is None else DEVICE
        for key in ("tokens", "masks", "log_probs"):
            leaves = [
                leaf for leaf in out[key].values(True, True) if isinstance(leaf, torch.Tensor)
            ]
            assert leaves
            assert {leaf.device.type for leaf in leaves} == {where}
        scored = wrapper.get_new_version(generate=False)(out)
        assert scored["log_probs", "full"].shape == out["tokens", "full"].shape
        lengths = out["masks", "all_attention_mask"].sum(-1)
        assert lengths.tolist() == [7, 6]
