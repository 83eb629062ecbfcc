"""Batching: many threads, one worker, every caller his own answer."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import random
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest
import torch
from antiphon.errors import BackendError, BatchingClosed, InvalidParameter
from antiphon.generation.backends import Generation, Scores, TokenBatch
from antiphon.generation.batching import Batcher
from antiphon.generation.sampling import SamplingParams

FAIL = 666
PARAMS = SamplingParams(max_new_tokens=4, seed=0)


class FakeBackend:
    """Answers a row with its own ids and the sample's number; refuses rows that hold FAIL."""

    name = "fake"
    tokenizer = None
    vocab_size = 1 << 40
    max_context = None
    end_ids = frozenset()
    extra_parameters = frozenset()
    weight_version = 0

    def __init__(self, delay=0.0):
        self.delay = delay
        self.calls = []
        self.gate = threading.Event()
        self.gate.set()

    def generate(self, batch, params):
        self.gate.wait()
        self.calls.append((len(batch), params))
        if self.delay:
            time.sleep(self.delay)
        for index, row in enumerate(batch.rows):
            if FAIL in row:
                raise ValueError(f"row {index} of {len(batch)} fails: {row}")
        n = params.num_return_sequences
        ids = [[*row, params.top_k, j] for row in batch.rows for j in range(n)]
        return Generation(ids, [torch.zeros(len(row)) for row in ids], ["end"] * len(ids))

    def score(self, batch, *, starts=None, temperature=1.0, entropy=False, requires_grad=False):
        self.calls.append((len(batch), temperature))
        rows = [
            torch.tensor(row[start:], dtype=torch.float32) * temperature
            for row, start in zip(batch.rows, starts, strict=True)
        ]
        return Scores(rows, rows if entropy else None)


@pytest.fixture
def make():
    made = []

    def build(backend=None, **options):
        made.append(Batcher(backend or FakeBackend(), **options))
        return made[-1]

    yield build
    for batcher in made:
        batcher.close()


def test_three_callers_are_answered_though_four_are_waited_for(make):
    batcher = make(min_batch_size=4, timeout=1)
    began = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda i: batcher.generate(TokenBatch([[i]]), PARAMS), range(3)))
    assert [result.ids for result in results] == [[[i, 0, 0]] for i in range(3)]
    assert time.monotonic() - began >= 1
    assert [size for size, _ in batcher.backend.calls] == [3]


def test_with_a_minimum_of_one_the_first_request_does_not_wait(make):
    batcher = make(min_batch_size=1, timeout=60.0)
    began = time.monotonic()
    batcher.generate(TokenBatch([[1]]), PARAMS)
    assert time.monotonic() - began < 30


def test_a_batch_runs_as_soon_as_the_minimum_is_there(make):
    batcher = make(min_batch_size=3, timeout=60.0)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda i: batcher.generate(TokenBatch([[i]]), PARAMS), range(3)))
    assert [size for size, _ in batcher.backend.calls] == [3]


def test_no_batch_is_larger_than_the_maximum(make):
    backend = FakeBackend()
    backend.gate.clear()
    batcher = make(backend, max_batch_size=4)
    futures = [batcher.submit_generate(TokenBatch([[i], [i]]), PARAMS) for i in range(9)]
    large = batcher.submit_generate(TokenBatch([[i] for i in range(11)]), PARAMS)
    backend.gate.set()
    assert [f.result().ids[1] for f in futures] == [[i, 0, 0] for i in range(9)]
    assert large.result().ids == [[i, 0, 0] for i in range(11)]
    assert max(size for size, _ in backend.calls) == 4
    assert batcher.statistics.largest == 4


def test_only_requests_with_equal_parameters_share_a_batch(make):
    backend = FakeBackend()
    backend.gate.clear()
    batcher = make(backend)
    first = batcher.submit_generate(TokenBatch([[0]]), PARAMS)
    time.sleep(0.05)
    futures = [
        batcher.submit_generate(TokenBatch([[i]]), SamplingParams(top_k=i % 2 + 1, seed=i))
        for i in range(8)
    ]
    backend.gate.set()
    assert first.result().ids == [[0, 0, 0]]
    assert [f.result().ids for f in futures] == [[[i, i % 2 + 1, 0]] for i in range(8)]
    assert sorted(size for size, _ in backend.calls) == [1, 4, 4]


