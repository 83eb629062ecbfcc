"""The backend on a running vLLM server: a real one, started here."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from antiphon.errors import BackendError, InvalidParameter, ModelNotFound
from antiphon.generation.backends import AsyncBackend, TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon.testing import BackendContract, BackendSubject
from antiphon_transformers.backend import TransformersBackend
from antiphon_vllm.server import VLLMServerBackend
from local_ports import held_port
from test_async_engine import ROWS, batch, rescored, worst
from tiny_models import build
from tiny_tokenizer import byte_tokenizer

STARTING = 600  # seconds: an engine that starts on a busy machine


class Process:
    """A server of its own, with a tiny model."""

    def __init__(self, folder):
        self.model = build("llama")
        self.model.save_pretrained(folder)
        byte_tokenizer().save_pretrained(folder)
        self.held = contextlib.ExitStack()
        port = self.held.enter_context(held_port())
        self.url = f"http://127.0.0.1:{port}"
        options = ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
        options += ["--enforce-eager", "--kv-cache-memory-bytes", str(1 << 28)]
        options += ["--served-model-name", "tiny", "--max-logprobs", "-1"]
        self.log = (folder / "log").open("w+b")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "vllm.entrypoints.openai.api_server",
                "--model",
                folder,
                *options,
            ],
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TORCH_COMPILE_DISABLE": "1", "HF_HUB_OFFLINE": "1"},
            start_new_session=True,
        )
        end = time.monotonic() + STARTING
        while not self.answers():
            assert self.process.poll() is None, (folder / "log").read_text()[-3000:]
            assert time.monotonic() < end, (folder / "log").read_text()[-3000:]
            time.sleep(0.2)

    def answers(self):
        try:
            return httpx.get(f"{self.url}/health", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()
        self.held.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    started = Process(tmp_path_factory.mktemp("server"))
    yield started
    started.kill()


@pytest.fixture(scope="session")
def backend(server):
    made = VLLMServerBackend(server.url)
    yield made
    made.close()


@pytest.fixture(scope="session")
def trainer(server):
    return TransformersBackend(server.model, tokenizer=byte_tokenizer())


class TestContract(BackendContract):
    @pytest.fixture(autouse=True)
    def _server(self, server):
        type(self).url = server.url

    def make_subject(self):
        flags = ("samples", "stops", "chosen_ends", "prompt_log_probs")
        return BackendSubject(
            lambda: VLLMServerBackend(self.url), "vllm-server", **dict.fromkeys(flags, True)
        )


def test_it_finds_out_what_is_served(server, backend):
    assert isinstance(backend, AsyncBackend)
    assert backend.served_model == "tiny"
    assert backend.vocab_size == server.model.config.vocab_size
    assert backend.max_context == server.model.config.max_position_embeddings
    assert backend.end_ids == {server.model.config.eos_token_id}
    assert backend.tokenizer is not None
    other = VLLMServerBackend(f"{server.url}/v1/", served_model="tiny")
    assert other.max_context == backend.max_context
    other.close()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_are_those_of_transformers(backend, trainer, temperature):
    params = SamplingParams(
        max_new_tokens=24,
        temperature=temperature,
        num_return_sequences=3,
        logprobs=4,
        top_p=0.95,
        repetition_penalty=1.2,
        prompt_log_probs=True,
    )
    made = backend.generate(batch(ROWS), params)
    assert len(made) == 12
    assert worst(made.log_probs, rescored(trainer, ROWS, made, 3)) <= 1e-4
    assert worst(made.prompt_log_probs, trainer.score(TokenBatch(ROWS)).log_probs) <= 1e-4
    rows = [ROWS[i // 3] + ids for i, ids in enumerate(made.ids)]
    ours = backend.score(TokenBatch(rows), entropy=True)
    theirs = trainer.score(TokenBatch(rows), entropy=True)
    assert worst(ours.log_probs, theirs.log_probs) <= 1e-4
    assert worst(ours.entropies, theirs.entropies) <= 1e-4
    best = made.top[0][1]
    assert best.shape == (len(made.ids[0]), 4)
    assert (best[:, :-1] >= best[:, 1:]).all()


def test_a_row_as_long_as_the_context_is_scored(backend, trainer):
    rows = [[4 + i % 300 for i in range(backend.max_context)]]
    ours, theirs = backend.score(TokenBatch(rows)), trainer.score(TokenBatch(rows))
    assert worst(ours.log_probs, theirs.log_probs) <= 1e-4


def test_many_threads_and_tasks_get_what_each_gets_alone(backend):
    params = [SamplingParams(max_new_tokens=3 + i % 9, ignore_eos=True) for i in range(20)]
    asked = [TokenBatch([[10 + i] * (1 + i % 5)], [i]) for i in range(20)]
    alone = [backend.generate(asked[i], params[i]).ids for i in range(20)]
    with ThreadPoolExecutor(20) as pool:
        made = list(pool.map(lambda i: backend.generate(asked[i], params[i]).ids, range(20)))
    assert made == alone

    async def together():
        asking = [backend.generate_async(asked[i], params[i]) for i in range(20)]
        return await asyncio.gather(*asking)

    assert [made.ids for made in asyncio.run(together())] == alone


def test_what_the_server_refuses_is_passed_on_with_the_row(backend):
    wrong = SamplingParams(max_new_tokens=2, extras=(("allowed_token_ids", (5, 99999)),))
    with pytest.raises(InvalidParameter, match=r"refused row \d: .*out-of-vocab"):
        backend.generate(batch(ROWS), wrong)


def test_what_a_server_can_not_do_is_said(server, backend):
    at = SamplingParams(max_new_tokens=2, temperature=0.5, log_prob_convention="temperature")
    with pytest.raises(InvalidParameter, match="log_prob_convention='raw'"):
        backend.generate(batch(ROWS), at)
    with pytest.raises(InvalidParameter, match="scores at temperature 1"):
        backend.score(TokenBatch(ROWS), temperature=0.5)
    with pytest.raises(BackendError, match="change them where it runs"):
        backend.load_weights({})
    with pytest.raises(ModelNotFound, match="serves tiny, not 'other'"):
        VLLMServerBackend(server.url, served_model="other")


def test_a_rollout_talks_to_it(server, tmp_path, capsys):
    from antiphon.cli import run
    from antiphon.rollouts.files import read_records

    output = tmp_path / "o.jsonl"
    arguments = ["--backend", "vllm-server", "--model", server.url, "--temperature", "1"]
    # The problems and the instruction are longer than the tiny model's context.
    arguments += ["--limit", "3", "--max-new-tokens", "8", "--system-prompt", ""]
    data = tmp_path / "problems.jsonl"
    data.write_text('{"question": "1 + 1?", "answer": "#### 2"}\n' * 3)
    assert run(["rollout", *arguments, "--data", str(data), "--output", str(output)]) == 0
    records = read_records(output)
    assert len({record["conversation"] for record in records}) == 6
    sampled = [p for r in records for p in r["log_probs"] if p is not None]
    assert len(sampled) >= 6 * 2
    assert max(sampled) < 0
    assert max(record["log_prob_difference"] for record in records) <= 1e-4


# Servers that misbehave, as small ones of ours: what no real one can be brought to do at will.


class Misbehaving:
    """Answers as it is told to, request by request; the last answer stays."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                card = {"id": "m", "max_model_len": 64, "root": "/not/here"}
                self.answer(200, {"data": [card]})

            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                outer.asked += 1
                told = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                if told == "break off":
                    self.send_response(200)
                    self.send_header("content-length", "1000")
                    self.end_headers()
                    self.wfile.write(b'{"choices": [')
                    self.close_connection = True
                elif told == "hang":
                    time.sleep(5)
                else:
                    self.answer(*told)

            def answer(self, status, body):
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def choice(**changes):
    whole = {
        "text": "x",
        "token_ids": [4, 5],
        "prompt_token_ids": [1, 2],
        "logprobs": {"token_logprobs": [-1.0, -2.0], "top_logprobs": None},
        "finish_reason": "length",
        "stop_reason": None,
    }
    kept = {name: value for name, value in {**whole, **changes}.items() if value != "left out"}
    return 200, {"choices": [kept]}


