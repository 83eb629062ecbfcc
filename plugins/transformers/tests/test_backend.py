"""The backend: bad input, weights, reuse of states, top log-probs, transformers' own parameters, memory."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import multiprocessing
import pickle
import threading

import pytest
import torch
from antiphon.errors import BackendError, InvalidParameter, ModelNotFound
from antiphon.generation.backends import Backend, TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon_transformers.backend import TransformersBackend
from antiphon_transformers.choosing import choose, draw
from antiphon_transformers.forward import GrowingLayer
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import END, VOCABULARY, build

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [42], [100, 101, 102] * 5]
PARAMS = SamplingParams(max_new_tokens=8, seed=4)


@pytest.fixture
def backend(models_by_name, tokenizer):
    return TransformersBackend(models_by_name("llama"), tokenizer=tokenizer)


def test_it_is_a_backend(backend):
    assert isinstance(backend, Backend)
    assert backend.vocab_size == VOCABULARY
    assert backend.max_context == 256


# Bad input


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[5], []], "Row 1 is empty"),
        ([[5], [VOCABULARY]], "Row 1 has the id 320"),
        ([[5] * 257], "Row 0 has 257 tokens"),
    ],
)
def test_a_row_that_the_model_cannot_take_is_named(backend, rows, message):
    with pytest.raises(InvalidParameter, match=message):
        backend.generate(TokenBatch(rows), PARAMS)
    with pytest.raises(InvalidParameter, match=message):
        backend.score(TokenBatch(rows))


def test_an_answer_ends_where_the_context_does(backend):
    made = backend.generate(
        TokenBatch([[5] * 253, [6]]), SamplingParams(max_new_tokens=6, seed=0, ignore_eos=True)
    )
    assert [len(ids) for ids in made.ids] == [3, 6]
    assert made.finish == ["length", "length"]


def test_nan_logits_name_the_row():
    model = build("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[42] = math.nan
    backend = TransformersBackend(model)
    with pytest.raises(BackendError, match="row 1 are NaN"):
        backend.generate(TokenBatch([[5], [42]]), PARAMS)
    with pytest.raises(BackendError, match="row 1 are NaN"):
        backend.score(TokenBatch([[5, 6, 7], [7, 8, 42, 9, 10], [11, 12]]))


def test_no_rows_give_no_rows(backend):
    assert len(backend.generate(TokenBatch([]), PARAMS)) == 0
    assert backend.score(TokenBatch([])).log_probs == []


def test_wrong_numbers_of_starts_and_temperatures_are_refused(backend):
    with pytest.raises(InvalidParameter, match="starts has 1 entries for 2 rows"):
        backend.score(TokenBatch([[5], [6]]), starts=[0])
    with pytest.raises(InvalidParameter, match="temperature"):
        backend.score(TokenBatch([[5]]), temperature=0.0)


def test_starts_beyond_a_row_give_nothing(backend):
    scores = backend.score(TokenBatch([[5, 6, 7], [5, 6]]), starts=[3, 9], entropy=True)
    assert [len(row) for row in scores.log_probs] == [0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"end_ids": "a"}, "End tokens"),
        ({"reuse_bytes": -1}, "reuse_bytes must be a whole number of at least 0"),
        ({"tokens_per_forward": 0}, "tokens_per_forward must be a whole number of at least 1"),
        ({"device": "nowhere"}, "'nowhere' is no device"),
        ({"device": "xla"}, "There is no device xla here"),
        ({"dtype": 3}, "3 is not a floating-point dtype"),
    ],
)
def test_settings_that_cannot_hold_are_named(models_by_name, options, message):
    with pytest.raises(InvalidParameter, match=message):
        TransformersBackend(models_by_name("llama"), **options)


def test_one_end_token_may_stand_by_itself(models_by_name):
    assert TransformersBackend(models_by_name("llama"), end_ids=7).end_ids == {7}


def test_calls_of_the_wrong_kind_are_refused(backend):
    with pytest.raises(InvalidParameter, match="TokenBatch of rows"):
        backend.generate([[5]], PARAMS)
    with pytest.raises(InvalidParameter, match="SamplingParams, not dict"):
        backend.generate(TokenBatch([[5]]), {"max_new_tokens": 2})
    for weights in (None, [1, 2], {"lm_head.weight": "a"}):
        with pytest.raises(InvalidParameter, match="tensor"):
            backend.load_weights(weights)
    for name, value in (("cache_implementation", "nope"), ("bad_words_ids", 5)):
        params = SamplingParams(max_new_tokens=2, extras={name: value})
        with pytest.raises(InvalidParameter, match="transformers refuses the parameters"):
            backend.generate(TokenBatch([[5]]), params)


def test_a_closed_backend_says_so(models_by_name):
    backend = TransformersBackend(models_by_name("llama"))
    backend.close()
    with pytest.raises(BackendError, match="closed"):
        backend.generate(TokenBatch([[5]]), PARAMS)


def test_a_model_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelNotFound, match="holds no model"):
        TransformersBackend(tmp_path)
    with pytest.raises(InvalidParameter, match="loaded by name"):
        TransformersBackend(build("llama"), revision="main")
    with pytest.raises(InvalidParameter, match="float33"):
        TransformersBackend(build("llama"), dtype="float33")


def test_a_folder_is_loaded_with_its_tokenizer(tmp_path, models_by_name, tokenizer, backend):
    models_by_name("llama").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = TransformersBackend(tmp_path, device="cpu")
    assert loaded.tokenizer.encode("We") == tokenizer.encode("We")
    assert (
        loaded.generate(TokenBatch(PROMPTS), PARAMS).ids
        == backend.generate(TokenBatch(PROMPTS), PARAMS).ids
    )


# Memory


@pytest.mark.parametrize("doing", ["generating", "scoring"])
def test_out_of_memory_halves_the_batch_once(models_by_name, doing, monkeypatch):
    model = models_by_name("llama")
    backend = TransformersBackend(model)

    def run():
        if doing == "generating":
            return backend.generate(TokenBatch(PROMPTS), PARAMS).ids
        return [row.nan_to_num().tolist() for row in backend.score(TokenBatch(PROMPTS)).log_probs]

    expected = run()
    embed = model.model.embed_tokens.forward
    most = {"rows": 2, "tokens": 22}

    def starved(ids):
        if ids.shape[0] > most["rows"] or ids.numel() > most["tokens"] * 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate too much")
        return embed(ids)

    backend = TransformersBackend(model, pack=False)
    run()  # the probes are behind it
    monkeypatch.setattr(model.model.embed_tokens, "forward", starved)
    with pytest.warns(UserWarning, match=f"Memory ran out while {doing} 3 rows"):
        again = run()
    if doing == "generating":
        assert again == expected
    else:
        for row, right in zip(again, expected, strict=True):
            assert row == pytest.approx(right, abs=1e-4)
    most["rows"] = 0
    with (
        pytest.warns(UserWarning, match="two halves"),
        pytest.raises(
            torch.OutOfMemoryError, match=r"rows 0 to 1, half of the batch, too; pass fewer"
        ),
    ):
        run()


def test_the_samples_of_one_prompt_are_halved_too(models_by_name, monkeypatch):
    model = models_by_name("llama")
    params = SamplingParams(max_new_tokens=4, seed=4, num_return_sequences=6, ignore_eos=True)
    expected = TransformersBackend(model).generate(TokenBatch(PROMPTS[:1]), params)
    embed = model.model.embed_tokens.forward

    def starved(ids):
        if ids.shape[0] > 3:
            raise RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)")
        return embed(ids)

    monkeypatch.setattr(model.model.embed_tokens, "forward", starved)
    with pytest.warns(UserWarning, match="generating 6 rows"):
        made = TransformersBackend(model).generate(TokenBatch(PROMPTS[:1]), params)
    assert made.ids == expected.ids


def test_one_row_that_does_not_fit_is_told_without_a_second_try(models_by_name, monkeypatch):
    model = models_by_name("llama")
    backend = TransformersBackend(model)
    backend.forward.try_out()

    def starved(ids):
        raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate")

    monkeypatch.setattr(model.model.embed_tokens, "forward", starved)
    with pytest.raises(torch.OutOfMemoryError, match="row 0 alone too; pass fewer or shorter"):
        backend.generate(TokenBatch([[5]]), PARAMS)


@pytest.mark.parametrize("doing", ["generating", "scoring"])
def test_a_row_of_the_second_half_is_called_by_its_own_number(doing, monkeypatch):
    model = build("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[42] = math.nan
    backend = TransformersBackend(model, pack=False)
    _ = backend.forward.splits
    embed, rows = model.model.embed_tokens.forward, TokenBatch([[5, 6], [7, 8], [9, 6], [42, 9]])

    def starved(ids):
        if ids.shape[0] > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return embed(ids)

    monkeypatch.setattr(model.model.embed_tokens, "forward", starved)
    with (
        pytest.warns(UserWarning, match=f"{doing} 4 rows"),
        pytest.raises(BackendError, match="row 3 are NaN"),
    ):
        backend.generate(rows, PARAMS) if doing == "generating" else backend.score(rows)


# Weights and kept states


def next_turn(made):
    return [prompt + ids + [50, 51, 52] for prompt, ids in zip(PROMPTS, made.ids, strict=True)]


def test_the_next_turn_of_a_conversation_starts_from_its_kept_states(models_by_name):
    for name in ("gpt2", "llama", "qwen3", "deepseek_v3", "falcon"):
        model = models_by_name(name)
        keeping, forgetting = TransformersBackend(model), TransformersBackend(model, reuse_bytes=0)
        made = keeping.generate(TokenBatch(PROMPTS), PARAMS)
        prompts = next_turn(made)
        for _ in range(3):
            kept = keeping.generate(TokenBatch(prompts), PARAMS)
            fresh = forgetting.generate(TokenBatch(prompts), PARAMS)
            assert kept.ids == fresh.ids
            for one, other in zip(kept.log_probs, fresh.log_probs, strict=True):
                torch.testing.assert_close(one, other, atol=1e-4, rtol=0)
            prompts = [p + ids + [60] for p, ids in zip(prompts, kept.ids, strict=True)]
        assert keeping.reuse.hits >= 6
        assert keeping.reuse.tokens > 0
        assert forgetting.reuse.hits == 0


def test_kept_states_stay_within_their_bytes(models_by_name):
    backend = TransformersBackend(models_by_name("llama"), reuse_bytes=30_000)
    for start in range(5, 45, 2):
        backend.generate(TokenBatch([[start, start + 1]]), PARAMS)
    assert 0 < sum(kept.size for kept in backend.reuse._kept.values()) <= 30_000


@pytest.mark.parametrize("how", ["in place", "through data", "load_weights"])
def test_states_of_old_weights_are_never_used(how):
    model = build("llama")
    backend = TransformersBackend(model)
    made = backend.generate(TokenBatch(PROMPTS), PARAMS)
    version = backend.weight_version
    changed = {n: p.detach() + 0.05 for n, p in model.named_parameters()}
    if how == "load_weights":
        backend.load_weights({n: p for n, p in changed.items() if n in model.state_dict()})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if how == "in place":
                parameter.copy_(changed[name])
            elif how == "through data":
                parameter.data.add_(0.05)
    assert backend.weight_version != version
    prompts = next_turn(made)
    fresh = TransformersBackend(model, reuse_bytes=0).generate(TokenBatch(prompts), PARAMS)
    again = backend.generate(TokenBatch(prompts), PARAMS)
    assert again.ids == fresh.ids
    assert again.weight_version == backend.weight_version
    for one, other in zip(again.log_probs, fresh.log_probs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0)


def test_an_optimiser_step_is_noticed():
    model = build("llama")
    backend = TransformersBackend(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    before = backend.weight_version
    assert backend.weight_version == before
    loss = -backend.score(TokenBatch([[5, 6, 7]]), requires_grad=True).log_probs[0][1:].sum()
    loss.backward()
    optimiser.step()
    assert backend.weight_version == before + 1


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # peft's own
@pytest.mark.parametrize("how", ["disabled", "another", "scaled", "merged"])
def test_states_of_another_adapter_are_never_used(how):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "k_proj"], init_lora_weights=False)
    model = peft.get_peft_model(build("llama"), config)
    model.add_adapter("another", config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora" in name:
                parameter.mul_(20)
    backend, params = TransformersBackend(model), SamplingParams(max_new_tokens=6, temperature=0)
    prompt = list(range(5, 60))
    made = backend.generate(TokenBatch([prompt]), params)
    grown, version = [prompt + made.ids[0] + [70, 71]], backend.weight_version
    with model.disable_adapter() if how == "disabled" else contextlib.nullcontext():
        if how == "another":
            model.set_adapter("another")
        elif how == "merged":
            model.merge_adapter()
        elif how == "scaled":
            for module in model.modules():
                if isinstance(getattr(module, "scaling", None), dict):
                    module.scaling["default"] *= 3
        again = backend.generate(TokenBatch(grown), params)
        fresh = TransformersBackend(model, reuse_bytes=0).generate(TokenBatch(grown), params)
        assert again.ids == fresh.ids
        for one, other in zip(again.log_probs, fresh.log_probs, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=0)
        assert backend.weight_version != version


def test_a_learnt_buffer_counts_as_a_weight():
    """DeepSeek-V3 balances its experts by one."""
    model = build("deepseek_v3")
    backend = TransformersBackend(model)
    before = backend.weight_version
    name = next(n for n in model.state_dict() if n.endswith("e_score_correction_bias"))
    backend.load_weights({name: torch.arange(8.0)})
    assert backend.weight_version != before


def test_weights_that_do_not_fit_are_refused_and_nothing_is_copied():
    model = build("llama")
    backend = TransformersBackend(model)
    name = "model.norm.weight"
    before = model.state_dict()[name].clone()
    with pytest.raises(BackendError, match="no weight 'nonsense'"):
        backend.load_weights({name: before + 1, "nonsense": before})
    with pytest.raises(BackendError, match="has shape"):
        backend.load_weights([(name, before + 1), ("lm_head.weight", before)])
    assert torch.equal(model.state_dict()[name], before)
    backend.load_weights({name: before + 1}, version="step-7")
    assert backend.weight_version == "step-7"


# Dropout


def test_dropout_never_touches_sampling_and_the_mode_is_put_back():
    model = build("gpt2")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    quiet = TransformersBackend(model).generate(TokenBatch(PROMPTS), PARAMS)
    model.train()
    backend = TransformersBackend(model)
    made = backend.generate(TokenBatch(PROMPTS), PARAMS)
    assert made.ids == quiet.ids
    assert model.training
    assert all(module.training for module in model.modules())
    rows = TokenBatch([p + ids for p, ids in zip(PROMPTS, made.ids, strict=True)])
    starts = [len(p) for p in PROMPTS]
    scores = backend.score(rows, starts=starts)
    for one, other in zip(made.log_probs, scores.log_probs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0)
    noisy = backend.score(rows, starts=starts, requires_grad=True)
    assert any(
        (a - b).abs().max() > 1e-2 for a, b in zip(noisy.log_probs, made.log_probs, strict=True)
    )


# Reports


def test_the_most_probable_ids_come_with_their_log_probs(backend):
    params = SamplingParams(max_new_tokens=5, seed=1, logprobs=4, ignore_eos=True)
    made = backend.generate(TokenBatch(PROMPTS), params)
    for prompt, ids, log_probs, (top_ids, top_log_probs) in zip(
        PROMPTS, made.ids, made.log_probs, made.top, strict=True
    ):
        assert top_ids.shape == top_log_probs.shape == (len(ids), 4)
        logits = backend.logits(TokenBatch([prompt + ids]))[0][len(prompt) - 1 : -1]
        right, order = logits.log_softmax(-1).topk(4)
        assert torch.equal(order, top_ids)
        torch.testing.assert_close(right, top_log_probs, atol=1e-4, rtol=0)
        # The sampled id's own log-prob is its own, whether it is among the first or not.
        own = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
        torch.testing.assert_close(own, log_probs, atol=1e-4, rtol=0)


def test_prompt_log_probs_have_no_number_for_the_first_token(backend):
    params = SamplingParams(max_new_tokens=2, prompt_log_probs=True)
    made = backend.generate(TokenBatch(PROMPTS), params)
    scores = backend.score(TokenBatch(PROMPTS))
    for one, other in zip(made.prompt_log_probs, scores.log_probs, strict=True):
        assert one[0].isnan()
        torch.testing.assert_close(one, other, equal_nan=True)


def test_without_a_seed_samples_follow_torchs_generator(backend):
    params = SamplingParams(max_new_tokens=12)
    torch.manual_seed(11)
    one = backend.generate(TokenBatch(PROMPTS), params).ids
    other = backend.generate(TokenBatch(PROMPTS), params).ids
    torch.manual_seed(11)
    assert backend.generate(TokenBatch(PROMPTS), params).ids == one
    assert other != one


# Transformers' own parameters


def test_beam_search_gives_what_transformers_gives(models_by_name, backend):
    model = models_by_name("llama")
    params = SamplingParams(max_new_tokens=6, num_beams=3, num_return_sequences=2, do_sample=False)
    made = backend.generate(TokenBatch(PROMPTS), params)
    for index, prompt in enumerate(PROMPTS):
        out = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=6,
            num_beams=3,
            num_return_sequences=2,
            do_sample=False,
            eos_token_id=END,
            pad_token_id=END,
        )
        for row, ids in zip(out[:, len(prompt) :].tolist(), made.ids[2 * index :], strict=False):
            end = row.index(END) + 1 if END in row else len(row)
            assert row[:end] == ids
    with pytest.raises(InvalidParameter, match="greedy"):
        backend.generate(TokenBatch(PROMPTS), SamplingParams(num_beams=2, max_new_tokens=2))


def test_transformers_parameters_keep_seeds_and_log_probs(backend):
    params = SamplingParams.from_kwargs(
        {"max_new_tokens": 20, "seed": 2, "n": 2, "no_repeat_ngram_size": 1, "top_k": 30},
        extras=backend.extra_parameters,
    )
    made = backend.generate(TokenBatch(PROMPTS), params)
    for index, ids in enumerate(made.ids):
        row = PROMPTS[index // 2] + ids
        assert len(set(ids)) == len(ids)
        scores = backend.score(TokenBatch([row]), starts=[len(row) - len(ids)])
        torch.testing.assert_close(scores.log_probs[0], made.log_probs[index], atol=1e-4, rtol=0)
    alone = backend.generate(TokenBatch(PROMPTS[1:2]), params)
    assert alone.ids == made.ids[2:4]
    more = dataclasses.replace(params, logprobs=2)
    with pytest.raises(InvalidParameter, match="logprobs"):
        backend.generate(TokenBatch(PROMPTS), more)


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 5.0},
        {"no_repeat_ngram_size": 1},
        {"suppress_tokens": list(range(5, 200))},
        {"bad_words_ids": [[i] for i in range(5, 150)]},
        {"forced_bos_token_id": 9, "forced_eos_token_id": 9},
        {"sequence_bias": [[[7], 50.0]], "guidance_scale": 3.0},
        {"stop_strings": ["a"], "max_length": 4, "max_time": 0.0001},
        {"do_sample": True, "temperature": 0.3, "top_k": 1, "num_return_sequences": 3},
        {"return_dict_in_generate": True, "output_scores": True},
    ],
)
def test_what_a_models_own_generation_config_says_changes_no_way_of_decoding(settings):
    """Qwen2.5's has a repetition penalty: it held where transformers decoded, and not where our loop did."""
    results = []
    for own in ({}, settings):
        model = build("llama")
        for name, value in own.items():
            setattr(model.generation_config, name, value)
        backend = TransformersBackend(model, reuse_bytes=0)
        plain = {"max_new_tokens": 6, "ignore_eos": True}
        ways = [{"seed": 1}, {"seed": 1, "epsilon_cutoff": 0.0}]
        ways.append({"num_beams": 3, "do_sample": False})
        for way in ways:
            params = SamplingParams.from_kwargs({**plain, **way}, extras=backend.extra_parameters)
            results.append(backend.generate(TokenBatch(PROMPTS), params).ids)
        assert {name: getattr(model.generation_config, name) for name in own} == own
    assert results[0] == results[1]
    assert results[:3] == results[3:]


