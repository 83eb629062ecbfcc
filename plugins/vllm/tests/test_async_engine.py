"""The engine that answers many calls at once: same ids and log-probs, whoever asks, whatever else happens."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from antiphon import DatasetChatEnv, LLMWrapper
from antiphon.envs import FunctionTask, LLMCollector, Reply
from antiphon.errors import BackendError, InvalidParameter
from antiphon.generation.backends import AsyncBackend, TokenBatch, is_backend
from antiphon.generation.sampling import SamplingParams
from antiphon.testing import BackendContract, BackendSubject
from antiphon_vllm import _compat
from async_engines import engine, taken

ROWS = [[5, 6, 7], [9], [20, 21, 22, 23] * 5, [5, 6, 7]]
HEAD = "lm_head.weight"


def worst(ours, theirs):
    """The largest difference between two lists of rows of log-probs."""
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        assert a.isnan().tolist() == b.isnan().tolist()
    return max(float((a - b).nan_to_num().abs().max()) for a, b in zip(ours, theirs, strict=True))


def rescored(trainer, rows, made, samples=1, **options):
    full = [rows[i // samples] + ids for i, ids in enumerate(made.ids)]
    starts = [len(rows[i // samples]) for i in range(len(made.ids))]
    return trainer.score(TokenBatch(full), starts=starts, **options).log_probs


def batch(rows, first_seed=0):
    return TokenBatch(rows, [first_seed + i for i in range(len(rows))])


def test_it_is_a_backend_that_can_be_awaited():
    backend, model, _ = engine()
    assert is_backend(backend)
    assert isinstance(backend, AsyncBackend)
    assert backend.vocab_size == model.config.vocab_size
    assert backend.process_ids


@pytest.mark.parametrize(("temperature", "convention"), [(1.0, "raw"), (0.7, "temperature")])
def test_log_probs_are_those_of_transformers(temperature, convention):
    backend, _, trainer = engine()
    params = SamplingParams(
        max_new_tokens=24,
        temperature=temperature,
        log_prob_convention=convention,
        num_return_sequences=3,
        logprobs=4,
        top_k=50,
        repetition_penalty=1.2,
        prompt_log_probs=True,
    )
    made = backend.generate(batch(ROWS), params)
    assert len(made) == 12
    scored = rescored(trainer, ROWS, made, 3, temperature=temperature)
    assert worst(made.log_probs, scored) <= 1e-4
    prompts = trainer.score(TokenBatch(ROWS), temperature=temperature).log_probs
    assert worst(made.prompt_log_probs, prompts) <= 1e-4
    again = backend.score(TokenBatch(ROWS), temperature=temperature, entropy=True)
    theirs = trainer.score(TokenBatch(ROWS), temperature=temperature, entropy=True)
    assert worst(again.log_probs, theirs.log_probs) <= 1e-4
    assert worst(again.entropies, theirs.entropies) <= 1e-4
    best = made.top[0][1]
    assert (best[:, :-1] >= best[:, 1:]).all()
    assert len({tuple(ids) for ids in made.ids[:3]}) == 3  # samples of one prompt differ
    assert made.ids[0] != made.ids[9]  # and so do equal prompts


def test_calls_from_many_threads_get_what_each_gets_alone():
    backend, _, _ = engine()
    params = [SamplingParams(max_new_tokens=4 + 3 * (i % 7), ignore_eos=True) for i in range(24)]
    rows = [[10 + i] * (1 + i % 5) for i in range(24)]

    def ask(i):
        return backend.generate(TokenBatch([rows[i]], [i]), params[i]).ids

    alone = [ask(i) for i in range(24)]
    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(ask, range(24))) == alone


def test_answers_come_as_they_are_ready_and_belong_to_their_prompts():
    backend, _, trainer = engine()
    lengths = [120, 3, 40, 5, 80, 2]
    rows = [[30 + i, 31, 32] for i in range(len(lengths))]
    order = []

    async def ask(i):
        params = SamplingParams(max_new_tokens=lengths[i], ignore_eos=True)
        made = await backend.generate_async(TokenBatch([rows[i]], [i]), params)
        order.append(i)
        return made

    async def all_of_them():
        return await asyncio.gather(*(ask(i) for i in range(len(rows))))

    for i, made in enumerate(asyncio.run(all_of_them())):
        assert len(made.ids[0]) == lengths[i]
        assert worst(made.log_probs, rescored(trainer, [rows[i]], made)) <= 1e-4
    assert order.index(1) < order.index(0)
    assert order.index(5) < order.index(0)


def test_requests_at_different_temperatures_do_not_touch_each_other():
    backend, _, trainer = engine()

    def ask(i):
        temperature = (0.5, 1.0, 2.0)[i % 3]
        params = SamplingParams(
            max_new_tokens=10, temperature=temperature, log_prob_convention="temperature"
        )
        made = backend.generate(TokenBatch([ROWS[i % 4]], [i]), params)
        return worst(
            made.log_probs, rescored(trainer, [ROWS[i % 4]], made, temperature=temperature)
        )

    with ThreadPoolExecutor(12) as pool:
        assert max(pool.map(ask, range(24))) <= 1e-4


def unfinished(backend):
    return backend._engine.get_num_unfinished_requests()


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_cancelling_gives_the_request_up_in_the_engine():
    backend, _, _ = engine()
    params = SamplingParams(max_new_tokens=200, ignore_eos=True)

    async def cancelled():
        asking = asyncio.create_task(backend.generate_async(batch(ROWS), params))
        while unfinished(backend) < len(ROWS):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(cancelled())
    wait_for(lambda: unfinished(backend) == 0)
    assert len(backend.generate(batch(ROWS), SamplingParams(max_new_tokens=2))) == 4


def test_a_row_that_takes_too_long_is_named_and_given_up(monkeypatch):
    backend, _, _ = engine()
    monkeypatch.setattr(backend, "timeout", 0.01)
    with pytest.raises(BackendError, match=r"had not answered row \d after 0\.01 seconds"):
        backend.generate(batch(ROWS), SamplingParams(max_new_tokens=200, ignore_eos=True))
    monkeypatch.setattr(backend, "timeout", None)
    wait_for(lambda: unfinished(backend) == 0)
    assert len(backend.generate(batch(ROWS), SamplingParams(max_new_tokens=2))) == 4


def test_what_the_engine_refuses_is_said_and_what_it_can_not_do():
    backend, _, _ = engine()
    with pytest.raises(InvalidParameter, match="computes no gradients"):
        backend.score(TokenBatch(ROWS), requires_grad=True)
    wrong = SamplingParams(max_new_tokens=2, extras=(("allowed_token_ids", (5, 99999)),))
    with pytest.raises(InvalidParameter, match=r"vLLM refuses .*row"):
        backend.generate(batch(ROWS), wrong)
    assert len(backend.generate(batch(ROWS), SamplingParams(max_new_tokens=2))) == 4


def test_a_wrapper_uses_it():
    backend, _, trainer = engine()
    from antiphon import History
    from tensordict import TensorDict

    wrapper = LLMWrapper(backend, generate_kwargs={"max_new_tokens": 8}, input_mode="history")
    chats = [[{"role": "user", "content": text}] for text in ("Hi", "What is 1 + 1?")]
    history = History.from_chats(chats)
    td = TensorDict({("history", "prompt"): history}, batch_size=2)
    out = wrapper(td)
    ids = [row.tolist() for row in out.get(("tokens", "full"), as_list=True)]
    log_probs = out.get(("log_probs", "response"), as_list=True)
    starts = [len(row) - len(own) for row, own in zip(ids, log_probs, strict=True)]
    assert worst(log_probs, trainer.score(TokenBatch(ids), starts=starts).log_probs) <= 1e-4


def test_environments_in_threads_share_the_engine_and_nothing_else():
    """Each environment's answers are those to its own prompts: they are scored behind them."""
    backend, _, trainer = engine()

    def env(number):
        data = [{"query": f"{number}.{i}", "last": 1 + i % 3} for i in range(9)]
        replies = lambda _, row, turn: Reply(  # noqa: E731
            [{"role": "user", "content": row["query"]}], terminated=turn == row["last"]
        )
        return DatasetChatEnv(
            dataset=data, shuffle=False, num_envs=1, task=FunctionTask(replies), tokenizer=tokenizer
        )

    tokenizer = backend.tokenizer
    policy = LLMWrapper(backend, generate_kwargs={"max_new_tokens": 9}, input_mode="history")
    collector = LLMCollector(
        [env(number) for number in range(6)],
        policy,
        async_envs=True,
        yield_completed_trajectories=True,
        total_dialog_turns=40,
    )
    whole = list(collector)
    collector.shutdown()
    assert len(whole) >= 10
    for steps in whole:
        query = steps[0]["query"]
        for step in steps.unbind(0):
            ids, log_probs = step["tokens", "full"].tolist(), step["log_probs", "response"]
            start = len(ids) - len(log_probs)
            users = tokenizer.decode(ids[:start]).split("<|im_start|>user\n")[1:]
            assert {text.split("<|im_end|>")[0] for text in users} == {query}
            scored = trainer.score(TokenBatch([ids]), starts=[start]).log_probs
            assert worst([log_probs], scored) <= 1e-4


