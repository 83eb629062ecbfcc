"""A row of a batch is what it is alone: ids, log-probs, gradients, for every way of padding and packing."""

from __future__ import annotations

import pytest
import torch
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon_transformers.backend import TransformersBackend
from tiny_models import ARCHITECTURES, END, REQUIRED, VOCABULARY, build

ROWS = [
    [5, 6, 7, 8, 9, 10, 11],
    [42],
    [100, 101, 102] * 5,
    [7, END, 8, END],  # the padding id as a real token
    [5, 6, 7, 8, 9, 10, 11],
]
GREEDY = SamplingParams(max_new_tokens=10, temperature=0.0)
SAMPLED = SamplingParams(
    max_new_tokens=10, seed=3, num_return_sequences=2, top_p=0.9, temperature=0.8
)


def backend_of(models_by_name, name, **options):
    return TransformersBackend(models_by_name(name), **options)


def reference(model, row, temperature=1.0):
    """Log-probs and entropies of one row, straight from the model's own logits."""
    with torch.no_grad():
        log_probs = (model(torch.tensor([row])).logits[0, :-1].float() / temperature).log_softmax(
            -1
        )
    chosen = log_probs.gather(1, torch.tensor(row[1:])[:, None])[:, 0]
    return chosen, -(log_probs.exp() * log_probs).sum(-1)


