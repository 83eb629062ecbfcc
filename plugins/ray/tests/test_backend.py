"""A model elsewhere answers as one here, whatever the number of its copies."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import ray
import torch
from antiphon.errors import BackendError, EnvError, InvalidParameter, PluginError
from antiphon.generation.backends import Generation, Scores, TokenBatch, is_backend
from antiphon.generation.sampling import SamplingParams
from antiphon.registry import get_backend
from antiphon_ray import RayBackend, check_nodes
from antiphon_ray.workers import check_plugins


class Drawn:
    """A small backend: draws ids by the row's seed, and scores an id by its number."""

    name = "drawn"
    tokenizer = None
    max_context = 64
    end_ids = frozenset({0})
    extra_parameters: frozenset[str] = frozenset()

    def __init__(self, model: str, *, vocab_size: int = 10, fails: str = "") -> None:
        if fails == "load":
            raise BackendError(f"There is no model {model!r}.")
        self.vocab_size, self.fails, self.scale = vocab_size, fails, 1.0
        self.weight_version: int | str = 0

    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        if self.fails == "generate":
            raise BackendError("Out of memory.")
        seeds = batch.seeds or [0] * len(batch)
        ids = [
            [random.Random(f"{seed} {j} {i}").randrange(1, self.vocab_size) for i in range(4)]
            for seed in seeds
            for j in range(params.num_return_sequences)
        ]
        probs = [torch.tensor([-float(i) for i in row]) for row in ids]
        return Generation(ids, probs, ["length"] * len(ids), weight_version=self.weight_version)

    def score(
        self,
        batch: TokenBatch,
        *,
        starts: Sequence[int] | None = None,
        temperature: float = 1.0,
        entropy: bool = False,
        requires_grad: bool = False,
    ) -> Scores:
        starts = [0] * len(batch) if starts is None else starts
        rows = [
            torch.tensor([-self.scale * i / temperature for i in row[start:]])
            for row, start in zip(batch.rows, starts, strict=True)
        ]
        entropies = [torch.ones_like(row) for row in rows] if entropy else None
        return Scores(rows, entropies, self.weight_version)

    def load_weights(self, weights: Mapping[str, torch.Tensor], version: Any = None) -> None:
        self.scale = float(weights["scale"])
        self.weight_version = version

    def close(self) -> None:
        self.closed = True


BATCH = TokenBatch([[n + 1] * (n + 1) for n in range(5)])
PARAMS = SamplingParams.from_kwargs({"max_new_tokens": 4, "seed": 3, "num_return_sequences": 2})


@pytest.mark.parametrize("replicas", [1, 2])
def test_rows_keep_their_order_and_their_samples(replicas: int) -> None:
    backend = RayBackend("any", backend=Drawn, replicas=replicas, vocab_size=50)
    assert is_backend(backend)
    assert (backend.vocab_size, backend.max_context, backend.end_ids) == (50, 64, frozenset({0}))
    here = Drawn("any", vocab_size=50)
    wanted = here.generate(BATCH.seeded(PARAMS, 0), PARAMS)
    found = backend.generate(BATCH, PARAMS)
    assert found.ids == wanted.ids
    assert len(found) == 10
    assert backend.generate(BATCH[:1], PARAMS).ids == wanted.ids[:2]
    assert len(backend.generate(TokenBatch([]), PARAMS)) == 0
    starts = [0, 1, 0, 2, 4]
    scores = backend.score(BATCH, starts=starts, temperature=2.0, entropy=True)
    there = here.score(BATCH, starts=starts, temperature=2.0)
    assert all(map(torch.equal, scores.log_probs, there.log_probs))
    assert [len(row) for row in scores.entropies or ()] == [1, 1, 3, 2, 1]
    backend.load_weights({"scale": torch.tensor(3.0, requires_grad=True)}, version=7)
    assert backend.weight_version == 7
    scores = backend.score(BATCH)
    assert [row[0].item() for row in scores.log_probs] == [-3.0, -6.0, -9.0, -12.0, -15.0]
    assert scores.weight_version == 7
    with pytest.raises(InvalidParameter, match="Gradients"):
        backend.score(BATCH, requires_grad=True)
    backend.close()
    backend.close()
    with pytest.raises(BackendError, match="closed"):
        backend.generate(BATCH, PARAMS)


def test_errors_are_those_of_the_backend() -> None:
    with pytest.raises(BackendError, match="There is no model 'any'"):
        RayBackend("any", backend=Drawn, fails="load")
    with pytest.raises(PluginError, match="no backend named 'drawm'"):
        RayBackend("any", backend="drawm")
    with pytest.raises(InvalidParameter, match="replicas"):
        RayBackend("any", backend=Drawn, replicas=0)
    with pytest.raises(InvalidParameter, match="runs in the actors"):
        RayBackend("any", backend="ray")
    backend = RayBackend("any", backend=Drawn, fails="generate")
    with pytest.raises(BackendError, match=r"Out of memory\."):
        backend.generate(BATCH, PARAMS)
    assert len(backend.score(BATCH).log_probs) == 5
    ray.kill(backend.replicas[0])
    with pytest.raises(EnvError, match="A model's actor has died"):
        backend.score(BATCH)
    backend.close()


def test_plugins_are_compared_with_the_workers() -> None:
    assert len(check_nodes()) == 1
    check = ray.remote(num_cpus=0, max_retries=0)(check_plugins)
    with pytest.raises(PluginError, match=r"On the Ray node .*parrot: .*antiphon-parrot 9.9 there"):
        ray.get(check.remote({"parrot": "antiphon-parrot 9.9"}))


def test_the_plugin_registers_it() -> None:
    assert get_backend("ray").load() is RayBackend