def test_both_ways_of_decoding_sample_the_same(backend):
    """Our loop and ``model.generate`` share how an id is chosen."""
    common = {
        "max_new_tokens": 10,
        "seed": 7,
        "temperature": 0.7,
        "top_p": 0.9,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
    }
    ours = backend.generate(TokenBatch(PROMPTS), SamplingParams.from_kwargs(common))
    theirs = backend.generate(
        TokenBatch(PROMPTS),
        SamplingParams.from_kwargs(
            {**common, "use_cache": True, "epsilon_cutoff": 0.0}, extras=backend.extra_parameters
        ),
    )
    assert ours.ids == theirs.ids


# Choosing


def test_an_id_of_no_weight_is_never_drawn():
    weights = torch.tensor([[0.0, 1.0, 0.0, 2.0, 0.0]]).repeat(5, 1)
    uniform = torch.tensor([0.0, 1 / 3 - 1e-9, 1 / 3 + 1e-9, 1 - 2**-53, 0.9], dtype=torch.float64)
    assert draw(weights, uniform).tolist() == [1, 1, 3, 3, 3]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31), st.floats(0.05, 1.0), st.integers(0, 8), st.floats(0.0, 0.5))
def test_filters_keep_what_transformers_keeps(seed, top_p, top_k, min_p):
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, 12, generator=generator) * 3
    scores = logits / 0.7
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1.0:
        scores = TopPLogitsWarper(top_p)(None, scores)
    if min_p:
        scores = MinPLogitsWarper(min_p)(None, scores)
    probs = scores.softmax(-1)
    params = SamplingParams(temperature=0.7, top_p=top_p, top_k=top_k, min_p=min_p)
    counts = torch.zeros(4, 12)
    steps = 200
    for step in range(steps):
        uniform = torch.full((4,), (step + 0.5) / steps, dtype=torch.float64)
        counts[torch.arange(4), choose(logits, params, uniform)] += 1
    assert (counts / steps - probs).abs().max() <= 1.5 / steps + 1e-3
    assert not counts[probs == 0].any()


