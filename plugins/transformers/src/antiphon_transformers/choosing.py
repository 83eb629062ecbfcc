"""From logits to ids: penalties, filters, and a draw from one uniform number per row."""

from __future__ import annotations

import torch
from antiphon.generation.sampling import SamplingParams


def choose(
    logits: torch.Tensor,
    params: SamplingParams,
    uniform: torch.Tensor,
    seen: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
    barred: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the next ids ``[rows]``.

    Args:
        logits: ``[rows, V]`` float32; not changed.
        params: Temperature, filters and penalties, applied in transformers' order.
        uniform: ``[rows]`` float64 in [0, 1): all the randomness there is, so a row's id depends on
            no other row.
        seen: ``[rows, V]`` bool, ids of prompt and answer, for the repetition penalty.
        counts: ``[rows, V]``, how often the answer has each id, for presence and frequency
            penalties.
        barred: ``[rows]`` bool and the ids, see `Barred`: ids that may not come yet.
    """
    scores = logits
    if seen is not None and params.repetition_penalty != 1.0:
        penalised = torch.where(
            scores > 0, scores / params.repetition_penalty, scores * params.repetition_penalty
        )
        scores = torch.where(seen, penalised, scores)
    if counts is not None:
        scores = scores - params.frequency_penalty * counts
        scores = scores - params.presence_penalty * (counts > 0)
    if barred is not None:
        scores = scores.index_fill(-1, barred, -torch.inf)
    if not params.do_sample:
        return scores.argmax(-1)
    scores = scores / params.temperature
    if params.top_k == 0 and params.top_p == 1.0:
        probs = scores.softmax(-1)
        if params.min_p:
            probs = _at_least(probs, probs.amax(-1, keepdim=True) * params.min_p)
        return draw(probs, uniform)
    if 0 < params.top_k < scores.shape[-1]:
        values, order = scores.topk(params.top_k)
    else:
        values, order = scores.sort(-1, descending=True)
    probs = values.softmax(-1)
    if params.top_p < 1.0:
        before = probs.cumsum(-1) - probs
        probs = probs.masked_fill(before >= params.top_p, 0.0)
    if params.min_p:
        probs = _at_least(probs, probs[:, :1] * params.min_p)
    return order.gather(-1, draw(probs, uniform)[:, None])[:, 0]


def wide(device: torch.device) -> torch.dtype:
    """Return the widest dtype that a kind of device computes in."""
    return torch.float32 if device.type in ("mps", "xpu") else torch.float64


def draw(weights: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Return one index per row, by inverting the cumulative sum of its weights.

    Args:
        weights: ``[rows, V]``, not negative; they need not sum to 1. An index of weight 0 is never
            drawn.
        uniform: ``[rows]`` of that dtype, in [0, 1).
    """
    cumulative = weights.cumsum(-1, dtype=wide(weights.device))
    total = cumulative[:, -1:]
    target = torch.minimum(
        uniform[:, None] * total, torch.nextafter(total, torch.zeros_like(total))
    )
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp_(
        max=weights.shape[-1] - 1
    )


def _at_least(probs: torch.Tensor, floor: torch.Tensor) -> torch.Tensor:
    return probs.masked_fill(probs < floor, 0.0)


class Randomness:
    """Uniform numbers per row and step, each row's from its own seed, made in blocks."""

    _BLOCK = 256

    def __init__(self, seeds: list[int], device: torch.device) -> None:
        """Begin one stream per seed."""
        self._generators = []
        for seed in seeds:
            generator = torch.Generator("cpu")
            generator.manual_seed(seed)
            self._generators.append(generator)
        self._device = device
        self._block: torch.Tensor | None = None
        self._step = 0

    def next(self) -> torch.Tensor:
        """Return ``[rows]`` float64 for the next step."""
        column = self._step % self._BLOCK
        if column == 0 or self._block is None:
            block = [
                torch.rand(self._BLOCK, generator=generator, dtype=torch.float64, device="cpu")
                for generator in self._generators
            ]
            self._block = torch.stack(block, 1).to(wide(self._device)).to(self._device)
        self._step += 1
        return self._block[column]

    def keep(self, rows: list[int]) -> None:
        """Go on with some of the rows."""
        self._generators = [self._generators[row] for row in rows]
        if self._block is not None:
            self._block = self._block[:, torch.as_tensor(rows, device=self._device)]
