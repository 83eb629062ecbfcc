"""The contract between the wrapper and what generates and scores: token ids in, token ids and
log-probs out.

Text, conversations, padding and containers are the wrapper's; a backend sees ragged rows of ids.
To write one:
implement `Backend`, and register a `BackendSpec` whose factory takes ``(model, **options)``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from antiphon.conversations.arguments import is_flag, plain, said
from antiphon.errors import BackendError, InvalidParameter
from antiphon.generation.sampling import SamplingParams, prompt_seeds

if TYPE_CHECKING:
    import torch

FinishReason = Literal["end", "stop", "length"]
WeightVersion = int | str


@dataclass(frozen=True)
class TokenBatch:
    """Ragged rows of token ids.

    Attributes:
        rows: One list of ids per row; lengths differ, nothing is padded.
        seeds: A seed per row, or None. Sample j of row i is drawn from ``seeds[i]`` and j alone.
        groups: A number per row: rows of one group came from one item. Backends may share work
            within a group and must not rely on it; equal prompts are told from each other by their
            place, never by their ids.
    """

    rows: list[list[int]]
    seeds: list[int] | None = None
    groups: list[int] | None = None

    def __post_init__(self) -> None:
        """Bring the rows into one form, and check that what is given per row has one entry per row.

        Raises:
            InvalidParameter: These are no rows of ids, no seeds, or not as many as there are rows.
        """
        object.__setattr__(self, "rows", _lists(self.rows))
        for name in ("seeds", "groups"):
            values = getattr(self, name)
            if values is None:
                continue
            values = plain(name, values)
            if not isinstance(values, (list, tuple, range)):
                raise InvalidParameter(f"{name} must be one number per row, not {said(values)}.")
            for value in values:
                if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 64:
                    raise InvalidParameter(
                        f"{name.capitalize()} must be whole numbers below 2**64, not {said(value)}."
                    )
            if len(values) != len(self.rows):
                raise InvalidParameter(
                    f"{name} has {len(values)} entries for {len(self.rows)} rows; give one per row."
                )
            object.__setattr__(self, name, list(values))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def seeded(self, params: SamplingParams, fallback: int) -> TokenBatch:
        """Return the batch with a seed per row, from ``params.seed`` or else from ``fallback``.

        Call it before rows are merged with those of others: seeds then no longer depend on the
        batch.
        """
        if self.seeds is not None:
            return self
        seed = fallback if params.seed is None else params.seed
        return TokenBatch(self.rows, prompt_seeds(self.rows, seed), self.groups)

    def __getitem__(self, index: slice) -> TokenBatch:
        """Return a part of the rows."""
        return TokenBatch(
            self.rows[index],
            None if self.seeds is None else self.seeds[index],
            None if self.groups is None else self.groups[index],
        )

    @staticmethod
    def cat(batches: Sequence[TokenBatch]) -> TokenBatch:
        """Join batches in order; group numbers of different batches never coincide."""
        rows = [row for batch in batches for row in batch.rows]
        seeds = None
        if all(batch.seeds is not None for batch in batches):
            seeds = [seed for batch in batches for seed in batch.seeds or ()]
        groups = None
        if all(batch.groups is not None for batch in batches):
            groups, offset = [], 0
            for batch in batches:
                groups += [offset + group for group in batch.groups or ()]
                offset = max(groups, default=-1) + 1
        return TokenBatch(rows, seeds, groups)


@dataclass
class Generation:
    """What a backend sampled. Row ``i * n + j`` answers prompt i.

    Attributes:
        ids: Sampled ids per row, the end token included where one was sampled, nothing added,
            nothing taken away.
        log_probs: Per row a float32 tensor ``[len(ids)]``, by the convention of the parameters.
        finish: Why each row ended: ``"end"`` (an end token), ``"stop"`` (a stop string),
            ``"length"`` (cut off).
        cut: Per row the number of characters of the decoded ids (special tokens included) that
            come before the stop string, or None.
        stopped_by: Per row the end token's id or the stop string, or None.
        top: Per row ``(ids [len, k], log_probs [len, k])``, most probable first, or None where
            none were asked for.
        prompt_log_probs: Per prompt a float32 tensor ``[len(prompt)]``, the first NaN; None where
            not asked for.
        weight_version: Which weights sampled this; where several did, the last.
        versions: Where weights may change while answers are sampled: per row pairs of a place and
            the version that sampled the ids from there on. None: all of it is ``weight_version``.
    """

    ids: list[list[int]]
    log_probs: list[torch.Tensor]
    finish: list[FinishReason]
    cut: list[int | None] = field(default_factory=list)
    stopped_by: list[int | str | None] = field(default_factory=list)
    top: list[tuple[torch.Tensor, torch.Tensor]] | None = None
    prompt_log_probs: list[torch.Tensor] | None = None
    weight_version: WeightVersion | None = None
    versions: list[list[tuple[int, WeightVersion | None]]] | None = None

    def __post_init__(self) -> None:
        """Fill what was left out and check the lengths."""
        rows = len(self.ids)
        self.cut = self.cut or [None] * rows
        self.stopped_by = self.stopped_by or [None] * rows
        for name in ("log_probs", "finish", "cut", "stopped_by"):
            if len(getattr(self, name)) != rows:
                raise BackendError(
                    f"A backend returned {len(getattr(self, name))} {name} for {rows} rows."
                )

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ids)

    def versions_of(self, row: int) -> list[tuple[int, WeightVersion | None]]:
        """Return pairs of a place in the row and the weights that sampled the ids from there on."""
        return [(0, self.weight_version)] if self.versions is None else self.versions[row]

    def take(self, start: int, stop: int, samples: int = 1) -> Generation:
        """Return what answers the prompts ``start`` to ``stop``, of which each has ``samples``
        rows.

        Args:
            start: The first prompt.
            stop: The prompt behind the last one.
            samples: Rows per prompt.
        """
        rows = slice(start * samples, stop * samples)
        return Generation(
            self.ids[rows],
            self.log_probs[rows],
            self.finish[rows],
            self.cut[rows],
            self.stopped_by[rows],
            None if self.top is None else self.top[rows],
            None if self.prompt_log_probs is None else self.prompt_log_probs[start:stop],
            self.weight_version,
            None if self.versions is None else self.versions[rows],
        )

    @staticmethod
    def cat(parts: Sequence[Generation]) -> Generation:
        """Join generations in order.

        Args:
            parts: One or more that answer consecutive prompts under the same parameters.
        """
        several = any(
            part.versions is not None or part.weight_version != parts[0].weight_version
            for part in parts
        )
        return Generation(
            [x for part in parts for x in part.ids],
            [x for part in parts for x in part.log_probs],
            [x for part in parts for x in part.finish],
            [x for part in parts for x in part.cut],
            [x for part in parts for x in part.stopped_by],
            None if parts[0].top is None else [x for part in parts for x in part.top or ()],
            None
            if parts[0].prompt_log_probs is None
            else [x for part in parts for x in part.prompt_log_probs or ()],
            parts[-1].weight_version,
            [part.versions_of(row) for part in parts for row in range(len(part))]
            if several
            else None,
        )


@dataclass
class Scores:
    """Log-probs of given ids.

    Attributes:
        log_probs: Per row a float32 tensor ``[len(row) - start]``; the entry for position 0, which
            nothing precedes, is NaN: it has no probability, least of all 1.
        entropies: Likewise the entropy (nats) of the distribution each id was drawn from, where
            asked for.
        weight_version: Which weights scored this.
    """

    log_probs: list[torch.Tensor]
    entropies: list[torch.Tensor] | None = None
    weight_version: int | str | None = None

    def take(self, start: int, stop: int) -> Scores:
        """Return the rows ``start`` to ``stop``."""
        entropies = None if self.entropies is None else self.entropies[start:stop]
        return Scores(self.log_probs[start:stop], entropies, self.weight_version)


@runtime_checkable
class Backend(Protocol):
    """What generates and scores."""

    @property
    def name(self) -> str:
        """The backend's name, for errors."""

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer, or None."""

    @property
    def vocab_size(self) -> int:
        """Ids run from 0 to below this."""

    @property
    def max_context(self) -> int | None:
        """Most tokens that prompt and answer may have together, or None where there is no bound."""

    @property
    def end_ids(self) -> frozenset[int]:
        """The ids that end an answer."""

    @property
    def extra_parameters(self) -> frozenset[str]:
        """Sampling parameters that only this backend knows."""

    @property
    def weight_version(self) -> int | str:
        """Changes whenever the weights do."""

    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        """Sample ``params.num_return_sequences`` answers per row.

        Args:
            batch: The prompts' ids, row by row; a row's seed settles its answers.
            params: How to sample, and how many answers per row.

        Returns:
            ``n`` rows per prompt; see `Generation`.

        Raises:
            InvalidParameter: A row, or a parameter, is such that no answer can be sampled; the row
                is named.
            BackendError: The engine failed, or the backend was closed.
        """

    def score(
        self,
        batch: TokenBatch,
        *,
        starts: Sequence[int] | None = None,
        temperature: float = 1.0,
        entropy: bool = False,
        requires_grad: bool = False,
    ) -> Scores:
        """Return the log-probs of the rows' own ids.

        Args:
            batch: The ids.
            starts: Per row the first position that is asked for; 0 for all where None. What comes
                before is context.
            temperature: Divides the logits.
            entropy: Also return entropies.
            requires_grad: Keep the graph, for a loss.

        Raises:
            InvalidParameter: A row is such that no model can take it; the row is named.
            BackendError: The engine failed, or the backend was closed.
        """

    def load_weights(
        self,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        version: int | str | None = None,
    ) -> None:
        """Put weights in place by name; what was computed with the old ones is forgotten.

        Args:
            weights: Tensors by the names that the model gives them, or pairs of a name and a
                tensor, one at a time.
            version: What the backend calls these weights from now on; None makes up another than
                before.

        Raises:
            BackendError: A name or a shape is not the model's.
        """

    def close(self) -> None:
        """Free what the backend holds; it can't be used afterwards."""