def test_a_group_that_is_full_does_not_wait_for_an_older_one_that_is_not(make):
    batcher = make(min_batch_size=2, timeout=60.0)
    waiting = batcher.submit_generate(TokenBatch([[1]]), SamplingParams(top_k=1))
    for _ in range(2):
        full = batcher.submit_generate(TokenBatch([[2]]), SamplingParams(top_k=2))
    assert full.result(timeout=30).ids == [[2, 2, 0]]
    assert not waiting.done()


def test_an_error_reaches_exactly_its_caller(make):
    backend = FakeBackend()
    backend.gate.clear()
    batcher = make(backend)
    rows = [[[i], [FAIL]] if i in (3, 5) else [[i], [i]] for i in range(8)]
    futures = [batcher.submit_generate(TokenBatch(row), PARAMS) for row in rows]
    backend.gate.set()
    for i, future in enumerate(futures):
        if i in (3, 5):
            # The row is counted in the caller's own batch.
            with pytest.raises(ValueError, match="row 1 of 2 fails"):
                future.result()
        else:
            assert future.result().ids == [[i, 0, 0], [i, 0, 0]]
    assert batcher.generate(TokenBatch([[9]]), PARAMS).ids == [[9, 0, 0]]
    assert batcher.statistics.failed == 2


def test_rows_come_back_in_order_for_equal_prompts_and_several_samples(make):
    batcher = make(min_batch_size=5, timeout=1.0)
    params = SamplingParams(num_return_sequences=2)
    one = batcher.submit_generate(TokenBatch([[1], [1], [2]]), params)
    other = batcher.submit_generate(TokenBatch([[1], [3]]), params)
    expected = [[1, 0, 0], [1, 0, 1], [1, 0, 0], [1, 0, 1], [2, 0, 0], [2, 0, 1]]
    assert one.result().ids == expected
    assert other.result().ids == [[1, 0, 0], [1, 0, 1], [3, 0, 0], [3, 0, 1]]


def test_what_is_sampled_does_not_depend_on_who_shares_the_batch(make):
    class Seeds(FakeBackend):
        def generate(self, batch, params):
            assert params.seed is None
            ids = [[seed] for seed in batch.seeds]
            return Generation(ids, [torch.zeros(1)] * len(ids), ["end"] * len(ids))

    batcher = make(Seeds(), min_batch_size=3, timeout=0.2)
    alone = batcher.generate(TokenBatch([[7, 8]]), PARAMS).ids
    others = [batcher.submit_generate(TokenBatch([[7, 8]]), SamplingParams(seed=s)) for s in (4, 5)]
    same = batcher.submit_generate(TokenBatch([[7, 8]]), SamplingParams(seed=0))
    different = batcher.submit_generate(TokenBatch([[7, 8]]), PARAMS)
    assert different.result().ids == alone
    assert same.result().ids == [list(alone[0])]
    assert len({other.result().ids[0][0] for other in others} | {alone[0][0]}) == 3


def test_scores_are_joined_and_taken_apart(make):
    backend = FakeBackend()
    batcher = make(backend, min_batch_size=3, timeout=1.0)
    one = batcher.submit_score(TokenBatch([[1, 2], [3]]), starts=[1, 0], entropy=True)
    other = batcher.submit_score(TokenBatch([[4, 5, 6]]), entropy=True)
    apart = batcher.submit_score(TokenBatch([[1, 2]]), temperature=2.0)
    assert [row.tolist() for row in one.result().log_probs] == [[2.0], [3.0]]
    assert [row.tolist() for row in other.result().entropies] == [[4.0, 5.0, 6.0]]
    assert apart.result().log_probs[0].tolist() == [2.0, 4.0]
    assert [size for size, _ in backend.calls] == [3, 1]


def test_a_closed_batcher_has_answered_everyone_and_takes_no_more(make):
    batcher = make(min_batch_size=100, timeout=60.0)
    futures = [batcher.submit_generate(TokenBatch([[i]]), PARAMS) for i in range(5)]
    batcher.close()
    for future in futures:
        with pytest.raises(BatchingClosed):
            future.result(timeout=0)
    with pytest.raises(BatchingClosed):
        batcher.generate(TokenBatch([[1]]), PARAMS)
    assert batcher.state()["closed"]


