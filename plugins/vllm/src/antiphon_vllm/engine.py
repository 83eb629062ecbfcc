"""Opening an engine: the options it needs, and a process that is left as it was found."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from antiphon.errors import BackendError, InvalidParameter, ModelNotFound
from antiphon_transformers.loading import load_tokenizer

from antiphon_vllm import _compat
from antiphon_vllm.worker import EXTENSION

#: Options that are set here, since all else relies on them.
_FIXED: Mapping[str, Any] = {
    # Before any sampling: the temperature is divided out where logits are made, see `worker`.
    "logprobs_mode": "raw_logprobs",
    "worker_extension_cls": EXTENSION,
    # The engine would take its sampling parameters from the model's generation config.
    "generation_config": "vllm",
}
# Memory for keys and values on the processor, where the engine would take nearly all there is.
_CPU_CACHE_BYTES = 1 << 30
# What the processor's engine keeps of a prompt, it keeps in blocks of so many ids; of its own it takes
# 128, and each turn of a conversation would compute 64 ids of those before it again, on average.
_CPU_BLOCK = 32

_opening = threading.Lock()
# What stops each engine in this process; what they share goes with the last of them.
_stopping: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def engine_options(name: str, given: Mapping[str, Any], *, dtype: str | None) -> dict[str, Any]:
    """Return all options of the engine.

    Args:
        name: The model's folder or hub name.
        given: What the user wants; he wins over every default.
        dtype: Of the weights; None: as they are stored.

    Raises:
        InvalidParameter: An option that is not the user's to choose.
        ModelNotFound: There is no such model.
    """
    if fixed := sorted(set(_FIXED) & set(given)):
        raise InvalidParameter(
            f"{', '.join(fixed)}: not to be set, this backend relies on its own."
        )
    defaults: dict[str, Any] = {
        "max_logprobs": -1,  # entropies need all of them
        "dtype": dtype or _stored_dtype(name, given),
        "use_tqdm_on_load": False,
    }
    if _compat.on_cpu():
        defaults["enforce_eager"] = True  # compiling takes half a minute
        defaults["compilation_config"] = {"custom_ops": list(_compat.CPU_OPERATORS)}
        # A prompt in parts draws for each part and takes the draw back, which seeded generators of the
        # processor can't (up to 0.32 at least): the engine would die of it.
        defaults["enable_chunked_prefill"] = False
        defaults["block_size"] = _CPU_BLOCK
        if not os.environ.get("VLLM_CPU_KVCACHE_SPACE"):
            defaults["kv_cache_memory_bytes"] = _CPU_CACHE_BYTES
    return {**defaults, **given, **_FIXED, "model": name}


def open_llm(name: str, options: Mapping[str, Any], *, in_process: bool) -> Any:
    """Start vLLM's ``LLM``.

    Args:
        name: The model's folder or hub name, for errors.
        options: See `engine_options`.
        in_process: Whether the model lives in this process or in one of the engine's own.

    Raises:
        ModelNotFound: There is no such model, or not in a form that the engine can load.
        BackendError: The engine does not start.
    """
    vllm = _compat.engine()
    with _opening, _left_alone(), _multiprocessing(not in_process):
        try:
            llm = vllm.LLM(**options)
            if (core := _compat.core_here(llm)) is not None:
                _stopping[llm] = weakref.finalize(llm, _stop, core)
            return llm
        except OSError as error:
            raise _missing(name, error) from error
        except TypeError as error:
            raise InvalidParameter(
                f"vLLM refuses an engine option: {_first_line(error)}"
            ) from error
        # Starting runs the code of every part of the engine: whatever it raises, the user must hear
        # which engine it was and with what model.
        except Exception as error:  # it raises anything, from a wrong option to a lack of memory
            raise BackendError(
                f"vLLM does not start with the model {name!r}: {_first_line(error)}. Its log says "
                "more; `VLLM_LOGGING_LEVEL=INFO` in the environment shows it."
            ) from error


def close_llm(llm: Any) -> None:
    """Stop an engine and free its memory."""
    stop = _stopping.pop(llm, None)
    if stop is None:
        _compat.shut_down_client(llm.llm_engine.engine_core)
    else:
        stop()


def _stop(core: Any) -> None:
    """Stop an engine's core in this process.

    Stopping also takes down what all engines in a process share (its process groups), so that is left
    to the last of them.
    """
    if any(stop.alive for stop in _stopping.values()):
        core.model_executor.shutdown()
    else:
        core.shutdown()


@contextlib.contextmanager
def as_folder(model: Any, tokenizer: Any) -> Iterator[str]:
    """Give a model object a folder for as long as an engine loads it from there."""
    if not hasattr(model, "save_pretrained"):
        raise InvalidParameter(
            f"{type(model).__name__} is no model that vLLM can load; give a name, a folder, a model of "
            "transformers or a vllm.LLM."
        )
    with tempfile.TemporaryDirectory(prefix="antiphon-vllm-") as folder:
        model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        yield folder


def tokenizer_of(name: str, given: Any, options: Mapping[str, Any]) -> Any:
    """Return the tokenizer, or None where a model comes without one.

    Raises:
        ModelNotFound: A tokenizer was named and is not there.
    """
    keep = {k: options[k] for k in ("revision", "trust_remote_code") if k in options}
    if given is not None:
        return load_tokenizer(given, **keep)
    try:
        return load_tokenizer(name, **keep)
    except ModelNotFound:
        return None


def declared_ends(config: Any) -> list[int | list[int] | None]:
    """Return what a model's configurations say ends an answer.

    Args:
        config: The engine's model configuration; it reads the generation config where the model is.
    """
    return [
        config.try_get_generation_config().get("eos_token_id"),
        getattr(config.hf_text_config, "eos_token_id", None),
    ]


@contextlib.contextmanager
def eager(wanted: bool) -> Iterator[None]:
    """Leave compiled functions uncompiled meanwhile.

    An eager engine on the processor still has a helper that counts ranks and that takes half a minute
    to compile, for a number that nobody reads here.
    """
    if not wanted:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


@contextlib.contextmanager
def _left_alone() -> Iterator[None]:
    """Take back what starting an engine in this process changes for everybody in it.

    It seeds the generators of Python, NumPy and torch, and makes ``torch.set_num_threads`` do nothing.
    """
    import numpy as np

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda: Any = torch.cuda
    devices = cuda.get_rng_state_all() if cuda.is_initialized() else None
    set_threads, threads = torch.set_num_threads, torch.get_num_threads()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if devices is not None:
            cuda.set_rng_state_all(devices)
        torch.set_num_threads = set_threads
        torch.set_num_threads(threads)


@contextlib.contextmanager
def _multiprocessing(wanted: bool) -> Iterator[None]:
    """Say where the engine's core runs; it asks the environment and nothing else."""
    name = "VLLM_ENABLE_V1_MULTIPROCESSING"
    before = os.environ.get(name)
    os.environ[name] = "1" if wanted else "0"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def _stored_dtype(name: str, options: Mapping[str, Any]) -> str:
    """Return the dtype of a checkpoint; by its own rule the engine halves what is stored in float32."""
    from huggingface_hub.errors import HFValidationError
    from transformers import AutoConfig

    keep = {k: options[k] for k in ("revision", "trust_remote_code") if k in options}
    try:
        config = AutoConfig.from_pretrained(name, **keep)
    except (OSError, HFValidationError) as error:
        raise _missing(name, error) from error
    except ValueError:
        return "auto"  # transformers doesn't know the architecture; the engine may
    text = config.get_text_config()
    return "float32" if getattr(text, "dtype", None) in (torch.float32, "float32") else "auto"


def _missing(name: str, error: BaseException) -> ModelNotFound:
    return ModelNotFound(
        f"There is no model {name!r} that vLLM can load: {_first_line(error)}; check the name, or give "
        "the path of a folder."
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