@runtime_checkable
class AsyncBackend(Protocol):
    """What a backend has besides, if answers need not wait for each other: calls under way at the
    same time share the model, and each returns as soon as its own rows are done. Cancelling the
    awaiting task gives its rows up. A `Batcher` makes one of any backend.
    """

    async def generate_async(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        """Await what `Backend.generate` returns.

        Args:
            batch: As for `Backend.generate`.
            params: As there.
        """

    async def score_async(
        self,
        batch: TokenBatch,
        *,
        starts: Sequence[int] | None = None,
        temperature: float = 1.0,
        entropy: bool = False,
    ) -> Scores:
        """Await what `Backend.score` returns, without gradients.

        Args:
            batch: As for `Backend.score`.
            starts: As there.
            temperature: As there.
            entropy: As there.
        """


def is_backend(value: Any) -> bool:
    """Whether something is a `Backend`; properties are not evaluated.

    Raises:
        InvalidParameter: It has what only backends have, and lacks the rest.
    """
    there = set(dir(value))
    if not {"generate", "score", "end_ids"} <= there:
        return False
    needed = {name for name in vars(Backend) if not name.startswith("_")}
    if missing := sorted(needed - there):
        raise InvalidParameter(
            f"{type(value).__name__} is not a whole backend: it lacks {', '.join(missing)}."
        )
    return True


def _lists(rows: Any) -> list[list[int]]:
    """Return rows that may be lists, tuples, arrays or tensors as lists."""
    if type(rows) is list and all(type(row) is list for row in rows):
        return rows
    given = plain("A batch", rows)
    if not isinstance(given, (list, tuple)):
        raise InvalidParameter(
            f"A batch has rows of token ids, such as [[1, 2], [3]], not {type(rows).__name__}."
        )
    made = []
    for index, row in enumerate(given):
        ids = plain(f"Row {index}", row)
        if not isinstance(ids, (list, tuple)):
            raise InvalidParameter(
                f"Row {index} is {type(row).__name__}, not a list of token ids, such as [1, 2]."
            )
        made.append(list(ids))
    return made


def check_batch(batch: Any) -> None:
    """Refuse what is no `TokenBatch`.

    Raises:
        InvalidParameter: It is something else.
    """
    if not isinstance(batch, TokenBatch):
        raise InvalidParameter(
            f"A batch is a TokenBatch of rows of ids, not {type(batch).__name__}; write TokenBatch([[1, 2, 3]])."
        )


def check_params(params: Any) -> None:
    """Refuse what is no `SamplingParams`.

    Raises:
        InvalidParameter: It is something else.
    """
    if not isinstance(params, SamplingParams):
        raise InvalidParameter(
            f"How to sample is said by SamplingParams, not {type(params).__name__}; see SamplingParams.from_kwargs."
        )


def check_flags(**flags: bool) -> None:
    """Refuse what is neither True nor False.

    Raises:
        InvalidParameter: Names the argument.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InvalidParameter(f"{name} must be True or False, not {said(value)}.")


def _is_id(value: Any) -> bool:
    """Whether something is a whole number, of whatever kind."""
    if type(value) is int:  # nearly always
        return True
    if is_flag(value):
        return False
    try:
        operator.index(value)
    except (TypeError, RuntimeError):  # the latter of a tensor without data
        return False
    return True


def check_scoring(batch: TokenBatch, starts: Sequence[int] | None, temperature: float) -> list[int]:
    """Return the first position that is asked for of each row.

    Raises:
        InvalidParameter: They are not one whole number per row, or the temperature is no number above 0.
    """
    number = isinstance(temperature, (int, float)) and not isinstance(temperature, bool)
    if not number or not 0 < temperature < float("inf"):
        raise InvalidParameter(f"temperature must be a number above 0, not {said(temperature)}.")
    if starts is None:
        return [0] * len(batch)
    given = plain("starts", starts)
    if not isinstance(given, (list, tuple, range)):
        raise InvalidParameter(f"starts must be a list of positions, not {said(starts)}.")
    if len(given) != len(batch):
        raise InvalidParameter(
            f"starts has {len(given)} entries for {len(batch)} rows; give one per row."
        )
    for row, start in enumerate(given):
        if isinstance(start, bool) or not isinstance(start, int):
            raise InvalidParameter(f"Row {row} starts at {said(start)}, which is no position.")
    return [max(0, start) for start in given]


def check_rows(
    batch: TokenBatch, *, backend: str, vocab_size: int, max_context: int | None, room: int = 0
) -> None:
    """Refuse rows that no model can take.

    Args:
        batch: The ids.
        backend: The backend's name, for errors.
        vocab_size: Ids run from 0 to below this.
        max_context: Most tokens that a row may have, or None.
        room: How many tokens must still fit after the row.

    Raises:
        InvalidParameter: A row is empty, too long, or has an id that is none or is not in the
            vocabulary; the row is named.
    """
    check_batch(batch)
    for index, row in enumerate(batch.rows):
        if not row:
            raise InvalidParameter(
                f"Row {index} is empty; {backend} needs at least one token, such as a BOS token."
            )
        if max_context is not None and len(row) + room > max_context:
            answer = f", {room} of which the answer needs" if room else ""
            raise InvalidParameter(
                f"Row {index} has {len(row)} tokens and the context of {backend}'s model holds {max_context}{answer}; "
                "shorten the conversation or choose a model with a longer context."
            )
        if set(map(type, row)) != {int}:
            odd = [i for i in row if not _is_id(i)]
            if odd:
                shown, kind = repr(odd[0])[:60], type(odd[0]).__name__
                raise InvalidParameter(
                    f"Row {index} holds {shown}, a {kind}, which is no token id; encode text first."
                )
        if min(row) < 0 or max(row) >= vocab_size:
            wrong = next(i for i in row if not 0 <= i < vocab_size)
            raise InvalidParameter(
                f"Row {index} has the id {wrong}, but the vocabulary of {backend}'s model ends at "
                f"{vocab_size - 1}; use the tokenizer that belongs to the model."
            )
