"""A real model in a Ray actor gives what it gives in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from antiphon import ChatEnv, LLMWrapper
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from tensordict import TensorDict

ray = pytest.importorskip("ray", reason="ray is not installed")
pytest.importorskip("antiphon_ray", reason="antiphon-ray is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with random weights, and a tokenizer of bytes with ChatML's template."""
    from rollout_helpers import byte_tokenizer
    from tiny_llama import tiny_llama

    folder = tmp_path_factory.mktemp("model")
    tokenizer = byte_tokenizer()
    tiny_llama(tokenizer, hidden_size=32, layers=2, heads=4).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def backends(model: Path) -> Iterator[tuple[Any, Any]]:
    from antiphon_ray import RayBackend
    from antiphon_transformers.backend import TransformersBackend
    from local_ray import start_ray

    start_ray(num_cpus=2)
    far = RayBackend(str(model), replicas=2, dtype="float32")
    near = TransformersBackend(str(model), dtype="float32")
    yield far, near
    far.close()
    near.close()
    ray.shutdown()


def test_ids_and_log_probs_are_those_of_a_model_here(backends: tuple[Any, Any]) -> None:
    far, near = backends
    batch = TokenBatch([list(range(5, 5 + n)) for n in (3, 9, 4, 7, 5)])
    params = SamplingParams.from_kwargs(
        {"max_new_tokens": 12, "seed": 1, "num_return_sequences": 2, "temperature": 0.9}
    )
    found, wanted = far.generate(batch, params), near.generate(batch, params)
    assert found.ids == wanted.ids
    for one, other in zip(found.log_probs, wanted.log_probs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0)
    scores, here = far.score(batch), near.score(batch)
    for one, other in zip(scores.log_probs, here.log_probs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0, equal_nan=True)


def test_a_wrapper_rolls_out_with_it_and_takes_new_weights(backends: tuple[Any, Any]) -> None:
    far, near = backends
    rows = TensorDict({"query": ["Hi", "And you, my friend?", "So"]}, batch_size=3)
    options = {"max_new_tokens": 6, "seed": 2}

    def turns(backend: Any) -> list[list[int]]:
        env = ChatEnv(input_mode="tokens", tokenizer=backend.tokenizer, batch_size=3)
        policy = LLMWrapper(backend, input_mode="tokens", generate_kwargs=options)
        steps = env.rollout(2, policy, tensordict=rows)
        return [step["tokens"].full.tolist() for row in steps.unbind(0) for step in row.unbind(0)]

    first = turns(far)
    assert first == turns(near)
    torch.manual_seed(1)
    weights = {
        name: torch.randn_like(tensor) * 0.1 for name, tensor in near.model.state_dict().items()
    }
    for backend in backends:
        backend.load_weights(weights, version=1)
    assert far.weight_version == near.weight_version == 1
    later = turns(far)
    assert later == turns(near)
    assert later != first
