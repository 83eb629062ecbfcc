"""Where encoding a stored conversation again would give other ids than those stored with it, and why.

Other stacks keep a conversation as messages or text beside the ids that a model sampled or was trained on. Encoding
the messages again often gives other ids: the tokenizer merges otherwise, the template trims white space, writes calls
in its own way, drops reasoning. `drift_of` compares, and says for each difference which of these it is.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon.conversations.arguments import items, literal, switch
from antiphon.engine.tokenizers import TokenizerView, view
from antiphon.errors import AntiphonError, InvalidData, reason_of

if TYPE_CHECKING:
    from antiphon.engine.rendering import Rendering

REASONS = {
    "merged tokens": "the text is the same, but the tokenizer cuts it otherwise",
    "control token": "a control token is written as text, or text has become one",
    "white space": "only white space differs",
    "booleans": "True, False or None of Python against true, false or null of JSON",
    "rewritten call": "a tool call is written otherwise",
    "stripped reasoning": "reasoning is there on one side only",
    "beginning token": "a token that begins a text is there on one side only, or twice",
    "end token": "a token that ends a turn is there on one side only",
    "date": "the template writes the day of the rendering",
    "dropped field": "the template prints nothing of a field that the stored ids show",
    "truncated": "the stored ids end, or begin, where the conversation goes on",
    "missing text": "the stored ids hold more than the conversation",
    "added text": "the conversation holds more than the stored ids",
    "other text": "the texts differ",
}

_ID_KEYS = ("input_ids", "token_ids", "ids", "tokens")
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}"
    rf"|\d{{1,2}} {_MONTH},? \d{{4}}|{_MONTH} \d{{1,2}},? \d{{4}}"
)
_NEAR = 4  # equal tokens between two differences that still make them one
_LITERALS = {"True": "true", "False": "false", "None": "null"}
_LITERAL = re.compile(r"\b(True|False|None)\b")
_THINK = re.compile(r"<think>|</think>|◁/?think▷|<\|channel\|>analysis|\[/?THINK\]", re.IGNORECASE)
_CALL = re.compile(r"tool[_▁]?call|function|\"(?:name|arguments|parameters)\"|\[TOOL_CALLS\]", re.I)


class Difference(NamedTuple):
    """One place where the ids differ.

    ``position`` is its first token in the stored ids, ``message`` the message that the conversation has there (-1: the
    template's text, None: not known), ``stored`` and ``encoded`` the ids, ``was`` and ``now`` their texts.
    """

    position: int
    message: int | None
    stored: list[int]
    encoded: list[int]
    was: str
    now: str
    why: str


@dataclass
class Drift:
    """What encoding a row again would change.

    Attributes:
        row: The row.
        tokens: How many ids are stored.
        differences: Where they would differ; none where encoding again is exact.
        problem: Why the row could not be compared.
    """

    row: int
    tokens: int = 0
    differences: list[Difference] = field(default_factory=list)
    problem: str | None = None

    @property
    def first(self) -> int | None:
        """The first token that would differ."""
        return self.differences[0].position if self.differences else None


def drift_report(rows: Iterable[Any], tokenizer: Any, **options: Any) -> list[Drift]:
    """Compare many rows; one that can't be compared says so in ``problem``.

    Args:
        rows: As for `drift_of`.
        tokenizer: The tokenizer that the ids are of.
        **options: As for `drift_of`.
    """
    result = []
    for number, row in enumerate(items("rows", rows, "an iterable of rows")):
        try:
            result.append(drift_of(row, tokenizer, row_number=number, **options))
        except AntiphonError as error:
            result.append(Drift(number, problem=" ".join(str(error).split())))
    return result


def drift_of(
    row: Any,
    tokenizer: Any,
    *,
    row_number: int = 0,
    with_prompt: bool | None = None,
    **options: Any,
) -> Drift:
    """Compare the ids stored in a row with those that its conversation gives now.

    Args:
        row: ``input_ids`` (or ``token_ids``, or ``prompt_ids`` with ``completion_ids``), and beside them ``messages``
            (any form that `antiphon.data.conversation_of` takes) or ``text``. Messages may carry their own
            ``token_ids``; without ids of the whole, each of those is compared with its turn.
        tokenizer: The tokenizer that the ids are of.
        row_number: What to call the row.
        with_prompt: Whether the stored ids end with a generation prompt; None finds out.
        **options: Further arguments of `antiphon.render`.

    Raises:
        InvalidData: The row has no ids, or neither messages nor text.
        RenderError: The template refuses the conversation.
    """
    if not isinstance(row, Mapping):
        raise InvalidData(f"Row {row_number} is no object with ids and messages or text.")
    switch("with_prompt", with_prompt)
    tokens = view(tokenizer)
    stored = _stored_ids(row)
    text = row.get("text")
    if text is not None and not any(
        row.get(key) is not None for key in ("messages", "conversations")
    ):
        if stored is None:
            raise InvalidData(f"Row {row_number} has no ids: none of {', '.join(_ID_KEYS)}.")
        encoded = _encode_text(text if isinstance(text, str) else literal(text), tokens)
        return Drift(row_number, len(stored), _compare(stored, encoded, None, tokens))
    return _of_messages(row, stored, tokenizer, row_number, with_prompt, options)


def _of_messages(
    row: Mapping[str, Any],
    stored: list[int] | None,
    tokenizer: Any,
    row_number: int,
    with_prompt: bool | None,
    options: dict[str, Any],
) -> Drift:
    from antiphon.conversations.templating import Template
    from antiphon.data.conversations import conversation_of
    from antiphon.engine.rendering import render

    tokens = view(tokenizer)
    conversation = conversation_of(row)
    template = Template(tokenizer, options.get("chat_template"), options.get("family"))
    visible = template.visible(conversation.messages)
    settings = {"tools": conversation.tools, **options, **conversation.variables}
    if stored is None:
        return _of_turns(conversation.messages, visible, tokenizer, row_number, settings)
    found: list[Difference] | None = None
    for prompt in (False, True) if with_prompt is None else (with_prompt,):
        rendering = render(visible, tokenizer, add_generation_prompt=prompt, **settings)
        again = rendering.tokenize()
        differences = [
            each._replace(why="dropped field") if _shows_dropped(each, rendering) else each
            for each in _compare(stored, again.input_ids, again.message_index, tokens)
        ]
        if found is None or _size(differences) < _size(found):
            found = differences
    return Drift(row_number, len(stored), found or [])


def _shows_dropped(difference: Difference, rendering: Rendering) -> bool:
    """Whether the stored ids show, where they differ, a field of which the template prints nothing."""
    if difference.why not in ("missing text", "other text", "rewritten call"):
        return False
    fields = (rendering.messages[each.message].get(each.field) for each in rendering.dropped)
    return any(text.strip() in difference.was for field in fields for text in _texts(field))


def _texts(value: Any) -> list[str]:
    """Return the strings in a value of which something is left to read."""
    if isinstance(value, str):
        return [value] if value.strip() else []
    if isinstance(value, Mapping):
        return [
            text
            for key, item in value.items()
            if key not in ("type", "id")
            for text in _texts(item)
        ]
    return (
        [text for item in value for text in _texts(item)]
        if isinstance(value, (list, tuple))
        else []
    )


def _of_turns(
    messages: Sequence[Mapping[str, Any]],
    visible: list[Any],
    tokenizer: Any,
    row_number: int,
    settings: dict[str, Any],
) -> Drift:
    """Compare the ids that messages carry with their turns, each while it was the last message."""
    from antiphon.engine.rendering import render

    sampled = [i for i, m in enumerate(messages) if m.get("token_ids") is not None]
    if not sampled:
        raise InvalidData(
            f"Row {row_number} has no ids: none of {', '.join(_ID_KEYS)}, and no message with token_ids."
        )
    drift = Drift(row_number)
    for index in sampled:
        again = render(visible[: index + 1], tokenizer, **settings).tokenize()
        mask = again.assistant_mask
        places = [i for i, m in enumerate(mask) if m]
        # The last run of the mask is this message's turn.
        start = places[-1] if places else len(mask)
        while start > 0 and mask[start - 1]:
            start -= 1
        turn = again.input_ids[start : places[-1] + 1] if places else []
        stored = [int(token) for token in messages[index]["token_ids"]]
        owners = [index] * len(turn)
        for each in _compare(stored, turn, owners, view(tokenizer)):
            drift.differences.append(each._replace(position=drift.tokens + each.position))
        drift.tokens += len(stored)
    return drift


def summary(drifts: Sequence[Drift]) -> list[tuple[str, int, int, list[int]]]:
    """Return for each reason how many differences and rows there are, and the first ten rows; most frequent first.

    Args:
        drifts: What `drift_of` gave, row by row.
    """
    counts: dict[str, tuple[int, list[int]]] = {}
    for drift in drifts:
        for difference in drift.differences:
            count, rows = counts.get(difference.why, (0, []))
            if not rows or rows[-1] != drift.row:
                rows.append(drift.row)
            counts[difference.why] = (count + 1, rows)
    ordered = sorted(counts.items(), key=lambda item: (-item[1][0], item[0]))
    return [(why, count, len(rows), rows[:10]) for why, (count, rows) in ordered]


def _stored_ids(row: Mapping[str, Any]) -> list[int] | None:
    prompt, completion = row.get("prompt_ids"), row.get("completion_ids")
    ids = next((row[key] for key in _ID_KEYS if row.get(key) is not None), None)
    if ids is None and prompt is None:
        return None
    attention = row.get("attention_mask")
    try:
        if ids is None:
            ids = [token for part in (prompt, completion) if part is not None for token in part]
        numbers = [int(token) for token in ids]
        kept = None if attention is None else [bool(flag) for flag in attention]
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InvalidData(
            f"The stored ids, or their attention mask, are not a list of integers ({reason_of(error)})."
        ) from error
    if kept is not None and len(kept) == len(numbers):
        numbers = [token for token, real in zip(numbers, kept, strict=True) if real]
    return numbers


def _encode_text(text: str, tokens: TokenizerView) -> list[int]:
    """Encode a text as stacks do that keep text: whole, its control tokens as such."""
    (ids,) = tokens.encode([text])
    return ids


def _size(differences: Sequence[Difference]) -> int:
    return sum(len(d.stored) + len(d.encoded) for d in differences)


def _compare(
    stored: list[int], encoded: list[int], owners: Sequence[int] | None, tokens: TokenizerView
) -> list[Difference]:
    size = min(len(stored), len(encoded))
    head = next((i for i in range(size) if stored[i] != encoded[i]), size)
    if head == len(stored) == len(encoded):
        return []
    tail = 0
    while tail < size - head and stored[-1 - tail] == encoded[-1 - tail]:
        tail += 1
    one, other = stored[head : len(stored) - tail], encoded[head : len(encoded) - tail]
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=len(one) + len(other) > 4000)
    changes: list[list[int]] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            continue
        if changes and a - changes[-1][1] <= _NEAR and c - changes[-1][3] <= _NEAR:
            changes[-1][1], changes[-1][3] = b, d
        else:
            changes.append([a, b, c, d])
    result = []
    for a, b, c, d in changes:
        message = None
        if owners is not None:
            near = owners[head + c : head + max(d, c + 1)] or owners[-1:]
            message = max(near, default=-1)
        place = _Place(
            stored=one[a:b],
            encoded=other[c:d],
            was=tokens.decode(one[a:b]),
            now=tokens.decode(other[c:d]),
            before=tokens.decode(stored[max(0, head + a - 48) : head + a]),
            after=tokens.decode(stored[head + b : head + b + 16]),
            position=head + a,
            is_last=head + b == len(stored),
            message=message,
        )
        why = _why(place, tokens)
        result.append(
            Difference(head + a, message, place.stored, place.encoded, place.was, place.now, why)
        )
    return result


class _Place(NamedTuple):
    """One difference, with the texts in front of it and behind it, and whether the stored ids end with it."""

    stored: list[int]
    encoded: list[int]
    was: str
    now: str
    before: str
    after: str
    position: int
    is_last: bool
    message: int | None


def _why(place: _Place, tokens: TokenizerView) -> str:
    """Name the reason for one difference."""
    stored, encoded, was, now = place[:4]
    added = tokens.added.keys()
    control_differs = [t for t in stored if t in added] != [t for t in encoded if t in added]
    if was == now:
        return "control token" if control_differs else "merged tokens"
    more, less = (was, now) if len(was) > len(now) else (now, was)
    if "".join(was.split()) == "".join(now.split()):
        return "white space"
    special = {token for token, (_, is_special) in tokens.added.items() if is_special}
    rest = [t for t in (*stored, *encoded) if t not in special]
    if not less.strip() and not tokens.decode(rest).strip():
        return "beginning token" if place.position <= 1 and not rest else "end token"
    if _json_form(was) == _json_form(now) or _squeezed(was) == _squeezed(now):
        return "booleans"
    if place.message in (None, -1) and all(_is_in_date(place, text) for text in (was, now)):
        return "date"
    if _THINK.search(more) and len(_THINK.findall(was)) != len(_THINK.findall(now)):
        return "stripped reasoning"
    if not stored and (place.is_last or place.position == 0):
        return "truncated"
    if _in_call(place.before, was, now):
        return "rewritten call"
    if not less.strip():
        return "missing text" if more is was else "added text"
    return "other text"


def _is_in_date(place: _Place, text: str) -> bool:
    """Whether a text, between what stands in front of it and behind it, lies inside a date."""
    start, end = len(place.before), len(place.before) + len(text)
    dates = _DATE.finditer(place.before + text + place.after)
    return any(date.start() <= start and end <= date.end() for date in dates)


def _squeezed(text: str) -> str:
    return "".join(_LITERAL.sub(lambda m: _LITERALS[m.group()], text).split())


def _json_form(text: str) -> str:
    # Tokens may cut a word: "T" + "rue" against "true".
    return "".join(text.split()).lower() if text.strip().lower() in _WORDS else text


_WORDS = frozenset(
    part for word in ("true", "false", "null", "none") for part in (word, word[1:], word[0])
)


def _in_call(before: str, was: str, now: str) -> bool:
    """Whether the difference lies inside a tool call: a call has begun before it, or is a part of it."""
    if _CALL.search(was) or _CALL.search(now):
        return True
    last = None
    for found in _CALL.finditer(before):
        last = found
    if last is None:
        return False
    rest = before[last.end() :]
    return not re.search(r"</tool_call>|<\|im_end\|>|call▁end|<\|eot_id\|>|<\|eom_id\|>", rest)


def as_data(drift: Drift) -> dict[str, Any]:
    """Return a drift as plain data, for JSON."""
    return {
        "row": drift.row,
        "tokens": drift.tokens,
        "problem": drift.problem,
        "differences": [each._asdict() for each in drift.differences],
    }


def shown(text: str, width: int = 32) -> str:
    """Return a text as a short literal."""
    literal = json.dumps(text, ensure_ascii=False)
    return literal if len(literal) <= width else literal[: width - 2] + '…"'
