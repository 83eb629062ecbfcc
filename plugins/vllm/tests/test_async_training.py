"""A trainer's twenty steps through an engine in other processes, while answers are under way."""

from __future__ import annotations

import copy
import threading
import time

import pytest
import torch
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon_transformers import TransformersBackend
from async_engines import engine

CLOSE = 1e-4
STEPS, LENGTH = 20, 200
PROBE = TokenBatch([list(range(5, 45)), [9, 8, 7, 200, 310, 8, 7]])
PROMPTS = [[5, 6, 7], [9], [20, 21, 22, 23] * 5]


def worst(ours, theirs):
    return max(
        (one - other).nan_to_num().abs().max().item()
        for one, other in zip(ours, theirs, strict=True)
    )


class Generating:
    """Keeps answers under way in a thread of its own, until the block ends."""

    def __init__(self, backend):
        self.backend, self.made, self.begun = backend, [], 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._generate)

    def _generate(self):
        params = SamplingParams(max_new_tokens=LENGTH, ignore_eos=True)
        while not self._stop.is_set():
            self.begun += 1
            seeds = [self.begun * 10 + row for row in range(len(PROMPTS))]
            self.made.append(self.backend.generate(TokenBatch(PROMPTS, seeds), params))

    def wait_until_under_way(self):
        end = time.monotonic() + 120
        while self.backend._engine.get_num_unfinished_requests() < len(PROMPTS):
            assert time.monotonic() < end
            time.sleep(0.001)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


@pytest.mark.parametrize("tied", [False, True])
def test_twenty_optimiser_steps_are_followed_exactly_with_answers_under_way(tied):
    backend, model, _ = engine(**({"tie_word_embeddings": True} if tied else {}))
    trainer = copy.deepcopy(model)
    backend.load_weights(trainer.state_dict(), "start")
    optimizer = torch.optim.AdamW(trainer.parameters(), lr=3e-3)
    sent = {"start": copy.deepcopy(trainer)}
    ids = torch.tensor(PROBE.rows[:1])
    first = backend.score(PROBE).log_probs
    try:
        with Generating(backend) as generating:
            for step in range(STEPS):
                trainer(ids, labels=ids).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                version = f"step {step}"
                sent[version] = copy.deepcopy(trainer)
                generating.wait_until_under_way()
                backend.load_weights(trainer.state_dict(), version)
                assert backend.weight_version == version
                scores = backend.score(PROBE)
                assert scores.weight_version == version
                assert (
                    worst(scores.log_probs, TransformersBackend(trainer).score(PROBE).log_probs)
                    < CLOSE
                )
        assert worst(scores.log_probs, first) > 0.5
        crossed = set()
        for answers in generating.made:
            for row, spans in enumerate(answers.versions):
                start = len(PROMPTS[row])
                full = TokenBatch([PROMPTS[row] + answers.ids[row]])
                ends = [place for place, _ in spans[1:]] + [LENGTH]
                for (begin, version), end in zip(spans, ends, strict=True):
                    scored = (
                        TransformersBackend(sent[version]).score(full, starts=[start]).log_probs[0]
                    )
                    assert worst([answers.log_probs[row][begin:end]], [scored[begin:end]]) < CLOSE
                crossed |= {version for place, version in spans if place > 0}
        # Else the answers would have been done before each load.
        assert len(crossed) >= STEPS // 2
    finally:
        backend.load_weights(model.state_dict())
