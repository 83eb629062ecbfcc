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
from tiny_models import REQUIRED, VOCABULARY

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
#: Nats from the float32 model, at most and on average.
FLOAT32 = (1e-3, 1e-4)
#: How many times as far as transformers itself bfloat16 may be off, at most and on average: these are a few dozen
#: tokens, those many, and a router's choice between two experts that are nearly equal turns on one bit in either.
TIMES = 3.0


@pytest.fixture
def model(models_by_name, name, dtype):
    return copy.deepcopy(models_by_name(name)).to(DEVICE, dtype)


@pytest.fixture
def backend(model):
    return TransformersBackend(model)


@pytest.fixture
def exact(model, dtype):
    """The log-probs of the same weights in float32, and how far off others may be from them."""
    return Exact(copy.deepcopy(model).float(), FLOAT32 if dtype == torch.float32 else off(model))


class Exact:
    """What log-probs are compared with; no token is left out."""

    def __init__(self, model, allowed):
        self.model, (self.most, self.mean) = model, allowed

    def assert_near(self, ours, rows, starts):
        right = reference(self.model, rows, starts)
        assert [len(row) for row in ours] == [len(row) for row in right]
        apart = (torch.cat([row.detach().cpu() for row in ours]) - torch.cat(right)).abs()
        assert not apart.isnan().any()
        assert float(apart.max()) <= self.most
        assert float(apart.mean()) <= self.mean


def off(model):
    """How far transformers' own log-probs are from those of the same weights in float32: at most, on average."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, VOCABULARY, (24, 32), generator=generator).tolist()
    coarse, fine = (
        torch.cat(reference(each, rows, [1] * len(rows)))
        for each in (model, copy.deepcopy(model).float())
    )
    apart = (coarse - fine).abs()
    assert not apart.isnan().any()
    return TIMES * float(apart.max()), TIMES * float(apart.mean())


def reference(model, rows, starts, grad=False):
    """Log-probs of single rows, straight from the model's own logits, on the CPU."""
    found = []
    for row, start in zip(rows, starts, strict=True):
        ids = torch.tensor([row], device=DEVICE)
        with torch.set_grad_enabled(grad):
            log_probs = model(ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
        found.append(log_probs.gather(1, ids[0, 1:, None])[start - 1 :, 0].cpu())
    return found


def answered(made, n=1):
    rows = [ROWS[i // n] + ids for i, ids in enumerate(made.ids)]
    return rows, [len(ROWS[i // n]) for i in range(len(rows))]


def test_sampling_log_probs_equal_re_scored_ones_and_the_models_own(backend, exact, dtype):
    made = backend.generate(TokenBatch(ROWS), SAMPLED)
    rows, starts = answered(made, 2)
    for requires_grad in (False, True):
        scores = backend.score(TokenBatch(rows), starts=starts, requires_grad=requires_grad)
        assert all(row.dtype == torch.float32 for row in scores.log_probs)
        assert all(row.device.type == DEVICE for row in scores.log_probs)
        exact.assert_near(scores.log_probs, rows, starts)
    exact.assert_near(made.log_probs, rows, starts)


def test_greedy_rows_of_a_batch_are_what_they_are_alone(backend, exact, dtype):
    batched = backend.generate(TokenBatch(ROWS), GREEDY)
    exact.assert_near(batched.log_probs, *answered(batched))
    for row, ids in zip(ROWS, batched.ids, strict=True):
        alone = backend.generate(TokenBatch([row]), GREEDY)
        same = next(
            (i for i, (a, b) in enumerate(zip(ids, alone.ids[0], strict=True)) if a != b), None
        )
        if same is not None:  # only where both are equally probable, as bfloat16 can tell
            assert dtype == torch.bfloat16
            both = [row + each[: same + 1] for each in (ids, alone.ids[0])]
            one, other = reference(exact.model, both, [len(row) + same] * 2)
            assert float((one - other).abs()) <= 2 * exact.most


def test_packed_padded_and_shared_rows_score_alike(model, backend, exact, dtype):
    rows = [[5, 6, 7] * 8 + list(range(30 + 20 * i, 40 + 21 * i)) for i in range(5)]
    starts, all_of_it = [24] * 5, [1] * 5
    shared = backend.score(TokenBatch(rows), starts=starts, entropy=True)
    padded = TransformersBackend(model, pack=False).score(TokenBatch(rows))
    packed = backend.score(TokenBatch(rows))
    exact.assert_near(shared.log_probs, rows, starts)
    exact.assert_near([row[1:] for row in padded.log_probs], rows, all_of_it)
    exact.assert_near([row[1:] for row in packed.log_probs], rows, all_of_it)
    assert all(bool((row >= 0).all()) for row in shared.entropies)


def test_gradients_point_where_the_naive_ones_do(model, backend, dtype):
    rows, starts = [[*row, 7, 8, 9] for row in ROWS], [len(row) for row in ROWS]
    scores = backend.score(TokenBatch(rows), starts=starts, requires_grad=True)
    sum(row.sum() for row in scores.log_probs).backward()
    ours = torch.cat([p.grad.flatten().float() for p in model.parameters() if p.grad is not None])
    model.zero_grad(set_to_none=True)
    sum(row.sum() for row in reference(model, rows, starts, grad=True)).backward()
    theirs = torch.cat([p.grad.flatten().float() for p in model.parameters() if p.grad is not None])
    assert ours.isfinite().all()
    alike = torch.nn.functional.cosine_similarity(ours, theirs, 0)
    assert alike > (0.9999 if dtype == torch.float32 else 0.97)


def test_the_next_turn_starts_from_kept_states(backend, exact, dtype):
    made = backend.generate(TokenBatch(ROWS), GREEDY)
    prompts = [row + ids + [60, 61] for row, ids in zip(ROWS, made.ids, strict=True)]
    again = backend.generate(TokenBatch(prompts), GREEDY)
    assert backend.reuse.tokens > 0
    rows = [prompt + ids for prompt, ids in zip(prompts, again.ids, strict=True)]
    exact.assert_near(again.log_probs, rows, list(map(len, prompts)))


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
