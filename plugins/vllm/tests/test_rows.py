"""Rows come back in their places: order, groups, equal prompts, several samples, seeds."""

from __future__ import annotations

import pytest
import torch
from antiphon.errors import BackendError, InvalidParameter
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from tiny_models import END

FREE = SamplingParams(max_new_tokens=10, ignore_eos=True, seed=5)


@pytest.fixture(scope="module")
def engine(engine_of):
    return engine_of("llama")[0]


def test_equal_prompts_get_answers_of_their_own_and_the_same_ones_alone(engine):
    rows = [[5, 6, 7], [9], [5, 6, 7], list(range(5, 60)), [5, 6, 7]]
    seeds = [1, 2, 3, 4, 5]
    made = engine.generate(TokenBatch(rows, seeds), FREE)
    assert len({tuple(made.ids[i]) for i in (0, 2, 4)}) == 3
    for row, seed, ids in zip(rows, seeds, made.ids, strict=True):
        assert engine.generate(TokenBatch([row], [seed]), FREE).ids == [ids]


def test_several_samples_stand_together_where_rows_end_at_any_time(engine):
    """Short and long answers finish in another order than they were asked for."""
    rows = [[5, 6, 7], [9, 8], [100, 101, 102, 103]]
    params = SamplingParams(max_new_tokens=40, num_return_sequences=4, temperature=1.5)
    ends = SamplingParams(
        max_new_tokens=40,
        num_return_sequences=4,
        temperature=1.5,
        end_token_ids=tuple(range(1, 320, 9)),
    )
    made = engine.generate(TokenBatch(rows, [1, 2, 3]), ends)
    assert len({len(ids) for ids in made.ids}) > 3
    for i, row in enumerate(rows):
        alone = engine.generate(TokenBatch([row], [i + 1]), ends)
        assert alone.ids == made.ids[4 * i : 4 * i + 4]
        free = engine.generate(TokenBatch([row], [i + 1]), params)
        for short, long in zip(alone.ids, free.ids, strict=True):
            assert long[: len(short)] == short


def test_a_run_is_repeatable_through_torchs_own_seed(engine):
    def sample():
        torch.manual_seed(3)
        return engine.generate(TokenBatch([[5, 6]] * 3), SamplingParams(max_new_tokens=8)).ids

    assert sample() == sample()


def test_greedy_answers_are_the_transformers_backends(engine_of):
    from antiphon_transformers import TransformersBackend

    engine, model = engine_of("qwen3")
    trainer = TransformersBackend(model)
    batch = TokenBatch([[5, 6, 7], list(range(5, 60)), [9]])
    params = SamplingParams(max_new_tokens=12, temperature=0.0, repetition_penalty=1.3)
    assert engine.generate(batch, params).ids == trainer.generate(batch, params).ids


def test_a_conversations_next_turn_starts_from_what_is_cached(engine_of):
    engine, _ = engine_of("llama")
    row = [(5 * i) % 300 + 4 for i in range(150)]
    answers = engine.generate(TokenBatch([row], [1]), FREE).ids[0]
    following = [*row, *answers, 40, 41, 42]
    cached = engine.generate(TokenBatch([following], [2]), FREE)
    engine.llm.reset_prefix_cache()
    fresh = engine.generate(TokenBatch([following], [2]), FREE)
    assert cached.ids == fresh.ids
    assert torch.allclose(cached.log_probs[0], fresh.log_probs[0], atol=1e-4)


def test_little_of_what_came_before_a_turn_is_computed_again(engine):
    """Short prompts too: on the processor the engine would share nothing below 128 ids."""
    from vllm import SamplingParams as EngineParams

    row = [(7 * i) % 300 + 4 for i in range(70)]
    answers = engine.generate(TokenBatch([row], [1]), FREE).ids[0]
    following = {"prompt_token_ids": [*row, *answers, 40, 41, 42]}
    (output,) = engine.llm.generate([following], EngineParams(max_tokens=1), use_tqdm=False)
    assert output.num_cached_tokens >= 64


def test_the_context_bounds_an_answer(engine):
    row = [7] * (engine.max_context - 3)
    made = engine.generate(TokenBatch([row], [1]), SamplingParams(ignore_eos=True))
    assert len(made.ids[0]) == 3
    assert made.finish == ["length"]