# Odds and ends


def test_it_pickles_and_copies(models_by_name):
    backend = TransformersBackend(models_by_name("llama"))
    expected = backend.generate(TokenBatch(PROMPTS), PARAMS).ids
    for copied in (pickle.loads(pickle.dumps(backend)), copy.deepcopy(backend)):
        assert copied.generate(TokenBatch(PROMPTS), PARAMS).ids == expected


def test_threads_get_what_they_would_get_alone(backend):
    expected = [backend.generate(TokenBatch([p]), PARAMS).ids for p in PROMPTS]
    found = [None] * 9

    def run(index):
        found[index] = backend.generate(TokenBatch([PROMPTS[index % 3]]), PARAMS).ids

    threads = [threading.Thread(target=run, args=(i,)) for i in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected * 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_computes_waits_for_nobody(backend):
    expected = backend.generate(TokenBatch(PROMPTS), PARAMS).ids
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    held, done = threading.Event(), threading.Event()

    def compute():
        with backend._lock, backend.reuse._lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=compute)
    thread.start()
    held.wait(30)
    process = context.Process(
        target=lambda: sending.send(backend.generate(TokenBatch(PROMPTS), PARAMS).ids)
    )
    try:
        process.start()
        assert receiving.poll(30)
        assert receiving.recv() == expected
    finally:
        done.set()
        thread.join(30)
        process.kill()
        process.join(30)


