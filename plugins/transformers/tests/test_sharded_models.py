"""Weights in parts over two processes: ``fully_shard`` and tensor parallelism, over gloo on the CPU."""

from __future__ import annotations

import pytest
import torch.multiprocessing
from antiphon.errors import InvalidParameter
from antiphon_transformers.backend import TransformersBackend
from sharded_processes import work
from tiny_models import build


@pytest.mark.slow
def test_two_processes_with_parts_of_the_weights_do_what_one_with_all_does(tmp_path):
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    processes = [
        context.Process(target=work, args=(rank, tmp_path / "store", results)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
    try:
        assert not any(process.is_alive() for process in processes)
        told = [results.get() for _ in processes if not results.empty()]
        assert told == [None, None]
    finally:
        for process in processes:
            process.kill()


def test_sharding_that_only_a_whole_forward_pass_gathers_is_refused():
    model = build("llama")
    model.model.norm.weight.ds_id = 0  # as DeepSpeed marks what it has taken apart
    with pytest.raises(InvalidParameter, match=r"ZeRO-3.*fully_shard"):
        TransformersBackend(model)
