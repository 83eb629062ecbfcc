"""Calls of the generation part with what they can't take: a typed error in a sentence, at once."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from antiphon import LLMMaskedCategorical, LLMWrapper, LogProbDistribution
from antiphon.conversations.arguments import whole
from antiphon.errors import InvalidParameter
from antiphon.generation.backends import (
    Scores,
    TokenBatch,
    check_flags,
    check_params,
    check_rows,
    check_scoring,
)
from antiphon.generation.batching import Batcher
from antiphon.generation.distributions import RaggedCategorical
from antiphon.generation.sampling import SamplingParams
from antiphon.generation.scoring import pad_rows, selected_log_probs
from antiphon.generation.stopping import find_end_ids
from tensordict import TensorDict


class Backend:
    """Scores every id with 0 and gives flat logits."""

    name = "flat"
    tokenizer = None
    vocab_size = 10
    max_context = None
    end_ids = extra_parameters = frozenset()
    weight_version = 0

    def generate(self, batch, params):
        raise AssertionError("not asked for here")

    def score(self, batch, *, starts=None, temperature=1.0, entropy=False, requires_grad=False):
        return Scores([torch.zeros(len(row)) for row in batch.rows])

    def logits(self, batch, *, requires_grad=False):
        return [torch.zeros(len(row), self.vocab_size) for row in batch.rows]

    def load_weights(self, weights, version=None):
        raise AssertionError("not asked for here")

    def close(self):
        pass


def check(rows):
    check_rows(TokenBatch(rows), backend="flat", vocab_size=10, max_context=None)


@pytest.mark.parametrize(
    "rows",
    [
        [[1, 2], [3, 4]],
        [(1, 2), (3, 4)],
        np.array([[1, 2], [3, 4]]),
        torch.tensor([[1, 2], [3, 4]]),
        [torch.tensor([1, 2]), np.array([3, 4])],
    ],
)
def test_rows_may_be_lists_arrays_or_tensors(rows):
    check(rows)
    assert TokenBatch(rows).rows == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "not NoneType"),
        ("abc", "not str"),
        (5, "not int"),
        ([5, 6], "Row 0 is int"),
        ([[1], None], "Row 1 is NoneType"),
        ([[1], "ab"], "Row 1 is str"),
        ([[1], [1.0]], "Row 1 holds 1.0, a float"),
        ([[1], ["a"]], "Row 1 holds 'a', a str"),
        ([[1], [2, True]], "Row 1 holds True, a bool"),
        ([[1], [None]], "Row 1 holds None"),
        (torch.tensor([[1.0]]), "Row 0 holds 1.0"),
        (torch.tensor(1), "not Tensor"),
    ],
)
def test_rows_that_hold_no_ids_are_named(rows, message):
    with pytest.raises(InvalidParameter, match=message):
        check(rows)


@pytest.mark.parametrize("seeds", [["a"], [1 << 64], [1.5], [True]])
def test_seeds_that_are_no_numbers_are_refused(seeds):
    with pytest.raises(InvalidParameter, match="Seeds"):
        TokenBatch([[1]], seeds=seeds)


def test_what_is_no_batch_and_no_parameters_is_told():
    with pytest.raises(InvalidParameter, match="TokenBatch of rows of ids, not list"):
        check_rows([[1]], backend="flat", vocab_size=10, max_context=None)
    for params in (None, {}, 5):
        with pytest.raises(InvalidParameter, match="SamplingParams"):
            check_params(params)


@pytest.mark.parametrize("starts", ["a", 3, ["a"], [1.5], [True], [1, 2]])
def test_starts_that_are_not_one_position_per_row_are_refused(starts):
    with pytest.raises(InvalidParameter, match="start"):
        check_scoring(TokenBatch([[1, 2]]), starts, 1.0)


def test_starts_before_a_row_are_its_begin():
    assert check_scoring(TokenBatch([[1], [2]]), torch.tensor([-1, 1]), 1) == [0, 1]


@pytest.mark.parametrize("temperature", [0, -1, math.nan, math.inf, "1", None, True])
def test_temperatures_that_no_logits_are_divided_by_are_refused(temperature):
    with pytest.raises(InvalidParameter, match="temperature must be a number above 0"):
        check_scoring(TokenBatch([[1]]), None, temperature)


@pytest.mark.parametrize("timeout", [math.nan, "1", None, True])
def test_time_outs_that_are_no_seconds_are_refused(timeout):
    with pytest.raises(InvalidParameter, match="time-out"):
        Batcher(Backend(), timeout=timeout)


@pytest.mark.parametrize("timeout", [math.inf, 1e12])
def test_a_time_out_of_no_end_waits_and_keeps_the_worker(timeout):
    batcher = Batcher(Backend(), min_batch_size=2, timeout=timeout)
    futures = [batcher.submit_score(TokenBatch([[1, 2]])) for _ in range(2)]
    assert [len(future.result(timeout=30).log_probs) for future in futures] == [1, 1]
    batcher.close()


@pytest.mark.parametrize("ids", ["a", 2.5, ["a"], [None]])
def test_end_tokens_that_are_no_ids_are_refused(ids):
    with pytest.raises(InvalidParameter, match="End tokens"):
        find_end_ids(None, ids)


def test_states_and_targets_and_sides_that_do_not_fit_are_refused():
    with pytest.raises(InvalidParameter, match="3 states for 2 targets"):
        selected_log_probs(
            torch.zeros(3, 4), torch.zeros(2, dtype=torch.long), lambda x: x, vocab_size=4
        )
    with pytest.raises(InvalidParameter, match="'up'"):
        pad_rows([[1]], side="up")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LogProbDistribution([1.0]), "log_probs must be a tensor, not list"),
        (lambda: LogProbDistribution(torch.zeros(3), [True]), "mask must be a tensor"),
        (lambda: LogProbDistribution(torch.zeros(3)).log_prob([1]), "tokens must be a tensor"),
        (lambda: LLMMaskedCategorical([[1.0]]), "logits must be a tensor"),
        (lambda: LLMMaskedCategorical(torch.tensor(1.0)), "last dimension"),
        (lambda: LLMMaskedCategorical(torch.zeros(2, 4)).log_prob("ab"), "tokens must be a tensor"),
        (lambda: LLMMaskedCategorical(torch.zeros(2, 4)).sample("a"), "sample_shape"),
        (lambda: LLMMaskedCategorical(torch.zeros(2, 4)).sample((-1,)), "sample_shape"),
        (lambda: RaggedCategorical([], []), "no row"),
        (
            lambda: RaggedCategorical([torch.zeros(2, 4)], [torch.ones(2).bool()]).log_prob(5),
            "tokens must be a tensor",
        ),
    ],
)
def test_distributions_refuse_what_is_no_tensor(call, message):
    with pytest.raises(InvalidParameter, match=message):
        call()


@pytest.mark.parametrize("tokens", [[1, 4], [1, -1], [1.0, 2.0]])
def test_tokens_that_are_not_in_the_vocabulary_have_no_log_prob(tokens):
    dist = LLMMaskedCategorical(torch.zeros(2, 4))
    with pytest.raises(InvalidParameter, match="ids from 0 to 3"):
        dist.log_prob(torch.tensor(tokens))


def test_what_is_masked_or_ignored_may_be_any_number():
    mask = torch.tensor([True, False, True])
    dist = LLMMaskedCategorical(torch.zeros(3, 4), mask)
    assert dist.log_prob(torch.tensor([1, 99, -100])).tolist() == pytest.approx(
        [-math.log(4), 0.0, 0.0]
    )
    assert dist.sample(2).shape == (2, 3)


@pytest.mark.parametrize(
    "settings",
    [
        {"device": "nowhere"},
        {"device": 5.5},  # a whole one is a device where torch is built for CUDA
        {"tokenizer_kwargs": 5},
        {"template_kwargs": [1]},
        {"input_key": 5},
        {"history_key": ("a", 5)},
        {"pad_output": "yes"},
        {"batching": "yes"},
        {"return_log_probs": 1},
        {"backend": 5},
    ],
)
def test_settings_of_the_wrong_kind_are_refused(settings):
    name, value = next(iter(settings.items()))
    with pytest.raises(InvalidParameter, match=repr(value) if name == "device" else name):
        LLMWrapper("x" if name == "backend" else Backend(), input_mode="tokens", **settings)


def test_results_and_collectors_that_do_not_fit_are_refused():
    wrapper = LLMWrapper(Backend(), input_mode="tokens", generate=False)
    given = TensorDict({"tokens": {"full": torch.tensor([[1, 2]])}}, 1)
    with pytest.raises(InvalidParameter, match=r"batch size \[5\].*have \[1\]"):
        wrapper(given, tensordict_out=TensorDict({}, 5))
    with pytest.raises(InvalidParameter, match="not NoneType"):
        wrapper(None)
    with pytest.raises(InvalidParameter, match="weakly, not dict"):
        wrapper.register_collector({})


def test_distributions_over_plain_tensordicts_have_masks_and_say_what_lacks():
    wrapper = LLMWrapper(Backend(), input_mode="tokens", generate=False)
    ids, mask = torch.tensor([[1, 2, 3]]), torch.tensor([[False, False, True]])
    given = TensorDict({"tokens": {"full": ids}, "masks": {"mine": mask}}, 1)
    assert wrapper.get_dist(given).mask.tolist() == [[False, True, True]]
    assert wrapper.get_dist(given, mask_key=("masks", "mine")).mask.tolist() == [
        [False, False, True]
    ]
    assert wrapper._get_dist_with_custom_mask(given, mask).mask.tolist() == [[False, False, True]]
    with pytest.raises(InvalidParameter, match="no mask under"):
        wrapper._get_rlhf_dist(given)
    with pytest.raises(InvalidParameter, match="not str"):
        wrapper._get_dist_with_custom_mask(given, "abc")
    with pytest.raises(InvalidParameter, match="no row"):
        wrapper.get_dist(TensorDict({"tokens": {"full": ids[:0]}}, 0))


def test_a_prompt_that_its_row_does_not_begin_with_says_nothing_of_the_answer():
    """Padding in a plain tensor counted as prompt, and shortened the answer without a word."""
    wrapper = LLMWrapper(Backend(), input_mode="tokens", generate=False)
    full = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    fitting = {"prompt": torch.tensor([[1, 2], [5, 6]]), "full": full}
    dist = wrapper._get_sft_dist(TensorDict({"tokens": fitting}, 2))
    assert dist.mask.tolist() == [[False, False, True, True]] * 2
    padded = {"prompt": torch.tensor([[1, 2], [0, 5]]), "full": full}
    with pytest.raises(InvalidParameter, match="Row 1 does not begin with its prompt"):
        wrapper._get_sft_dist(TensorDict({"tokens": padded}, 2))


class Refusing:
    """Answers neither comparison nor question."""

    def __bool__(self):
        raise RuntimeError("is it true?")

    def __eq__(self, other):
        raise RuntimeError("is it equal?")

    __hash__ = None


ABSURD = [
    *(-1, 10**30, -(10**30), 0.5, math.nan, math.inf, 1 + 2j, b"x", "\ud800", "\0", "a" * 100_000),
    *([], [None], [[1]], {"a": 1}, {1: 2}, {"a"}, range(3), iter([1]), object(), print, int, ...),
    *(torch.tensor([1, 2]), torch.tensor([True, False]), torch.tensor([]), torch.zeros(2, 2)),
    *(torch.tensor(math.nan), torch.tensor(1 + 2j), torch.empty(1, device="meta")),
    torch.sparse_coo_tensor([[0]], [1.0], (2,), check_invariants=True),
    *(np.array([1, 2]), np.array("a"), np.float64("nan"), np.bool_(True), Refusing()),
]


def taken_or_refused(call):
    """A call is answered, or refused in a sentence that can be read."""
    told = ""
    try:
        call()
    except InvalidParameter as error:
        told = str(error)
    assert told == "" or 20 < len(told) < 400


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(SamplingParams)])
def test_a_parameter_takes_or_refuses_whatever_it_is_given(name):
    base = SamplingParams(temperature=0.5)
    for value in ABSURD:
        taken_or_refused(lambda value=value: SamplingParams(**{name: value}))
        given = {name: value}
        if name != "extras":
            taken_or_refused(lambda given=given: SamplingParams.from_kwargs(given, base=base))


@pytest.mark.parametrize("value", ABSURD, ids=lambda value: type(value).__name__)
def test_whatever_stands_in_a_calls_place_is_taken_or_refused(value):
    taken_or_refused(lambda: SamplingParams.from_kwargs(value))
    taken_or_refused(lambda: check([[1], value]))
    taken_or_refused(lambda: check([[1, value]]))
    taken_or_refused(lambda: find_end_ids(None, value))
    for given in (value, [value]):
        taken_or_refused(lambda given=given: TokenBatch([[1]], seeds=given))
        taken_or_refused(lambda given=given: TokenBatch([[1]], groups=given))
        taken_or_refused(lambda given=given: check_scoring(TokenBatch([[1]]), given, 1.0))
    taken_or_refused(lambda: check_scoring(TokenBatch([[1]]), None, value))
    if not isinstance(value, bool):
        with pytest.raises(InvalidParameter, match="entropy must be True or False"):
            check_flags(entropy=value)


@pytest.mark.parametrize(
    "flag", [True, np.bool_(True), torch.tensor(True)], ids=["own", "numpy", "torch"]
)
def test_true_is_no_id_and_no_number_whosever_it_is(flag):
    with pytest.raises(InvalidParameter, match="Row 0 holds"):
        check([[1, flag]])
    with pytest.raises(InvalidParameter, match="n must be a whole number"):
        whole("n", flag)
