"""Scoring ragged rows: packed where the model allows it, a shared prompt once, the head in chunks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from antiphon.errors import BackendError
from antiphon.generation.scoring import Bin, lay_out, pack, pad_rows, selected_log_probs

from antiphon_transformers.forward import Forward, select_rows

Row = tuple[torch.Tensor, torch.Tensor]


def score_rows(
    forward: Forward,
    rows: Sequence[list[int]],
    starts: Sequence[int],
    temperature: float,
    entropy: bool,
    tokens_per_forward: int,
    numbers: Sequence[int] | None = None,
) -> list[Row]:
    """Return per row the log-probs and entropies ``[len(row) - start]`` (entropies empty where not asked for).

    ``numbers`` are what errors call the rows.
    """
    numbers = range(len(rows)) if numbers is None else numbers
    found: dict[int, Row] = {}
    for members in forward.apart(rows):
        part = _score_together(
            forward,
            [rows[i] for i in members],
            [starts[i] for i in members],
            temperature,
            entropy,
            tokens_per_forward,
            [numbers[i] for i in members],
        )
        found.update(zip(members, part, strict=True))
    return [found[i] for i in range(len(rows))]


def _score_together(
    forward: Forward,
    rows: Sequence[list[int]],
    starts: Sequence[int],
    temperature: float,
    entropy: bool,
    tokens_per_forward: int,
    numbers: Sequence[int],
) -> list[Row]:
    scorer = _Scorer(forward, rows, starts, temperature, entropy, numbers)
    shared = _shared_prompts(forward, rows, starts)
    if shared is not None:
        for members in _portions(shared, rows, tokens_per_forward):
            scorer.add_shared(members)
    elif forward.splits:
        for bins in _batches(forward, [len(row) for row in rows], tokens_per_forward):
            scorer.add_bins(bins)
    else:
        # Processes that share weights compute in step: one forward pass for a call, whatever its rows.
        scorer.add_whole(sum(map(len, rows)) ** 2 if forward.sharded else tokens_per_forward // 8)
    return scorer.finish()


class _Scorer:
    """Collects each row's log-probs as its states become known."""

    def __init__(
        self,
        forward: Forward,
        rows: Sequence[list[int]],
        starts: Sequence[int],
        temperature: float,
        entropy: bool,
        numbers: Sequence[int],
    ) -> None:
        self._forward, self._rows, self._numbers = forward, rows, numbers
        # Nothing precedes position 0: its log-prob is not a number.
        self._firsts = [max(1, start) for start in starts]
        self._starts = starts
        self._temperature, self._entropy = temperature, entropy
        self._found: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}

    def add_bins(self, bins: list[Bin]) -> None:
        """Score packed (or, one row per bin, right-padded) rows."""
        device = self._forward.device
        ids, positions = (t.to(device) for t in lay_out(self._rows, bins))
        packed = any(len(b.rows) > 1 for b in bins)
        # Causal attention never looks at what comes after a row, so padding on the right needs no
        # mask; left to itself, the model would take it for another packed row.
        states = self._forward.hidden(ids, None, positions if packed else None)
        members = [
            (row, index, offset)
            for index, b in enumerate(bins)
            for row, offset in zip(b.rows, b.offsets, strict=True)
        ]
        picked = [
            states[index, offset + self._firsts[row] - 1 : offset + len(self._rows[row]) - 1]
            for row, index, offset in members
        ]
        self._add([row for row, _, _ in members], picked)

    def add_shared(self, groups: list[list[int]]) -> None:
        """Score groups of rows, of which each shares what comes before its starts."""
        forward, device = self._forward, self._forward.device
        prompts = [self._rows[group[0]][: self._starts[group[0]]] for group in groups]
        members = [row for group in groups for row in group]
        which = [g for g, group in enumerate(groups) for _ in group]
        index = torch.as_tensor(which, device=device)
        ids, mask = (t.to(device) for t in pad_rows(prompts, side="left"))
        cache = forward.new_cache()
        before = forward.hidden(ids, mask, (mask.cumsum(1) - 1).clamp(min=0), cache)[:, -1]
        select_rows(cache, index)
        answers = [self._rows[row][self._starts[row] :] for row in members]
        # The last id of an answer predicts nothing that is asked for.
        later, later_mask = (
            t.to(device) for t in pad_rows([a[:-1] for a in answers], side="right")
        )
        picked: list[torch.Tensor]
        if later.shape[1]:
            begin = mask.sum(1)[index]
            positions = begin[:, None] + torch.arange(later.shape[1], device=device)
            states = forward.hidden(
                later, torch.cat([mask[index], later_mask], 1), positions, cache
            )
            picked = [
                torch.cat([before[g][None], states[place, : len(answer) - 1]])
                for place, (g, answer) in enumerate(zip(which, answers, strict=True))
            ]
        else:
            picked = [before[g][None] for g in which]
        self._add(members, picked)

    def add_whole(self, tokens: int) -> None:
        """Score a few rows at a time through the model's own forward, for models that can't be split."""
        batches = _batches(None, [len(row) for row in self._rows], tokens)
        for bins in batches:
            ids, _ = lay_out(self._rows, bins)
            logits = self._forward.logits(ids.to(self._forward.device))
            picked = [
                logits[index, self._firsts[b.rows[0]] - 1 : len(self._rows[b.rows[0]]) - 1]
                for index, b in enumerate(bins)
            ]
            self._add([b.rows[0] for b in bins], picked, head=False)

    def _add(self, members: list[int], picked: list[torch.Tensor], head: bool = True) -> None:
        counts = [len(states) for states in picked]
        states = torch.cat(picked)
        ids = [i for row in members for i in self._rows[row][self._firsts[row] :]]
        targets = torch.as_tensor(ids, dtype=torch.long, device=states.device)
        log_probs, entropies = selected_log_probs(
            states,
            targets,
            self._forward.head if head else _identity,
            vocab_size=self._forward.inner.get_input_embeddings().weight.shape[0],
            temperature=self._temperature,
            entropy=self._entropy,
        )
        parts = torch.split(log_probs, counts)
        others = torch.split(entropies, counts) if entropies is not None else [None] * len(counts)
        for row, part, other in zip(members, parts, others, strict=True):
            self._found[row] = (part, other)

    def finish(self) -> list[Row]:
        """Return the rows in their order.

        Raises:
            BackendError: Log-probs are NaN; names the row.
        """
        self._check()
        result = []
        for row, start in enumerate(self._starts):
            log_probs, entropies = self._found[row]
            undefined = log_probs.new_full(
                (min(self._firsts[row] - start, len(self._rows[row])),), torch.nan
            )
            result.append(
                (
                    torch.cat([undefined, log_probs]),
                    log_probs.new_zeros(0)
                    if entropies is None
                    else torch.cat([undefined, entropies]),
                )
            )
        return result

    def _check(self) -> None:
        rows = list(self._found)
        # Told for all rows at once: each answer is a wait for the device.
        told = torch.stack([self._found[row][0].detach().isnan().any() for row in rows]).tolist()
        wrong = [row for row, nan in zip(rows, told, strict=True) if nan]
        if not wrong:
            return
        row = min(wrong)
        # In a packed row one NaN spoils its neighbours too: look at each by itself.
        with torch.no_grad():
            for row in () if self._forward.sharded else sorted(wrong):
                ids = torch.tensor([self._rows[row]], device=self._forward.device)
                if bool(self._forward.logits(ids).isnan().any()):
                    break
        raise BackendError(
            f"The model's logits for row {self._numbers[row]} are NaN; check its weights and its dtype (float16 "
            "overflows in many models, bfloat16 and float32 don't)."
        )