@pytest.fixture
def ask(request):
    """Return a function that asks a misbehaving server for one row."""
    ends = []

    def asked(*answers, retries=2, timeout=30.0, **options):
        told = Misbehaving(*answers)
        backend = VLLMServerBackend(
            told.url, vocab_size=10, end_ids=(), retries=retries, timeout=timeout
        )
        ends.extend([backend.close, told.close])
        params = SamplingParams(max_new_tokens=2, **options)
        try:
            return backend.generate(TokenBatch([[1, 2]], [0]), params)
        finally:
            asked.times = told.asked

    yield asked
    for end in ends:
        end()


def test_a_right_answer_is_read(ask):
    made = ask(choice())
    assert made.ids == [[4, 5]]
    assert made.log_probs[0].tolist() == [-1.0, -2.0]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (choice(token_ids="left out"), "without 'token_ids', and text can't stand for it"),
        (choice(prompt_token_ids="left out"), "without 'prompt_token_ids'"),
        (choice(logprobs=None), "without 'logprobs'"),
        (choice(logprobs={"token_logprobs": [-1.0]}), "log-probs for 1 of 2 ids of row 0"),
        (choice(logprobs={"token_logprobs": [-1.0, None]}), "no log-prob for position 1 of row 0"),
        (choice(prompt_token_ids=[7, 1, 2]), "took 3 other ids than the 2 of row 0"),
        ((200, {"hello": 1}), "answered row 0 without 'choices'"),
    ],
)
def test_an_answer_that_lacks_something_is_refused_and_the_field_is_named(ask, answer, said):
    with pytest.raises(BackendError, match=said):
        ask(answer)


