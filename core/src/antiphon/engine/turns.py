"""Find the turns of a rendering: what the model generates for each assistant message.

A turn begins where the generation prompt ends and ends with the end-of-turn token. Both are found by rendering
prefixes of the conversation: where the text starts with ``render(messages[:i], add_generation_prompt=True)``, the turn
of message ``i`` begins right there, whatever the template is. Where the template rewrites earlier messages, the
generation prompt is looked for between the last text of the messages before and the first text of this one. The end
is what ``render(messages[:i + 1])`` prints behind the message's last character, less what follows the end token.

Rendering prefixes for every turn would be slow, so places are remembered by what they depend on: the template, its
variables, the scaffold around the turn, the shapes of the messages before it (roles, fields, which of the template's
own strings the texts contain), those nearby in order. Places are kept as distances from the message's own text.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon.engine.caches import BoundedCache
from antiphon.engine.markers import MARKER, boundaries, closes_block, common_length, without_openers
from antiphon.engine.provenance import SpanTuple, traced_whole
from antiphon.engine.shapes import shape_of
from antiphon.errors import RenderError

if TYPE_CHECKING:
    from antiphon.engine.rendering import Rendering
    from antiphon.engine.source import Source

# Fields that templates print in headers: the model does not write them.
HEADER_FIELDS = frozenset({"role", "name", "tool_call_id"})

# Fields of a call that templates print again with the call's result; only the first time they are the turn's.
QUOTED_FIELDS = frozenset({"name", "id"})

_PLACES_KEPT = 16384
_NEAR = 4  # messages before a turn whose order counts for its place


class Turn(NamedTuple):
    """The turn of message ``message``: characters ``start`` to ``end`` of the text.

    ``closed`` says whether it ends with an end-of-turn token; a cut or continued turn does not.
    """

    message: int
    start: int
    end: int
    closed: bool


@dataclass(frozen=True)
class _Place:
    """A turn as distances: its start from the text before the message, its end from the message's last character."""

    start: int
    end: int
    closed: bool
    reason: str = ""
    absent: bool = False
    prompt: str | None = None  # what the prompt alone prints behind the text before
    prompted: bool = False  # whether the text goes on with just that

    def fits(self, text: str, before: int) -> bool:
        """Whether the place holds for this text too: the prompt's words may be the message's own."""
        return self.prompt is None or text.startswith(self.prompt, before) == self.prompted


class _Extent(NamedTuple):
    """Where the text of a message stands: the end of the text before it, its first and last character, the next."""

    before: int
    first: int
    last: int
    after: int
    shown: bool


def locate_turns(rendering: Rendering) -> tuple[list[Turn], dict[int, str]]:
    """Return the turns of the assistant messages, in order, and for those not found the reason."""
    source, text = rendering.source, rendering.text
    turns: list[Turn] = []
    unlocated: dict[int, str] = {}
    messages = source.messages
    assistants = [
        i for i, message in enumerate(messages) if message.get("role") in ("assistant", "model")
    ]
    if not assistants:
        return turns, unlocated
    extents = _extents(rendering.origins, len(messages), len(text))
    finder = _Finder(source)
    context = context_key(source)
    shapes = [hash(shape) for shape in shape_of(messages[: assistants[-1] + 1], source.template)]
    seen: set[int] = set()
    shaped = 0
    for index in assistants:
        seen.update(shapes[shaped : index + 1])
        shaped = index + 1
        extent = extents[index]
        is_last = index == len(messages) - 1
        if rendering.continued and is_last:
            place = finder.start_only(text, index, extent)
            if place.reason:
                unlocated[index] = place.reason
            else:
                turns.append(Turn(index, extent.before + place.start, len(text), False))
            continue
        key = (
            context,
            min(index, _NEAR),
            frozenset(seen),
            tuple(shapes[max(0, index - _NEAR) : index + 1]),
            text[extent.before : extent.first],
            text[extent.last : extent.after],
            extent.shown,
            is_last and rendering.add_generation_prompt,
        )
        place_or_none = _places.get(key)
        if place_or_none is None or not place_or_none.fits(text, extent.before):
            place = finder.place(text, index, extent)
            _places.put(key, place)
        else:
            place = place_or_none
        if place.absent:
            continue
        if place.reason:
            unlocated[index] = place.reason
        else:
            anchor = extent.last if extent.shown else extent.before
            turns.append(Turn(index, extent.before + place.start, anchor + place.end, place.closed))
    for message in _scattered(rendering, turns):
        unlocated[message] = (
            "the template prints its text in several places, with other messages between"
        )
    return turns, unlocated


