"""When answers end, and what is kept of them."""

from __future__ import annotations

import pytest
from antiphon.errors import InvalidParameter
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon.generation.stopping import Stops
from antiphon_transformers.backend import TransformersBackend
from tiny_models import END, Scripted


@pytest.fixture(params=["our loop", "model.generate"])
def params_of(request):
    """Makes parameters that take one way of decoding or the other."""

    def make(**values):
        if request.param == "model.generate":
            values["epsilon_cutoff"] = 0.0  # one of transformers' own, which does nothing here
        return SamplingParams.from_kwargs(
            {"temperature": 0, **values}, extras=TransformersBackend.extra_parameters
        )

    return make


def scripted(tokenizer, text, **options):
    """A backend whose model answers "#" with ``text``, character by character (or id by id)."""
    ids = text if isinstance(text, list) else tokenizer.encode(text, add_special_tokens=False)
    assert len(set(ids)) == len(ids)
    start = tokenizer.encode("#", add_special_tokens=False)
    model = Scripted([*start, *ids]).eval()
    backend = TransformersBackend(model, tokenizer=tokenizer, end_ids=[END], **options)
    return backend, TokenBatch([start]), ids


def test_an_unfinished_answer_is_left_as_it_was_sampled(tokenizer, params_of):
    backend, batch, ids = scripted(tokenizer, "abcdefgh")
    made = backend.generate(batch, params_of(max_new_tokens=4))
    assert made.ids == [ids[:4]]
    assert END not in made.ids[0]
    assert made.finish == ["length"]
    assert made.stopped_by == [None]


@pytest.mark.parametrize("end", [END, 3, 20])
def test_each_of_several_end_tokens_ends_an_answer(tokenizer, params_of, end):
    """The generation config's, the tokenizer's and the parameters' own; the sampled one is kept."""
    text = tokenizer.encode("ab", add_special_tokens=False)
    start = tokenizer.encode("#", add_special_tokens=False)
    model = Scripted([*start, *text, end, 30]).eval()
    model.generation_config.eos_token_id = [3, 299]
    backend = TransformersBackend(model, tokenizer=tokenizer)
    assert backend.end_ids >= {END, 3, 299}
    params = params_of(max_new_tokens=6, stop_token_ids=[20])
    made = backend.generate(TokenBatch([start]), params)
    assert made.ids == [[*text, end]]
    assert made.finish == ["end"]
    assert made.stopped_by == [end]


def test_end_tokens_can_be_replaced_or_ignored(tokenizer, params_of):
    backend, batch, ids = scripted(tokenizer, [40, END, 41, 42])
    ignoring = params_of(max_new_tokens=4, ignore_eos=True)
    assert backend.generate(batch, ignoring).ids == [ids]
    replacing = params_of(max_new_tokens=4, end_token_ids=[41])
    assert backend.generate(batch, replacing).ids == [ids[:3]]


def test_no_end_token_comes_before_the_minimum(tokenizer, params_of):
    backend, batch, _ = scripted(tokenizer, [40, END, 41])
    made = backend.generate(batch, params_of(max_new_tokens=5, min_new_tokens=5))
    assert len(made.ids[0]) == 5
    assert END not in made.ids[0]


def test_a_stop_string_cuts_the_text_where_it_begins_and_keeps_the_ids_that_complete_it(
    tokenizer, params_of
):
    """ "Well... yes": the token "..." completes ".." and is kept; the text ends at "Well"."""
    text = [*tokenizer.encode("Well..."), *tokenizer.encode(" yes")]
    assert tokenizer.convert_ids_to_tokens(text)[-5] == "..."
    backend, batch, _ = scripted(tokenizer, text)
    params = params_of(max_new_tokens=20, stop_sequences=("..",))
    made = backend.generate(batch, params)
    assert tokenizer.decode(made.ids[0]) == "Well..."
    assert made.ids[0] == text[:-4]
    assert tokenizer.decode(made.ids[0])[: made.cut[0]] == "Well"
    assert made.finish == ["stop"]
    assert made.stopped_by == [".."]
    assert len(made.log_probs[0]) == len(made.ids[0])


def test_a_stop_string_may_lie_over_several_tokens(tokenizer, params_of):
    backend, batch, _ = scripted(tokenizer, "abc STOQ-xyz")
    made = backend.generate(batch, params_of(max_new_tokens=20, stop_sequences=("STOQ", "zzz")))
    assert tokenizer.decode(made.ids[0]) == "abc STOQ"
    assert made.cut == [4]


def test_the_first_of_several_stop_strings_counts(tokenizer, params_of):
    backend, batch, _ = scripted(tokenizer, "ab-cd")
    made = backend.generate(batch, params_of(max_new_tokens=9, stop_sequences=("cd", "b-c", "-c")))
    assert made.stopped_by == ["b-c"]
    assert made.cut == [1]


def test_the_prompts_own_text_does_not_stop_an_answer(tokenizer, params_of):
    backend, batch, ids = scripted(tokenizer, "abc")
    made = backend.generate(batch, params_of(max_new_tokens=3, stop_sequences=("#", "#a")))
    assert made.ids == [ids]
    assert made.finish == ["length"]


def test_a_stop_string_in_bytes_of_several_tokens(tokenizer, params_of):
    """Each byte is a token: the string is seen with the byte that completes its character."""
    backend, batch, ids = scripted(tokenizer, "aé!")
    made = backend.generate(batch, params_of(max_new_tokens=9, stop_sequences=("é",)))
    assert made.ids == [ids[:3]]
    assert made.cut == [1]


def test_stop_strings_need_a_tokenizer(models_by_name):
    backend = TransformersBackend(models_by_name("llama"))
    with pytest.raises(InvalidParameter, match="tokenizer"):
        backend.generate(TokenBatch([[5]]), SamplingParams(max_new_tokens=2, stop_sequences=("a",)))


def test_an_answer_sampled_elsewhere_is_cut_at_its_first_end():
    stops = Stops(SamplingParams(), frozenset({9}), None)
    assert stops.first([1, 2, 9, 9, 9], 10) == ([1, 2, 9], "end", 9, None)
    assert stops.first([1, 2, 3], 2) == ([1, 2], "length", None, None)