def test_the_most_probable_tokens_must_have_ids(ask):
    found = {"token_logprobs": [-1.0, -2.0], "top_logprobs": [{"a": -1.0}, {"b": -1.0}]}
    with pytest.raises(BackendError, match="names the most probable tokens by text"):
        ask(choice(logprobs=found), logprobs=1)


def test_prompt_log_probs_must_be_there(ask):
    with pytest.raises(BackendError, match="without 'prompt_logprobs'"):
        ask(choice(), prompt_log_probs=True)
    entries = [None, {"3": {"logprob": -1.0}}]
    with pytest.raises(BackendError, match="no log-prob for position 1"):
        ask(choice(prompt_logprobs=entries), prompt_log_probs=True)


@pytest.mark.parametrize("trouble", [(503, {}), (429, {"error": {"message": "slow"}}), "break off"])
def test_what_passes_is_asked_again(ask, trouble):
    assert ask(trouble, choice()).ids == [[4, 5]]
    assert ask.times == 2


def test_a_server_that_breaks_off_every_time_is_named(ask):
    with pytest.raises(BackendError, match=r"no answer row 0: it broke off .* 2 times"):
        ask("break off", retries=1)


def test_a_server_that_fails_every_time_is_named_with_its_words(ask):
    with pytest.raises(BackendError, match=r"it answers 500 \(no memory\), 2 times"):
        ask((500, {"error": {"message": "no memory"}}), retries=1)


def test_a_slow_server_is_not_asked_again(ask):
    with pytest.raises(BackendError, match=r"had not answered row 0 after 1 seconds"):
        ask("hang", timeout=1)
    assert ask.times == 1


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [(400, InvalidParameter, "refused row 0: no"), (401, BackendError, "api_key: no")],
)
def test_what_does_not_pass_is_not_asked_again(ask, status, kind, said):
    with pytest.raises(kind, match=said):
        ask((status, {"error": {"message": "no"}}))
    assert ask.times == 1


def test_a_server_that_is_not_there_is_named():
    reason = r"127\.0\.0\.1:\d+ gave no answer: it can't be reached"
    with held_port() as port, pytest.raises(BackendError, match=reason):
        VLLMServerBackend(f"127.0.0.1:{port}", retries=0)
    with pytest.raises(InvalidParameter, match="is no server's address"):
        VLLMServerBackend("ftp://somewhere")


# Last: the server is gone afterwards.
def test_a_server_that_is_killed_while_it_answers_is_named(server):
    backend = VLLMServerBackend(server.url, retries=1)
    params = SamplingParams(max_new_tokens=240, ignore_eos=True)
    killer = threading.Timer(0.1, server.kill)
    killer.start()
    with pytest.raises(BackendError, match=r"The server at http://127.* gave no answer"):
        backend.generate(batch([[5, 6]] * 500), params)
    killer.join()
    backend.close()
