"""The transformers backend."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from antiphon.conversations.arguments import said
from antiphon.errors import BackendError, InvalidParameter
from antiphon.generation.backends import (
    Generation,
    Scores,
    TokenBatch,
    check_flags,
    check_params,
    check_rows,
    check_scoring,
)
from antiphon.generation.sampling import SamplingParams, random_seed, sample_seed
from antiphon.generation.scoring import pad_rows
from antiphon.generation.stopping import Stops, find_end_ids

from antiphon_transformers.decoding import Answer, Decoding
from antiphon_transformers.forward import Forward, evaluating
from antiphon_transformers.kinds import max_context, media_ids
from antiphon_transformers.library import EXTRA_PARAMETERS, IGNORED_PARAMETERS, library_generate
from antiphon_transformers.loading import load_model, load_tokenizer
from antiphon_transformers.probes import out_of_memory
from antiphon_transformers.reuse import Reuse
from antiphon_transformers.score import score_rows
from antiphon_transformers.weights import like, same_weights, weights_mark

_T = TypeVar("_T")
_backends: weakref.WeakSet[TransformersBackend] = weakref.WeakSet()


class TransformersBackend:
    """Generates and scores with a causal language model of transformers.

    Calls from several threads are answered one after the other.

    Attributes:
        model: The model; training it in place is seen, kept states are then forgotten.
        tokenizer: Its tokenizer, or None; needed for stop strings only.
        reuse: The keys and values kept for next turns, with counts of what they saved.
    """

    name = "transformers"
    extra_parameters = EXTRA_PARAMETERS | IGNORED_PARAMETERS
    load_tokenizer = staticmethod(load_tokenizer)  # for those who need no model

    def __init__(
        self,
        model: Any = "embedded",
        *,
        tokenizer: Any = None,
        dtype: str | torch.dtype | None = None,
        device: str | torch.device | None = None,
        end_ids: Iterable[int] | None = None,
        reuse_bytes: int = 1 << 30,
        tokens_per_forward: int = 16384,
        pack: bool = True,
        **options: Any,
    ) -> None:
        """Load or take a model.

        Args:
            model: A model object, ``"embedded"``, a hub name, a folder, or a GGUF file.
            tokenizer: A tokenizer or its name; by default the model's own.
            dtype: Of the weights, for example ``"bfloat16"``.
            device: Where to compute; by default a GPU where there is one.
            end_ids: The ids that end an answer; by default those of the generation config, the
                tokenizer and the model's family together.
            reuse_bytes: Most bytes of keys and values kept for the next turns of conversations; 0
                switches it off.
            tokens_per_forward: Most tokens that scoring puts through the model at once.
            pack: Pack ragged rows when scoring, where the model's attention allows it; False pads them.
            options: Passed to ``from_pretrained`` where the model is loaded by name.

        Raises:
            ModelNotFound: The model can't be had.
            InvalidParameter: A setting that can't hold.
        """
        check_flags(pack=pack)
        self.model, self.tokenizer = load_model(
            model, tokenizer=tokenizer, dtype=dtype, device=device, **options
        )
        self.forward = Forward(self.model, pack=pack)
        self.reuse = Reuse(whole("reuse_bytes", reuse_bytes, 0))
        self.end_ids = find_end_ids(None, end_ids) if end_ids is not None else self._find_end_ids()
        self._tokens_per_forward = whole("tokens_per_forward", tokens_per_forward, 1)
        self._take_lock()
        self._version: int | str = 0
        self._mark: Any = None
        self._precision: torch.dtype | None = None
        self._closed = False

    @property
    def vocab_size(self) -> int:
        """Ids run from 0 to below this."""
        return int(self.forward.inner.get_input_embeddings().weight.shape[0])

    @property
    def max_context(self) -> int | None:
        """Tokens that the model's positions reach to, or None where nothing bounds them."""
        return max_context(self.forward.inner)

    @property
    def weight_version(self) -> int | str:
        """A number that changes with the weights, or what `load_weights` was told."""
        with self._lock:
            self._look_at_weights()
            return self._version

    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        """Sample answers; see `antiphon.generation.backends.Backend`."""
        self._check_open()
        context = self.max_context
        check_rows(
            batch, backend=self.name, vocab_size=self.vocab_size, max_context=context, room=1
        )
        check_params(params)
        if not batch.rows:
            return Generation([], [], [])
        if params.stop_sequences and self.tokenizer is None:
            raise InvalidParameter("Stop strings need a tokenizer; give the backend one.")
        if batch.seeds is None:
            batch = batch.seeded(params, random_seed())
        with self._lock, torch.no_grad(), evaluating(self.model):
            self._look_at_weights()
            self.forward.try_out()
            self._warn_of_media(batch)
            return self._generate(batch, params)

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

        With ``requires_grad`` the model computes in the mode that it is in (dropout included),
        without it never with dropout.
        """
        self._check_open()
        check_rows(
            batch, backend=self.name, vocab_size=self.vocab_size, max_context=self.max_context
        )
        first = check_scoring(batch, starts, temperature)
        check_flags(entropy=entropy, requires_grad=requires_grad)
        mode = contextlib.nullcontext() if requires_grad else evaluating(self.model)
        with self._lock, torch.set_grad_enabled(requires_grad), mode:
            self._look_at_weights()
            self.forward.try_out()

            def run(part: range) -> list[Any]:
                return score_rows(
                    self.forward,
                    batch.rows[part.start : part.stop],
                    first[part.start : part.stop],
                    float(temperature),
                    entropy,
                    self._tokens_per_forward,
                    part,
                )

            rows = (
                self.forward.exchanging(lambda: self._halving(len(batch), run, "scoring"))
                if batch.rows
                else []
            )
            return Scores(
                [row[0] for row in rows],
                [row[1] for row in rows] if entropy else None,
                self._version,
            )

    def logits(self, batch: TokenBatch, *, requires_grad: bool = False) -> list[torch.Tensor]:
        """Return per row all logits ``[tokens, vocabulary]`` in the model's dtype; position t is about token t + 1.

        For distributions over whole vocabularies; log-probs of given ids are had from `score` at a fraction of the
        memory.
        """
        self._check_open()
        check_rows(
            batch, backend=self.name, vocab_size=self.vocab_size, max_context=self.max_context
        )
        check_flags(requires_grad=requires_grad)
        mode = contextlib.nullcontext() if requires_grad else evaluating(self.model)
        found: dict[int, torch.Tensor] = {}
        with self._lock, torch.set_grad_enabled(requires_grad), mode:
            self.forward.try_out()
            for members in self.forward.apart(batch.rows) if batch.rows else ():
                ids, _ = pad_rows([batch.rows[i] for i in members], side="right")
                # Causal attention never looks at what comes after a row.
                logits = self.forward.logits(ids.to(self.forward.device))
                for i, row in zip(members, logits, strict=True):
                    found[i] = row[: len(batch.rows[i])]
        return [found[i] for i in range(len(batch))]

    def load_weights(
        self,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        version: int | str | None = None,
    ) -> None:
        """Copy weights into the model by name.

        Raises:
            BackendError: A name the model doesn't have, or a shape that differs; nothing was copied
                then.
            InvalidParameter: These are no names and tensors.
        """
        try:
            given = dict(weights)
        except (TypeError, ValueError) as error:
            raise InvalidParameter(
                f"Weights are a mapping of names to tensors, or pairs of both: {error}."
            ) from error
        own = self.forward.model.state_dict()
        for name, value in given.items():
            if not isinstance(value, torch.Tensor):
                raise InvalidParameter(
                    f"The weight {name!r} is {type(value).__name__}, not a tensor."
                )
            if name not in own:
                raise BackendError(
                    f"The model has no weight {name!r}; send it under the model's own names."
                )
            if own[name].shape != value.shape:
                raise BackendError(
                    f"The weight {name!r} has shape {tuple(value.shape)}, the model's {tuple(own[name].shape)}."
                )
        with self._lock, torch.no_grad():
            for name, value in given.items():
                own[name].copy_(like(own[name], value))
            self._look_at_weights()
            self.reuse.clear()
            if version is not None:
                self._version = version

    def __getstate__(self) -> dict[str, Any]:
        """Leave the lock behind; kept states stay too."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a lock of one's own."""
        self.__dict__.update(state)
        self._take_lock()

    def _take_lock(self) -> None:
        self._lock = threading.RLock()
        _backends.add(self)

    def close(self) -> None:
        """Forget kept states and the model."""
        with self._lock:
            self._closed = True
            self.reuse.clear()

    def _generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        n, context = params.num_return_sequences, self.max_context
        assert batch.seeds is not None
        seeds = [sample_seed(seed, j) for seed in batch.seeds for j in range(n)]
        seeds = self.forward.shared_seeds(seeds)
        limits = [_limit(len(row), params.max_new_tokens, context) for row in batch.rows]
        found: dict[int, list[Answer]] = {}
        for members, grow in self.forward.counted_alike(batch.rows, limits):
            made = self._answers(batch.rows, members, seeds, limits, params, grow)
            for place, prompt in enumerate(members):
                found[prompt] = made[place * n : (place + 1) * n]
        answers = [answer for prompt in range(len(batch)) for answer in found[prompt]]
        top = None
        if params.logprobs and all(answer.top_ids for answer in answers):
            top = [(torch.stack(a.top_ids), torch.stack(a.top_log_probs)) for a in answers]
        prompt_log_probs = None
        if params.prompt_log_probs:
            temperature = params.log_prob_temperature
            prompt_log_probs = self.score(TokenBatch(batch.rows), temperature=temperature).log_probs
        return Generation(
            [a.ids for a in answers],
            [torch.tensor(a.log_probs, dtype=torch.float32, device="cpu") for a in answers],
            [a.finish for a in answers],
            [a.cut for a in answers],
            [a.stopped_by for a in answers],
            top,
            prompt_log_probs,
            self._version,
        )

    def _warn_of_media(self, batch: TokenBatch) -> None:
        media = media_ids(self.forward.inner)
        for index, row in enumerate(batch.rows) if media else ():
            if held := media.intersection(row):
                warnings.warn(
                    f"Row {index} has the id {min(held)}, which stands for an image, video or sound; none comes with "
                    "token ids, so the model reads the id as a word. Leave it out of prompts without media.",
                    stacklevel=3,
                )
                return

    def _answers(
        self,
        rows: list[list[int]],
        members: list[int],
        seeds: list[int],
        limits: list[int],
        params: SamplingParams,
        grow: bool,
    ) -> list[Answer]:
        """Answer some of the prompts: in our own loop where answers ``grow`` from a cache, else by ``model.generate``.

        Args:
            rows: All prompts.
            members: Which of them.
            seeds: One per prompt and sample, of all prompts.
            limits: Most new tokens, one per prompt.
            params: How to sample.
            grow: See `Forward.counted_alike`.
        """
        n = params.num_return_sequences
        places = [prompt * n + j for prompt in members for j in range(n)]
        prompts = [rows[place // n] for place in places]
        own, most = [seeds[place] for place in places], [limits[place // n] for place in places]
        stops = Stops(params, self.end_ids, self._decode)
        extra = {k: v for k, v in params.extra.items() if k not in IGNORED_PARAMETERS}
        if grow and not extra and params.num_beams == 1:

            def decode(part: range) -> list[Answer]:
                some = slice(part.start, part.stop)
                decoding = Decoding(
                    self.forward,
                    prompts[some],
                    own[some],
                    most[some],
                    params,
                    stops,
                    self.reuse,
                    places[some],
                )
                return decoding.run()

            return self._halving(len(prompts), decode, "generating")
        if self.forward.sharded:
            raise InvalidParameter(
                "Beam search, transformers' own parameters and models without a plain cache can't be had with "
                "sharded weights; leave them out, or sample from an unsharded copy."
            )

        def with_library(part: range) -> list[Answer]:
            some = slice(part.start * n, part.stop * n)
            return library_generate(
                self.forward,
                [rows[prompt] for prompt in members[part.start : part.stop]],
                own[some],
                most[some],
                params,
                stops,
                extra,
            )

        answers = self._halving(len(members), with_library, "generating")
        self._rescore(prompts, answers, params)
        return answers

    def _rescore(
        self, prompts: list[list[int]], answers: list[Answer], params: SamplingParams
    ) -> None:
        if params.logprobs:
            raise InvalidParameter(
                "logprobs above 0 can't be had together with beam search or transformers' own parameters; leave one "
                "of them out."
            )
        rows = [prompt + answer.ids for prompt, answer in zip(prompts, answers, strict=True)]
        starts = [len(prompt) for prompt in prompts]
        scores = self.score(
            TokenBatch(rows), starts=starts, temperature=params.log_prob_temperature
        )
        for answer, log_probs in zip(answers, scores.log_probs, strict=True):
            answer.log_probs = log_probs.tolist()

    def _halving(self, rows: int, run: Callable[[range], list[_T]], doing: str) -> list[_T]:
        """Run rows; where memory runs out, run them in halves, once.

        Raises:
            OutOfMemoryError: A half, or one row alone, is still too much.
        """
        try:
            return run(range(rows))
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if (
                not out_of_memory(error) or self.forward.sharded
            ):  # others would wait for a second half
                raise
            if rows < 2:
                raise torch.OutOfMemoryError(_TOO_MUCH.format(doing, "row 0 alone")) from error
        # Outside of the handler, whose traceback would keep the first try's tensors alive.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.reuse.clear()
        warnings.warn(
            f"Memory ran out while {doing} {rows} rows; going on with two halves.", stacklevel=4
        )
        middle = (rows + 1) // 2
        done: list[_T] = []
        for half in (range(middle), range(middle, rows)):
            try:
                done += run(half)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                which = f"rows {half.start} to {half.stop - 1}, half of the batch,"
                raise torch.OutOfMemoryError(_TOO_MUCH.format(doing, which)) from error
        return done

    def _look_at_weights(self) -> None:
        """Notice weights that were changed since the last call, by whomever."""
        precision = _precision(self.forward.device.type)
        if precision != self._precision:  # what was kept is of another dtype
            self.reuse.clear()
            self._precision = precision
        mark = weights_mark(self.model)
        if self._mark is not None and not same_weights(mark, self._mark):
            self.reuse.clear()
            self._version = self._version + 1 if isinstance(self._version, int) else 0
        self._mark = mark

    def _find_end_ids(self) -> frozenset[int]:
        config = getattr(self.forward.model, "generation_config", None)
        return find_end_ids(self.tokenizer, getattr(config, "eos_token_id", None))

    def _decode(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def _check_open(self) -> None:
        if self._closed:
            raise BackendError("The backend is closed; make a new one.")


def whole(name: str, value: Any, least: int) -> int:
    """Return a setting that must be a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidParameter(
            f"{name} must be a whole number of at least {least}, not {said(value)}."
        )
    return value


def _after_fork() -> None:
    """In the child nobody would let go of a lock that another thread held."""
    for backend in list(_backends):
        backend._take_lock()
        backend.reuse = Reuse(backend.reuse.max_bytes)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _limit(length: int, wanted: int | None, context: int | None) -> int:
    bounds = [
        bound
        for bound in (wanted, None if context is None else context - length)
        if bound is not None
    ]
    if not bounds:
        raise InvalidParameter("The model's context has no bound; give max_new_tokens.")
    return min(bounds)


_TOO_MUCH = (
    "Memory ran out while {} {} too; pass fewer or shorter rows, set the wrapper's max_batch_size, or load the model "
    "in bfloat16."
)


def _precision(kind: str) -> torch.dtype | None:
    """Return the dtype of autocast on a kind of device, or None where it is off."""
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)
