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

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon.engine.caches import BoundedCache
from antiphon.engine.extents import (
    HEADER_FIELDS,
    Extent,
    extents,
    is_answer,
    is_left_out,
    last_of,
    own_spans,
    torn_turns,
)
from antiphon.engine.markers import (
    MARKER,
    before_closed,
    boundaries,
    closes_block,
    common_length,
    find_header,
    other_role,
    skip_header,
)
from antiphon.engine.provenance import SpanTuple, traced_whole
from antiphon.engine.shapes import shape_of
from antiphon.errors import RenderError

if TYPE_CHECKING:
    from antiphon.engine.rendering import Rendering
    from antiphon.engine.source import Source

_QUESTION = {"role": "user", "content": traced_whole("x", (1, ("content",)))}  # beside message 0

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
    certain: bool = False  # whether the text starts with what the template prints of the messages before and the prompt

    @property
    def vague(self) -> bool:
        """Whether nothing proves that this is a turn."""
        return bool(self.reason) or not (self.closed or self.certain)

    def fits(self, text: str, before: int) -> bool:
        """Whether the place holds for this text too: the prompt's words may be the message's own."""
        return self.prompt is None or text.startswith(self.prompt, before) == self.prompted


def locate_turns(rendering: Rendering) -> tuple[list[Turn], dict[int, str]]:
    """Return the turns of the assistant messages, in order, and for those not found the reason."""
    source, text = rendering.source, rendering.text
    turns: list[Turn] = []
    unlocated: dict[int, str] = {}
    messages = source.messages
    assistants = [i for i, message in enumerate(messages) if is_answer(message)]
    if not assistants:
        return turns, unlocated
    places = extents(rendering.origins, len(messages), len(text))
    finder = _Finder(source)
    context = context_key(source)
    shapes = [hash(shape) for shape in shape_of(messages[: assistants[-1] + 1], source.template)]
    seen: set[int] = set()
    shaped = 0
    for index in assistants:
        seen.update(shapes[shaped : index + 1])
        shaped = index + 1
        extent = places[index]
        gap = text[extent.before : extent.first]
        taken = 0  # how much of the gap the turns of messages without words have
        if not extent.shown and turns and turns[-1].end > extent.before:
            taken = turns[-1].end - extent.before
            extent = extent._replace(before=turns[-1].end, last=turns[-1].end)
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
            gap,
            taken,
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
        if place.absent or (not extent.shown and place.vague and is_left_out(rendering, index)):
            continue
        if place.reason:
            unlocated[index] = place.reason
        else:
            anchor = extent.last if extent.shown else extent.before
            turns.append(Turn(index, extent.before + place.start, anchor + place.end, place.closed))
    unlocated |= torn_turns(rendering, turns, assistants, places)
    return turns, unlocated


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

    def place(self, text: str, index: int, extent: Extent) -> _Place:
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
        whole = self.prefix(index, True)
        certain = whole is not None and text.startswith(whole[0])
        return _Place(
            start - extent.before,
            end - base,
            closed,
            prompt=prompt,
            prompted=prompted,
            certain=certain,
        )

    def _prompt(self, index: int) -> str | None:
        """Return what the prompt for message ``index`` prints behind the text of the messages before it."""
        prompt = self.prefix(index, True)
        if prompt is None:
            return None
        return prompt[0][last_of(prompt, index) :]

    def start_only(self, text: str, index: int, extent: Extent) -> _Place:
        """Find where the turn of message ``index`` starts."""
        start = self._start(text, index, extent, self._prompt(index))
        if isinstance(start, str):
            return _Place(0, 0, False, start)
        return _Place(start - extent.before, 0, False)

    def _start(self, text: str, index: int, extent: Extent, prompt: str | None) -> int | str:
        whole = self.prefix(index, True)
        if whole is not None and text.startswith(whole[0]) and whole[0]:
            return len(whole[0])
        gap = text[extent.before : extent.first]
        if prompt and gap.startswith(prompt):
            return extent.before + len(prompt)
        if extent.shown and gap in ("", "" if index else self.source.variables.get("bos_token")):
            return extent.first  # nothing stands between that could be a header
        header, before, found = self._generation_prompt(index), self.prefix(index, False), None
        if header and not extent.shown and before is not None and text.startswith(before[0]):
            # Without words of its own a message stands where the text of the messages before it ends.
            part = find_header(text[len(before[0]) :][: len(header)], header, before_text=False)
            found = None if part is None else len(before[0]) + part - extent.before
        if found is None and header and header in gap:
            # The last one before a message's text; where there is none, the first that no turn before has taken.
            found = (gap.rfind(header) if extent.shown else gap.find(header)) + len(header)
        if found is None and prompt:
            found = skip_header(gap, prompt)
        if found is None and header == "" and extent.shown and prompt is not None:
            found = common_length(prompt, gap)
        if found is None and prompt:
            found = before_closed(gap, prompt)
        if found is None:
            known = header or (prompt if extent.shown else None) or ""
            found = find_header(gap, known, extent.shown)
            other = None if found is None else other_role(gap, found, known)
            if other is not None:
                role, found = other
                if role != self.source.messages[index].get("role"):
                    return f"the template prints it under the header of the role {role!r}"
        if found is None and extent.shown:
            found = self._like_an_answer(text[: extent.first], index, gap, prompt)
        if found is not None and not self._taken(text, index, extent.before + found):
            return extent.before + found
        if (headless := self._headless(text, index)) is not None:
            return headless
        if not header:
            return "the template gives no generation prompt to look for"
        return f"the generation prompt {header!r} does not stand before its text"

    def _taken(self, text: str, index: int, place: int) -> bool:
        """Whether a place stands in the text of the messages before: their headers may look like the prompt."""
        before = self.prefix(index, False)
        return before is not None and place < len(before[0].rstrip()) and text.startswith(before[0])

    def _like_an_answer(self, text: str, index: int, gap: str, prompt: str | None) -> int | None:
        """Return where in ``gap`` the turn starts of a message before which no generation prompt stands.

        What the prompt opens beyond the gap (a reasoning block that the history does not show) is no part of the turn.
        A conversation's first message begins as the same message does behind a question. A later one begins where the
        text before it ends, if all that stands before its words stands between a header and its words there.
        """
        if prompt and gap.strip() and prompt.startswith(gap):
            return len(gap)
        asked, before = self._asked(), self.prefix(index, False)
        if asked is None or (index and before is None):
            return None
        try:
            answered, spans = self.source.pieces([_QUESTION, self.source.messages[index]], False)
        except RenderError:
            return None
        common = common_length(asked[0], answered)
        own = [s for s in spans if s[0] >= common and HEADER_FIELDS.isdisjoint(s[2][1][:1])]
        if not own:
            return None
        lead = answered[common : own[0][0]]
        if before is None or index == 0:
            stands = common == len(asked[0]) and gap.endswith(lead)
            return len(gap) - len(lead) if stands else None
        headed = asked[0][max((s[1] for s in asked[1]), default=common) : common].strip()
        start = len(gap) - len(text) + len(before[0])
        added = text[len(before[0]) :].strip()
        stands = start >= 0 and text.startswith(before[0]) and lead.endswith(added)
        return start if stands and added and headed else None

    def _asked(self) -> tuple[str, list[SpanTuple]] | None:
        """Render a question and the prompt for its answer: what stands before an answer that nothing stands before."""
        try:
            return self.source.pieces([_QUESTION], True)
        except RenderError:
            return None

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
                common = common_length(without[0], with_[0])
                added = with_[0][max(common, last_of(with_, count)) :]
                if added or count == index:
                    return added
        return None

    def _end(self, text: str, index: int, start: int, anchor: int, after: int) -> tuple[int, bool]:
        """Return where the turn ends, and whether an end token closes it; ``anchor`` is its last character."""
        own = self.prefix(index + 1, False)
        tail = None if own is None else self._tail(text, index, own, start, anchor)
        if (
            tail is None
        ):  # the template refuses the conversation up to here: only its usual end can be looked for
            usual = _usual_end(self.source)
            found = text.find(usual, anchor, after) if usual else -1
            return (found + len(usual), True) if found >= 0 else (anchor, False)
        rest = text[anchor:after]
        size = len(tail) if rest.startswith(tail) else common_length(tail, rest)
        end = anchor + len(tail[:size].rstrip())
        end = self._cut_at_special(text, anchor, end)
        if end > anchor and self._closes(text[start:end], end - anchor):
            return end, True
        if size < len(
            tail.rstrip()
        ):  # the text goes on otherwise than when the message was the last one
            usual = _usual_end(self.source)
            found = text.find(usual, anchor, after) if usual else -1
            between = text[anchor:found].strip()  # of an empty answer: what is left of a block
            if found >= 0 and tail.partition(usual)[0].rstrip().endswith(between):
                return found + len(usual), True
        separator = self._separator(text, index, end)
        return (end + len(separator), True) if separator else (end, False)

    def _separator(self, text: str, index: int, end: int) -> str:
        """Return the end token of templates that print it only where something follows, as Qwen1.5's.

        It stands behind the turn in the text, before a generation prompt and before a question alike, and behind the
        first text of the conversation too: what opens a header does not stand behind each kind of message.
        """
        marker = MARKER.match(text, end)
        prompted = self.prefix(index + 1, True)
        prompt = self.prefix(index, True) if index else self._asked()
        own = own_spans(prompt[1]) if prompt is not None else []
        if marker is None or prompted is None or prompt is None or not own:
            return ""
        token, first_text, last_text = marker.group(), own[0][1], own[-1][1]
        stands = prompted[0].startswith(text[: marker.end()]) and prompt[0].startswith(
            token, first_text
        )
        opening = MARKER.findall(prompt[0], last_text)[-1:]
        role = prompted[0][marker.end() : marker.end() + 1].isalpha()
        if not stands or opening == [token] or (role and token not in self.source.end_tokens):
            return ""
        try:
            asked, _ = self.source.pieces([*self.source.messages[: index + 1], _QUESTION], False)
        except RenderError:
            return token
        return token if asked.startswith(text[: marker.end()]) else ""

    def _tail(
        self, text: str, index: int, own: tuple[str, list[SpanTuple]], start: int, anchor: int
    ) -> str | None:
        """What the template prints behind the last character of message ``index`` for good.

        Templates may print an end-of-text token only where no generation prompt is asked for; what both renderings
        print is the turn's, unless that is nothing.
        """
        prefix, spans = own
        extent = extents(spans, index + 1, len(prefix))[index]
        if extent.shown and anchor > start:
            place = extent.last
        elif prefix.startswith(text[:anchor]):
            place = anchor
        else:
            return None
        prompted = self.prefix(index + 1, True)
        if prompted is not None:
            tail = prefix[place : common_length(prefix, prompted[0])]
            if prompted[0] == prefix and tail.strip():
                return self._without_prompt(text[start:anchor], tail)
            turn, whole = text[start:anchor], prefix[place:]
            if self._ends(turn, tail) or (tail.strip() and not self._ends(turn, whole)):
                return tail
        return prefix[place:]

    def _ends(self, turn: str, tail: str) -> bool:
        tail = tail.rstrip()
        return bool(tail) and self._closes(turn + tail, len(tail))

    def _without_prompt(self, turn: str, tail: str) -> str:
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
        # What stands in the turn already is no end of it: the quotes of an argument look like control tokens too.
        known = {*self.source.end_tokens, _usual_end(self.source)}
        markers = [
            marker
            for marker in MARKER.finditer(tail)
            if not closes_block(marker.group(), turn + tail)
            and (marker.group() not in turn or marker.group() in known)
        ]
        return tail[: markers[0].end()] if len(markers) > 1 else tail

    def _cut_at_special(self, text: str, anchor: int, end: int) -> int:
        """Where special tokens are known, a turn ends with the last of them."""
        ends = [
            text.rfind(token, anchor, end) + len(token)
            for token in self.source.end_tokens
            if text.rfind(token, anchor, end) >= 0
        ]
        return max(ends, default=end)

    def _closes(self, turn: str, size: int) -> bool:
        """Whether the last ``size`` characters of a turn end with what closes it, and not a block inside it."""
        tail = turn[len(turn) - size :]
        if any(tail.endswith(token) for token in self.source.end_tokens):
            return True
        usual = _usual_end(self.source)
        if usual and tail.endswith(usual):
            return True
        markers = MARKER.findall(tail)
        return bool(markers) and tail.endswith(markers[-1]) and not closes_block(markers[-1], turn)


def _usual_end(source: Source) -> str:
    """Return what the template closes a plain answer with, or nothing."""
    key = ("usual end", context_key(source))
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
