"""From our parameters to the engine's requests, and from its outputs back; the same for every engine.

Rows go in as ids and come back as ids: an engine's text is only what its stop strings are found in.
Each sample is a request of its own with a seed of its own, so it depends on no other; the engine's
prefix cache makes equal prompts cost once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from antiphon.errors import BackendError, InvalidParameter
from antiphon.generation.backends import FinishReason, Generation, TokenBatch
from antiphon.generation.sampling import SamplingParams, sample_seed
from antiphon.generation.stopping import Stops

#: Parameters of the engine that would change nothing here: ids come back in any case.
LAYOUT = frozenset(
    {
        "detokenize",
        "flat_logprobs",
        "output_kind",
        "skip_clone",
        "spaces_between_special_tokens",
        "stream_interval",
    }
)
#: Parameters of the engine that are set here, from the standard ones.
_OURS = frozenset(
    {
        "frequency_penalty",
        "ignore_eos",
        "include_stop_str_in_output",
        "logprob_token_ids",
        "logprobs",
        "max_tokens",
        "min_p",
        "min_tokens",
        "n",
        "output_text_buffer_length",
        "presence_penalty",
        "prompt_logprob_start",
        "prompt_logprob_token_ids",
        "prompt_logprobs",
        "repetition_penalty",
        "seed",
        "skip_special_tokens",
        "stop",
        "stop_token_ids",
        "temperature",
        "top_k",
        "top_p",
        "trace_decode_token_ids",
    }
)
# Below this the engine would sample at this, without a word.
_LOWEST_TEMPERATURE = 0.01
# Added to a logit, it makes a greedy choice certain; log-probs are taken before it is.
_FORCING = 1e6
# What the engine takes for presence and frequency penalties.
_PENALTIES = 2.0


@cache
def extra_parameters() -> frozenset[str]:
    """Return the engine's sampling parameters that are passed on by name, and ``lora_request``."""
    from vllm import SamplingParams as EngineParams

    fields = {name for name in EngineParams.__struct_fields__ if not name.startswith("_")}
    return frozenset(fields - _OURS | {"lora_request"})


@dataclass(frozen=True)
class Request:
    """One thing that an engine is asked for.

    Attributes:
        ids: The prompt.
        settings: The engine's sampling parameters by name, as plain values: they go to a server as
            they are.
        limit: Most new tokens.
    """

    ids: list[int]
    settings: Mapping[str, Any]
    limit: int

    @property
    def prompt(self) -> dict[str, Any]:
        """The prompt in the form that an engine in this process takes."""
        return {"prompt_token_ids": list(self.ids)}

    @property
    def params(self) -> Any:
        """The parameters as an engine in this process takes them, made anew each time.

        Raises:
            InvalidParameter: The engine refuses them.
        """
        from vllm import SamplingParams as EngineParams
        from vllm.exceptions import VLLMValidationError
        from vllm.sampling_params import StructuredOutputsParams

        settings = dict(self.settings)
        try:
            if isinstance(settings.get("structured_outputs"), Mapping):
                settings["structured_outputs"] = StructuredOutputsParams(
                    **settings["structured_outputs"]
                )
            return EngineParams(**settings)
        except (TypeError, ValueError, VLLMValidationError) as error:
            raise InvalidParameter(f"vLLM refuses the parameters: {error}") from error


@dataclass
class Answer:
    """One row's answer; the fields are those of `antiphon.generation.backends.Generation`."""

    ids: list[int]
    log_probs: torch.Tensor
    finish: FinishReason
    stopped_by: int | str | None
    cut: int | None
    top: tuple[torch.Tensor, torch.Tensor] | None
    prompt_log_probs: torch.Tensor | None = None


