"""Telling one set of weights from the next: what was computed with the old ones is then forgotten."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor

Mark = tuple[tuple[Any, ...], torch.Tensor]


def weights_mark(model: Any) -> Mark:
    """Return what tells one set of weights from the next: version counters, which adapters are on, and a few elements
    of each tensor.

    Counters see every in-place change but those through ``.data``; an optimiser step that goes that
    way changes elements everywhere.
    """
    tensors: list[torch.Tensor] = []
    adapters: list[Any] = []
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()  # its parameters are other tensors while they are gathered
        tensors += [p for p in module._parameters.values() if p is not None]
        passing = module._non_persistent_buffers_set  # computed, not learnt
        tensors += [
            b for name, b in module._buffers.items() if b is not None and name not in passing
        ]
        if hasattr(module, "active_adapters") and hasattr(module, "scaling"):  # a layer of peft's
            adapters.append(
                (module.disable_adapters, *module.active_adapters, *module.scaling.items())
            )
            adapters.append(tuple(module.merged_adapters))
    picked: dict[torch.device, list[torch.Tensor]] = {}
    with torch.no_grad():
        for p in tensors:
            if p.is_meta:  # offloaded: its values are elsewhere
                continue
            p = p.to_local() if isinstance(p, DTensor) else p
            few = p.reshape(-1)[:: max(1, p.numel() // 4)][:4].float()
            picked.setdefault(p.device, []).append(few)
        # One copy per device: each is a wait for the device.
        values = [torch.cat(parts).cpu() for parts in picked.values()]
    versions = tuple(0 if p.is_inference() else p._version for p in tensors)
    return (*versions, *adapters), torch.cat(values) if values else torch.zeros(0, device="cpu")


def same_weights(one: Mark, other: Mark) -> bool:
    """Whether two marks are of the same weights."""
    return one[0] == other[0] and torch.equal(one[1], other[1])


def like(own: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return a whole weight as a model holds its own: where that is sharded, this process's part of it."""
    if not isinstance(own, DTensor) or isinstance(value, DTensor):
        return value
    return distribute_tensor(value.to(own.device), own.device_mesh, own.placements)
