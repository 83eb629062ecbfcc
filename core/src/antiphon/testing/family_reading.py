"""Checks of reading: what was rendered comes back, whole or in a stream, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

from antiphon.engine.provenance import REASONING_FIELDS
from antiphon.engine.rendering import Rendering
from antiphon.engine.tokenizers import view
from antiphon.errors import RenderError
from antiphon.reading import (
    parse_response,
    read_conversation,
    read_response,
    stream_parser,
    unparse,
)
from antiphon.testing.results import Problems, demand, fail, same_text
from antiphon.testing.scenarios import Case, Message
from antiphon.testing.subject import FamilySubject

_SPACE = re.compile(r"\s+")


def check_parse(subject: FamilySubject) -> None:
    """``parse(render(m))`` is ``m``, as far as the template printed it."""
    problems = Problems("Look at the grammar: does it describe what the template prints?")
    for case in subject.cases:
        rendering = subject.rendering(case)
        if rendering is None or _is_ambiguous(subject, case):
            continue
        with problems.case(case.id):
            read = read_conversation(rendering.text, family=subject.grammar, tools=case.tools)
            _compare(subject, case, rendering, read.messages)
            demand(
                read.prompted == case.prompt or _ends_alike(subject, case),
                f"the generation prompt is read as {'asked for' if read.prompted else 'not there'}",
            )
    problems.settle(at_least=1)


def _ends_alike(subject: FamilySubject, case: Case) -> bool:
    """Whether the text is the same with and without a generation prompt."""
    one, two = subject.rendering(case, prompt=False), subject.rendering(case, prompt=True)
    return one is not None and two is not None and one.text == two.text


def _is_ambiguous(subject: FamilySubject, case: Case) -> bool:
    """Whether a message spells out the dialect's own markers, which text alone can't tell apart."""
    return any(
        marker in str(message.get("content"))
        for message in case.messages
        for marker in subject.markers
        if message["role"] != "assistant"
    )


def check_render_again(subject: FamilySubject) -> None:
    """``render(parse(x))`` is ``x``, from text and from ids, for every rendering ``x``."""
    problems = Problems("Look at the grammar: what it reads must render to the same text.")
    for case in subject.cases:
        for prompt in (False, True):
            rendering = subject.rendering(case, prompt=prompt)
            if rendering is None:
                continue
            with problems.case(case.id):
                if not _is_ambiguous(subject, case):
                    _render_again(subject, case, rendering, rendering.text)
                ids = rendering.tokenize(subject.tokenizer).input_ids
                if view(subject.tokenizer).decode(ids) == rendering.text:
                    _render_again(subject, case, rendering, ids)
    problems.settle(at_least=1)


def _render_again(subject: FamilySubject, case: Case, first: Rendering, given: Any) -> None:
    read = read_conversation(
        given, tokenizer=subject.tokenizer, family=subject.grammar, tools=case.tools
    )
    kind = "text" if isinstance(given, str) else "ids"
    try:
        again = subject.render(
            without_verdicts(read.messages),
            prompt=read.prompted,
            tools=case.tools,
            **case.variables,
        )
    except RenderError as error:
        fail(f"what was read from its {kind} is refused: {error}")
    same_text(again.text, first.text, f"What was read from its {kind}", names=("again", "first"))


def without_verdicts(messages: list[Message]) -> list[Message]:
    """Return messages without what reading says of their calls: some templates print calls whole."""
    aside = ("status", "problem", "raw")
    return [
        {
            **message,
            "tool_calls": [
                {key: value for key, value in call.items() if key not in aside}
                for call in message["tool_calls"]
            ],
        }
        if message.get("tool_calls")
        else message
        for message in messages
    ]


def check_responses(subject: FamilySubject) -> None:
    """A turn read behind its prompt is the message; cut short it is not complete; nothing is lost."""
    problems = Problems("Look at the grammar's reasoning, content and calls, and its end tokens.")
    for case, index, prompt, turn, rendering in _answers(subject):
        with problems.case(case.id):
            reading = read_response(turn, prompt=prompt, family=subject.grammar, tools=case.tools)
            same_text(unparse(reading), turn, "What was read", names=("pieces", "turn"))
            found = reading.message
            # White space that the template prints inside the turn is the model's to write.
            _compare_message(case.messages[index], rendering, index, found, padded=True)
            closed = turn.endswith(subject.family.end_tokens) if subject.family.end_tokens else True
            demand(
                found["is_complete"] == closed,
                f"is_complete is {found['is_complete']} for {turn[-30:]!r}",
            )
            for cut in sorted({0, 1, len(turn) // 3, len(turn) // 2, len(turn) - 1}):
                part = read_response(
                    turn[:cut], prompt=prompt, family=subject.grammar, tools=case.tools
                )
                same_text(unparse(part), turn[:cut], "What was cut", names=("pieces", "text"))
                demand(
                    not part.message["is_complete"], f"cut to {turn[:cut]!r} it counts as complete"
                )
    problems.settle(at_least=1)


def check_streams(subject: FamilySubject) -> None:
    """A stream, however it is split, gives what reading at once gives; from text and from ids."""
    problems = Problems("Look at markers that begin alike, and at white space beside them.")
    random = Random(0)
    tokens = view(subject.tokenizer)
    for case, _, prompt, turn, _ in _answers(subject):
        with problems.case(case.id):
            options: dict[str, Any] = {"family": subject.grammar, "tools": case.tools}
            at_once = parse_response(turn, prompt=prompt, **options)
            for splits in (None, random.sample(range(len(turn)), min(3, len(turn)))):
                parser = stream_parser(prompt=prompt, **options)
                events = [event for bit in _cut(turn, splits) for event in parser.feed(bit)]
                reading = parser.finish()
                _same_message(reading.message, at_once, "the stream", "at once")
                said = "".join(
                    event.text
                    for event in [*events, *reading.last_events]
                    if event.kind == "content"
                )
                same_text(
                    said, at_once["content"] or "", "The content", names=("events", "at once")
                )
            ids = tokens.encode([turn])[0]
            whole = parse_response(ids, prompt=prompt, tokenizer=subject.tokenizer, **options)
            parser = stream_parser(prompt=prompt, tokenizer=subject.tokenizer, **options)
            for token in ids:
                parser.feed(token)
            _same_message(parser.close(), whole, "the stream of ids", "at once")
    problems.settle(at_least=1)


def _answers(subject: FamilySubject) -> Iterator[tuple[Case, int, str, str, Rendering]]:
    """Yield the answers that stand right behind their prompt: case, message, prompt, turn."""
    seen: set[tuple[str, str]] = set()
    for case in subject.cases:
        for index, message in enumerate(case.messages):
            if message["role"] != "assistant" or not index:
                continue
            rendering = subject.rendering(case, index + 1, prompt=False)
            prompt = subject.rendering(case, index, prompt=True)
            if rendering is None or prompt is None or not rendering.turns:
                continue
            turn = rendering.turns[-1]
            text = rendering.text
            if turn.message != index or text[: turn.start] != prompt.text:
                continue
            body = text[turn.start : turn.end]
            if (prompt.text[-40:], body) not in seen:
                seen.add((prompt.text[-40:], body))
                yield case, index, prompt.text, body, rendering


def _cut(text: str, splits: list[int] | None) -> Iterator[str]:
    if splits is None:
        yield from text
        return
    places = [0, *sorted(splits), len(text)]
    for start, end in pairwise(places):
        yield text[start:end]


def _same_message(found: Message, wanted: Message, one: str, two: str) -> None:
    for key in wanted:
        demand(
            found.get(key) == wanted[key],
            f"{key} is {found.get(key)!r} in {one} and {wanted[key]!r} {two}",
        )


# What a message was, as far as the template printed it


def _compare(
    subject: FamilySubject, case: Case, rendering: Rendering, found: list[Message]
) -> None:
    """Compare what was read with what was rendered.

    Where a template joins messages or prints two roles alike, they can't come back one by one: then
    all their text must, in order, and the reading must render to it again.
    """
    shown = [
        (index, message)
        for index, message in enumerate(case.messages)
        if any(s.message == index and s.field[:1] != ("role",) for s in rendering.spans)
    ]
    if [m["role"] for m in found] == [m["role"] for m in case.messages]:
        shown = list(enumerate(case.messages))
    if [m["role"] for m in found] == [m["role"] for _, m in shown]:
        for (index, message), each in zip(shown, found, strict=True):
            _compare_message(message, rendering, index, each)
        return
    roles = [m["role"] for m in found]
    # Where the text does not tell messages or roles apart, another reading of it is as true if it
    # renders to the same text.
    _render_again(subject, case, rendering, rendering.text)
    texts = [_read_text(message) for message in found]
    printed = [
        rendering.text[s.start : s.end]
        for s in rendering.spans
        if s.field[:1] == ("content",) or s.field[0] in REASONING_FIELDS
    ]
    same_text(
        _bare(subject, "".join(texts)),
        _bare(subject, "".join(printed)),
        f"The text of messages that come back as {', '.join(roles)}",
        names=("read", "printed"),
    )


def _read_text(message: Message) -> str:
    return str(message.get("reasoning_content") or "") + str(message.get("content") or "")


def _bare(subject: FamilySubject, text: str) -> str:
    """Return a text without white space and reasoning markers."""
    form = subject.grammar.reasoning
    for marker in (form.opener, form.closer) if form else ():
        text = text.replace(marker.strip(), "") if marker.strip() else text
    return _SPACE.sub("", text)


def _compare_message(
    message: Message, rendering: Rendering, index: int, found: Message, *, padded: bool = False
) -> None:
    """Compare one message; ``padded`` allows white space that the template puts around content."""
    calls = [_call(call) for call in message.get("tool_calls") or ()]
    read = [_call(call) for call in found.get("tool_calls") or ()]
    if not _printed(rendering, index, ("tool_calls",))[0]:
        calls = []
    demand(read == calls, f"the calls of message {index} are {calls} and are read as {read}")
    for call in found.get("tool_calls") or ():
        demand(
            call.get("status") == "ok",
            f"a call of message {index} is {call.get('status')}: {call.get('problem')}",
        )
    content, reasoning = found.get("content") or "", found.get("reasoning_content") or ""
    original = _text_of(message.get("content"))
    thought = _text_of(next((message[key] for key in REASONING_FIELDS if message.get(key)), ""))
    if not thought and reasoning and _is_split(original, reasoning, content):
        return
    shown, between = _printed(rendering, index, ("content",))
    if message.get("content") is None and content.strip() == "None":
        return  # the template printed that word
    demand(
        content in (shown, between, original if shown else "")
        or (padded and between in content and content.strip() == between.strip()),
        f"the content of message {index} ({message['role']}) was printed as {shown!r} and is read as"
        f" {content!r}",
    )
    shown, between = _printed(rendering, index, REASONING_FIELDS)
    demand(
        reasoning in (shown, between, thought if shown else ""),
        f"the reasoning of message {index} was printed as {shown!r} and is read as {reasoning!r}",
    )


def _printed(rendering: Rendering, index: int, fields: tuple[str, ...]) -> tuple[str, str]:
    """Return what was printed of a field: its own characters, and all from the first to the last.

    The second differs where a template changes characters within.
    """
    spans = [s for s in rendering.spans if s.message == index and s.field and s.field[0] in fields]
    if not spans:
        return "", ""
    own = "".join(rendering.text[s.start : s.end] for s in spans)
    return own, rendering.text[spans[0].start : spans[-1].end]


def _is_split(original: str, reasoning: str, content: str) -> bool:
    """Whether reasoning that stood in the content was read as such."""
    return reasoning.strip() in original and original.rstrip().endswith(content.rstrip())


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else []
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def _call(call: Message) -> tuple[str, Any]:
    function = call.get("function", call)
    arguments = function["arguments"]
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):
            arguments = json.loads(arguments)
    return function["name"], arguments
