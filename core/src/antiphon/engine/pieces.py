"""Pieces of a text: what is encoded alone.

They stand in parallel lists, one entry a piece: a batch has tens of thousands of them, and an object for each would
keep the garbage collector busy longer than the encoding takes.
"""

from __future__ import annotations

from collections.abc import Iterator


class Pieces:
    """The pieces of a text, in order.

    Attributes:
        starts: Where each begins in the text.
        ends: Where each ends.
        controls: The id of a control token that the template wrote, or -1.
        turns: Whether it belongs to a turn.
        counts: How many tokens each has; empty until they are encoded.
    """

    __slots__ = ("controls", "counts", "ends", "starts", "turns")

    def __init__(
        self,
        starts: list[int] | None = None,
        ends: list[int] | None = None,
        controls: list[int] | None = None,
        turns: list[bool] | None = None,
        counts: list[int] | None = None,
    ) -> None:
        self.starts: list[int] = [] if starts is None else starts
        self.ends: list[int] = [] if ends is None else ends
        self.controls: list[int] = [] if controls is None else controls
        self.turns: list[bool] = [] if turns is None else turns
        self.counts: list[int] = [] if counts is None else counts

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, start: int, end: int, control: int, turn: bool) -> None:
        """Add a piece that is not encoded yet."""
        self.starts.append(start)
        self.ends.append(end)
        self.controls.append(control)
        self.turns.append(turn)

    def add_encoded(self, start: int, end: int, turn: bool, count: int) -> None:
        """Add a piece of ``count`` tokens."""
        self.add(start, end, -1, turn)
        self.counts.append(count)

    def rows(self) -> Iterator[tuple[int, int, int, bool]]:
        """Yield start, end, control and turn of each piece."""
        return zip(self.starts, self.ends, self.controls, self.turns, strict=True)

    def encoded(self, counts: list[int]) -> Pieces:
        """Return the same pieces with their numbers of tokens."""
        return Pieces(self.starts, self.ends, self.controls, self.turns, counts)

    def since(self, position: int) -> Pieces:
        """Return those that begin at or behind a character."""
        first = next((i for i, start in enumerate(self.starts) if start >= position), len(self))
        kept = slice(first, None)
        return Pieces(
            self.starts[kept],
            self.ends[kept],
            self.controls[kept],
            self.turns[kept],
            self.counts[kept],
        )

    def __add__(self, other: Pieces) -> Pieces:
        return Pieces(
            self.starts + other.starts,
            self.ends + other.ends,
            self.controls + other.controls,
            self.turns + other.turns,
            self.counts + other.counts,
        )

    def texts(self, text: str) -> list[str]:
        """Return the texts that are to be encoded: all pieces but the control tokens."""
        return [
            text[start:end]
            for start, end, control in zip(self.starts, self.ends, self.controls, strict=True)
            if control < 0
        ]

    def tokens_before(self, position: int) -> int:
        """Return how many tokens the pieces have that begin before a character."""
        return sum(
            count for start, count in zip(self.starts, self.counts, strict=True) if start < position
        )

    def mask(self) -> list[bool]:
        """Return True for the tokens of turns."""
        mask: list[bool] = []
        inside, size = False, 0
        for turn, count in zip(self.turns, self.counts, strict=True):
            if turn is inside:
                size += count
            else:
                mask += [inside] * size
                inside, size = turn, count
        mask += [inside] * size
        return mask
