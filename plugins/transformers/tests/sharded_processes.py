"""What each of two processes does that hold a part of a model's weights; a spawned process finds it by this module."""

from __future__ import annotations

import datetime
import traceback

import pytest
import torch
from antiphon.errors import InvalidParameter
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon_transformers.backend import TransformersBackend
from antiphon_transformers.kinds import is_sharded
from tiny_models import END, build
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [42], [100, 101, 102] * 5]
GREEDY = SamplingParams(max_new_tokens=8, temperature=0.0)
ROWS = [[5, 6, 7, 8, 9], [42, 43, 44], [100, 101, 102, 103, 104, 105, 106], [9, 8]]


def near(ours, right, tolerance=1e-4):
    for one, other in zip(ours, right, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=0, equal_nan=True)


def gradients(backend, rows):
    sum(
        row[1:].sum() for row in backend.score(TokenBatch(rows), requires_grad=True).log_probs
    ).backward()
    grads = [p.grad for p in backend.model.parameters()]
    return [g.full_tensor() if isinstance(g, DTensor) else g for g in grads]


def check(model, rank, mine, everything):
    """What one process holds against a whole copy: its own rows, and the gradients of ``everything``."""
    backend, plain = TransformersBackend(model), TransformersBackend(build("llama"))
    for prompts in (mine, [[*prompt, 7, 8, 9] for prompt in mine]):  # the second from kept states
        ours = backend.generate(TokenBatch(prompts), GREEDY)
        right = plain.generate(TokenBatch(prompts), GREEDY)
        assert ours.ids == right.ids
        near(ours.log_probs, right.log_probs)
    near(
        backend.score(TokenBatch(mine)).log_probs,
        plain.score(TokenBatch(mine)).log_probs,
    )
    before = backend.weight_version
    grads, right = gradients(backend, mine), gradients(plain, everything)
    share = len(everything) // len(mine)  # fully_shard gives the mean over the processes
    near([g * share for g in grads], right, 1e-2)
    assert backend.weight_version == before
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert backend.weight_version == before + 1
    other = build("llama", seed=1)
    backend.load_weights(other.state_dict())
    ours = backend.generate(TokenBatch(mine), GREEDY)
    assert ours.ids == TransformersBackend(other).generate(TokenBatch(mine), GREEDY).ids
    return backend


def sharded(rank):
    model = build("llama")
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert is_sharded(model)
    # The processes' rows differ in number and length, so one would be done long before the other.
    parts = [ROWS[:2], ROWS[2:]]
    backend = check(model, rank, parts[rank], ROWS)
    short = SamplingParams(max_new_tokens=2 if rank else 20, seed=rank, ignore_eos=True)
    made = backend.generate(TokenBatch(PROMPTS[: 1 + rank]), short)
    assert [len(ids) for ids in made.ids] == [2, 2] if rank else [20]
    with pytest.raises(InvalidParameter, match="sharded weights"):
        backend.generate(TokenBatch(PROMPTS), SamplingParams(num_beams=2, do_sample=False))


def tensor_parallel(rank):
    model = build("llama")
    mesh = init_device_mesh("cpu", (2,))
    plan = {
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(),
    }
    for layer in model.model.layers:
        parallelize_module(layer, mesh, plan)
    backend = check(model, rank, ROWS, ROWS)
    torch.manual_seed(rank)  # one forward pass of both: what one samples, the other must
    made = backend.generate(TokenBatch(PROMPTS), SamplingParams(max_new_tokens=8)).ids
    both = [None, None]
    distributed.all_gather_object(both, made)
    assert both[0] == both[1]
    assert END not in made[0][:-1]


def gathered_as_a_whole_only():
    """FSDP1, around the whole model and around each layer, is refused before anything is computed."""
    cpu = torch.device("cpu")  # told, or FSDP1 asks for an accelerator
    whole = FullyShardedDataParallel(build("llama"), device_id=cpu)
    parts = build("llama")
    for index, layer in enumerate(parts.model.layers):
        parts.model.layers[index] = FullyShardedDataParallel(layer, device_id=cpu)
    for model in (whole, parts):
        with pytest.raises(InvalidParameter, match=r"FullyShardedDataParallel.*fully_shard"):
            TransformersBackend(model)


def work(rank, store, results):
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=120),
    )
    try:
        sharded(rank)
        tensor_parallel(rank)
        gathered_as_a_whole_only()
        results.put(None)
    except BaseException:  # told in the parent
        results.put(traceback.format_exc())
    finally:
        distributed.destroy_process_group()
