"""Sampling parameters: names, values, seeds."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
import torch
from antiphon.errors import InvalidParameter
from antiphon.generation.sampling import SamplingParams, prompt_seeds, sample_seed
from hypothesis import given
from hypothesis import strategies as st


def test_names_of_vllm_and_torchrl_are_aliases():
    params = SamplingParams.from_kwargs(
        {"max_tokens": 7, "n": 3, "stop": ["a"], "min_tokens": 2, "prompt_logprobs": 0}
    )
    same = SamplingParams.from_kwargs(
        {
            "max_new_tokens": 7,
            "num_return_sequences": 3,
            "stop_sequences": "a",
            "min_new_tokens": 2,
            "prompt_log_probs": True,
        }
    )
    assert params == same
    assert hash(params) == hash(same)


def test_an_unknown_name_suggests_the_near_one():
    with pytest.raises(InvalidParameter, match=r"'temprature'.*did you mean 'temperature'"):
        SamplingParams.from_kwargs({"temprature": 1.0})
    with pytest.raises(InvalidParameter, match="is not a sampling parameter of vllm"):
        SamplingParams.from_kwargs({"zzz": 1.0}, backend="vllm")


def test_a_parameter_of_one_backend_passes_by_name():
    given = {"no_repeat_ngram_size": 2, "bad_words_ids": [[1, 2], [3]]}
    params = SamplingParams.from_kwargs(given, extras={"no_repeat_ngram_size", "bad_words_ids"})
    assert params.extra == {"no_repeat_ngram_size": 2, "bad_words_ids": ((1, 2), (3,))}
    assert isinstance(hash(params), int)
    with pytest.raises(InvalidParameter):
        SamplingParams.from_kwargs(given)


def test_the_object_takes_any_name_and_refuses_unknown_ones_in_a_sentence():
    assert SamplingParams(max_tokens=7, n=2, stop="a") == SamplingParams.from_kwargs(
        {"max_new_tokens": 7, "num_return_sequences": 2, "stop_sequences": "a"}
    )
    with pytest.raises(InvalidParameter, match=r"'temprature'.*did you mean 'temperature'"):
        SamplingParams(temprature=1.0)
    with pytest.raises(InvalidParameter, match=r"'nope' is not .*; see antiphon.SamplingParams"):
        SamplingParams(nope=3)
    with pytest.raises(InvalidParameter, match=r"both 'max_tokens' and 'max_new_tokens'"):
        SamplingParams(max_tokens=7, max_new_tokens=7)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("max_length", "max_new_tokens"),
        ("min_length", "min_new_tokens"),
        ("logit_bias", "sequence"),
    ],
)
def test_names_that_mean_something_else_are_told_what_to_use(name, instead):
    with pytest.raises(InvalidParameter, match=f"'{name}'.*use {instead}"):
        SamplingParams.from_kwargs({name: 3})


def test_none_stands_for_the_default_of_every_parameter():
    names = {field.name for field in dataclasses.fields(SamplingParams)} - {"extras"}
    assert SamplingParams(**dict.fromkeys(names)) == SamplingParams()
    base = SamplingParams(max_new_tokens=3, top_p=0.5)
    changed = SamplingParams.from_kwargs({"max_new_tokens": None, "top_p": None}, base=base)
    assert changed == SamplingParams()


def test_numbers_of_numpy_and_torch_are_numbers():
    params = SamplingParams(
        max_new_tokens=np.int64(3),
        temperature=torch.tensor(0.5),
        seed=np.int32(4),
        stop_token_ids=torch.tensor([5, 2]),
        extras={"bias": np.array([1, 2])},
    )
    same = SamplingParams(
        max_new_tokens=3, temperature=0.5, seed=4, stop_token_ids=(2, 5), extras=[("bias", [1, 2])]
    )
    assert params == same
    assert hash(params) == hash(same)


@pytest.mark.parametrize("given", [[1, 2], "abc", 5, {1: 2}])
def test_what_is_no_mapping_of_names_is_refused(given):
    with pytest.raises(InvalidParameter, match=r"mapping of names|'1' is not a sampling parameter"):
        SamplingParams.from_kwargs(given)


@pytest.mark.parametrize("extras", [5, ["ab"], [(1, 2)], [("a", 1, 2)]])
def test_extras_that_are_no_pairs_are_refused(extras):
    with pytest.raises(InvalidParameter, match="extras must be"):
        SamplingParams(extras=extras)


def test_one_parameter_under_two_names_is_refused():
    with pytest.raises(
        InvalidParameter,
        match=r"Cannot specify both .n. and .num_return_sequences.: both are num_return_sequences",
    ):
        SamplingParams.from_kwargs({"n": 2, "num_return_sequences": 2})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_new_tokens", 0),
        ("max_new_tokens", 1.5),
        ("max_new_tokens", True),
        ("num_return_sequences", 0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "1"),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("stop_sequences", ""),
        ("stop_sequences", [1]),
        ("stop_token_ids", [-1]),
        ("end_token_ids", ["2"]),
        ("ignore_eos", 1),
        ("early_stopping", "sometimes"),
        ("log_prob_convention", "processed"),
        ("seed", -1),
        ("seed", 1 << 64),
    ],
)
def test_values_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(InvalidParameter, match=name):
        SamplingParams.from_kwargs({name: value})


def test_parameters_that_contradict_each_other_are_refused():
    with pytest.raises(InvalidParameter, match="min_new_tokens"):
        SamplingParams(max_new_tokens=1, min_new_tokens=2)
    with pytest.raises(InvalidParameter, match="num_beams"):
        SamplingParams(num_beams=2, num_return_sequences=3)
    with pytest.raises(InvalidParameter, match="do_sample"):
        SamplingParams.from_kwargs({"do_sample": True, "temperature": 0})


def test_greedy_has_one_form():
    assert SamplingParams(temperature=0) == SamplingParams(do_sample=False, temperature=0.7)
    assert SamplingParams(top_k=-1) == SamplingParams(top_k=0)


def test_the_log_prob_convention_is_stated():
    assert SamplingParams(temperature=0.6).log_prob_temperature == 1.0
    convention = SamplingParams(temperature=0.6, log_prob_convention="temperature")
    assert convention.log_prob_temperature == 0.6
    greedy = SamplingParams(temperature=0, log_prob_convention="temperature")
    assert greedy.log_prob_temperature == 1.0


def test_a_base_is_overridden_by_name():
    base = SamplingParams(max_new_tokens=5, temperature=0)
    changed = SamplingParams.from_kwargs({"temperature": 0.5}, base=base)
    assert changed.do_sample
    assert changed.max_new_tokens == 5
    assert SamplingParams.from_kwargs({"do_sample": True}, base=base).temperature == 1.0
    assert SamplingParams.from_kwargs({}, base=base) == base


def test_pickles():
    params = SamplingParams.from_kwargs({"stop": ["x"], "k": [1]}, extras={"k"})
    assert pickle.loads(pickle.dumps(params)) == params


rows = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=6)


@given(rows, rows, st.integers(0, 2**62))
def test_a_prompts_seed_does_not_depend_on_the_rest_of_its_batch(batch, others, seed):
    distinct = [row for row in others if row not in batch]
    mixed = [row for pair in zip(distinct, batch, strict=False) for row in pair]
    mixed += batch[len(distinct) :]
    by_row = dict(zip(map(tuple, mixed), prompt_seeds(mixed, seed), strict=True))
    for row, expected in zip(batch, prompt_seeds(batch, seed), strict=True):
        if batch.count(row) == 1:
            assert by_row[tuple(row)] == expected


def test_equal_prompts_and_samples_get_seeds_of_their_own():
    seeds = prompt_seeds([[1, 2], [1, 2], [3]], 0)
    assert len(set(seeds)) == 3
    assert len({sample_seed(seed, j) for seed in seeds for j in range(4)}) == 12
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert prompt_seeds([[1, 2]], 0) != prompt_seeds([[1, 2]], 1)


def test_a_backends_own_mapping_is_hashable_and_keeps_its_form():
    given = {
        "structured_outputs": {"json": {"type": "object", "required": ["a"]}},
        "bias": {3: 1.0},
    }
    params = SamplingParams.from_kwargs(given, extras=set(given))
    same = SamplingParams.from_kwargs(given, extras=set(given))
    assert params == same
    assert hash(params) == hash(same)
    assert params.extra["structured_outputs"]["json"]["type"] == "object"
    assert params.extra["bias"] == {3: 1.0}


def test_greedy_decoding_with_a_temperature_is_refused():
    with pytest.raises(InvalidParameter, match=r"When do_sample=False.*temperature must be 0"):
        SamplingParams.from_kwargs({"do_sample": False, "temperature": 0.7})
    for temperature in (0, 1.0):
        assert SamplingParams.from_kwargs({"do_sample": False, "temperature": temperature})


def test_values_come_back_by_their_standard_names():
    params = SamplingParams.from_kwargs({"max_tokens": 10, "n": 2, "temperature": 0.7})
    given = params.as_kwargs()
    assert (given["max_new_tokens"], given["num_return_sequences"]) == (10, 2)
    assert SamplingParams.from_kwargs(given) == params
