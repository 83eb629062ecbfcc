"""Turn renderings into ids and masks, piece by piece.

The text is cut at every control token that the template wrote and at both ends of every turn; the pieces are encoded
(batched, cached) and the control ids put between them. So

- a model sees what it sees at inference, where it samples behind the header's ids: an answer that begins with a line
  break never merges with the header's;
- control tokens that messages or tools spell out are text: they become ordinary ids. The assistant's own content and
  reasoning may hold reasoning and tool markers, which a model writes itself, but never what begins or ends a turn;
- a piece that was encoded before costs nothing.

Tokenizers that can't be cut so (`TokenizerView.cuts_at_controls`) have their texts encoded whole, with offsets.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon.engine.extents import is_answer
from antiphon.engine.pieces import Pieces
from antiphon.engine.provenance import REASONING_FIELDS
from antiphon.engine.sampled import Sampled
from antiphon.engine.tokenizers import Control, TokenizerView, view
from antiphon.errors import MaskUnavailable, TokenizerMismatch

if TYPE_CHECKING:
    from antiphon.engine.rendering import Rendering
    from antiphon.engine.turns import Turn

_HEAD = 24  # characters behind a header that are encoded with it
_OWN_WORDS = frozenset({"content", *REASONING_FIELDS})


class Break(NamedTuple):
    """A sampled turn whose ids could not be kept: the text it had, the text it has now, first difference.

    The template has rewritten the turn since, or (``edited``) somebody has edited the message.
    """

    message: int
    position: int
    was: str
    now: str
    edited: bool = False


@dataclass
class TokenizedRendering:
    """A rendering's tokens.

    Attributes:
        input_ids: The ids.
        rendering: The rendering.
        breaks: Sampled turns that were rewritten or edited since (see `antiphon.extend`).
        sampled: The messages whose sampled ids stand in ``input_ids``.
        log_probs: The log-prob of each sampled token, NaN elsewhere; None where there are none.
        starts_anew: Whether a trajectory begins here because the template rewrote what came before.
        settled: The message index of leading tokens whose place in the text is not known any more.
        masked: The messages whose turns the mask is to show; None for all.
    """

    input_ids: list[int]
    rendering: Rendering = field(repr=False)
    _mask: list[bool] = field(repr=False)
    _pieces: Pieces = field(repr=False)
    _view: TokenizerView = field(repr=False)
    breaks: list[Break] = field(default_factory=list)
    sampled: dict[int, Sampled] = field(default_factory=dict)
    log_probs: list[float] | None = None
    starts_anew: bool = False
    settled: Sequence[int] = field(default=(), repr=False)
    masked: frozenset[int] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def assistant_mask(self) -> list[bool]:
        """True on the tokens of the turns.

        Raises:
            MaskUnavailable: The turn of a message could not be found; the rendering's `unlocated` says why.
        """
        for message, reason in self.rendering.unlocated.items():
            if self.masked is not None and message not in self.masked:
                continue  # context here: another sample trains it
            raise MaskUnavailable(
                f"The turn of message {message} could not be found in the rendering of the template "
                f"{self.rendering.source.name}: {reason}; give another template or no mask."
            )
        return self._mask

    @functools.cached_property
    def message_index(self) -> list[int]:
        """For each token the message whose text it shows, -1 for scaffold."""
        return _message_index(self)


def tokenize(
    renderings: Sequence[Rendering], tokenizer: Any, *, allow_control_tokens: bool = False
) -> list[TokenizedRendering]:
    """Encode renderings together.

    Raises:
        TokenizerMismatch: There is no tokenizer, or it can't encode the text.
    """
    if tokenizer is None:
        raise TokenizerMismatch("tokenize() needs a tokenizer: pass it here or to render().")
    tokens = view(tokenizer)
    if not tokens.cuts_at_controls:
        from antiphon.engine.whole_encoding import tokenize_whole

        return [tokenize_whole(rendering, tokens, allow_control_tokens) for rendering in renderings]
    if len(renderings) > 1 and not tokens.inner_mark:
        tokens.entries(
            [
                piece
                for rendering in renderings
                if not is_encoded(rendering, tokens, allow_control_tokens)
                for piece in pieces_to_encode(rendering, tokens)
            ]
        )
    return [encode(rendering, tokens, allow_control_tokens) for rendering in renderings]


def encode(
    rendering: Rendering,
    tokens: TokenizerView,
    allow_control_tokens: bool,
    texts: list[str] | None = None,
) -> TokenizedRendering:
    """Encode a rendering, or return its ids as they were found before; ``texts`` as for `assemble`."""
    key = (tokens.number, allow_control_tokens)
    kept: tuple[tuple[int, ...], Pieces] | None = rendering.found.get(key)
    if kept is None:
        made = assemble(
            rendering,
            plan(rendering, tokens),
            tokens,
            allow_control_tokens=allow_control_tokens,
            texts=texts,
        )
        rendering.found[key] = (tuple(made.input_ids), made._pieces)
        rendering.found[tokens.number] = made._pieces  # the same pieces, counted
        return made
    ids, pieces = kept
    return TokenizedRendering(list(ids), rendering, _mask_of(rendering, pieces), pieces, tokens)


def is_encoded(rendering: Rendering, tokens: TokenizerView, allow_control_tokens: bool) -> bool:
    """Whether `encode` has nothing to do."""
    return (tokens.number, allow_control_tokens) in rendering.found


def pieces_to_encode(rendering: Rendering, tokens: TokenizerView) -> list[str]:
    """Return the texts of a rendering's pieces, control tokens left out."""
    return plan(rendering, tokens).texts(rendering.text)


