"""When an answer ends: end tokens, stop strings, length; the same rule for every backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from antiphon.conversations.arguments import plain, said
from antiphon.errors import InvalidParameter
from antiphon.generation.backends import FinishReason
from antiphon.generation.sampling import SamplingParams

Decode = Callable[[list[int]], str]


class Stops:
    """Decides after each token whether a row is done.

    Attributes:
        ends: Ids that end an answer.
    """

    def __init__(
        self, params: SamplingParams, end_ids: frozenset[int], decode: Decode | None
    ) -> None:
        """Join the model's end tokens with the parameters' own.

        Args:
            params: The sampling parameters.
            end_ids: The model's end tokens.
            decode: Ids to text with special tokens; needed where there are stop strings.
        """
        own = frozenset(params.end_token_ids) if params.end_token_ids is not None else end_ids
        self.ends = (frozenset() if params.ignore_eos else own) | set(params.stop_token_ids)
        self._strings = params.stop_sequences
        self._decode = decode
        # A token is at least one byte of the text, so a stop string lies within that many tokens of
        # the end.
        self._window = max((len(s.encode()) for s in self._strings), default=0) + 4

    def check(
        self, ids: list[int], limit: int
    ) -> tuple[FinishReason, int | str | None, int | None] | None:
        """Return why the row with the answer ``ids`` is done, what ended it, and where its text is cut; or None."""
        if ids[-1] in self.ends:
            return "end", ids[-1], None
        if self._strings and (found := self._find(ids)) is not None:
            return "stop", found[1], found[0]
        if len(ids) >= limit:
            return "length", None, None
        return None

    def first(
        self, ids: Sequence[int], limit: int
    ) -> tuple[list[int], FinishReason, int | str | None, int | None]:
        """Return an answer that was sampled without us, cut where it would have ended here, and why."""
        kept: list[int] = []
        for number in ids:
            kept.append(int(number))
            if (verdict := self.check(kept, limit)) is not None:
                return kept, *verdict
        return kept, "length", None, None

    def _find(self, ids: list[int]) -> tuple[int, str] | None:
        assert self._decode is not None
        tail = self._decode(ids[-self._window :])
        if not any(s in tail for s in self._strings):
            return None
        text = self._decode(ids)
        places = [(place, s) for s in self._strings if (place := text.find(s)) >= 0]
        return min(places) if places else None


def find_end_ids(tokenizer: Any, *declared: int | Iterable[int] | None) -> frozenset[int]:
    """Return the ids that end an answer: declared ones, the tokenizer's own and the family's together.

    Args:
        tokenizer: A tokenizer, or None.
        declared: What configurations say (``eos_token_id``): an id, several, or None.
    """
    found: set[int] = set()
    for value in (*declared, getattr(tokenizer, "eos_token_id", None)):
        ids: Any = plain("end_ids", value)
        several = [ids] if isinstance(ids, int) else [] if ids is None else ids
        if not isinstance(several, Iterable) or not all(isinstance(i, int) for i in several):
            raise InvalidParameter(f"End tokens must be token ids, not {said(value)}.")
        found.update(several)
    if tokenizer is not None:
        found.update(_family_ends(tokenizer))
    return frozenset(found)


def _family_ends(tokenizer: Any) -> Iterator[int]:
    from antiphon.detection import detect_family
    from antiphon.errors import FamilyAmbiguous, FamilyNotFound
    from antiphon.registry import get_family

    try:
        name = detect_family(tokenizer).family
        ends = get_family(name).end_tokens if name else ()
    except (FamilyNotFound, FamilyAmbiguous):
        return  # the configuration and the tokenizer have said what they know
    vocabulary = tokenizer.get_vocab()
    yield from (vocabulary[token] for token in ends if token in vocabulary)
