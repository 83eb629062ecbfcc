"""Where the text of messages stands in a rendering, and whether all of it stands in its turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon.engine.provenance import MIXED, REASONING_FIELDS, SpanTuple, traced_whole
from antiphon.errors import RenderError

if TYPE_CHECKING:
    from antiphon.engine.rendering import Rendering
    from antiphon.engine.source import Source
    from antiphon.engine.turns import Turn

_WORDS = ("content", "tool_calls", *REASONING_FIELDS)
_SEVERAL_PLACES = "the template prints its text in several places, with other messages between"
_OTHERS_INSIDE = "the template prints text of other messages inside its turn"

# Fields that templates print in headers: the model does not write them.
HEADER_FIELDS = frozenset({"role", "name", "tool_call_id"})

# Fields of a call that templates print again with the call's result; only the first time they are the turn's.
QUOTED_FIELDS = frozenset({"name", "id"})


def is_answer(message: Mapping[str, Any]) -> bool:
    """Whether a message is one that the model writes."""
    return message.get("role") in ("assistant", "model")


def is_left_out(rendering: Rendering, index: int) -> bool:
    """Whether a message has words, and they are nowhere in the text."""
    message = rendering.messages[index]
    words = [text.strip() for key in _WORDS for text in _texts(message.get(key)) if text.strip()]
    lost = any(origin == MIXED for _, _, origin in rendering.origins)
    return bool(words) and not lost and not any(word in rendering.text for word in words)


def _texts(value: Any) -> list[str]:
    """Return the texts of a field: of a string, of parts, or the names of calls."""
    if isinstance(value, dict):
        return _texts(value.get("text", value.get("name", value.get("function"))))
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


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


def torn_turns(
    rendering: Rendering, turns: Sequence[Turn], answers: Sequence[int], places: Sequence[Extent]
) -> dict[int, str]:
    """Return the answers that have text outside of their turn, or others' text inside, with the reason.

    Args:
        rendering: The rendering.
        turns: The turns found in it.
        answers: The indices of all answers.
        places: Where the text of each message stands.
    """
    prompted = rendering.add_generation_prompt
    torn = _torn_by_words(rendering.origins, turns)
    return torn | _torn_by_silent_results(rendering.source, answers, places, prompted)


def _torn_by_words(spans: Iterable[SpanTuple], turns: Sequence[Turn]) -> dict[int, str]:
    places = {turn.message: turn for turn in turns}
    in_order = sorted(turns, key=lambda turn: turn.start)
    torn: dict[int, str] = {}
    for one, other in itertools.pairwise(in_order):
        if other.start < one.end:
            reason = "its place is inside the turn of another message"
        elif other.message < one.message:
            reason = "its place and that of another answer stand in the wrong order"
        else:
            continue
        torn |= {one.message: reason, other.message: reason}
    number = 0
    for start, end, (message, path) in spans:
        if message < 0:
            continue
        own = places.get(message)
        if own and (end > own.end or end <= own.start) and path and not _is_header(path):
            torn[message] = _SEVERAL_PLACES
        while number < len(in_order) and in_order[number].end <= start:
            number += 1
        around = in_order[number] if number < len(in_order) else None
        if around and around.message != message and around.start < end:
            torn[around.message] = _OTHERS_INSIDE
    return torn


def _is_header(path: tuple[Any, ...]) -> bool:
    return path[0] in HEADER_FIELDS or path[-1] in QUOTED_FIELDS


def _torn_by_silent_results(
    source: Source, answers: Sequence[int], places: Sequence[Extent], prompted: bool
) -> dict[int, str]:
    """Return the answers inside which results stand that have no words of their own, with the reason.

    What a template prints around an empty result shows no origin: the conversation is rendered once more with words.
    """
    messages = source.messages
    silent: dict[int, list[int]] = {}
    for number, answer in enumerate(answers):
        if messages[answer].get("tool_calls") and places[answer].shown:
            following = answers[number + 1] if number + 1 < len(answers) else len(messages)
            results = [i for i in range(answer + 1, following) if not places[i].shown]
            if results:
                silent[answer] = results
    if not silent:
        return {}
    filled = list(messages)
    for result in itertools.chain.from_iterable(silent.values()):
        words = traced_whole("x", (result, ("content",)))
        filled[result] = type(messages[result])({**messages[result], "content": words})
        filled[result]._antiphon_origin = messages[result]._antiphon_origin
    try:
        _, spans = source.pieces(filled, prompted)
    except RenderError:
        return {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for start, end, (message, path) in spans:
        if message < 0 or not path or path[0] in HEADER_FIELDS:
            continue
        first.setdefault(message, start)
        if path[-1] not in QUOTED_FIELDS:
            last[message] = end
    return {
        answer: _SEVERAL_PLACES
        for answer, results in silent.items()
        if answer in last
        and any(first[answer] < first.get(result, -1) < last[answer] for result in results)
    }