# Weights


def perturbed(model, seed, only=None, size=0.05):
    """Set the model to other weights near those that it began with, and return a copy of them."""
    generator = torch.Generator().manual_seed(seed)
    model.load_state_dict(model.began_with)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if only is None or name == only:
                value += size * torch.randn(value.shape, generator=generator)
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("tied", [False, True])
def test_after_each_load_the_engine_computes_what_the_trainer_does(tied):
    backend, model, trainer = engine(**({"tie_word_embeddings": True} if tied else {}))
    params = SamplingParams(max_new_tokens=16, ignore_eos=True)
    probe = [[5 + i for i in range(40)], [7, 8]]
    before = backend.score(TokenBatch(probe)).log_probs
    for step in range(3):
        backend.load_weights(perturbed(model, 100 + step))
        after = backend.score(TokenBatch(probe)).log_probs
        assert worst(after, trainer.score(TokenBatch(probe)).log_probs) <= 1e-4
        assert worst(after, before) > 1e-2  # else nothing would have been tested
        made = backend.generate(batch(ROWS), params)
        assert worst(made.log_probs, rescored(trainer, ROWS, made)) <= 1e-4
        assert made.weight_version == backend.weight_version
        assert made.versions == [[(0, backend.weight_version)]] * len(ROWS)
        before = after