def plan(rendering: Rendering, tokens: TokenizerView) -> Pieces:
    """Cut a rendering's text into control tokens and pieces between them; kept with the rendering."""
    kept: Pieces | None = rendering.found.get(tokens.number)
    if kept is None:
        kept = rendering.found[tokens.number] = _plan(rendering, tokens)
    return kept


def _plan(rendering: Rendering, tokens: TokenizerView) -> Pieces:
    text, template = rendering.text, rendering.source.template
    # Cuts: every control token of the scaffold, and both ends of every turn.
    edges: list[int] = []
    for turn in rendering.turns:
        edges += (turn.start, turn.end)
    edges.append(len(text) + 1)
    pieces = Pieces()
    add, known = pieces.add, tokens.controls_known(template).get
    position, number, edge = 0, 0, edges[0]
    inside = False  # a turn begins at every second edge, and ends at the one behind it
    roles = _traced_roles(rendering)
    for first, last in scaffold_runs(rendering):
        run = text[first:last]
        controls = known(run)
        for start, end, token in tokens.controls(run, template) if controls is None else controls:
            start, end = first + start, first + end
            if roles and any(a <= start and end <= b for a, b in roles):
                continue  # a whole one in a role was typed; only with the template's words a role makes one up
            while edge <= start:
                if position < edge:
                    add(position, edge, -1, inside)
                    position = edge
                inside = not inside
                number += 1
                edge = edges[number]
            if position < start:
                add(position, start, -1, inside)
            add(start, end, token, inside)
            position = end
    while edge <= len(text):
        if position < edge:
            add(position, edge, -1, inside)
            position = edge
        inside = not inside
        number += 1
        edge = edges[number]
    if position < len(text):
        add(position, len(text), -1, inside)
    return pieces


def scaffold_runs(rendering: Rendering) -> list[tuple[int, int]]:
    """Return the parts of the text that the template wrote; roles are its words too (``'<|' + role + '|>'``)."""
    runs = []
    position = 0
    for start, end, (message, path) in rendering.origins:
        if path and path[0] == "role" and message >= 0:
            continue
        if start > position:
            runs.append((position, start))
        position = end
    if position < len(rendering.text):
        runs.append((position, len(rendering.text)))
    return runs


