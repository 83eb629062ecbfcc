"""What our own decode loop does not do: beam search, transformers' own parameters, models without a
plain cache.

``model.generate`` runs there. Our choosing stands at the end of its logits processors, so seeds per
row, filters and penalties mean the same as everywhere; log-probs come from scoring the result.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import torch
from antiphon.errors import BackendError, InvalidParameter
from antiphon.generation.sampling import SamplingParams
from antiphon.generation.stopping import Stops
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

from antiphon_transformers.choosing import Randomness, choose
from antiphon_transformers.decoding import Answer
from antiphon_transformers.forward import Forward
from antiphon_transformers.kinds import without_own_settings
from antiphon_transformers.probes import out_of_memory

#: Parameters of ``model.generate`` that are passed on by name.
EXTRA_PARAMETERS = frozenset(
    {
        "bad_words_ids",
        "diversity_penalty",
        "encoder_repetition_penalty",
        "epsilon_cutoff",
        "eta_cutoff",
        "exponential_decay_length_penalty",
        "force_words_ids",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "no_repeat_ngram_size",
        "num_beam_groups",
        "renormalize_logits",
        "sequence_bias",
        "suppress_tokens",
        "begin_suppress_tokens",
        "typical_p",
        "cache_implementation",
    }
)

#: Parameters that say how a result is laid out; ids come back ragged and log-probs always, so they
#: change nothing.
IGNORED_PARAMETERS = frozenset(
    {"pad_token_id", "output_scores", "output_logits", "return_dict_in_generate", "use_cache"}
)


class _Chooser(LogitsProcessor):
    """Leaves one id per row: the one that our own sampling takes."""

    def __init__(self, params: SamplingParams, stops: Stops, seeds: list[int], length: int) -> None:
        self._params, self._ends = params, sorted(stops.ends)
        self._seeds, self._length = seeds, length
        self._random: Randomness | None = None

    def restart(self) -> None:
        """Draw the same numbers again from the first step."""
        self._random = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores that are -inf everywhere but at the chosen id."""
        params, device = self._params, scores.device
        if self._random is None:
            self._random = Randomness(self._seeds, device)
        seen = counts = barred = None
        if params.repetition_penalty != 1.0:
            seen = torch.zeros(scores.shape, dtype=torch.bool, device=device)
            seen.scatter_(1, input_ids, True)
        answer = input_ids[:, self._length :]
        if params.presence_penalty or params.frequency_penalty:
            counts = torch.zeros(scores.shape, device=device)
            counts.scatter_add_(1, answer, torch.ones(answer.shape, device=device))
        if answer.shape[1] < params.min_new_tokens:
            barred = torch.tensor(self._ends, dtype=torch.long, device=device)
        ids = choose(scores.float(), params, self._random.next(), seen, counts, barred)
        return torch.full_like(scores, -torch.inf).scatter_(1, ids[:, None], 0.0)