def test_closing_with_flush_runs_what_waits(make):
    batcher = make(min_batch_size=100, timeout=60.0)
    futures = [batcher.submit_generate(TokenBatch([[i]]), PARAMS) for i in range(5)]
    batcher.close(flush=True)
    assert [future.result(timeout=0).ids for future in futures] == [[[i, 0, 0]] for i in range(5)]


def test_draining_leaves_a_batcher_that_works(make):
    batcher = make(min_batch_size=2, timeout=60.0)
    lost = batcher.submit_generate(TokenBatch([[1]]), PARAMS)
    batcher.drain()
    with pytest.raises(BatchingClosed):
        lost.result(timeout=0)
    kept = batcher.submit_generate(TokenBatch([[1]]), PARAMS)
    batcher.drain(flush=True)
    assert kept.result(timeout=0).ids == [[1, 0, 0]]
    assert batcher.generate(TokenBatch([[1], [2]]), PARAMS).ids == [[1, 0, 0], [2, 0, 0]]


def test_the_state_says_what_waits(make):
    batcher = make(min_batch_size=100, max_batch_size=200, timeout=60.0)
    batcher.submit_generate(TokenBatch([[1], [2]]), PARAMS)
    state = batcher.state()
    assert state["queue_size"] == state["pending_futures"] == 1
    assert state["queued_rows"] == 2
    assert not state["processing"]
    assert (state["min_batch_size"], state["max_batch_size"], state["timeout"]) == (100, 200, 60.0)


def test_a_request_that_its_caller_gave_up_is_not_computed(make):
    backend = FakeBackend()
    batcher = make(backend, min_batch_size=2, timeout=60.0)
    given_up = batcher.submit_generate(TokenBatch([[1]]), PARAMS)
    assert given_up.cancel()
    other = batcher.submit_generate(TokenBatch([[2]]), PARAMS)
    assert other.result(timeout=30).ids == [[2, 0, 0]]
    assert [size for size, _ in backend.calls] == [1]
    with pytest.raises(CancelledError):
        given_up.result()
    assert batcher.statistics.cancelled == 1


def test_asyncio_callers_share_batches(make):
    backend = FakeBackend()
    batcher = make(backend, min_batch_size=8, timeout=5.0)

    async def run():
        calls = [batcher.generate_async(TokenBatch([[i]]), PARAMS) for i in range(8)]
        generated = await asyncio.gather(*calls)
        score = await asyncio.wait_for(batcher.score_async(TokenBatch([[1, 2]] * 8)), timeout=30)
        return generated, score

    generated, score = asyncio.run(run())
    assert [g.ids for g in generated] == [[[i, 0, 0]] for i in range(8)]
    assert len(score.log_probs) == 8
    assert [size for size, _ in backend.calls] == [8, 8]


@pytest.mark.parametrize(
    "options",
    [
        {"min_batch_size": 0},
        {"max_batch_size": 0},
        {"min_batch_size": 3, "max_batch_size": 2},
        {"min_batch_size": 1.5},
        {"timeout": -1},
    ],
)
def test_sizes_that_cannot_hold_are_refused(options):
    with pytest.raises(InvalidParameter):
        Batcher(FakeBackend(), **options)


def test_a_pickled_batcher_begins_anew():
    batcher = Batcher(None, min_batch_size=100, timeout=60)
    batcher.submit_generate(TokenBatch([[1]]), PARAMS)
    copy = pickle.loads(pickle.dumps(batcher))
    batcher.close()
    assert copy.state()["queue_size"] == 0
    assert copy.min_batch_size == 100


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_a_worker_of_its_own(make):
    batcher = make()
    batcher.generate(TokenBatch([[1]]), PARAMS)
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)

    def child():
        sending.send(batcher.submit_generate(TokenBatch([[2]]), PARAMS).result(timeout=30).ids)

    process = context.Process(target=child)
    process.start()
    try:
        assert receiving.poll(30)
        assert receiving.recv() == [[2, 0, 0]]
    finally:
        process.join(30)
        process.kill()


def test_an_idle_worker_goes_and_comes_back(make, monkeypatch):
    monkeypatch.setattr("antiphon.generation.batching._IDLE_SECONDS", 0.05)
    batcher = make()
    batcher.generate(TokenBatch([[1]]), PARAMS)
    until = time.monotonic() + 10
    while batcher._worker is not None and time.monotonic() < until:
        time.sleep(0.01)
    assert batcher._worker is None
    assert batcher.generate(TokenBatch([[1]]), PARAMS).ids == [[1, 0, 0]]