def _traced_roles(rendering: Rendering) -> list[tuple[int, int]]:
    return [
        (start, end)
        for start, end, (message, path) in rendering.origins
        if path and path[0] == "role" and message >= 0
    ]


def assemble(
    rendering: Rendering,
    pieces: Pieces,
    tokens: TokenizerView,
    *,
    allow_control_tokens: bool = False,
    texts: list[str] | None = None,
) -> TokenizedRendering:
    """Encode a rendering's pieces and put them together; ``texts`` are those to encode, where they are at hand."""
    text = rendering.text
    forbidden = (
        frozenset() if allow_control_tokens else tokens.control_ids(rendering.source.template)
    )
    entries = tokens.entries(pieces.texts(text) if texts is None else texts)
    ids: list[int] = []
    part: Sequence[int]
    counts: list[int] = []
    number = 0
    behind = True  # a control token, or nothing at all
    for place, control in enumerate(pieces.controls):
        if control >= 0:
            ids.append(control)
            counts.append(1)
            behind = True
            continue
        part, has_added = entries[number]
        number += 1
        if tokens.inner_mark and not behind:
            start, end = pieces.starts[place], pieces.ends[place]
            (part,), has_added = tokens.encode_inner([text[start:end]]), True
        if has_added and not forbidden.isdisjoint(part):
            start, end = pieces.starts[place], pieces.ends[place]
            part = encode_guarded(rendering, start, end, pieces.turns[place], tokens)
        ids += part
        counts.append(len(part))
        behind = False
    placed = pieces.encoded(counts)
    return TokenizedRendering(ids, rendering, _mask_of(rendering, placed), placed, tokens)


def _mask_of(rendering: Rendering, placed: Pieces) -> list[bool]:
    mask = placed.mask()
    if rendering.continued:
        given = placed.tokens_before(_start_of_last_turn(rendering))
        mask = [*mask[:given], *[False] * (len(mask) - given)]
    return mask


def _start_of_last_turn(rendering: Rendering) -> int:
    """Return where the turn begins that is being continued: what is given there was not sampled."""
    turns: list[Turn] = rendering.turns
    return turns[-1].start if turns and not turns[-1].closed else len(rendering.text)


def encode_guarded(
    rendering: Rendering, first: int, last: int, turn: bool, tokens: TokenizerView
) -> list[int]:
    """Encode a piece in which messages or tools spell out control tokens, so that those stay text."""
    text = rendering.text[first:last]
    forbidden = tokens.control_ids(rendering.source.template)
    allowed = own_markers(rendering, plan(rendering, tokens), tokens) if turn else frozenset()
    result: list[int] = []
    position = 0
    for start, end, token in tokens.find(text, forbidden):
        if token in allowed and _in_own_words(rendering, first + start, first + end):
            result += _encode_safe(text[position:start], tokens, forbidden)
            result.append(token)
            position = end
    result += _encode_safe(text[position:], tokens, forbidden)
    return result


def own_markers(rendering: Rendering, pieces: Pieces, tokens: TokenizerView) -> frozenset[int]:
    """Return the control ids that an assistant's own words may hold: added tokens that are not flagged special.

    Those that make up the headers of messages stay out, as DeepSeek's ``<｜User｜>``: it is not flagged special, and
    would begin a turn. What a generation prompt opens behind its header (``<think>``) is none of the header's.
    """
    plain = {token for token, (_, special) in tokens.added.items() if not special}
    headers: set[int] = set()
    run: list[int] = []
    for start, end, control, turn in pieces.rows():
        if turn:
            headers.update(run[:1])
            run = []
        elif control >= 0:
            run.append(control)
        elif rendering.text[start:end].strip():
            headers.update(run)
            run = []
    headers.update(run[:1])
    return frozenset(plain - headers) & tokens.control_ids(rendering.source.template)


