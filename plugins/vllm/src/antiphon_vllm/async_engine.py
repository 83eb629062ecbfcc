"""The vLLM backend on an engine that answers many calls at once, in processes of its own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from antiphon.errors import AntiphonError, BackendError, InvalidParameter, ModelNotFound
from antiphon.generation.backends import Generation, Scores, TokenBatch, WeightVersion
from antiphon.generation.sampling import SamplingParams
from antiphon.generation.stopping import find_end_ids
from antiphon_transformers.embedded import NAMES, embedded_folder

from antiphon_vllm import _compat
from antiphon_vllm.adapters import Adapters, not_loaded
from antiphon_vllm.async_gate import Gate
from antiphon_vllm.async_thread import CLOSED, AwaitableBackend, LoopThread, score_rows, together
from antiphon_vllm.async_weights import stored
from antiphon_vllm.engine import as_folder, declared_ends, engine_options, tokenizer_of
from antiphon_vllm.requests import (
    LAYOUT,
    Request,
    Sampling,
    extra_parameters,
    generation,
)
from antiphon_vllm.weights import Checkpoint

_opening = threading.Lock()


class AsyncVLLMBackend(AwaitableBackend):
    """Generates and scores with vLLM's ``AsyncLLM``.

    Any number of calls may be under way at once, from threads or awaited; each returns as soon as
    its own rows are done, and the engine batches all of them as it likes. Weights can be loaded
    meanwhile: answers under way stop, and go on under the new weights behind the ids that they
    have; `antiphon.generation.backends.Generation.versions` says which ids are whose.

    Attributes:
        tokenizer: The model's tokenizer, or None; needed for stop strings only.
        end_ids: The ids that end an answer.
    """

    name = "vllm-async"
    label = "vLLM"  # in sentences
    trainer = "transformers"  # an engine trains nothing

    def __init__(
        self,
        model: Any = "embedded",
        *,
        tokenizer: Any = None,
        dtype: str | None = None,
        end_ids: Iterable[int] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        """Start an engine.

        Args:
            model: A hub name, a folder, ``"embedded"``, or a model object of transformers (whose
                weights are copied).
            tokenizer: A tokenizer or its name; by default the model's own.
            dtype: Of the weights, for example ``"bfloat16"``; by default as they are stored.
            end_ids: The ids that end an answer; by default those of the generation config, the
                tokenizer and the model's family together.
            timeout: Seconds that one row may take; None: for ever.
            options: The engine's: ``max_model_len``, ``tensor_parallel_size``,
                ``gpu_memory_utilization``, ``enable_lora`` and so on.

        Raises:
            BackendError: vLLM is not installed, or does not start.
            ModelNotFound: The model can't be had.
        """
        _compat.engine()
        self.timeout = timeout
        self._versions: list[WeightVersion] = [0]
        self._checkpoint: Checkpoint | None = None
        self._adapters = Adapters()
        self._numbers = itertools.count()
        if isinstance(model, str):
            self._start(
                str(embedded_folder()) if model in NAMES else model, tokenizer, dtype, options
            )
        else:
            with as_folder(model, tokenizer) as folder:
                self._start(folder, tokenizer, dtype, options)
        if end_ids is not None:
            self.end_ids = frozenset(end_ids)

    def _start(
        self, name: str, tokenizer: Any, dtype: str | None, options: Mapping[str, Any]
    ) -> None:
        self.tokenizer = tokenizer_of(name, tokenizer, options)
        settings = engine_options(name, options, dtype=dtype)
        settings.pop("use_tqdm_on_load", None)
        if self.tokenizer is None:
            settings["skip_tokenizer_init"] = True
        elif isinstance(tokenizer, str):
            settings["tokenizer"] = tokenizer
        self._loop = LoopThread("antiphon-vllm")
        try:
            self._engine = self._loop.run(_open(name, settings))
        except BaseException:  # an interrupt too: no thread is left running, and the error goes on
            self._loop.close()
            raise
        self._config = self._engine.model_config
        # Now: the folder of a model object is there for starting only.
        self.end_ids = find_end_ids(self.tokenizer, *declared_ends(self._config))
        # The temperature, and whether adapters may be asked for, where they can't be beside nothing.
        self._gate: Gate[tuple[float, bool]] = Gate((1.0, False), self._change)
        self._temperature = 1.0
        self._keeps_apart = _compat.mixes_adapters_up()
        self._loading = asyncio.Lock()
        self._finalizer = weakref.finalize(self, _shut, self._engine, self._loop)
        self._loop.run(self._engine.collective_rpc("antiphon_end_with", args=(os.getpid(),)))

    @property
    def vocab_size(self) -> int:  # type: ignore[override]
        """Ids run from 0 to below this."""
        return int(self._config.get_vocab_size())

    @property
    def max_context(self) -> int:  # type: ignore[override]
        """Most tokens that prompt and answer may have together."""
        return int(self._config.max_model_len)

    @property
    def extra_parameters(self) -> frozenset[str]:
        """Sampling parameters of vLLM that are passed on by name, and ``lora_request``."""
        return extra_parameters() | LAYOUT

    @property
    def weight_version(self) -> WeightVersion:
        """A number that counts loads, or what `load_weights` was told."""
        return self._versions[-1]

    @property
    def process_ids(self) -> list[int]:
        """The engine's processes, for whoever watches over them; empty once it has ended."""
        return [] if self._ended else _compat.process_ids(self._engine)

    async def _generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        sampling = Sampling(
            params, end_ids=self.end_ids, tokenizer=self.tokenizer, max_context=self.max_context
        )
        requests = sampling.requests(batch)
        lora = await self._adapter(params.extra.get("lora_request"))
        n = params.num_return_sequences
        answered = await together(
            self._ask(request, sampling.temperature, number // n, lora)
            for number, request in enumerate(requests)
        )
        answers = [
            sampling.read(output, request, number // n)
            for number, ((output, _), request) in enumerate(zip(answered, requests, strict=True))
        ]
        newest = max(numbers[-1][1] for _, numbers in answered)
        made = generation(answers, n, self._versions[newest])
        made.versions = [
            [(place, self._versions[number]) for place, number in numbers]
            for _, numbers in answered
        ]
        return made

    async def _adapter(self, given: Any) -> Any:
        """Return the request for an adapter that the engine has loaded: one that does not fit would
        end the engine if it were first seen in the middle of its work.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        request = self._adapters.request(given, self._engine.vllm_config)
        if self._adapters.is_new(request):
            with self._naming_the_engine():
                try:
                    await self._engine.add_lora(request)
                except EngineDeadError:
                    raise
                # How the engine hands over whatever its worker raised.
                except Exception as error:  # how the engine hands over whatever a worker raised
                    raise not_loaded(request, error) from error
            self._adapters.has_loaded(request)
        return request

    async def _score(
        self, batch: TokenBatch, starts: Sequence[int], temperature: float, entropy: bool
    ) -> Scores:
        async def ask(request: Request, row: int) -> Any:
            return (await self._ask(request, temperature, row))[0]

        while True:
            loads = len(self._versions)
            try:
                log_probs, entropies = await score_rows(batch, starts, entropy, ask)
            except BackendError:
                if self._ended or loads == len(self._versions):
                    raise
                continue
            if loads == len(self._versions):
                return Scores(log_probs, entropies, self.weight_version)
            # Else some of it may come from the old weights, some from the new.

    async def _ask(
        self, request: Request, temperature: float, row: int, lora: Any = None
    ) -> tuple[Any, list[tuple[int, int]]]:
        """Return the engine's finished output, and places with the number of the weights from there."""
        from vllm.sampling_params import RequestOutputKind

        params = request.params
        params.output_kind = RequestOutputKind.FINAL_ONLY

        async def answer() -> Any:
            name = f"antiphon-{next(self._numbers)}"
            outputs = self._engine.generate(request.prompt, params, name, lora_request=lora)
            return [each async for each in outputs][-1]

        async with self._gate.at((temperature, self._keeps_apart and lora is not None)):
            number = len(self._versions) - 1
            with self._naming_the_engine(row):
                try:
                    output = await asyncio.wait_for(answer(), self.timeout)
                except asyncio.TimeoutError:  # the builtin's alias from Python 3.11 on
                    raise BackendError(
                        f"vLLM had not answered row {row} after {self.timeout:g} seconds; give the "
                        "backend a longer timeout, or fewer rows at once."
                    ) from None
        if self._ended:  # what it sampled from is not known any more
            raise BackendError(self._ended)
        spans = _compat.weight_spans(output.outputs[0])
        return output, [(0, number)] if spans is None else spans

    def load_weights(
        self,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        version: WeightVersion | None = None,
    ) -> None:
        """Copy a model's weights into the engine while answers are under way.

        What the engine kept of the old weights is computed again under the new, so an id that is
        sampled from now on has the log-prob that the new weights give it behind the ids before it.
        Scores that are under way are begun again.

        Args:
            weights: All of a trainer's ``state_dict()``, or its items.
            version: What answers are to carry from now on; by default the next number.

        Raises:
            BackendError: A weight is missing, unknown or of another shape; nothing was copied then.
        """
        self._check_rows(TokenBatch([]))
        with torch.no_grad():
            if self._checkpoint is None:
                self._checkpoint = Checkpoint(
                    self._config.hf_config, trust_remote_code=self._config.trust_remote_code
                )
            ready = self._checkpoint.prepare(weights)
            with stored(ready) as folder:
                self._loop.run(self._load(folder, version))

    async def _load(self, folder: str, version: WeightVersion | None) -> None:
        async with self._loading, self._at_rest():
            try:
                with self._naming_the_engine():
                    await self._engine.collective_rpc("antiphon_load_files", args=(folder,))
                    await self._engine.update_weight_version(str(len(self._versions)))
            except (AntiphonError, asyncio.CancelledError) as error:
                self._ended = self._ended or (
                    f"vLLM's engine for {self._config.model} could not take the weights and may hold "
                    f"half of them ({_first_line(error)}); make a new backend."
                )
                if isinstance(error, asyncio.CancelledError):  # an interrupt where it is awaited
                    raise
                raise BackendError(self._ended) from error
            last = self._versions[-1]
            following = last + 1 if isinstance(last, int) else 0
            self._versions.append(following if version is None else version)

    @contextlib.asynccontextmanager
    async def _at_rest(self) -> AsyncIterator[None]:
        """Sample nothing meanwhile."""
        if not _compat.reports_weight_spans():
            # Nobody would know which ids are whose, so answers under way are waited for.
            async with self._gate.alone():
                yield
                with self._naming_the_engine():
                    forgotten = await self._engine.reset_prefix_cache(reset_connector=True)
                if not forgotten:
                    self._ended = (
                        f"vLLM's engine for {self._config.model} keeps what it computed with old "
                        "weights; make a new backend."
                    )
                    raise BackendError(self._ended)
            return
        try:
            with self._naming_the_engine():
                await self._engine.pause_generation(mode="keep")
            yield
        finally:
            with self._naming_the_engine():
                await self._engine.resume_generation()

    async def _change(self, state: tuple[float, bool]) -> None:
        temperature, _ = state
        if temperature == self._temperature:
            return
        with self._naming_the_engine():
            await self._engine.collective_rpc("antiphon_set_temperature", args=(temperature,))
        self._temperature = temperature

    def close(self) -> None:
        """Stop the engine's processes; what is under way ends with an error."""
        self._ended = self._ended or CLOSED
        self._finalizer()

    @contextlib.contextmanager
    def _naming_the_engine(self, row: int | None = None) -> Iterator[None]:
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        what = "" if row is None else f" (row {row})"
        try:
            yield
        except AntiphonError:
            raise
        except EngineDeadError as error:
            self._ended = self._ended or (
                f"The process of vLLM's engine for {self._config.model} died; its log says why. Make a "
                "new backend."
            )
            raise BackendError(self._ended) from error
        except EngineGenerateError as error:
            raise BackendError(
                f"vLLM's engine for {self._config.model} failed{what}: {error.__cause__ or error}."
            ) from error
        except (VLLMClientError, ValueError) as error:
            raise InvalidParameter(f"vLLM refuses what it was asked{what}: {error}.") from error
        except Exception as error:  # how the engine hands over whatever a worker raised
            raise BackendError(
                f"vLLM's engine for {self._config.model} failed{what}: {_first_line(error)}."
            ) from error


async def _open(name: str, settings: Mapping[str, Any]) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    try:
        arguments = AsyncEngineArgs(**settings, disable_log_stats=True)
    except TypeError as error:
        raise InvalidParameter(f"vLLM refuses an engine option: {_first_line(error)}") from error
    with _found_by_children(_environment(settings)):
        try:
            return AsyncLLM.from_engine_args(arguments)
        except OSError as error:
            raise ModelNotFound(
                f"vLLM can't load the model {name!r}: {_first_line(error)}; check the name, or give the "
                "path of a folder."
            ) from error
        # Starting runs the code of every part of the engine: whatever it raises, the user must hear
        # which engine it was and with what model.
        except Exception as error:  # it raises anything, from a wrong option to a lack of memory
            raise BackendError(
                f"vLLM does not start with the model {name!r}: {_first_line(error)}. Its log says more; "
                "VLLM_LOGGING_LEVEL=INFO in the environment shows it."
            ) from error


def _environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return what the engine's processes are to find in their environment."""
    wanted = {"VLLM_LOGGING_STREAM": "ext://sys.stderr", "VLLM_LOGGING_LEVEL": "WARNING"}
    if settings.get("enforce_eager") and _compat.on_cpu():
        # Else a helper that counts ranks, which nobody reads here, is compiled for half a minute.
        wanted["TORCH_COMPILE_DISABLE"] = "1"
    return {name: value for name, value in wanted.items() if name not in os.environ}


@contextlib.contextmanager
def _found_by_children(values: Mapping[str, str]) -> Iterator[None]:
    """Have the processes that are started meanwhile find these in their environment."""
    with _opening:
        os.environ.update(values)
        try:
            yield
        finally:
            for name in values:
                os.environ.pop(name, None)


def _shut(engine: Any, loop: LoopThread) -> None:
    loop.run(_shut_down(engine))
    loop.close()


async def _shut_down(engine: Any) -> None:
    _compat.shut_down(engine)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
