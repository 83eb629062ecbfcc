"""Distributions over the tokens of a batch, with masks that come from lengths and turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import distributions as D

from antiphon.errors import InvalidParameter


class LogProbDistribution(D.Distribution):
    """Log-probs of known tokens, as a distribution that can only say these.

    It stands in where a backend gives log-probs and no logits.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 (torch's name and type)
    has_rsample = False

    def __init__(self, log_probs: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        """Take the log-probs.

        Args:
            log_probs: ``[..., time]`` of the tokens.
            mask: ``[..., time]`` bool; where it is False the log-prob is 0.
        """
        _check_tensors(log_probs=log_probs, mask=mask)
        if mask is not None and mask.shape != log_probs.shape:
            raise InvalidParameter(
                f"The mask has shape {tuple(mask.shape)}, the log-probs {tuple(log_probs.shape)}; they must agree."
            )
        self.log_probs = log_probs
        self.mask = None if mask is None else mask.bool()
        super().__init__(log_probs.shape, validate_args=False)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Return the log-probs; ``value`` must be the tokens ``[..., time]`` that they belong to."""
        _check_tensors(tokens=value)
        if value.shape != self.log_probs.shape:
            raise InvalidParameter(
                f"The tokens have shape {tuple(value.shape)}, the log-probs {tuple(self.log_probs.shape)}; pass the "
                "tokens that were scored."
            )
        if self.mask is None:
            return self.log_probs
        return torch.where(self.mask, self.log_probs, 0.0)

    def sample(self, sample_shape: Any = None) -> torch.Tensor:
        """Refuse: log-probs of given tokens say nothing of others."""
        raise NotImplementedError(
            "Log-probs of given tokens can't be sampled from; generate instead."
        )

    def entropy(self) -> torch.Tensor:
        """Refuse: log-probs of given tokens say nothing of others."""
        raise NotImplementedError(
            "Log-probs of given tokens have no entropy; score with entropy=True, or use a backend that gives logits."
        )


class LLMMaskedCategorical(D.Distribution):
    """A categorical distribution per position, some positions or tokens of which don't count.

    Attributes:
        logits: ``[..., time, vocabulary]``.
        mask: ``[..., time]`` bool (positions), or None.
        token_mask: ``[..., time, vocabulary]`` bool (tokens), or None.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 (torch's name and type)
    has_rsample = False

    def __init__(
        self,
        logits: torch.Tensor,
        mask: torch.Tensor | None = None,
        *,
        neg_inf: float = -torch.inf,
        ignore_index: int = -100,
    ) -> None:
        """Take logits and a mask.

        Args:
            logits: ``[..., time, vocabulary]``.
            mask: Of positions ``[..., time]``: where it is False a log-prob and an entropy are 0
                and a sample is ``ignore_index``. Or of tokens ``[..., time, vocabulary]``: those
                are ruled out.
            neg_inf: The logit of a token that is ruled out.
            ignore_index: Stands for no token, in values and in samples.
        """
        _check_tensors(logits=logits, mask=mask)
        if logits.ndim < 1:
            raise InvalidParameter("Logits have a last dimension of vocabulary; these have none.")
        self.mask = self.token_mask = None
        if mask is not None and mask.shape == logits.shape[:-1]:
            self.mask = mask.bool()
        elif mask is not None and mask.shape == logits.shape:
            self.token_mask = mask.bool()
            logits = logits.masked_fill(~self.token_mask, neg_inf)
        elif mask is not None:
            raise InvalidParameter(
                f"The mask has shape {tuple(mask.shape)}; for logits {tuple(logits.shape)} it must be that of "
                f"positions, {tuple(logits.shape[:-1])}, or of tokens, {tuple(logits.shape)}."
            )
        self.logits = logits
        self._ignored = ignore_index
        super().__init__(logits.shape[:-1], validate_args=False)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Return log-probs ``[..., time]`` of tokens ``[..., time]``; 0 where masked or ignored.

        Args:
            value: Ids, int64; ``ignore_index`` where there is none.

        Raises:
            InvalidParameter: The shape is not that of the positions, or an id is not in the
                vocabulary.
        """
        _check_tensors(tokens=value)
        if value.shape != self.logits.shape[:-1]:
            raise InvalidParameter(
                f"The tokens have shape {tuple(value.shape)}, the positions {tuple(self.logits.shape[:-1])}."
            )
        counts = self._counts() & (value != self._ignored)
        ids = torch.where(counts, value, 0)
        size = self.logits.shape[-1]
        if value.is_floating_point() or bool(((ids < 0) | (ids >= size)).any()):
            raise InvalidParameter(
                f"Tokens must be ids from 0 to {size - 1}, the vocabulary of these logits; mask what is padding, or "
                f"put {self._ignored} there."
            )
        logits = self.logits.float()
        chosen = logits.gather(-1, ids[..., None])[..., 0] - logits.logsumexp(-1)
        return torch.where(counts, chosen, 0.0)

    def entropy(self) -> torch.Tensor:
        """Return entropies ``[..., time]`` in nats; 0 where masked."""
        log_probs = self.logits.float().log_softmax(-1)
        terms = log_probs.exp() * log_probs.clamp(min=torch.finfo(torch.float32).min)
        return torch.where(self._counts(), -terms.sum(-1), 0.0)

    def sample(self, sample_shape: Any = None) -> torch.Tensor:
        """Return tokens ``[*sample_shape, ..., time]``; ``ignore_index`` where masked."""
        shape = _size(sample_shape)
        logits = torch.where(self._counts()[..., None], self.logits.float(), 0.0)
        with torch.no_grad():
            drawn = D.Categorical(logits=logits, validate_args=False).sample(shape)  # type: ignore[no-untyped-call]
        return torch.where(self._counts(), drawn, self._ignored)

    @property
    def mode(self) -> torch.Tensor:
        """The most probable tokens ``[..., time]``; ``ignore_index`` where masked."""
        return torch.where(self._counts(), self.logits.argmax(-1), self._ignored)

    @property
    def deterministic_sample(self) -> torch.Tensor:
        """The mode, under the name that tensordict asks for."""
        return self.mode

    def _counts(self) -> torch.Tensor:
        if self.mask is not None:
            return self.mask
        return torch.ones(self.logits.shape[:-1], dtype=torch.bool, device=self.logits.device)


class RaggedCategorical(LLMMaskedCategorical):
    """`LLMMaskedCategorical` over rows of unequal lengths, without padding.

    What it takes and gives is jagged, ``[rows, time]``: a nested tensor, or for `log_prob` also a list of rows.

    Attributes:
        logits: ``[tokens of all rows, vocabulary]``.
        mask: ``[tokens of all rows]``.
        lengths: Tokens of each row.
    """

    def __init__(self, rows: Sequence[torch.Tensor], masks: Sequence[torch.Tensor]) -> None:
        """Take the logits ``[time, vocabulary]`` and the mask ``[time]`` of each row."""
        if not len(rows):
            raise InvalidParameter("There is no row to make a distribution of.")
        self.lengths = [len(row) for row in rows]
        super().__init__(torch.cat(list(rows)), torch.cat(list(masks)))

    def log_prob(self, value: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
        """Return log-probs of tokens; 0 where masked or ignored."""
        if not isinstance(value, (torch.Tensor, list, tuple)):
            _check_tensors(tokens=value)
        nested = isinstance(value, torch.Tensor) and value.is_nested
        rows = list(value.unbind()) if nested else list(value)  # type: ignore[union-attr]
        lengths = [len(row) for row in rows]
        if lengths != self.lengths:
            raise InvalidParameter(
                f"The tokens have rows of {lengths} tokens, the distribution of {self.lengths}."
            )
        return self._rows(super().log_prob(torch.cat(rows)))

    def entropy(self) -> torch.Tensor:
        """Return entropies in nats; 0 where masked."""
        return self._rows(super().entropy())

    def sample(self, sample_shape: Any = None) -> torch.Tensor:
        """Return tokens; ``ignore_index`` where masked. One sample at a time."""
        if sample_shape:
            raise InvalidParameter(
                "Ragged rows are sampled once at a time; leave sample_shape out, or use padded rows."
            )
        return self._rows(super().sample())

    @property
    def mode(self) -> torch.Tensor:
        """The most probable tokens; ``ignore_index`` where masked."""
        return self._rows(super().mode)

    def _rows(self, values: torch.Tensor) -> torch.Tensor:
        parts = list(torch.split(values, self.lengths))
        return torch.nested.as_nested_tensor(parts, layout=torch.jagged)


def _check_tensors(*, mask: Any = None, **given: Any) -> None:
    if mask is not None:
        given["mask"] = mask
    for name, value in given.items():
        if not isinstance(value, torch.Tensor):
            raise InvalidParameter(f"The {name} must be a tensor, not {type(value).__name__}.")


def _size(shape: Any) -> torch.Size:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape or ())
    if any(isinstance(size, bool) or not isinstance(size, int) or size < 0 for size in sizes):
        raise InvalidParameter(f"sample_shape must be whole numbers, not {shape!r}.")
    return torch.Size(sizes)