def test_a_growing_layer_holds_what_a_plain_one_holds():
    from transformers.cache_utils import DynamicLayer

    torch.manual_seed(0)
    ours, plain = GrowingLayer(), DynamicLayer()
    for step in (5, 1, 1, 80, 1):
        states = torch.randn(3, 2, step, 4), torch.randn(3, 2, step, 6)
        for one, other in zip(ours.update(*states), plain.update(*states), strict=True):
            assert torch.equal(one, other)
        if step == 80:
            for layer in (ours, plain):
                layer.batch_select_indices(torch.tensor([2, 0, 0]))
    ours.crop(-3)
    plain.crop(-3)
    states = torch.randn(3, 2, 2, 4), torch.randn(3, 2, 2, 6)
    assert torch.equal(ours.update(*states)[0], plain.update(*states)[0])


def test_a_model_that_cannot_be_split_is_scored_by_its_own_forward(models_by_name):
    model = copy.deepcopy(models_by_name("llama"))
    inner = type(model).forward

    class Odd(type(model)):
        def forward(self, input_ids=None, **kwargs):
            out = inner(self, input_ids=input_ids, **kwargs)
            out.logits = out.logits + input_ids[
                :, -out.logits.shape[1] :, None
            ] * 0.01 * torch.arange(VOCABULARY)
            return out

    model.__class__ = Odd
    backend = TransformersBackend(model)
    assert not backend.forward.splits
    assert not backend.forward.packs
    scores = backend.score(TokenBatch(PROMPTS), requires_grad=True)
    for row, log_probs in zip(PROMPTS, scores.log_probs, strict=True):
        right = model(torch.tensor([row])).logits[0, :-1].log_softmax(-1)
        right = right.gather(1, torch.tensor(row[1:], dtype=torch.long)[:, None])[:, 0]
        torch.testing.assert_close(log_probs[1:], right, atol=1e-4, rtol=0)


