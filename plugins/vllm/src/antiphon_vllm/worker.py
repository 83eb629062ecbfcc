"""What happens where the model is: in the engine's worker, in this process or another.

The functions take the engine's worker. `WorkerExtension` offers them under names, for engines whose
workers are processes of their own (``worker_extension_cls``); nothing of it imports the engine.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch

Weights = Iterable[tuple[str, torch.Tensor]]

# Where a layer keeps what takes its division back.
_HOOK = "_antiphon_temperature"

#: The worker extension, as the engine takes it.
EXTENSION = "antiphon_vllm.worker.WorkerExtension"

# Seconds between two looks at the owner of an engine.
_LOOK = 1.0


def set_temperature(worker: Any, temperature: float) -> None:
    """Divide all logits by ``temperature`` from the next forward pass on.

    The engine reports log-probs before or after everything that chooses an id (temperature, top-k,
    top-p, penalties), and knows no temperature for a prompt's. Dividing where the model makes its
    logits gives ``log_softmax(logits / temperature)`` for both, whatever chooses.
    """
    for layer in _logit_layers(worker.get_model()):
        kept: dict[str, Any] = layer.__dict__
        if (hook := kept.pop(_HOOK, None)) is not None:
            hook.remove()
        if temperature != 1.0:
            kept[_HOOK] = layer.register_forward_hook(_divide(temperature))


def load_weights(worker: Any, weights: Weights) -> None:
    """Put a whole set of weights in place, under the names of a checkpoint."""
    worker.model_runner.reload_weights(weights_iterator=iter(weights))
    _pack_again(worker.get_model())


def load_files(worker: Any, folder: str) -> None:
    """Load what `antiphon_vllm.async_weights.stored` wrote."""
    from antiphon_vllm.async_weights import read

    load_weights(worker, read(folder))


def end_with(owner: int) -> None:
    """End the engine's processes once the process that started them is gone, however it went.

    Killed outright it can tell nobody, and an engine left behind would keep its memory for ever.
    Where the owner did not start this process (on another machine, in this very process) there is
    nothing to do.

    Args:
        owner: The number of the process that holds the backend.
    """
    import psutil

    line = [psutil.Process(), *psutil.Process().parents()]
    numbers = [process.pid for process in line]
    if owner == os.getpid() or owner not in numbers:
        return
    engine = line[: numbers.index(owner)]
    name = "antiphon-owner"
    threading.Thread(target=_outlive, args=(owner, engine), name=name, daemon=True).start()


def _outlive(owner: int, engine: list[Any]) -> None:
    """End processes, of which the last is the owner's child, when the owner has ended."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):  # the engine was closed
        # Whose parent ends gets another, also while nobody has asked how the parent ended.
        while engine[-1].ppid() == owner:
            time.sleep(_LOOK)
        # Outright: asked to end, the engine's core would wait for its owner.
        for process in reversed(engine):
            process.kill()


class WorkerExtension:
    """Methods that the engine adds to its workers; call them by name with ``collective_rpc``."""

    def antiphon_set_temperature(self, temperature: float) -> None:
        """See `set_temperature`."""
        set_temperature(self, temperature)

    def antiphon_load_weights(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        """See `load_weights`."""
        load_weights(self, weights)

    def antiphon_load_files(self, folder: str) -> None:
        """See `load_files`."""
        load_files(self, folder)

    def antiphon_end_with(self, owner: int) -> None:
        """See `end_with`."""
        end_with(owner)


def _divide(temperature: float) -> Any:
    def divided(_module: Any, _inputs: Any, logits: torch.Tensor | None) -> torch.Tensor | None:
        # In float32, as the engine's own sampling does; other ranks of a parallel model hold None.
        return None if logits is None else logits.float().div_(temperature)

    return divided


def _logit_layers(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield the layers that make logits, the outermost where one wraps another (as for LoRA)."""
    from vllm.model_executor.layers.logits_processor import LogitsProcessor

    wrapped = {id(getattr(module, "base_layer", None)) for module in model.modules()}
    for module in model.modules():
        inner = getattr(module, "base_layer", module)
        if isinstance(inner, LogitsProcessor) and id(module) not in wrapped:
            yield module


def _pack_again(model: torch.nn.Module) -> None:
    """Pack anew what the processor's kernels hold packed copies of and reloading leaves as it was.

    That is a head tied to the embedding, which is not loaded by its own name, and experts, which are
    packed on the first load alone: right parameters, and logits of other ones.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    for module in model.modules():
        if isinstance(module, VocabParallelEmbedding) and hasattr(module, "cpu_linear"):
            dispatch_cpu_unquantized_gemm(module, remove_weight=False)
        kernel = getattr(getattr(module, "quant_method", None), "moe_kernel", None)
        if kernel is not None:
            kernel.fused_experts.process_weights_after_loading(module)
