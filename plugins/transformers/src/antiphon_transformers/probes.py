"""What a model's forward pass keeps to, found out on a few ids; nothing here knows an architecture.

Each function computes, without dropout and gradients, what the name says in two ways and compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers import GenerationConfig

from antiphon_transformers.kinds import max_context, without_own_settings

if TYPE_CHECKING:
    from antiphon_transformers.forward import Forward

#: What a model that can't do something raises.
_UNABLE = (TypeError, AttributeError, ValueError, RuntimeError, LookupError)


def probe_ids(forward: Forward, length: int) -> torch.Tensor:
    """Return ids ``[1, length]``, spread over the vocabulary, none of them the padding id; any would do."""
    vocabulary = forward.inner.get_input_embeddings().weight.shape[0]
    ids = torch.arange(1, length + 1, device=forward.device) * 7919 % vocabulary
    padding = getattr(forward.inner.config, "pad_token_id", None)
    if padding is not None:  # some models count positions by it
        ids = torch.where(ids == padding, (ids + 1) % vocabulary, ids)
    probe: torch.Tensor = ids[None]
    return probe


def lacks_logits(forward: Forward) -> str:
    """Return in what way a model gives no logits ``[1, tokens, vocabulary]`` for ids alone; empty where it does."""
    ids = probe_ids(forward, 4)
    try:
        logits = forward.logits(ids)
    except (TypeError, AttributeError, ValueError, NotImplementedError) as error:
        return f"gives no logits for token ids alone ({error})"
    shape = tuple(logits.shape)
    return "" if shape[:-1] == tuple(ids.shape) else f"gives logits {shape} for {ids.shape[1]} ids"


def looks_ahead(forward: Forward) -> bool:
    """Whether logits depend on what comes after a token, or on how much of it."""
    ids = probe_ids(forward, 6)
    first = ids[:, :3]
    rows = (ids, torch.cat([first, first], 1), first)
    one, *others = (forward.logits(each)[0, :3].float() for each in rows)
    # The middle one of the tokens: a router's choice may turn on one bit where shapes differ.
    apart = max(float((one - other).abs().mean(-1).median()) for other in others)
    return apart > 0.05 * float(one.std())


def first_position(forward: Forward) -> int | None:
    """Return the position that a model gives a row's first token, or None where it can't be told its positions.

    It is 0, but for models that count from behind their padding id (RoBERTa and its kin).
    """
    ids = probe_ids(forward, 6)
    own = forward.logits(ids).float()
    padding = getattr(forward.inner.config, "pad_token_id", None)
    positions = torch.arange(ids.shape[1], device=ids.device)[None]
    apart: dict[int, float] = {}
    for first in (0, padding + 1 if isinstance(padding, int) else 0):
        forward.first_position = first
        try:
            given = forward.logits(ids, None, positions).float()
        except _UNABLE as error:
            _unless_out_of_memory(error)
            return None
        apart[first] = float((given - own).abs().mean())
    # Positions that only count by their differences (RoPE) leave both alike, but for rounding: then it is 0.
    first = min(apart, key=lambda each: apart[each] * (4 if each else 1))
    return None if apart[first] > 0.05 * float(own.std()) else first


def splits(forward: Forward) -> bool:
    """Whether head(body(ids)) is what the model says."""
    if not isinstance(getattr(forward.inner, forward.inner.base_model_prefix, None), nn.Module):
        return False
    ids = probe_ids(forward, 5)
    whole = forward.logits(ids)[0]
    try:
        parts = forward.head(forward.hidden(ids)[0])
    except _UNABLE as error:
        _unless_out_of_memory(error)
        return False  # an architecture whose forward needs more than states
    return parts.shape == whole.shape and _close(parts, whole)


def packs(forward: Forward, bins: int) -> bool:
    """Whether two rows in each of ``bins`` rows, told apart by their positions, don't see each other."""
    first, second = probe_ids(forward, 6), probe_ids(forward, 9)[:, 3:]
    ids = torch.cat([first, second], 1).repeat(bins, 1)
    positions = torch.arange(6, device=forward.device).repeat(bins, 2)
    apart = torch.cat([forward.hidden(first)[0], forward.hidden(second)[0]])
    together = forward.hidden(ids, None, positions)
    apart = apart.expand_as(together)
    leaking = forward.hidden(ids)
    # In a coarse dtype a leak can hide in the rounding: also ask that it would have been seen.
    leak, difference = (leaking - apart).abs().max(), (together - apart).abs().max()
    return _close(together, apart) and bool((4 * difference < leak).item())