def test_the_end_token_that_was_sampled_is_kept_and_named(engine):
    params = SamplingParams(max_new_tokens=60, end_token_ids=(END, 40, 41, 42, 43, 44), seed=1)
    made = engine.generate(TokenBatch([[5, 6, 7]] * 6), params)
    ended = [i for i, finish in enumerate(made.finish) if finish == "end"]
    assert ended
    for i in ended:
        assert made.ids[i][-1] == made.stopped_by[i]


def test_no_end_token_comes_before_the_least_length(engine):
    params = SamplingParams(
        max_new_tokens=20, min_new_tokens=15, end_token_ids=tuple(range(1, 320, 3)), seed=1
    )
    made = engine.generate(TokenBatch([[5, 6, 7]] * 4), params)
    assert all(len(ids) >= 15 for ids in made.ids)
    assert "end" in made.finish


@pytest.mark.parametrize("requires_grad", [True])
def test_gradients_are_refused_with_who_has_them(engine, requires_grad):
    with pytest.raises(InvalidParameter, match="TransformersBackend"):
        engine.score(TokenBatch([[5, 6]]), requires_grad=requires_grad)


def test_more_prompts_than_a_step_holds_are_answered_as_each_alone(tokenizer):
    from antiphon_vllm.backend import VLLMBackend
    from tiny_models import CONTEXT, build

    engine = VLLMBackend(
        build("llama"),
        tokenizer=tokenizer,
        kv_cache_memory_bytes=1 << 26,
        max_num_batched_tokens=CONTEXT,
    )
    rows = [[(i * j) % 300 + 4 for j in range(1, 101)] for i in range(1, 13)]
    made = engine.generate(TokenBatch(rows, list(range(12))), FREE)
    for number in (0, 5, 11):
        assert engine.generate(TokenBatch([rows[number]], [number]), FREE).ids == [made.ids[number]]
    engine.close()


def test_an_interrupt_leaves_nothing_behind(engine, monkeypatch):
    step, steps = engine.llm.llm_engine.step, []

    def interrupted():
        steps.append(1)
        if len(steps) == 3:
            raise KeyboardInterrupt
        return step()

    monkeypatch.setattr(engine.llm.llm_engine, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.generate(TokenBatch([[5, 6, 7], [9, 8]], [1, 2]), FREE)
    monkeypatch.undo()
    made = engine.generate(TokenBatch([[9, 8]], [2]), FREE)
    assert len(made) == 1
    assert made.ids == engine.generate(TokenBatch([[9, 8]], [2]), FREE).ids


def test_an_engine_that_fails_is_named_and_not_used_again(tokenizer):
    from antiphon_vllm.backend import VLLMBackend
    from tiny_models import build

    engine = VLLMBackend(build("llama"), tokenizer=tokenizer, kv_cache_memory_bytes=1 << 26)
    engine.llm.llm_engine.step = None  # as good as any fault inside of it
    with pytest.raises(BackendError, match=r"vLLM's engine for .* failed"):
        engine.generate(TokenBatch([[5, 6]]), FREE)
    with pytest.raises(BackendError, match="failed before"):
        engine.score(TokenBatch([[5, 6]]))
    engine.close()


def test_missing_prompt_log_probs_are_an_error(engine):
    """An engine that gives none must not look like one that is sure of everything."""
    from antiphon_vllm.requests import prompt_row

    class Output:
        prompt_token_ids = (5, 6, 7)
        prompt_logprobs = None

    with pytest.raises(BackendError, match="none of the 3 log-probs of row 4's prompt"):
        prompt_row(Output(), 4)


def test_a_hole_in_prompt_log_probs_is_an_error(engine):
    from antiphon_vllm.requests import prompt_row
    from vllm.logprobs import FlatLogprobs, Logprob

    class Output:
        prompt_token_ids = (5, 6, 7)
        prompt_logprobs = FlatLogprobs()

    for position in (None, {6: Logprob(-1.0)}, None):
        Output.prompt_logprobs.append(position)
    with pytest.raises(BackendError, match="no log-prob for position 2 of row 0"):
        prompt_row(Output(), 0)
