"""The vLLM backend on an engine that answers one call at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from antiphon.errors import AntiphonError, BackendError, InvalidParameter
from antiphon.generation.backends import Generation, Scores, TokenBatch, WeightVersion, check_rows
from antiphon.generation.sampling import SamplingParams
from antiphon.generation.stopping import find_end_ids
from antiphon_transformers.embedded import NAMES, embedded_folder

from antiphon_vllm import _compat, worker
from antiphon_vllm.adapters import Adapters, not_loaded
from antiphon_vllm.async_weights import stored
from antiphon_vllm.engine import (
    as_folder,
    close_llm,
    declared_ends,
    eager,
    engine_options,
    open_llm,
    tokenizer_of,
)
from antiphon_vllm.requests import (
    LAYOUT,
    Request,
    Sampling,
    extra_parameters,
    generation,
    read_score,
    score_request,
)
from antiphon_vllm.weights import Checkpoint


class VLLMBackend:
    """Generates and scores with vLLM's ``LLM``.

    Calls from several threads are answered one after the other; within a call the engine batches
    as it likes, and rows come back in their order.

    Attributes:
        llm: The engine. Its weights are to be changed through `load_weights` alone.
        tokenizer: The model's tokenizer, or None; needed for stop strings only.
        end_ids: The ids that end an answer.
    """

    name = "vllm"
    label = "vLLM"  # in sentences
    trainer = "transformers"  # an engine trains nothing

    def __init__(
        self,
        model: Any = "embedded",
        *,
        tokenizer: Any = None,
        dtype: str | None = None,
        end_ids: Iterable[int] | None = None,
        in_process: bool = True,
        **options: Any,
    ) -> None:
        """Start an engine, or take one.

        Args:
            model: A hub name, a folder, ``"embedded"``, a model object of transformers (whose weights
                are copied), or a ``vllm.LLM``.
            tokenizer: A tokenizer or its name; by default the model's own.
            dtype: Of the weights, for example ``"bfloat16"``; by default as they are stored.
            end_ids: The ids that end an answer; by default those of the generation config, the
                tokenizer and the model's family together.
            in_process: Whether the model lives in this process, where new weights need no copy on
                the way; otherwise in one of the engine's own.
            options: Passed to ``vllm.LLM``: ``max_model_len``, ``tensor_parallel_size``,
                ``gpu_memory_utilization``, ``enable_lora`` and so on.

        Raises:
            BackendError: vLLM is not installed, or does not start.
            ModelNotFound: The model can't be had.
        """
        vllm = _compat.engine()
        self._lock = threading.RLock()
        self._closed = self._broken = False
        self._version: WeightVersion = 0
        self._temperature = 1.0
        self._checkpoint: Checkpoint | None = None
        self._adapters = Adapters()
        if isinstance(model, vllm.LLM):
            self.llm = _taken(model, options)
            self.tokenizer = tokenizer_of(self._config.tokenizer, tokenizer, {})
            self._declared = declared_ends(self._config)
        elif isinstance(model, str):
            name = str(embedded_folder()) if model in NAMES else model
            self._start(name, tokenizer, dtype, in_process, options)
        else:
            with as_folder(model, tokenizer) as folder:
                self._start(folder, tokenizer, dtype, in_process, options)
        self.end_ids = (
            frozenset(end_ids)
            if end_ids is not None
            else find_end_ids(self.tokenizer, *self._declared)
        )

    def _start(
        self,
        name: str,
        tokenizer: Any,
        dtype: str | None,
        in_process: bool,
        options: Mapping[str, Any],
    ) -> None:
        self.tokenizer = tokenizer_of(name, tokenizer, options)
        settings = engine_options(name, options, dtype=dtype)
        if self.tokenizer is None:
            settings["skip_tokenizer_init"] = True
        elif isinstance(tokenizer, str):
            settings["tokenizer"] = tokenizer
        self.llm = open_llm(name, settings, in_process=in_process)
        with self._naming_the_engine():
            self.llm.collective_rpc("antiphon_end_with", args=(os.getpid(),))
        self._declared = declared_ends(self._config)

    @property
    def _config(self) -> Any:
        return self.llm.llm_engine.model_config

    @property
    def vocab_size(self) -> int:
        """Ids run from 0 to below this."""
        return int(self._config.get_vocab_size())

    @property
    def max_context(self) -> int:
        """Most tokens that prompt and answer may have together."""
        return int(self._config.max_model_len)

    @property
    def extra_parameters(self) -> frozenset[str]:
        """Sampling parameters of vLLM that are passed on by name, and ``lora_request``."""
        return extra_parameters() | LAYOUT

    @property
    def weight_version(self) -> WeightVersion:
        """A number that counts loads, or what `load_weights` was told."""
        return self._version

    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        """Sample answers; see `antiphon.generation.backends.Backend`."""
        self._check_open()
        self._check_rows(batch, room=1)
        if not batch.rows:
            return Generation([], [], [])
        if batch.seeds is None:
            # torch's own generator, so that torch.manual_seed makes a run repeatable
            batch = batch.seeded(params, int(torch.randint(2**62, (1,)).item()))
        sampling = Sampling(
            params,
            end_ids=self.end_ids,
            tokenizer=self.tokenizer,
            max_context=self.max_context,
        )
        requests = sampling.requests(batch)
        lora = self._adapters.request(params.extra.get("lora_request"), self._engine_config)
        with self._lock:
            self._load_adapter(lora)
            outputs = self._run(requests, sampling.temperature, lora)
            version = self._version
        n = params.num_return_sequences
        answers = [
            sampling.read(output, request, row // n)
            for row, (output, request) in enumerate(zip(outputs, requests, strict=True))
        ]
        return generation(answers, n, version)

    def score(
        self,
        batch: TokenBatch,
        *,
        starts: Sequence[int] | None = None,
        temperature: float = 1.0,
        entropy: bool = False,
        requires_grad: bool = False,
    ) -> Scores:
        """Return log-probs of given ids; see `antiphon.generation.backends.Backend`.

        Entropies come from distributions over the whole vocabulary, which the engine hands over number
        by number: they are for small inputs.

        Raises:
            InvalidParameter: Gradients are asked for, which an engine does not have.
        """
        self._check_open()
        self._check_rows(batch)
        if requires_grad:
            raise InvalidParameter(
                "vLLM's engine computes no gradients; score with the model that is trained "
                "(TransformersBackend)."
            )
        if temperature <= 0:
            raise InvalidParameter(f"temperature must be above 0, not {temperature!r}.")
        first = [0] * len(batch) if starts is None else [max(0, int(start)) for start in starts]
        if len(first) != len(batch):
            raise InvalidParameter(f"starts has {len(first)} entries for {len(batch)} rows.")
        requests = [score_request(row, entropy=entropy) for row in batch.rows]
        asked = [request for request in requests if request is not None]
        with self._lock:
            outputs = iter(self._run(asked, temperature) if asked else ())
            version = self._version
        found = [
            read_score(
                None if request is None else next(outputs), row, start, number, entropy=entropy
            )
            for number, (row, start, request) in enumerate(
                zip(batch.rows, first, requests, strict=True)
            )
        ]
        entropies = [each for _, each in found if each is not None] if entropy else None
        return Scores([log_probs for log_probs, _ in found], entropies, version)

    def load_weights(
        self,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        version: WeightVersion | None = None,
    ) -> None:
        """Copy a model's weights into the engine, and forget what it kept of the old ones.

        Args:
            weights: All of a trainer's ``state_dict()``, or its items.
            version: What answers are to carry from now on; by default the next number.

        Raises:
            BackendError: A weight is missing, unknown or of another shape; nothing was copied then.
        """
        self._check_open()
        with self._lock, torch.no_grad():
            if self._checkpoint is None:
                self._checkpoint = Checkpoint(
                    self._config.hf_config, trust_remote_code=self._config.trust_remote_code
                )
            ready = self._checkpoint.prepare(weights)
            self._broken = True  # until they are in place: what interrupts this leaves half of them
            if _compat.worker_here(self.llm):
                self._in_worker(worker.load_weights, "antiphon_load_weights", ready)
            else:
                with stored(ready) as folder:
                    self._in_worker(worker.load_files, "antiphon_load_files", folder)
            with self._naming_the_engine():
                _compat.forget_prefixes(self.llm)
            self._broken = False
            self._version = _next(self._version) if version is None else version

    def close(self) -> None:
        """Stop the engine and free its memory."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            close_llm(self.llm)

    def _run(self, requests: list[Request], temperature: float, lora: Any = None) -> list[Any]:
        """Return the engine's outputs in the order of the requests."""
        # On the processor the engine draws from torch's own generator, also where each row has its own.
        alone = torch.random.fork_rng(devices=[])
        with self._naming_the_engine(), alone, eager(self._is_eager):
            _compat.give_up(self.llm)  # what an interrupt left behind
            if temperature != self._temperature:
                self._in_worker(worker.set_temperature, "antiphon_set_temperature", temperature)
                self._temperature = temperature
            outputs: list[Any] = self.llm.generate(
                [request.prompt for request in requests],
                [request.params for request in requests],
                use_tqdm=False,
                lora_request=lora,
            )
        return outputs

    def _in_worker(self, function: Callable[..., None], name: str, argument: Any) -> None:
        """Call one of `worker`'s functions where the model is."""
        parallel = self._engine_config.parallel_config
        with self._naming_the_engine():
            known = parallel.worker_extension_cls == worker.EXTENSION
            self.llm.collective_rpc(name if known else function, args=(argument,))

    def _load_adapter(self, lora: Any) -> None:
        """Load an adapter before anything is asked of it: one that does not fit would end a batch."""
        if not self._adapters.is_new(lora):
            return
        try:
            self.llm.llm_engine.add_lora(lora)
        except Exception as error:  # how the engine hands over whatever a worker raised
            raise not_loaded(lora, error) from error
        self._adapters.has_loaded(lora)

    @property
    def _engine_config(self) -> Any:
        return self.llm.llm_engine.vllm_config

    @property
    def _is_eager(self) -> bool:
        return bool(self._config.enforce_eager) and _compat.on_cpu()

    @contextlib.contextmanager
    def _naming_the_engine(self) -> Iterator[None]:
        from vllm.exceptions import VLLMValidationError

        try:
            yield
        except AntiphonError:
            raise
        except VLLMValidationError as error:
            raise InvalidParameter(f"vLLM refuses the request: {error}") from error
        # Whatever else it raises, the engine may hold half of its requests or of its weights then.
        except Exception as error:  # how the engine hands over whatever a worker raised
            self._broken = True
            raise BackendError(
                f"vLLM's engine for {self._config.model} failed ({type(error).__name__}: {error}); its "
                "log says more. Make a new backend."
            ) from error

    def _check_rows(self, batch: TokenBatch, room: int = 0) -> None:
        check_rows(
            batch,
            backend=self.name,
            vocab_size=self.vocab_size,
            max_context=self.max_context,
            room=room,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise BackendError("The backend is closed; make a new one.")
        if self._broken:
            raise BackendError(
                "The backend's engine has failed before, or was interrupted while it took weights; make "
                "a new backend."
            )


def _taken(llm: Any, options: Mapping[str, Any]) -> Any:
    """Return an engine that the user started.

    Raises:
        InvalidParameter: It reports other log-probs than we rely on, or options were given for it.
    """
    if options:
        names = ", ".join(sorted(options))
        raise InvalidParameter(f"{names} only applies where the engine is started here.")
    mode = llm.llm_engine.model_config.logprobs_mode
    if mode != "raw_logprobs":
        raise InvalidParameter(
            f"The engine reports {mode!r}, which depends on top-k, top-p and penalties; start it with "
            "logprobs_mode='raw_logprobs'."
        )
    return llm


def _next(version: WeightVersion) -> WeightVersion:
    return version + 1 if isinstance(version, int) else 0