def steps(forward: Forward) -> bool:
    """Whether rows of unlike lengths, padded on the left, may grow by one token at a time from one cache."""
    width = min(24, forward.turning_length or 24, max_context(forward.inner) or 24)  # columns
    before, grown = max(0, width - 9), min(4, width - 1)  # padding of one row; steps of one token
    rows = [probe_ids(forward, width)[0], probe_ids(forward, 2 * width - before)[0, width:]]
    ids = torch.stack([rows[0], torch.cat([rows[0][:before], rows[1]])])
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, :before] = False
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    found = []
    try:
        cache = forward.new_cache()
        for begin, end in ((0, width - grown), *((i, i + 1) for i in range(width - grown, width))):
            part = slice(begin, end)
            logits = forward.last_logits(ids[:, part], mask[:, :end], positions[:, part], cache)
            found.append(logits.float())
    except _UNABLE as error:
        _unless_out_of_memory(error)
        return False
    told = torch.stack(found, 1)
    for row, alone in enumerate(rows):
        right = forward.logits(alone[None])[0, -grown - 1 :].float()
        # The middle one of the steps: in a coarse dtype a router's choice turns on one bit now and then.
        apart = (told[row] - right).abs().mean(-1).median()
        if bool((apart > _coarseness(forward.inner.dtype) * right.std()).item()):
            return False
    return True


def keeps_rows_apart(forward: Forward) -> bool:
    """Whether the model's own ``generate`` answers the last of two rows as it answers it alone."""
    one = probe_ids(forward, 5)
    rows, cached = torch.cat([one.flip(1), one]), forward.caches
    try:
        both, alone = (_generated(forward, ids, cached)[0][-1] for ids in (rows, one))
    except _UNABLE as error:
        _unless_out_of_memory(error)
        return False  # told where it is asked to
    return bool(((both - alone).abs().max() <= 0.05 * alone.std()).item())


def caches(forward: Forward) -> bool:
    """Whether the model's own ``generate`` says with its cache what its forward pass says without."""
    try:
        (told,), sequence = _generated(forward, probe_ids(forward, 12), True)
    except _UNABLE as error:
        _unless_out_of_memory(error)
        return False
    right = forward.logits(sequence)[0, -len(told) - 1 : -1].float()
    apart = (told - right).abs().mean(-1).median()
    return not (apart > _coarseness(forward.inner.dtype) * right.std()).item()


def _generated(
    forward: Forward, ids: torch.Tensor, use_cache: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits ``[rows, 4, V]`` of four greedy steps of the model's own ``generate``, and all ids."""
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=4,
        do_sample=False,
        use_cache=use_cache,
        eos_token_id=[int(forward.inner.get_input_embeddings().weight.shape[0])],
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    out = without_own_settings(forward.inner).generate(
        ids,
        attention_mask=torch.ones_like(ids),
        generation_config=config,
        **forward.own_positions(ids),
    )
    return torch.stack(out.logits, 1).float(), out.sequences


def _coarseness(dtype: torch.dtype) -> float:
    return 1e-2 if dtype in (torch.float32, torch.float64) else 5e-2


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    tolerance = 1e-4 if other.dtype in (torch.float32, torch.float64) else 2e-2
    one, other = one.float(), other.float()
    scale = float(other.abs().max()) + 1e-6
    return bool(((one - other).abs().max() <= tolerance * scale).item())


def _unless_out_of_memory(error: Exception) -> None:
    """Raise what says nothing of the model."""
    if out_of_memory(error):
        raise error


def out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, on whatever device."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    # A CPU's allocator, a device's, and the libraries that allocate for themselves.
    signs = ("not enough memory", "out of memory", "ALLOC_FAILED")
    return any(sign in str(error) for sign in signs)