def test_starts_that_are_not_one_per_row_reach_nobody_else(make):
    """Joined, those of one request would move those of the next."""
    backend = FakeBackend()
    backend.gate.clear()
    batcher = make(backend, min_batch_size=4, timeout=0.5)
    for starts in ([1], [0, 0, 0]):
        with pytest.raises(InvalidParameter, match=f"starts has {len(starts)} entries for 2 rows"):
            batcher.submit_score(TokenBatch([[1, 2], [3, 4]]), starts=starts)
    one = batcher.submit_score(TokenBatch([[1, 2], [3, 4]]), starts=[1, 0])
    other = batcher.submit_score(TokenBatch([[5, 6], [7, 8]]), starts=[0, 1])
    assert [row.tolist() for row in one.result().log_probs] == [[2.0], [3.0, 4.0]]
    assert [row.tolist() for row in other.result().log_probs] == [[5.0, 6.0], [8.0]]


@pytest.mark.parametrize("kind", ["generate", "score"])
@pytest.mark.parametrize("by", [-1, 1])
def test_a_backend_that_loses_or_adds_rows_gives_nobody_anothers(make, kind, by):
    class Careless(FakeBackend):
        def change(self, rows):
            return rows[:-1] if by < 0 else [*rows, rows[0]]

        def generate(self, batch, params):
            made = super().generate(batch, params)
            return Generation(*(self.change(x) for x in (made.ids, made.log_probs, made.finish)))

        def score(self, batch, **options):
            return Scores(self.change(super().score(batch, **options).log_probs))

    batcher = make(Careless(), min_batch_size=4, timeout=0.5)
    submit = {
        "generate": lambda rows: batcher.submit_generate(TokenBatch(rows), PARAMS),
        "score": lambda rows: batcher.submit_score(TokenBatch(rows)),
    }[kind]
    futures = [submit([[1], [2]]), submit([[3], [4]])]
    for future in futures:
        with pytest.raises(BackendError, match=f"fake returned {2 + by} rows for 2"):
            future.result(timeout=30)


class Interrupt(BaseException):
    """What is no Exception."""


@pytest.mark.parametrize("error", [ValueError, Interrupt])
def test_an_error_in_a_callback_keeps_nobody_from_his_answer(make, error, caplog):
    backend = FakeBackend()
    backend.gate.clear()
    batcher = make(backend, min_batch_size=3, timeout=0.5)

    def callback(_):
        raise error("in a callback")

    futures = [batcher.submit_generate(TokenBatch([[i]]), PARAMS) for i in range(3)]
    futures[0].add_done_callback(callback)
    backend.gate.set()
    assert [f.result(timeout=30).ids for f in futures] == [[[i, 0, 0]] for i in range(3)]
    assert batcher.generate(TokenBatch([[9]]), PARAMS).ids == [[9, 0, 0]]
    failing = batcher.submit_generate(TokenBatch([[FAIL]]), PARAMS)
    failing.add_done_callback(callback)
    with pytest.raises(ValueError, match="fails"):
        failing.result(timeout=30)
    assert batcher.generate(TokenBatch([[9]]), PARAMS).ids == [[9, 0, 0]]
    assert "in a callback" in caplog.text


def test_waiting_in_a_callback_for_the_worker_that_runs_it_is_refused(make):
    backend = FakeBackend()
    backend.gate.clear()
    batcher = make(backend)
    found = []

    def callback(_):
        for call in (
            lambda: batcher.generate(TokenBatch([[2]]), PARAMS),
            lambda: batcher.score(TokenBatch([[2]])),
        ):
            try:
                call()
            except BackendError as error:
                found.append(str(error))
        found.append(batcher.submit_generate(TokenBatch([[3]]), PARAMS))

    first = batcher.submit_generate(TokenBatch([[1]]), PARAMS)
    first.add_done_callback(callback)
    backend.gate.set()
    assert first.result(timeout=30).ids == [[1, 0, 0]]
    until = time.monotonic() + 30
    while len(found) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    assert all("submit_generate" in text for text in found[:2])
    assert found[2].result(timeout=30).ids == [[3, 0, 0]]