def test_an_engine_that_does_not_know_whose_ids_are_whose_finishes_answers_first(monkeypatch):
    backend, model, trainer = engine()
    monkeypatch.setattr(_compat, "reports_weight_spans", lambda: False)
    monkeypatch.setattr(_compat, "weight_spans", lambda answer: None)
    sent = {backend.weight_version: {k: v.clone() for k, v in model.state_dict().items()}}
    found, stop = [], threading.Event()
    params = SamplingParams(max_new_tokens=60, ignore_eos=True)

    def generate():
        while not stop.is_set():
            found.append(backend.generate(batch(ROWS, len(found)), params))

    generating = threading.Thread(target=generate)
    generating.start()
    for step in range(3):
        version = f"whole {step}"
        sent[version] = perturbed(model, step)
        backend.load_weights(sent[version], version)
    stop.set()
    generating.join()
    assert len({made.weight_version for made in found}) > 1
    for made in found:
        for row, ids in enumerate(made.ids):
            ((_, version),) = made.versions[row]
            model.load_state_dict(sent[version])
            full = TokenBatch([ROWS[row] + ids])
            scored = trainer.score(full, starts=[len(ROWS[row])]).log_probs
            assert worst([made.log_probs[row]], scored) <= 1e-4
    model.load_state_dict(sent[backend.weight_version])


