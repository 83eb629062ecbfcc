"""What our own decode loop does not do: beam search, transformers' own parameters, models without a
plain cache.

``model.generate`` runs there. Our choosing stands at the end of its logits processors, so seeds per
row, filters and penalties mean the same as everywhere; log-probs come from scoring the result.
"""

from __future__ import annotations

from typing import Any

import torch
from antiphon.errors import InvalidParameter
from antiphon.sampling import SamplingParams
from antiphon.scoring import pad_rows
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from antiphon_transformers.choosing import Randomness, choose
from antiphon_transformers.decoding import Answer
from antiphon_transformers.stopping import Stops

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

    def __init__(self, params: SamplingParams, seeds: list[int], lengths: list[int]) -> None:
        self._params, self._seeds = params, seeds
        self._lengths = lengths
        self._random: Randomness | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores that are -inf everywhere but at the chosen id."""
        params, device = self._params, scores.device
        width = max(self._lengths)
        lengths = torch.as_tensor(self._lengths, device=device)
        if self._random is None:
            self._random = Randomness(self._seeds, device)
        columns = torch.arange(input_ids.shape[1], device=device)
        real = columns >= (width - lengths)[:, None]
        seen = counts = None
        if params.repetition_penalty != 1.0:
            seen = torch.zeros(scores.shape, dtype=torch.bool, device=device)
            row, column = real.nonzero(as_tuple=True)
            seen[row, input_ids[row, column]] = True
        if params.presence_penalty or params.frequency_penalty:
            counts = torch.zeros(scores.shape, device=device)
            answer = input_ids[:, width:]
            counts.scatter_add_(1, answer, torch.ones(answer.shape, device=device))
        ids = choose(scores.float(), params, self._random.next(), seen, counts)
        return torch.full_like(scores, -torch.inf).scatter_(1, ids[:, None], 0.0)


def library_generate(
    model: Any,
    tokenizer: Any,
    prompts: list[list[int]],
    seeds: list[int],
    limits: list[int],
    params: SamplingParams,
    stops: Stops,
    extra: dict[str, Any],
) -> list[Answer]:
    """Return one answer per prompt and sample, without log-probs.

    Args:
        model: The model.
        tokenizer: Needed by transformers where there are stop strings.
        prompts: One list of ids per prompt.
        seeds: One per prompt and sample.
        limits: Most new tokens, one per prompt and sample.
        params: How to sample.
        stops: Where answers end.
        extra: Parameters of ``model.generate``.
    """
    n, beams = params.num_return_sequences, params.num_beams
    if beams > 1 and params.do_sample:
        raise InvalidParameter(
            "Beam search is greedy here; pass do_sample=False (or temperature=0) together with num_beams."
        )
    device = model.get_input_embeddings().weight.device
    ids, mask = (t.to(device) for t in pad_rows(prompts, side="left"))
    ends = sorted(stops.ends) or None
    settings: dict[str, Any] = {name: _thaw(value) for name, value in extra.items()}
    if beams > 1:
        settings |= {
            "length_penalty": params.length_penalty,
            "early_stopping": params.early_stopping,
        }
        settings |= {"repetition_penalty": params.repetition_penalty}
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=max(limits),
        min_new_tokens=params.min_new_tokens or None,
        do_sample=False,
        num_return_sequences=n if beams > 1 else 1,
        num_beams=beams,
        eos_token_id=ends,
        pad_token_id=ends[0] if ends else 0,
        **settings,
    )
    options: dict[str, Any] = {}
    if params.stop_sequences:
        options |= {"stop_strings": list(params.stop_sequences), "tokenizer": tokenizer}
    if beams == 1:
        lengths = [len(prompt) for prompt in prompts for _ in range(n)]
        ids, mask = ids.repeat_interleave(n, 0), mask.repeat_interleave(n, 0)
        options["logits_processor"] = LogitsProcessorList([_Chooser(params, seeds, lengths)])
    try:
        out = model.generate(ids, attention_mask=mask.long(), generation_config=config, **options)
    except (ValueError, TypeError) as error:
        raise InvalidParameter(f"transformers refuses the parameters: {error}") from error
    answers = []
    for row, limit in zip(out[:, ids.shape[1] :].tolist(), limits, strict=True):
        kept, finish, stopped_by, cut = stops.first(row, limit)
        answers.append(Answer(kept, finish=finish, stopped_by=stopped_by, cut=cut))
    return answers


def _thaw(value: Any) -> Any:
    """Return lists for the tuples that parameters keep, which transformers asks for."""
    return [_thaw(item) for item in value] if isinstance(value, tuple) else value
