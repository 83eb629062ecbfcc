"""The decode loop: one prefill per distinct prompt, then one token per step for every row that is
not done.

Masks and positions come from lengths. Rows that are done leave the batch, so a long answer does not
make the short ones cost more. A row's ids depend on its prompt and its seed; the batch only changes
rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from antiphon.errors import BackendError
from antiphon.generation.backends import FinishReason
from antiphon.generation.sampling import SamplingParams
from antiphon.generation.scoring import pad_rows
from antiphon.generation.stopping import Stops

from antiphon_transformers.choosing import Randomness, choose
from antiphon_transformers.forward import Forward, select_rows
from antiphon_transformers.reuse import Reuse


@dataclass
class Answer:
    """One row's answer as it grows; the fields are those of `antiphon.generation.backends.Generation`."""

    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    top_ids: list[torch.Tensor] = field(default_factory=list)
    top_log_probs: list[torch.Tensor] = field(default_factory=list)
    finish: FinishReason = "length"
    stopped_by: int | str | None = None
    cut: int | None = None


class Decoding:
    """One call's rows and their state."""

    def __init__(
        self,
        forward: Forward,
        prompts: list[list[int]],
        seeds: list[int],
        limits: list[int],
        params: SamplingParams,
        stops: Stops,
        reuse: Reuse,
        numbers: Sequence[int],
    ) -> None:
        """Set up the rows.

        Args:
            forward: The model.
            prompts: One per row; equal prompts are computed once.
            seeds: One per row.
            limits: Most new tokens per row.
            params: How to sample.
            stops: When to stop.
            reuse: Where states of earlier turns are.
            numbers: What errors call the rows.
        """
        self._forward, self._params, self._stops, self._reuse = forward, params, stops, reuse
        self._prompts, self._limits, self._numbers = prompts, limits, numbers
        self._answers = [Answer() for _ in prompts]
        self._live = list(range(len(prompts)))  # answers in the order of the cache's rows
        self._done = [False] * len(prompts)
        self._device = forward.device
        self._random = Randomness(seeds, self._device) if params.do_sample else None
        self._cache: Any = None
        self._begins: list[int] = []
        self._mask: torch.Tensor | None = None
        self._lengths = torch.zeros(0, device="cpu")
        self._columns = 0
        self._seen: torch.Tensor | None = None
        self._counts: torch.Tensor | None = None
        self._barred: torch.Tensor | None = None

    def run(self) -> list[Answer]:
        """Sample until every row is done."""
        logits = self._prefill()
        step = 0
        while True:
            ids = self._take(logits.float(), step)
            done = all(self._done[row] for row in self._live)
            if self._forward.all_done(done):
                break
            if not done:  # else other processes go on, and need this one's part of the weights
                self._compact()
            if len(self._live) != len(ids):
                ids = ids[self._kept_rows]
            logits = self._forward.last_logits(
                ids[:, None],
                self._mask_of(self._columns + 1),
                self._lengths[:, None],
                self._cache,
            )
            self._columns += 1
            self._lengths = self._lengths + 1
            step += 1
        self._save(list(range(len(self._live))))
        return self._answers

    def _mask_of(self, columns: int) -> torch.Tensor | None:
        if self._mask is None:
            return None
        if self._mask.shape[1] < columns:  # done, and in step with processes that are not
            self._mask = torch.nn.functional.pad(self._mask, (0, columns), value=True)
        return self._mask[:, :columns]

    def _prefill(self) -> torch.Tensor:
        """Compute each distinct prompt once and spread it over its rows; return the logits after it."""
        places: dict[tuple[int, ...], int] = {}
        index = [places.setdefault(tuple(prompt), len(places)) for prompt in self._prompts]
        distinct = [list(prompt) for prompt in places]
        ids, mask = (t.to(self._device) for t in pad_rows(distinct, side="left"))
        lengths = mask.sum(1)
        begins = (ids.shape[1] - lengths).tolist()
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        padded = any(begins)
        started = self._reuse.start(self._forward, distinct)
        self._cache, left = started if started else (self._forward.new_cache(), ids.shape[1])
        logits = self._forward.last_logits(
            ids[:, -left:], mask if padded else None, positions[:, -left:], self._cache
        )
        rows = torch.as_tensor(index, device=self._device)
        if len(distinct) != len(index):
            select_rows(self._cache, rows)
        self._begins = [begins[i] for i in index]
        self._columns = ids.shape[1]
        self._lengths = lengths[rows]
        if padded:
            room = torch.ones(len(index), max(self._limits), dtype=torch.bool, device=self._device)
            self._mask = torch.cat([mask[rows], room], 1)
        self._penalties(logits.shape[-1], ids[rows], mask[rows])
        return logits[rows]

    def _penalties(self, vocabulary: int, ids: torch.Tensor, mask: torch.Tensor) -> None:
        params, shape = self._params, (len(ids), vocabulary)
        if params.repetition_penalty != 1.0:
            self._seen = torch.zeros(shape, dtype=torch.bool, device=self._device)
            row, column = mask.nonzero(as_tuple=True)
            self._seen[row, ids[row, column]] = True
        if params.presence_penalty or params.frequency_penalty:
            self._counts = torch.zeros(shape, dtype=torch.float32, device=self._device)
        if params.min_new_tokens:
            barred = sorted(i for i in self._stops.ends if i < vocabulary)
            self._barred = torch.as_tensor(barred, dtype=torch.long, device=self._device)

    def _take(self, logits: torch.Tensor, step: int) -> torch.Tensor:
        """Choose and record a token for every live row."""
        params = self._params
        uniform = self._random.next() if self._random else logits.new_zeros(0)
        barred = self._barred if step < params.min_new_tokens else None
        ids = choose(logits, params, uniform, self._seen, self._counts, barred)
        if params.log_prob_temperature != 1.0:
            logits = logits / params.log_prob_temperature
        total = logits.logsumexp(-1)
        chosen = logits.gather(-1, ids[:, None])[:, 0] - total
        if params.logprobs:
            top_log_probs, top_ids = logits.topk(min(params.logprobs, logits.shape[-1]))
            top_log_probs = (top_log_probs - total[:, None]).cpu()
            top_ids = top_ids.cpu()
        if self._seen is not None:
            self._seen.scatter_(1, ids[:, None], True)
        if self._counts is not None:
            self._counts.scatter_add_(1, ids[:, None], self._counts.new_ones(len(ids), 1))
        # Both in one copy: each is a wait for the device. A float32 holds every id below 2^24 (a float64 not every
        # device has).
        numbers, log_probs = torch.stack([ids.float(), chosen.float()]).tolist()
        for place, (number, log_prob) in enumerate(zip(numbers, log_probs, strict=True)):
            row = self._live[place]
            if self._done[row]:
                continue
            if math.isnan(log_prob):
                raise BackendError(
                    f"The model's logits for row {self._numbers[row]} are NaN at token {step} of its answer; check its "
                    "weights and its dtype (float16 overflows in many models, bfloat16 and float32 don't)."
                )
            answer = self._answers[row]
            answer.ids.append(int(number))
            answer.log_probs.append(log_prob)
            if params.logprobs:
                answer.top_ids.append(top_ids[place])
                answer.top_log_probs.append(top_log_probs[place])
            verdict = self._stops.check(answer.ids, self._limits[row])
            if verdict is not None:
                answer.finish, answer.stopped_by, answer.cut = verdict
                self._done[row] = True
        return ids

    def _compact(self) -> None:
        """Drop rows that are done, once they are a quarter of the batch."""
        done = [place for place, row in enumerate(self._live) if self._done[row]]
        if 4 * len(done) < len(self._live):
            return
        self._save(done)
        kept = [place for place, row in enumerate(self._live) if not self._done[row]]
        rows = self._kept_rows = torch.as_tensor(kept, device=self._device)
        select_rows(self._cache, rows)
        self._lengths = self._lengths[rows]
        for name in ("_mask", "_seen", "_counts"):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, value[rows])
        if self._random is not None:
            self._random.keep(kept)
        self._live = [self._live[place] for place in kept]
        self._begins = [self._begins[place] for place in kept]

    def _save(self, places: list[int]) -> None:
        """Keep the states of rows for the next turn; the last token of an answer has none yet."""
        ids = []
        for place in places:
            row = self._live[place]
            ids.append(self._prompts[row] + self._answers[row].ids[:-1])
        begins = [self._begins[place] for place in places]
        whole = len(places) == len(self._live)
        self._reuse.keep(self._cache, ids, begins, None if whole else places)