class _Ended(StoppingCriteria):
    """Ends each row where it would have ended in our own loop."""

    def __init__(self, stops: Stops, limits: list[int], length: int) -> None:
        self._stops, self._limits, self._length = stops, limits, length

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Return which rows are done."""
        answers = input_ids[:, self._length :].tolist()
        done = [
            self._stops.check(answer, limit) is not None
            for answer, limit in zip(answers, self._limits, strict=True)
        ]
        return torch.tensor(done, device=input_ids.device)


def library_generate(
    forward: Forward,
    prompts: list[list[int]],
    seeds: list[int],
    limits: list[int],
    params: SamplingParams,
    stops: Stops,
    extra: dict[str, Any],
) -> list[Answer]:
    """Return one answer per prompt and sample, without log-probs.

    transformers' own processors look at the ids of the padding too, so only prompts of one length share a batch.

    Args:
        forward: The model.
        prompts: One list of ids per prompt.
        seeds: One per prompt and sample.
        limits: Most new tokens, one per prompt and sample.
        params: How to sample.
        stops: Where answers end.
        extra: Parameters of ``model.generate``.

    Raises:
        InvalidParameter: transformers refuses the parameters, or they ask for rows together that must be apart.
    """
    n = params.num_return_sequences
    if not forward.batches:
        if params.num_beams > 1:
            raise InvalidParameter(
                f"Beam search computes several rows at once, which {type(forward.inner).__name__} mixes up; leave "
                "num_beams out."
            )
        single = dataclasses.replace(params, num_return_sequences=1)
        return [
            _generate(forward, [prompts[i // n]], [seeds[i]], [limits[i]], single, stops, extra)[0]
            for i in range(len(limits))
        ]
    answers: list[Answer | None] = [None] * len(limits)
    for length in sorted({len(prompt) for prompt in prompts}):
        members = [i for i, prompt in enumerate(prompts) if len(prompt) == length]
        rows = [i * n + j for i in members for j in range(n)]
        made = _generate(
            forward,
            [prompts[i] for i in members],
            [seeds[row] for row in rows],
            [limits[row] for row in rows],
            params,
            stops,
            extra,
        )
        for row, answer in zip(rows, made, strict=True):
            answers[row] = answer
    return [answer for answer in answers if answer is not None]


def _generate(
    forward: Forward,
    prompts: list[list[int]],
    seeds: list[int],
    limits: list[int],
    params: SamplingParams,
    stops: Stops,
    extra: dict[str, Any],
) -> list[Answer]:
    n, beams, model = params.num_return_sequences, params.num_beams, forward.inner
    if beams > 1 and params.do_sample:
        raise InvalidParameter(
            "Beam search is greedy here; pass do_sample=False (or temperature=0) together with num_beams."
        )
    ids = torch.tensor(prompts, device=model.get_input_embeddings().weight.device)
    ends = sorted(stops.ends)
    # None would mean the model's own end tokens; there is no id beyond the vocabulary.
    never = [int(model.get_input_embeddings().weight.shape[0])]
    settings: dict[str, Any] = {name: _thaw(value) for name, value in extra.items()}
    options: dict[str, Any] = {}
    if beams > 1:
        # A beam is scored when it ends, so here transformers itself must know the end tokens.
        settings |= {
            "length_penalty": params.length_penalty,
            "early_stopping": params.early_stopping,
            "repetition_penalty": params.repetition_penalty,
            "min_new_tokens": params.min_new_tokens or None if ends else None,
            "num_return_sequences": n,
            "eos_token_id": ends or never,
        }
    else:
        ids = ids.repeat_interleave(n, 0)
        length = ids.shape[1]
        settings["eos_token_id"] = never
        chooser = _Chooser(params, stops, seeds, length)
        options["logits_processor"] = LogitsProcessorList([chooser])
        options["stopping_criteria"] = StoppingCriteriaList([_Ended(stops, limits, length)])
    options |= forward.own_positions(ids)
    # A prompt of one token looks like a step to models that keep other states: some go on from earlier ones.
    cached = forward.caches and (ids.shape[1] > 1 or forward.incremental)
    try:
        config = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=max(limits),
            do_sample=False,
            num_beams=beams,
            use_cache=cached,
            pad_token_id=ends[0] if ends else 0,
            **settings,
        )
        out = _run(model, ids, config, options)
    except (ValueError, TypeError, ImportError) as error:
        raise InvalidParameter(f"transformers refuses the parameters: {error}") from error
    answers = []
    for row, limit in zip(out[:, ids.shape[1] :].tolist(), limits, strict=True):
        kept, finish, stopped_by, cut = stops.first(row, limit)
        answers.append(Answer(kept, finish=finish, stopped_by=stopped_by, cut=cut))
    return answers


def _run(
    model: Any, ids: torch.Tensor, config: GenerationConfig, options: dict[str, Any]
) -> torch.Tensor:
    """Run ``model.generate``; where a model's own cache fails it (Dory's behind its window), without one.

    Raises:
        BackendError: It fails without one too.
    """
    plain, mask = without_own_settings(model), torch.ones_like(ids)
    try:
        out: torch.Tensor = plain.generate(
            ids, attention_mask=mask, generation_config=config, **options
        )
        return out
    except (RuntimeError, LookupError, AttributeError) as error:
        if out_of_memory(error):
            raise
        reason = str(error).split("\n")[0]
    name = type(model).__name__
    warnings.warn(
        f"{name} can't generate with its cache ({reason}); going on without one, which takes longer.",
        stacklevel=2,
    )
    config.use_cache = False
    for each in options.get("logits_processor", ()):
        each.restart()
    try:
        out = plain.generate(ids, attention_mask=mask, generation_config=config, **options)
    except (RuntimeError, LookupError, AttributeError) as error:
        if out_of_memory(error):
            raise
        raise BackendError(
            f"{name} can't generate with these parameters, without a cache either: {error}."
        ) from error
    return out


def _thaw(value: Any) -> Any:
    """Return lists for the tuples that parameters keep, which transformers asks for."""
    return [_thaw(item) for item in value] if isinstance(value, tuple) else value