def full_rows(generation, n=1):
    return [ROWS[i // n] + ids for i, ids in enumerate(generation.ids)]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_batched_greedy_ids_equal_single_ones(models_by_name, name):
    backend = backend_of(models_by_name, name)
    batched = backend.generate(TokenBatch(ROWS), GREEDY)
    for row, ids, log_probs in zip(ROWS, batched.ids, batched.log_probs, strict=True):
        alone = backend.generate(TokenBatch([row]), GREEDY)
        assert alone.ids == [ids]
        torch.testing.assert_close(alone.log_probs[0], log_probs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_ids_are_those_of_transformers(models_by_name, name):
    model = models_by_name(name)
    batched = backend_of(models_by_name, name).generate(TokenBatch(ROWS), GREEDY)
    for row, ids in zip(ROWS, batched.ids, strict=True):
        out = model.generate(
            torch.tensor([row]),
            attention_mask=torch.ones(1, len(row), dtype=torch.long),
            use_cache=len(row) > 1,  # transformers 4.57 takes such a prompt for a step (Mamba)
            max_new_tokens=10,
            do_sample=False,
            eos_token_id=sorted(TransformersBackend(model).end_ids),
            pad_token_id=END,
        )
        assert out[0, len(row) :].tolist() == ids


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_rows_sample_does_not_depend_on_its_batch(models_by_name, name):
    backend = backend_of(models_by_name, name)
    batched = backend.generate(TokenBatch(ROWS[:4]), SAMPLED)
    for index, row in enumerate(ROWS[:4]):
        assert (
            backend.generate(TokenBatch([row]), SAMPLED).ids
            == batched.ids[2 * index : 2 * index + 2]
        )
    reversed_ids = backend.generate(TokenBatch(ROWS[3::-1]), SAMPLED).ids
    assert [reversed_ids[6 - 2 * (i // 2) + i % 2] for i in range(8)] == batched.ids


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("convention", ["raw", "temperature"])
def test_sampling_log_probs_equal_re_scored_ones(models_by_name, name, convention):
    backend = backend_of(models_by_name, name)
    params = SamplingParams(
        max_new_tokens=10,
        seed=1,
        num_return_sequences=2,
        temperature=0.6,
        top_k=20,
        repetition_penalty=1.3,
        log_prob_convention=convention,
    )
    generation = backend.generate(TokenBatch(ROWS), params)
    starts = [len(ROWS[i // 2]) for i in range(len(generation))]
    for requires_grad in (False, True):
        scores = backend.score(
            TokenBatch(full_rows(generation, 2)),
            starts=starts,
            temperature=params.log_prob_temperature,
            requires_grad=requires_grad,
        )
        for sampled, again in zip(generation.log_probs, scores.log_probs, strict=True):
            assert again.requires_grad == requires_grad
            torch.testing.assert_close(sampled, again.detach(), atol=1e-4, rtol=0)


def test_the_temperature_convention_divides_logits_and_not_log_probs(models_by_name):
    model = models_by_name("llama")
    backend = TransformersBackend(model)
    scores = backend.score(TokenBatch([ROWS[0]]), temperature=0.6)
    right, _ = reference(model, ROWS[0], 0.6)
    torch.testing.assert_close(scores.log_probs[0][1:], right, atol=1e-4, rtol=0)
    raw, _ = reference(model, ROWS[0])
    assert (scores.log_probs[0][1:] - raw / 0.6).abs().max() > 1e-2


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("pack", [True, False])
def test_scores_equal_the_models_own_log_softmax(models_by_name, name, pack):
    model = models_by_name(name)
    scores = backend_of(models_by_name, name, pack=pack).score(TokenBatch(ROWS), entropy=True)
    for row, log_probs, entropies in zip(ROWS, scores.log_probs, scores.entropies, strict=True):
        assert log_probs.shape == entropies.shape == (len(row),)
        assert log_probs[0].isnan()  # nothing precedes it: no probability, least of all 1
        right, right_entropies = reference(model, row) if len(row) > 1 else (torch.zeros(0),) * 2
        torch.testing.assert_close(log_probs[1:], right, atol=1e-4, rtol=0)
        torch.testing.assert_close(entropies[1:], right_entropies, atol=1e-4, rtol=0)


def test_a_real_end_token_that_is_the_padding_token_keeps_its_log_prob(models_by_name):
    model = models_by_name("gpt2")
    row = [7, 9, 11, END]
    scores = TransformersBackend(model, pack=False).score(TokenBatch([row, ROWS[2]]))
    right, _ = reference(model, row)
    torch.testing.assert_close(scores.log_probs[0][1:], right, atol=1e-4, rtol=0)
    assert scores.log_probs[0][-1] < -1e-3


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("grouped", [False, True])
def test_gradients_equal_those_of_the_naive_log_softmax(name, grouped):
    model = build(name)
    rows = [[5, 6, 7, 8, 9, 10, 11, 12, 20 + i, 21] for i in range(4)] if grouped else ROWS
    starts = [8] * 4 if grouped else [min(2, len(row)) for row in ROWS]
    backend = TransformersBackend(model)
    scores = backend.score(TokenBatch(rows), starts=starts, requires_grad=True, entropy=True)
    loss = sum(row.sum() for row in scores.log_probs)
    loss = loss + 0.1 * sum(row.sum() for row in scores.entropies)
    loss.backward()
    ours = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    naive = 0.0
    for row, start in zip(rows, starts, strict=True):
        log_probs = model(torch.tensor([row])).logits[0, :-1].log_softmax(-1)
        chosen = log_probs.gather(1, torch.tensor(row[1:])[:, None])[:, 0]
        entropies = -(log_probs.exp() * log_probs).sum(-1)
        naive = naive + chosen[start - 1 :].sum() + 0.1 * entropies[start - 1 :].sum()
    naive.backward()
    theirs = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert ours.keys() == theirs.keys()
    for parameter, gradient in theirs.items():
        scale = float(gradient.abs().max()) + 1e-6
        assert float((ours[parameter] - gradient).abs().max()) <= 1e-4 * scale + 1e-5, parameter


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_shared_prompt_is_scored_once_and_right(models_by_name, name, monkeypatch):
    model = models_by_name(name)
    backend = backend_of(models_by_name, name)
    prompts = [[5, 6, 7] * 8, [9, 10, 11, 12] * 5]
    rows = [prompt + [30 + i] * (i % 3 + 1) for prompt in prompts for i in range(5)]
    starts = [len(prompt) for prompt in prompts for _ in range(5)]
    _ = backend.forward.splits, backend.forward.packs
    seen = []
    hidden = backend.forward.hidden
    monkeypatch.setattr(
        backend.forward, "hidden", lambda ids, *rest: seen.append(ids.numel()) or hidden(ids, *rest)
    )
    scores = backend.score(TokenBatch(rows), starts=starts, entropy=True)
    for row, start, log_probs, entropies in zip(
        rows, starts, scores.log_probs, scores.entropies, strict=True
    ):
        right, right_entropies = reference(model, row)
        torch.testing.assert_close(log_probs, right[start - 1 :], atol=1e-4, rtol=0)
        torch.testing.assert_close(entropies, right_entropies[start - 1 :], atol=1e-4, rtol=0)
    if backend.forward.incremental:
        assert sum(seen) < sum(map(len, rows)) / 2


def test_a_prompt_is_computed_once_for_its_samples_and_its_repetitions(models_by_name):
    model = models_by_name("llama")
    backend = TransformersBackend(model)
    backend.forward.try_out()  # once per model, and not counted here
    columns = []
    handle = model.model.embed_tokens.register_forward_hook(
        lambda module, inputs, output: columns.append(tuple(inputs[0].shape))
    )
    try:
        params = SamplingParams(max_new_tokens=3, num_return_sequences=4, ignore_eos=True)
        backend.generate(TokenBatch([[5, 6, 7], [8, 9], [5, 6, 7]]), params)
    finally:
        handle.remove()
    assert columns == [(2, 3), (12, 1), (12, 1)]


def test_equal_prompts_keep_their_rows_and_differ_in_their_samples(models_by_name):
    params = SamplingParams(max_new_tokens=8, num_return_sequences=2, seed=5)
    rows = [[5, 6], [5, 6], [7]]
    made = TransformersBackend(models_by_name("llama")).generate(TokenBatch(rows), params)
    assert len(made) == 6
    assert len({tuple(ids) for ids in made.ids}) == 6


def test_rows_that_are_done_leave_the_batch(models_by_name):
    model = models_by_name("llama")
    backend = TransformersBackend(model)
    backend.forward.try_out()
    widths = []
    handle = model.model.embed_tokens.register_forward_hook(
        lambda module, inputs, output: widths.append(inputs[0].shape[0])
    )
    params = SamplingParams(max_new_tokens=40, seed=0, stop_token_ids=list(range(0, VOCABULARY, 7)))
    rows = [[i + 3, i + 4] for i in range(12)]
    try:
        made = backend.generate(TokenBatch(rows), params)
    finally:
        handle.remove()
    lengths = sorted(map(len, made.ids))
    assert lengths[0] < lengths[-1]
    assert widths[0] == 12
    assert widths[-1] < 12
    for index, row in enumerate(rows):
        alone = TransformersBackend(model).generate(TokenBatch([row]), params)
        assert alone.ids == [made.ids[index]]
        assert alone.finish == [made.finish[index]]


def test_bfloat16_generation_agrees_with_its_scores_within_its_precision(models_by_name):
    import copy

    model = copy.deepcopy(models_by_name("qwen3")).to(torch.bfloat16)
    backend = TransformersBackend(model)
    made = backend.generate(TokenBatch(ROWS), SAMPLED)
    starts = [len(ROWS[i // 2]) for i in range(len(made))]
    scores = backend.score(TokenBatch(full_rows(made, 2)), starts=starts)
    assert all(row.dtype == torch.float32 for row in scores.log_probs)
    worst = max((a - b).abs().max() for a, b in zip(made.log_probs, scores.log_probs, strict=True))
    assert worst < 0.5