@pytest.mark.parametrize("what", [None, [[1, 2]], "ab"])
def test_what_is_no_batch_is_refused_at_once(make, what):
    batcher = make()
    with pytest.raises(InvalidParameter, match="TokenBatch"):
        batcher.submit_generate(what, PARAMS)
    with pytest.raises(InvalidParameter, match="TokenBatch"):
        batcher.submit_score(what)
    with pytest.raises(InvalidParameter, match="SamplingParams"):
        batcher.submit_generate(TokenBatch([[1]]), {"max_new_tokens": 3})


def test_parameters_that_cannot_be_compared_share_no_batch_and_stop_nobody(make):
    class Incomparable:
        def __eq__(self, other):
            raise RuntimeError("no")

        __hash__ = object.__hash__

    batcher = make(min_batch_size=4, timeout=0.1)
    params = [SamplingParams(extras=(("odd", Incomparable()),)) for _ in range(3)]
    futures = [batcher.submit_generate(TokenBatch([[i]]), p) for i, p in enumerate(params)]
    assert [f.result(timeout=30).ids for f in futures] == [[[i, 0, 0]] for i in range(3)]
    assert [size for size, _ in batcher.backend.calls] == [1, 1, 1]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("ask", ["state", "drain", "close", "generate"])
def test_a_fork_while_the_queue_is_held_waits_for_nobody(make, ask):
    """The thread that holds the queue is not in the child: nobody would ever let it go."""
    batcher = make()
    batcher.generate(TokenBatch([[1]]), PARAMS)
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)

    def child():
        if ask == "generate":
            batcher.generate(TokenBatch([[2]]), PARAMS)
        elif ask == "state":
            assert batcher.state()["queue_size"] == 0
        else:
            getattr(batcher, ask)()
        sending.send("done")

    with batcher._condition:
        process = context.Process(target=child)
        process.start()
    try:
        assert receiving.poll(20)
        assert receiving.recv() == "done"
    finally:
        process.kill()
        process.join(30)


def test_stress_everyone_gets_his_own_result_or_his_own_error():
    """64 threads, 10,000 requests: random sizes, parameters, failures, cancellations; then closing in the middle."""
    backend = FakeBackend()
    batcher = Batcher(backend, min_batch_size=8, max_batch_size=32, timeout=0.002)
    counts = {"right": 0, "failed": 0, "cancelled": 0, "closed": 0}
    lock = threading.Lock()
    wrong = []
    per_thread = 10_000 // 64 + 1

    def request(thread, number, rng):
        key = thread * 100_000 + number
        rows = [[1_000_000 + key, r] for r in range(rng.randint(1, 5))]
        fails = rng.random() < 0.1
        if fails:
            rows.append([1_000_000 + key, FAIL])
        params = SamplingParams(top_k=rng.choice([1, 2]), num_return_sequences=rng.choice([1, 2]))
        n = params.num_return_sequences
        try:
            future = batcher.submit_generate(TokenBatch(rows), params)
            if rng.random() < 0.05 and future.cancel():
                return "cancelled"
            ids = future.result(timeout=60).ids
        except BatchingClosed:
            return "closed"
        except ValueError as error:
            if not fails or str(rows[-1]) not in str(error):
                wrong.append((rows, error))
            return "failed"
        expected = [[*row, params.top_k, j] for row in rows for j in range(n)]
        if fails or ids != expected:
            wrong.append((rows, ids))
        return "right"

    def run(thread):
        rng = random.Random(thread)
        for number in range(per_thread):
            what = request(thread, number, rng)
            with lock:
                counts[what] += 1
                if sum(counts.values()) == 8_000:
                    threading.Thread(target=batcher.close, kwargs={"flush": True}).start()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong
    assert sum(counts.values()) == 64 * per_thread
    assert counts["right"] > 5_000
    assert counts["failed"] > 500
    assert counts["closed"] > 0
    assert max(size for size, _ in backend.calls) <= 32
    state = batcher.state()
    assert state["queue_size"] == state["pending_futures"] == 0
    assert batcher._worker is None
    told = state["statistics"]
    assert told.failed == counts["failed"]
    assert told.cancelled == counts["cancelled"]
    assert told.requests == counts["right"] + counts["failed"] + counts["cancelled"]
    assert told.batches == len(backend.calls)
    assert told.largest == max(size for size, _ in backend.calls)
    assert told.rows <= sum(size for size, _ in backend.calls)
    assert 0 < told.longest_wait <= told.waited