def test_a_model_that_ignores_positions_is_not_packed(models_by_name):
    backend = TransformersBackend(models_by_name("mamba"))
    assert not backend.forward.packs


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # peft's own
def test_an_adapter_of_peft_is_sampled_from_scored_and_trained():
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = peft.get_peft_model(build("llama"), config)
    backend = TransformersBackend(model)
    assert backend.forward.splits
    made = backend.generate(TokenBatch(PROMPTS), PARAMS)
    rows = [prompt + ids for prompt, ids in zip(PROMPTS, made.ids, strict=True)]
    for row, prompt, sampled in zip(rows, PROMPTS, made.log_probs, strict=True):
        right = model(torch.tensor([row])).logits[0, :-1].log_softmax(-1)
        right = right.gather(1, torch.tensor(row[1:])[:, None])[len(prompt) - 1 :, 0]
        torch.testing.assert_close(sampled, right.detach(), atol=1e-4, rtol=0)
    scores = backend.score(TokenBatch(rows), requires_grad=True)
    sum(row[1:].sum() for row in scores.log_probs).backward()
    trained = [p for n, p in model.named_parameters() if "lora" in n]
    assert trained
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in trained)


# Kinds of caches


def of_both_caches(backend, common, kind):
    """What is generated with our cache, and with one of transformers' own."""
    theirs = SamplingParams.from_kwargs(
        {**common, "cache_implementation": kind}, extras=backend.extra_parameters
    )
    ours = backend.generate(TokenBatch(PROMPTS), SamplingParams.from_kwargs(common))
    return ours, backend.generate(TokenBatch(PROMPTS), theirs)


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "deepseek_v3"])
@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_cache_of_either_kind_gives_the_same_answers_and_log_probs(models_by_name, name, kind):
    """Ours grows by itself; ``cache_implementation`` asks transformers for one of its own."""
    backend = TransformersBackend(models_by_name(name), reuse_bytes=0)
    common = {"max_new_tokens": 10, "temperature": 0, "ignore_eos": True}
    ours, theirs = of_both_caches(backend, common, kind)
    assert theirs.ids == ours.ids
    for one, other in zip(theirs.log_probs, ours.log_probs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_samples_and_seeds_do_not_depend_on_the_kind_of_cache(backend, kind):
    common = {"max_new_tokens": 8, "num_return_sequences": 3, "seed": 5}
    ours, theirs = of_both_caches(backend, common, kind)
    assert theirs.ids == ours.ids


def test_states_are_kept_for_the_samples_of_a_prompt_and_for_the_turns_of_each(
    models_by_name, monkeypatch
):
    model = models_by_name("qwen3")
    backend = TransformersBackend(model)
    backend.forward.try_out()  # once per model, and not counted here
    computed = []
    original = type(backend.forward).last_logits

    def counting(self, ids, *args, **kwargs):
        computed.append(ids.numel())
        return original(self, ids, *args, **kwargs)

    monkeypatch.setattr(type(backend.forward), "last_logits", counting)
    prompt = list(range(5, 65))
    params = SamplingParams(max_new_tokens=4, num_return_sequences=4, seed=1, ignore_eos=True)
    made = backend.generate(TokenBatch([prompt]), params)
    # The prompt once, then one id for each of the four samples.
    assert computed[0] == len(prompt)
    assert sum(computed[1:]) <= 3 * 4
    computed.clear()
    turns = [prompt + ids + [70, 71] for ids in made.ids]
    once = dataclasses.replace(params, num_return_sequences=1)
    again = backend.generate(TokenBatch(turns), once)
    assert computed[0] <= 4 * 4  # what is new of each, not 4 * 66
    fresh = TransformersBackend(model, reuse_bytes=0).generate(TokenBatch(turns), once)
    assert again.ids == fresh.ids


def test_what_is_no_model_is_refused_by_its_kind(models_by_name, tokenizer):
    with pytest.raises(InvalidParameter, match="not tuple; pass a tokenizer as tokenizer="):
        TransformersBackend((models_by_name("llama"), tokenizer))
    with pytest.raises(InvalidParameter, match="not NoneType"):
        TransformersBackend(None)
