"""Where the text of messages stands in a rendering, and whether all of it stands in its turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon.engine.provenance import SpanTuple

if TYPE_CHECKING:
    from antiphon.engine.turns import Turn

# Fields that templates print in headers: the model does not write them.
HEADER_FIELDS = frozenset({"role", "name", "tool_call_id"})

# Fields of a call that templates print again with the call's result; only the first time they are the turn's.
QUOTED_FIELDS = frozenset({"name", "id"})


class Extent(NamedTuple):
    """Where the text of a message stands: the end of the text before it, its first and last character, the next."""

    before: int
    first: int
    last: int
    after: int
    shown: bool


def own_spans(spans: Iterable[SpanTuple]) -> list[SpanTuple]:
    """Return the spans that came from messages."""
    return [span for span in spans if span[2][0] >= 0]


def extents(spans: Sequence[SpanTuple], count: int, length: int) -> list[Extent]:
    """Return the extent of each message; headers' fields do not count as text of a message."""
    first = [-1] * count
    last = [-1] * count
    reached = -1
    quoted: set[Any] = set()
    for start, end, origin in spans:
        message, path = origin
        if message < 0:
            continue
        if path:
            if path[0] in HEADER_FIELDS:
                continue
            if path[-1] in QUOTED_FIELDS:
                if origin in quoted:
                    continue
                quoted.add(origin)
        if first[message] < 0:
            first[message] = start
        elif message < reached and first[reached] > first[message]:
            continue  # printed once more inside a later message
        last[message] = end
        reached = max(reached, message) if first[reached] < start else message
    result = []
    before = 0
    position = 0
    size = len(spans)
    for index in range(count):
        shown = first[index] >= 0
        # Text of later messages may stand in front (system messages moved up); it is behind `before` or does no harm.
        end_of_text = last[index] if shown else before
        while position < size and (
            spans[position][2][0] <= index or spans[position][0] < end_of_text
        ):
            position += 1
        after = spans[position][0] if position < size else length
        result.append(Extent(before, first[index] if shown else after, end_of_text, after, shown))
        before = max(before, end_of_text)
    return result


def last_of(rendered: tuple[str, list[SpanTuple]], count: int) -> int:
    """Return where the text of the first ``count`` messages ends in a rendering of them."""
    text, spans = rendered
    shown = [extent.last for extent in extents(spans, count, len(text)) if extent.shown]
    return max(shown, default=0)


def torn_turns(spans: Iterable[SpanTuple], turns: Sequence[Turn]) -> dict[int, str]:
    """Return the messages that have text outside of their turn, or others' text inside, with the reason."""
    places = {turn.message: turn for turn in turns}
    in_order = sorted(turns, key=lambda turn: turn.start)
    torn = {
        message: "its place is inside the turn of another message"
        for one, other in itertools.pairwise(in_order)
        if other.start < one.end
        for message in (one.message, other.message)
    }
    number = 0
    for start, end, (message, path) in spans:
        if message < 0 or (path and (path[0] in HEADER_FIELDS or path[-1] in QUOTED_FIELDS)):
            continue
        own = places.get(message)
        if own and (end > own.end or end <= own.start) and path:
            torn[message] = (
                "the template prints its text in several places, with other messages between"
            )
        while number < len(in_order) and in_order[number].end <= start:
            number += 1
        around = in_order[number] if number < len(in_order) else None
        if around and around.message != message and around.start < end:
            torn[around.message] = "the template prints text of other messages inside its turn"
    return torn