def _in_own_words(rendering: Rendering, start: int, end: int) -> bool:
    return any(
        span.start <= start
        and end <= span.end
        and span.field[:1]
        and span.field[0] in _OWN_WORDS
        and is_answer(rendering.messages[span.message])
        for span in rendering.spans
    )


def _encode_safe(text: str, tokens: TokenizerView, forbidden: frozenset[int]) -> list[int]:
    """Encode text so that no id is forbidden: texts of control tokens are broken behind their first character."""
    if not text:
        return []
    (ids,) = tokens.encode_inner([text])
    if forbidden.isdisjoint(ids):
        return ids
    cuts = [0, *(control[0] + 1 for control in tokens.find(text, forbidden)), len(text)]
    parts = [text[a:b] for a, b in itertools.pairwise(cuts) if a < b]
    if len(parts) > 1:
        return [token for part in parts for token in _encode_safe(part, tokens, forbidden)]
    raise TokenizerMismatch(
        f"{tokens.describe()} makes a control token of the text {text!r} alone; it can't be written as text. "
        "Pass allow_control_tokens=True to let it through."
    )


def _message_index(tokenized: TokenizedRendering) -> list[int]:
    rendering, tokens = tokenized.rendering, tokenized._view
    spans = [span for span in rendering.spans if span.field[:1] != ("role",)]
    result = list(tokenized.settled)
    position = 0
    pieces = tokenized._pieces
    for first, last, count in zip(pieces.starts, pieces.ends, pieces.counts, strict=True):
        while position < len(spans) and spans[position].end <= first:
            position += 1
        if position == len(spans) or spans[position].start >= last:
            result += [-1] * count
            continue
        span = spans[position]
        if span.end >= last:
            place = len(result)
            ids = tokenized.input_ids[place : place + count]
            before = _tokens_before(rendering.text, first, last, span.start, ids, tokens)
            if before is not None:
                result += [-1] * before + [span.message] * (count - before)
                continue
        text = rendering.text[first:last]
        offsets = tokens.offsets(text)
        if offsets is None or len(offsets) != count:
            offsets = _spread(text, count)
        number = position
        for start, end in offsets:
            begins, ends = first + start, first + max(end, start + 1)
            while number < len(spans) and spans[number].end <= begins:
                number += 1
            here = number < len(spans) and spans[number].start < ends
            result.append(spans[number].message if here else -1)
    for message, own in tokenized.sampled.items():
        result[own.start : own.end] = [message] * len(own.ids)
    return result


def _tokens_before(
    text: str, first: int, last: int, start: int, ids: list[int], tokens: TokenizerView
) -> int | None:
    """Return how many tokens of a piece end before ``start``, where one message has all of the rest.

    A header is short and the same in many pieces: mostly its ids are the first of the piece. Else the beginning of the
    piece is encoded again, with offsets, and where its ids are the piece's own they have the same places. None: all
    offsets are needed.
    """
    if start <= first:
        return 0
    if tokens.inner_mark:
        return None
    (header,) = tokens.encode([text[first:start]])
    if ids[: len(header)] == header:
        return len(header)  # nothing of it has merged with what the message says
    if tokens.backend is None:
        return None
    head = text[first : min(last, start + _HEAD)]
    again, offsets = tokens.encode_with_offsets(head)
    before = next((i for i, (_, end) in enumerate(offsets) if first + end > start), len(offsets))
    return before if again[: before + 1] == ids[: before + 1] else None


def _spread(text: str, count: int) -> list[tuple[int, int]]:
    """Characters of tokens, spread evenly: for pieces whose tokens no tokenizer call gives in one go."""
    size = len(text)
    return [(size * i // count, size * (i + 1) // count) for i in range(count)] if count else []


__all__ = [
    "Break",
    "Control",
    "Sampled",
    "TokenizedRendering",
    "assemble",
    "plan",
    "tokenize",
]