def _identity(logits: torch.Tensor) -> torch.Tensor:
    return logits


def _batches(forward: Forward | None, lengths: list[int], tokens: int) -> list[list[Bin]]:
    """Split rows into batches of bins of at most ``tokens`` tokens, rows of like length together."""
    if forward is not None and len(set(lengths)) > 1 and forward.packs:
        if not forward.packs_together:
            return [[b] for b in pack(lengths, max(tokens, *lengths))]
        bins = pack(lengths)
    else:
        bins = [
            Bin([row], [0], lengths[row])
            for row in sorted(range(len(lengths)), key=lambda r: -lengths[r])
        ]
    batches: list[list[Bin]] = []
    for b in bins:
        if batches and batches[-1][0].length * (len(batches[-1]) + 1) <= tokens:
            batches[-1].append(b)
        else:
            batches.append([b])
    return batches


def _shared_prompts(
    forward: Forward, rows: Sequence[list[int]], starts: Sequence[int]
) -> list[list[int]] | None:
    """Return groups of rows with one prompt, or None where scoring each prompt once saves little or can't be done."""
    # Checkpointing switches caches off: there would be no prompt to share.
    checkpointing = forward.inner.training and any(
        getattr(module, "gradient_checkpointing", False) for module in forward.inner.modules()
    )
    if (
        checkpointing
        or not forward.incremental
        or max(map(len, rows))
        > (forward.turning_length or math.inf)  # its prompt may lie before that
        or any(start < 1 or start >= len(row) for row, start in zip(rows, starts, strict=True))
    ):
        return None
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, (row, start) in enumerate(zip(rows, starts, strict=True)):
        groups.setdefault(tuple(row[:start]), []).append(index)
    if len(groups) == len(rows) or not forward.splits:
        return None
    apart = sum(map(len, rows))
    longest = max(len(row) - start for row, start in zip(rows, starts, strict=True))
    together = len(groups) * max(map(len, groups)) + len(rows) * longest
    return list(groups.values()) if together <= 0.7 * apart else None


def _portions(
    groups: list[list[int]], rows: Sequence[list[int]], tokens: int
) -> list[list[list[int]]]:
    """Split groups into batches of at most ``tokens`` tokens; a group above that is scored in parts."""
    portions: list[list[list[int]]] = []
    held = 0
    parts = []
    for group in groups:
        most = max(1, tokens // max(len(rows[row]) for row in group))
        parts += [group[begin : begin + most] for begin in range(0, len(group), most)]
    for group in parts:
        size = sum(len(rows[row]) for row in group)
        if portions and held + size <= tokens:
            portions[-1].append(group)
            held += size
        else:
            portions.append([group])
            held = size
    return portions
