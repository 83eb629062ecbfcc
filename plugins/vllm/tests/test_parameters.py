"""Sampling parameters of the engine's own, stop strings, engine options."""

from __future__ import annotations

import pytest
import torch
from antiphon.errors import InvalidParameter, ModelNotFound
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon_transformers import TransformersBackend
from antiphon_vllm.backend import VLLMBackend
from tiny_models import build

ROWS = TokenBatch([[5, 6, 7], [40, 41, 42, 43]], [1, 2])


@pytest.fixture(scope="module")
def engine(engine_of):
    return engine_of("llama")[0]


def params(engine, **values):
    return SamplingParams.from_kwargs(
        {"max_new_tokens": 12, **values}, extras=engine.extra_parameters, backend=engine.name
    )


def test_guided_decoding_gives_what_it_may(engine):
    choice = {"choice": ["yes", "no"]}
    made = engine.generate(ROWS, params(engine, structured_outputs=choice))
    texts = [engine.tokenizer.decode(ids, skip_special_tokens=True) for ids in made.ids]
    assert set(texts) <= {"yes", "no"}


def test_allowed_ids_and_biases_are_passed_on_and_log_probs_stay_the_models(engine_of):
    engine, model = engine_of("llama")
    allowed = [50, 51, 52]
    made = engine.generate(ROWS, params(engine, allowed_token_ids=allowed, ignore_eos=True))
    assert all(set(ids) <= set(allowed) for ids in made.ids)
    biased = engine.generate(
        ROWS,
        params(
            engine,
            logit_bias={77: 50.0},
            ignore_eos=True,
            temperature=0.5,
            log_prob_convention="temperature",
        ),
    )
    assert all(set(ids) == {77} for ids in biased.ids)
    rows = [[*row, *ids] for row, ids in zip(ROWS.rows, biased.ids, strict=True)]
    wanted = TransformersBackend(model).score(TokenBatch(rows), starts=[3, 4], temperature=0.5)
    for one, other in zip(biased.log_probs, wanted.log_probs, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_layout_parameters_change_nothing(engine):
    plain = engine.generate(ROWS, params(engine)).ids
    assert engine.generate(ROWS, params(engine, detokenize=False)).ids == plain


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_beams": 2}, "no beam search"),
        ({"temperature": 0.001}, "pass 0 for greedy"),
        ({"structured_outputs": {"shape": 1}}, "one kind of structured outputs"),
        ({"presence_penalty": 3.0}, "presence_penalty comes to 3"),
        ({"allowed_token_idz": [1]}, "did you mean 'allowed_token_ids'"),
        ({"lora_request": "/nowhere"}, "enable_lora=True"),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_what_the_engine_cannot_do_is_refused(engine, values, message):
    with pytest.raises(InvalidParameter, match=message):
        engine.generate(ROWS, params(engine, **values))


def test_penalties_hold_at_a_divided_temperature(engine_of):
    """The engine subtracts from logits that are divided already, so what it subtracts is divided too."""
    engine, model = engine_of("llama")
    trainer = TransformersBackend(model)
    values = {"temperature": 0.0, "presence_penalty": 1.5, "frequency_penalty": 0.7}
    wanted = trainer.generate(ROWS, SamplingParams(max_new_tokens=12, **values)).ids
    assert engine.generate(ROWS, params(engine, **values)).ids == wanted


def test_stop_strings_cut_the_text_and_keep_the_ids_as_everywhere(engine):
    tokenizer = engine.tokenizer
    free = engine.generate(ROWS, params(engine, max_new_tokens=40, ignore_eos=True))
    for row, seed, ids in zip(ROWS.rows, ROWS.seeds, free.ids, strict=True):
        text = tokenizer.decode(ids)
        stop = text[5:7]
        made = engine.generate(
            TokenBatch([row], [seed]),
            params(engine, max_new_tokens=40, ignore_eos=True, stop=[stop]),
        )
        found = made.ids[0]
        assert found == ids[: len(found)]
        assert made.finish == ["stop"]
        assert made.stopped_by == [stop]
        assert made.cut == [text.index(stop)]
        assert stop in tokenizer.decode(found)
        assert stop not in tokenizer.decode(found[:-1])
        assert len(made.log_probs[0]) == len(found)


def test_options_that_the_backend_relies_on_are_its_own():
    with pytest.raises(InvalidParameter, match="logprobs_mode"):
        VLLMBackend(build("llama"), logprobs_mode="processed_logprobs")


def test_an_unknown_engine_option_is_refused():
    with pytest.raises(InvalidParameter, match="max_modl_len"):
        VLLMBackend(build("llama"), max_modl_len=3)


def test_a_model_that_is_not_there_is_named():
    with pytest.raises(ModelNotFound, match="/no/such/model"):
        VLLMBackend("/no/such/model")


def test_what_is_no_model_is_refused():
    with pytest.raises(InvalidParameter, match="dict is no model"):
        VLLMBackend({})


def test_prefixes_are_kept_by_default(engine):
    assert engine.llm.llm_engine.vllm_config.cache_config.enable_prefix_caching