class Sampling:
    """Asks an engine for samples under one set of parameters, and reads what it gives.

    Attributes:
        temperature: What the engine's logits must be divided by while these requests run (see
            `antiphon_vllm.worker.set_temperature`).
    """

    def __init__(
        self,
        params: SamplingParams,
        *,
        end_ids: frozenset[int],
        tokenizer: Any,
        max_context: int,
    ) -> None:
        """Check the parameters.

        Args:
            params: How to sample.
            end_ids: The model's end tokens.
            tokenizer: For stop strings; may be None.
            max_context: Most tokens that prompt and answer may have together.

        Raises:
            InvalidParameter: The engine can't do what the parameters ask for.
        """
        if params.num_beams > 1:
            raise InvalidParameter(
                "vLLM's engine samples and has no beam search; leave num_beams out, or use the "
                "transformers backend."
            )
        if params.stop_sequences and tokenizer is None:
            raise InvalidParameter("Stop strings need a tokenizer; give the backend one.")
        self.temperature = params.log_prob_temperature
        self._params = params
        self._max_context = max_context
        self._stops = Stops(params, end_ids, decoder(tokenizer))
        self._settings = self._engine_settings()

    def requests(self, batch: TokenBatch) -> list[Request]:
        """Return one request per sample, ``num_return_sequences`` per row, in the order of the rows."""
        assert batch.seeds is not None
        return [
            self.request(row, seed, sample)
            for row, seed in zip(batch.rows, batch.seeds, strict=True)
            for sample in range(self._params.num_return_sequences)
        ]

    def request(self, row: list[int], seed: int, sample: int = 0) -> Request:
        """Return the request for a row's sample of that number."""
        room = self._max_context - len(row)
        wanted = self._params.max_new_tokens
        limit = room if wanted is None else min(wanted, room)
        asks_prompt = self._params.prompt_log_probs and sample == 0
        settings = {
            **self._settings,
            "max_tokens": limit,
            "seed": sample_seed(seed, sample),
            "prompt_logprobs": 0 if asks_prompt else None,
            "min_tokens": min(self._params.min_new_tokens, limit),
        }
        return Request(list(row), settings, limit)

    def _engine_settings(self) -> dict[str, Any]:
        params = self._params
        scaled = self.temperature
        temperature = params.temperature if scaled == 1.0 else 1.0
        if 0.0 < temperature < _LOWEST_TEMPERATURE:
            raise InvalidParameter(
                f"vLLM samples at {_LOWEST_TEMPERATURE} where the temperature is {temperature}; pass "
                "0 for greedy decoding."
            )
        # What is subtracted from logits is subtracted from divided ones.
        presence, frequency = params.presence_penalty / scaled, params.frequency_penalty / scaled
        for name, value in (("presence_penalty", presence), ("frequency_penalty", frequency)):
            if abs(value) > _PENALTIES:
                raise InvalidParameter(
                    f"{name} comes to {value:g} here, and vLLM takes {-_PENALTIES:g} to "
                    f"{_PENALTIES:g}; choose a smaller one."
                )
        given = {name: thaw(value) for name, value in params.extra.items() if name not in LAYOUT}
        given.pop("lora_request", None)
        if "logit_bias" in given:
            bias = given["logit_bias"]
            given["logit_bias"] = {int(token): value / scaled for token, value in bias.items()}
        return {
            **given,
            "temperature": temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            "min_p": params.min_p,
            "repetition_penalty": params.repetition_penalty,
            "presence_penalty": presence,
            "frequency_penalty": frequency,
            "logprobs": params.logprobs,
            "flat_logprobs": True,
            # All end tokens go as stop tokens, so that the engine says which one it was.
            "ignore_eos": True,
            "stop_token_ids": sorted(self._stops.ends),
            "stop": list(params.stop_sequences),
            "detokenize": bool(params.stop_sequences),
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
        }

    def read(self, output: Any, request: Request, row: int) -> Answer:
        """Return what the engine answered.

        Args:
            output: The engine's finished output for the request.
            request: What it was asked.
            row: The prompt's number, for errors.

        Raises:
            BackendError: The engine gave the row up, or its log-probs are missing or NaN.
        """
        (found,) = output.outputs
        ids = [int(number) for number in found.token_ids]
        if found.finish_reason not in ("stop", "length"):
            raise BackendError(
                f"vLLM ended row {row} with {found.finish_reason!r} after {len(ids)} tokens; look at "
                "the engine's log."
            )
        ids, finish, stopped_by, cut = self._ending(ids, found, request.limit)
        log_probs = _selected(found.logprobs, 0, len(ids), row)
        prompt_log_probs = None
        if request.settings["prompt_logprobs"] is not None:
            prompt_log_probs = prompt_row(output, row)
        return Answer(
            ids,
            log_probs,
            finish,
            stopped_by,
            cut,
            _most_probable(found.logprobs, len(ids), self._params.logprobs),
            prompt_log_probs,
        )

    def _ending(
        self, ids: list[int], found: Any, limit: int
    ) -> tuple[list[int], FinishReason, int | str | None, int | None]:
        if self._params.stop_sequences:
            # The engine looked for the strings in a text that it decodes by itself, token by token;
            # where exactly they are is settled as for every other backend.
            kept, finish, stopped_by, cut = self._stops.first(ids, limit)
            if finish != "length" or len(kept) < len(ids) or found.finish_reason == "length":
                return kept, finish, stopped_by, cut
            return ids, "stop", found.stop_reason, len(found.text)
        if ids and ids[-1] in self._stops.ends:
            return ids, "end", ids[-1], None
        return ids, "length", None, None


def generation(answers: list[Answer], samples: int, version: int | str | None) -> Generation:
    """Return the answers, ``samples`` per prompt, in the form that backends give."""
    top = [answer.top for answer in answers if answer.top is not None]
    prompts = [answer.prompt_log_probs for answer in answers[::samples]]
    known = [log_probs for log_probs in prompts if log_probs is not None]
    return Generation(
        [answer.ids for answer in answers],
        [answer.log_probs for answer in answers],
        [answer.finish for answer in answers],
        [answer.cut for answer in answers],
        [answer.stopped_by for answer in answers],
        top if top and len(top) == len(answers) else None,
        known if known and len(known) == len(prompts) else None,
        version,
    )