def _scattered(rendering: Rendering, turns: list[Turn]) -> set[int]:
    """Return the messages whose text stands behind their turn too."""
    ends = {turn.message: turn.end for turn in turns}
    return {
        message
        for _, end, (message, path) in rendering.origins
        if end > ends.get(message, end)
        and path
        and path[0] not in HEADER_FIELDS
        and path[-1] not in QUOTED_FIELDS
    }


def _extents(spans: Sequence[SpanTuple], count: int, length: int) -> list[_Extent]:
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
        result.append(_Extent(before, first[index] if shown else after, end_of_text, after, shown))
        before = max(before, end_of_text)
    return result


class _Finder:
    """Finds turns by rendering prefixes; each prefix is rendered once."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._prefixes: dict[tuple[int, bool], tuple[str, list[SpanTuple]] | None] = {}

    def prefix(self, count: int, prompt: bool) -> tuple[str, list[SpanTuple]] | None:
        """Render the first ``count`` messages; None where the template refuses."""
        key = (count, prompt)
        if key not in self._prefixes:
            try:
                self._prefixes[key] = self.source.pieces(self.source.messages[:count], prompt)
            except RenderError:
                self._prefixes[key] = None
        return self._prefixes[key]

    def place(self, text: str, index: int, extent: _Extent) -> _Place:
        """Find the turn of message ``index``."""
        without, own = self.prefix(index, False), self.prefix(index + 1, False)
        prompt = self._prompt(index)
        prompted = prompt is not None and text.startswith(prompt, extent.before)
        if not extent.shown and own is not None and without is not None and own[0] == without[0]:
            full = self.prefix(index, True)
            if full is None or len(own[0]) == len(full[0]) or not own[0].startswith(full[0]):
                return _Place(0, 0, False, absent=True, prompt=prompt, prompted=prompted)
        start = self._start(text, index, extent, prompt)
        if isinstance(start, str):
            return _Place(0, 0, False, start, prompt=prompt, prompted=prompted)
        anchor = max(extent.last if extent.shown else start, start)
        end, closed = self._end(text, index, start, anchor, extent.after)
        base = extent.last if extent.shown else extent.before
        return _Place(start - extent.before, end - base, closed, prompt=prompt, prompted=prompted)

    def _prompt(self, index: int) -> str | None:
        """Return what the prompt for message ``index`` prints behind the text of the messages before it."""
        prompt = self.prefix(index, True)
        if prompt is None:
            return None
        own = _extents(prompt[1], index, len(prompt[0]))
        return prompt[0][max((e.last for e in own if e.shown), default=0) :]

    def start_only(self, text: str, index: int, extent: _Extent) -> _Place:
        """Find where the turn of message ``index`` starts."""
        start = self._start(text, index, extent, self._prompt(index))
        if isinstance(start, str):
            return _Place(0, 0, False, start)
        return _Place(start - extent.before, 0, False)

    def _start(self, text: str, index: int, extent: _Extent, prompt: str | None) -> int | str:
        whole = self.prefix(index, True)
        if whole is not None and text.startswith(whole[0]) and whole[0]:
            return len(whole[0])
        gap = text[extent.before : extent.first]
        if prompt and gap.startswith(prompt):
            return extent.before + len(prompt)
        if extent.shown and gap in ("", "" if index else self.source.variables.get("bos_token")):
            return extent.first  # nothing stands between that could be a header
        header = self._generation_prompt(index)
        if header is None:
            return "the template gives no generation prompt to look for"
        found = gap.rfind(header) if header else -1
        if found >= 0:
            return extent.before + found + len(header)
        if not header and extent.shown and prompt is not None:
            return extent.before + common_length(prompt, gap)
        # With thinking off the prompt may end with a block of which the history shows the end alone.
        for short in without_openers(header):
            found = gap.rfind(short)
            if found >= 0:
                return extent.before + found + len(short)
        # The prompt may open more than the turn shows (a reasoning block): the longest part of it that stands here.
        for cut in reversed(boundaries(header)):
            found = gap.rfind(header[:cut]) if header[:cut].strip() else -1
            if found >= 0:
                rest = gap[found + cut :]
                closed = extent.shown and rest.strip() and header.endswith(rest)
                return extent.first if closed else extent.before + found + cut
        headless = self._headless(text, index)
        return (
            headless
            if headless is not None
            else f"the generation prompt {header!r} does not stand before its text"
        )

    def _headless(self, text: str, index: int) -> int | None:
        """Return where a message without content starts that the template prints without a header (Falcon 3's calls).

        With a content the template prints the prompt, the content and then the same.
        """
        messages = self.source.messages
        before, prompt = self.prefix(index, False), self.prefix(index, True)
        own = self.prefix(index + 1, False)
        if messages[index].get("content") or before is None or prompt is None or own is None:
            return None
        try:
            filled = [*messages[:index], {**messages[index], "content": "x"}]
            shown = self.source.pieces(filled, False)[0]
        except RenderError:
            return None
        start = len(before[0])
        same = own[0].startswith(before[0]) and text.startswith(before[0])
        return start if same and shown == f"{prompt[0]}x{own[0][start:]}" else None

    def _generation_prompt(self, index: int) -> str | None:
        """Return what ``add_generation_prompt`` adds behind messages like those before ``index``.

        Templates may add it behind user messages only; then another place of the conversation shows it.
        """
        messages = self.source.messages
        users = [i + 1 for i, message in enumerate(messages) if message.get("role") == "user"]
        for count in (index, *users, index + 1, len(messages)):
            with_, without = self.prefix(count, True), self.prefix(count, False)
            if count and with_ is not None and without is not None:
                added = with_[0][common_length(without[0], with_[0]) :]
                if added or count == index:
                    return added
        return None

    def _end(self, text: str, index: int, start: int, anchor: int, after: int) -> tuple[int, bool]:
        """Return where the turn ends, and whether an end token closes it; ``anchor`` is its last character."""
        own = self.prefix(index + 1, False)
        tail = None if own is None else self._tail(text, index, own, anchor, empty=anchor == start)
        if (
            tail is None
        ):  # the template refuses the conversation up to here: only its usual end can be looked for
            usual = _usual_end(self.source.template, self.source)
            found = text.find(usual, anchor, after) if usual else -1
            return (found + len(usual), True) if found >= 0 else (anchor, False)
        rest = text[anchor:after]
        size = len(tail) if rest.startswith(tail) else common_length(tail, rest)
        end = anchor + len(tail[:size].rstrip())
        end = self._cut_at_special(text, anchor, end)
        if end > anchor and self._closes(text[anchor:end]):
            return end, True
        if size < len(
            tail.rstrip()
        ):  # the text goes on otherwise than when the message was the last one
            usual = _usual_end(self.source.template, self.source)
            found = text.find(usual, anchor, after) if usual else -1
            if found >= 0 and not text[anchor:found].strip():
                return found + len(usual), True
        separator = self._separator(text, index, end)
        return (end + len(separator), True) if separator else (end, False)

    def _separator(self, text: str, index: int, end: int) -> str:
        """Return the end token of templates that print it only where something follows, as Qwen1.5's.

        It stands behind the turn in the text and before a generation prompt alike, and behind the first text of the
        conversation too: what opens a header does not stand behind each kind of message.
        """
        marker = MARKER.match(text, end)
        prompted, prompt = self.prefix(index + 1, True), self.prefix(index, True)
        if marker is None or prompted is None or prompt is None or not prompt[1]:
            return ""
        token, first_text, last_text = marker.group(), prompt[1][0][1], prompt[1][-1][1]
        stands = prompted[0].startswith(text[: marker.end()]) and prompt[0].startswith(
            token, first_text
        )
        opening = MARKER.findall(prompt[0], last_text)[-1:]
        return token if stands and opening != [token] else ""

    def _tail(
        self, text: str, index: int, own: tuple[str, list[SpanTuple]], anchor: int, *, empty: bool
    ) -> str | None:
        """What the template prints behind the last character of message ``index`` for good.

        Templates may print an end-of-text token only where no generation prompt is asked for; what both renderings
        print is the turn's, unless that is nothing.
        """
        prefix, spans = own
        extent = _extents(spans, index + 1, len(prefix))[index]
        if extent.shown and not empty:
            place = extent.last
        elif prefix.startswith(text[:anchor]):
            place = anchor
        else:
            return None
        prompted = self.prefix(index + 1, True)
        if prompted is not None:
            common = common_length(prefix, prompted[0])
            if prefix[place:common].strip():
                tail = prefix[place:common]
                return self._without_prompt(tail) if prompted[0] == prefix else tail
        return prefix[place:]

    def _without_prompt(self, tail: str) -> str:
        """Leave out the generation prompt that some templates print whether it is asked for or not.

        It is what such a template prints of no messages at all, or else what follows the first control token.
        """
        nothing = self.prefix(0, True)
        if nothing is not None:
            size = 0
            while (
                size < min(len(tail), len(nothing[0])) and tail[-1 - size] == nothing[0][-1 - size]
            ):
                size += 1
            cuts = [cut for cut in (0, *boundaries(tail)) if cut >= len(tail) - size]
            return tail[: cuts[0]] if tail[len(tail) - size :].strip() else tail
        markers = [marker for marker in MARKER.finditer(tail) if not closes_block(marker.group())]
        return tail[: markers[0].end()] if len(markers) > 1 else tail

    def _cut_at_special(self, text: str, anchor: int, end: int) -> int:
        """Where special tokens are known, a turn ends with the last of them."""
        ends = [
            text.rfind(token, anchor, end) + len(token)
            for token in self.source.end_tokens
            if text.rfind(token, anchor, end) >= 0
        ]
        return max(ends, default=end)

    def _closes(self, tail: str) -> bool:
        if any(tail.endswith(token) for token in self.source.end_tokens):
            return True
        usual = _usual_end(self.source.template, self.source)
        if usual and tail.endswith(usual):
            return True
        markers = MARKER.findall(tail)
        return bool(markers) and tail.endswith(markers[-1]) and not closes_block(markers[-1])


def _usual_end(template: str, source: Source) -> str:
    """Return what the template closes a plain answer with, or nothing."""
    key = ("usual end", template, source.end_tokens)
    kept = _places.get(key)
    if kept is None:
        end = ""
        for parts in (False, True):
            messages = []
            for index, role in enumerate(("user", "assistant")):
                content: Any = traced_whole("x", (index, ("content",)))
                messages.append(
                    {
                        "role": role,
                        "content": [{"type": "text", "text": content}] if parts else content,
                    }
                )
            try:
                text, spans = source.pieces(messages, False)
                prompted = source.pieces(messages, True)[0]
            except RenderError:
                continue
            last = max((s[1] for s in spans if s[2][0] == 1), default=-1)
            if last >= 0:
                end = (text[last : common_length(text, prompted)].strip() or text[last:]).strip()
                break
        kept = _Place(0, 0, False, reason=end)
        _places.put(key, kept)
    return kept.reason


# What a place depends on


def context_key(source: Source) -> Hashable:
    variables = tuple(
        sorted(
            (key, repr(value))
            for key, value in source.variables.items()
            if key not in ("tools", "documents")
        )
    )
    tools = source.variables.get("tools")
    return hash(
        (source.template, variables, None if tools is None else len(tools), source.end_tokens)
    )


_places: BoundedCache[Hashable, _Place] = BoundedCache(_PLACES_KEPT)