@pytest.mark.parametrize("only", [None, HEAD])
def test_answers_under_way_survive_and_each_token_knows_its_weights(only):
    backend, model, trainer = engine()
    params = SamplingParams(max_new_tokens=220, ignore_eos=True)
    sent = {backend.weight_version: {k: v.clone() for k, v in model.state_dict().items()}}
    made = []
    asking = threading.Thread(target=lambda: made.append(backend.generate(batch(ROWS), params)))
    asking.start()
    wait_for(lambda: unfinished(backend) == len(ROWS) or made)
    while asking.is_alive() and len(sent) < 8:
        version = f"step {len(sent)} {only}"
        sent[version] = perturbed(model, len(sent), only)
        backend.load_weights(sent[version], version)
        time.sleep(0.05)
    asking.join()
    (answers,) = made
    assert [len(ids) for ids in answers.ids] == [220] * len(ROWS)
    assert max(len(spans) for spans in answers.versions) >= 2
    for row, spans in enumerate(answers.versions):
        ends = [place for place, _ in spans[1:]] + [220]
        assert spans[0][0] == 0
        for (start, version), end in zip(spans, ends, strict=True):
            model.load_state_dict(sent[version])
            full = TokenBatch([ROWS[row] + answers.ids[row]])
            scored = trainer.score(full, starts=[len(ROWS[row])]).log_probs[0]
            assert worst([answers.log_probs[row][start:end]], [scored[start:end]]) <= 1e-4
    assert answers.weight_version in sent
    model.load_state_dict(sent[backend.weight_version])


def test_scores_come_from_one_set_of_weights_while_others_are_loaded():
    backend, model, trainer = engine()
    rows = [[4 + (i * j) % 300 for i in range(200)] for j in range(1, 9)]
    sent = {backend.weight_version: {k: v.clone() for k, v in model.state_dict().items()}}
    found, stop = [], threading.Event()

    def score():
        while not stop.is_set():
            found.append(backend.score(TokenBatch(rows)))

    scoring = threading.Thread(target=score)
    scoring.start()
    for step in range(5):
        version = f"score {step}"
        sent[version] = perturbed(model, step)
        backend.load_weights(sent[version], version)
    stop.set()
    scoring.join()
    found.append(backend.score(TokenBatch(rows)))
    assert found[-1].weight_version == backend.weight_version
    for scores in found:
        model.load_state_dict(sent[scores.weight_version])
        assert worst(scores.log_probs, trainer.score(TokenBatch(rows)).log_probs) <= 1e-4
    model.load_state_dict(sent[backend.weight_version])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.pop(HEAD), "1 weights are missing, the first is 'lm_head.weight'"),
        (lambda w: w.update(other=w[HEAD]), "no weight 'other'"),
        (lambda w: w.update({HEAD: w[HEAD][:-1]}), r"lm_head.weight' has shape \(319, 64\)"),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_nothing_changes(change, said):
    backend, model, trainer = engine()
    version = backend.weight_version
    wrong = {name: value + 1 for name, value in model.state_dict().items()}
    change(wrong)
    with pytest.raises(BackendError, match=said):
        backend.load_weights(wrong)
    assert backend.weight_version == version
    scored = backend.score(TokenBatch(ROWS)).log_probs
    assert worst(scored, trainer.score(TokenBatch(ROWS)).log_probs) <= 1e-4


# Last, since these use up engines that others share.
class TestContract(BackendContract):
    def make_subject(self):
        flags = ("samples", "stops", "chosen_ends", "prompt_log_probs", "temperature")
        closed = lambda: taken(tie_word_embeddings=True)  # noqa: E731
        subject = BackendSubject(closed, "vllm-async", **dict.fromkeys(flags, True))
        subject.backend = engine()[0]
        return subject


def test_weights_that_do_not_arrive_end_the_backend_and_answers_under_way(monkeypatch, tmp_path):
    model = engine()[1]
    backend = taken()
    many = batch(ROWS * 16)  # enough not to be done at once
    params = SamplingParams(max_new_tokens=220, ignore_eos=True)
    with ThreadPoolExecutor(1) as pool, monkeypatch.context() as patched:
        asking = pool.submit(backend.generate, many, params)
        wait_for(lambda: unfinished(backend) == len(many) or asking.done())
        lost = contextlib.nullcontext(str(tmp_path / "lost"))
        patched.setattr("antiphon_vllm.async_engine.stored", lambda _: lost)
        with pytest.raises(BackendError, match=r"could not take the weights .*No such file"):
            backend.load_weights(model.state_dict())
        with pytest.raises(BackendError, match="may hold half of them"):
            asking.result()
    with pytest.raises(BackendError, match="may hold half of them"):
        backend.generate(batch(ROWS), params)
    backend.close()