def score_request(row: list[int], *, entropy: bool = False) -> Request | None:
    """Return the request whose output `read_score` reads; None for a row of one id.

    The last id is sampled, by a bias that nothing else comes up to, instead of being part of the
    prompt: so a row may be as long as the model's context, of which the engine keeps one place for an
    answer. (A bias takes every id of the model's; lists of allowed ids only those of its tokenizer.)
    """
    if len(row) < 2:
        return None
    wanted = -1 if entropy else 0
    settings = {
        "max_tokens": 1,
        "temperature": 0.0,
        "logit_bias": {row[-1]: _FORCING},
        "ignore_eos": True,
        "logprobs": wanted,
        "prompt_logprobs": wanted,
        "flat_logprobs": True,
        "detokenize": False,
    }
    return Request(list(row[:-1]), settings, 1)


def read_score(
    output: Any, row: list[int], start: int, number: int, *, entropy: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return a row's log-probs and entropies ``[len(row) - start]``, the first of all NaN.

    Args:
        output: The finished output of `score_request`, or None where there was none to make.
        row: The ids.
        start: The first position that is asked for.
        number: The row's number, for errors.
        entropy: Whether entropies were asked for.

    Raises:
        BackendError: Log-probs are missing or NaN.
    """
    undefined = torch.full((1,), math.nan)
    if output is None:
        return undefined[start:], undefined[start:] if entropy else None
    (last,) = output.outputs
    before, final = prompt_row(output, number), _selected(last.logprobs, 0, 1, number)
    if list(last.token_ids) != [row[-1]]:
        raise BackendError(
            f"vLLM was to score row {number} and ended it with {list(last.token_ids)} instead of "
            f"[{row[-1]}]; look at the engine's log."
        )
    log_probs = torch.cat([before, final])
    if not entropy:
        return log_probs[start:], None
    found = [*_entropies(output.prompt_logprobs, 1), *_entropies(last.logprobs, 0)]
    return log_probs[start:], torch.cat([undefined, torch.tensor(found)])[start:]


def prompt_row(output: Any, row: int) -> torch.Tensor:
    """Return the prompt's log-probs ``[len(prompt)]``, the first NaN.

    Raises:
        BackendError: One is missing or NaN.
    """
    length = len(output.prompt_token_ids)
    found = output.prompt_logprobs
    if found is None or len(found) != length:
        given = "none" if found is None else str(len(found))
        raise BackendError(
            f"vLLM gave {given} of the {length} log-probs of row {row}'s prompt; the engine must "
            "report prompt log-probs (look at its log, and at its version)."
        )
    return torch.cat([torch.full((1,), math.nan), _selected(found, 1, length, row)])


def _selected(flat: Any, start: int, stop: int, row: int) -> torch.Tensor:
    """Return the log-probs of the ids that are there, which stand first at each position."""
    if flat is None or len(flat) < stop:
        given = 0 if flat is None else len(flat)
        raise BackendError(
            f"vLLM gave log-probs for {given} of {stop} ids of row {row}; look at the engine's log."
        )
    for place in range(start, stop):
        if flat.start_indices[place] == flat.end_indices[place]:
            raise BackendError(
                f"vLLM gave no log-prob for position {place} of row {row}; look at the engine's log."
            )
    found = torch.tensor([flat.logprobs[flat.start_indices[i]] for i in range(start, stop)])
    if bool(found.isnan().any()):
        raise BackendError(
            f"The model's logits for row {row} are NaN; check its weights and its dtype (float16 "
            "overflows in many models, bfloat16 and float32 don't)."
        )
    return found.to(torch.float32)


def _most_probable(flat: Any, length: int, wanted: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the ``wanted`` most probable ids and their log-probs, each ``[length, wanted]``."""
    if not wanted:
        return None
    places = [
        range(flat.start_indices[i] + 1, flat.start_indices[i] + 1 + wanted) for i in range(length)
    ]
    ids = [[flat.token_ids[place] for place in row] for row in places]
    log_probs = [[flat.logprobs[place] for place in row] for row in places]
    return (
        torch.tensor(ids, dtype=torch.long).view(length, wanted),
        torch.tensor(log_probs, dtype=torch.float32).view(length, wanted),
    )


def _entropies(flat: Any, start: int) -> list[float]:
    """Return the entropies of distributions over the whole vocabulary, from a position on."""
    found = []
    for place in range(start, len(flat)):
        begin, end = flat.start_indices[place], flat.end_indices[place]
        # The id that is there stands first and once more in its place among all.
        log_probs = torch.tensor(flat.logprobs[begin + 1 : end], dtype=torch.float64)
        found.append(float(torch.special.entr(log_probs.exp()).sum()))
    return found


def decoder(tokenizer: Any) -> Callable[[list[int]], str] | None:
    """Return what turns ids into text with special tokens, or None without a tokenizer."""
    if tokenizer is None:
        return None

    def decode(ids: list[int]) -> str:
        text: str = tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    return decode


def thaw(value: Any) -> Any:
    """Return the lists and dicts that parameters keep in a form that can't change."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    return [thaw(item) for item in value] if isinstance(value, tuple) else value
