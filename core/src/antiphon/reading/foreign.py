"""Calls in formats that the grammar in force does not read.

What a grammar took for content is looked through for calls as any known grammar writes them. Such a
call stays content, character by character, and is nobody's call; the reading says that it is there,
so that it does not pass for an answer.

Known are the formats of the registered families, those of `antiphon.reading.formats`, and JSON
objects and lists of Python calls behind a marker of any name. A marker alone is no call, nor is what
stands in a code fence or behind a backtick: people and models write about formats too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon.errors import AntiphonError
from antiphon.reading.calls import Call, Progress, read_call
from antiphon.reading.compiled import Compiled, CompiledCall
from antiphon.reading.events import Tools
from antiphon.reading.formats import FORMATS
from antiphon.reading.grammar import CallForm, Grammar
from antiphon.reading.machine import Machine
from antiphon.reading.scan import WHITE, Invalid, decode_json

if TYPE_CHECKING:
    from antiphon.families import ModelFamily

_SIGNS = ("<", "[", "{")
_HINT = re.compile(r"<[^\s\d]|\[[A-Z]|\A\s*[\[{]")
"""What any call has, and few other texts: the signs are looked for first, since that costs next to nothing."""
_MARKER = re.compile(
    r"(?:<[^<>\s]{2,40}>|\[[A-Z_]{4,40}\])\s*(?=[\[{])"
    r"|(?:<\|[^<>\s]{2,40}\|>|\[[A-Z_]{4,40}\])\s*(?=[A-Za-z_][\w.]*\()"
)
"""A marker before what may be calls; before a Python call that stands alone only one like a control token."""
_CLOSERS = re.compile(r"(?:\s|<[^<>\s]+>|\[[^\[\]\s]+\])*")
_NAME = re.compile(r"[\w.:/-]+")
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_NAMED = 3
"""Families that are named where several write calls alike."""

_JSON = CallForm("json", bare=True, name_keys=("name", "tool_name"))
_PYTHON = CallForm("pythonic", bare=True)
_OF_CALLS = {"id", "type", "index", "function", "tool_call_id"}
"""Keys that a call may have beside its name and its arguments."""


Shape = tuple[str, str, str, str]
"""What tells formats apart: style, openers, how values are written."""


class Formats(NamedTuple):
    """The known formats.

    Attributes:
        compiled: A grammar of all of them.
        behind_markers: Those that may stand behind any marker.
        owners: Whose they are, by shape.
    """

    compiled: Compiled
    behind_markers: tuple[CompiledCall, ...]
    owners: dict[Shape, list[str]]


class _Kept:
    """The formats of the families that were registered last, replaced as a whole."""

    found: tuple[tuple[ModelFamily, ...], Formats] | None = None


def foreign_calls(machine: Machine, tools: Tools = None) -> list[Call]:
    """Return the calls in other formats that a turn's content holds; of a turn without content,
    those at the end of its reasoning.

    Args:
        machine: A machine that was closed.
        tools: The parameter schema of each tool, where the tools are known.
    """
    content = "".join(machine.content)
    if content.strip(WHITE):
        return _calls_of(machine, content, tools)
    if machine.calls or not machine.reasoning:
        return []
    reasoning = "".join(machine.reasoning)
    found = _calls_of(machine, reasoning, tools)
    # Models think about calls too: one that is made stands at the end.
    ends = found and _CLOSERS.fullmatch(reasoning.rpartition(found[-1].raw)[2])
    return found if ends else []


def _calls_of(machine: Machine, text: str, tools: Tools) -> list[Call]:
    compiled = machine.compiled
    return calls_in(
        text,
        compiled.grammar,
        is_exact=compiled.is_exact,
        is_complete=machine.ended_by is not None,
        tools=tools,
    )


def calls_in(
    text: str,
    grammar: Grammar,
    *,
    is_exact: bool = False,
    is_complete: bool = True,
    tools: Tools = None,
) -> list[Call]:
    """Return what a grammar took for text and looks like calls, with the status ``"foreign"``.

    Args:
        text: The text, control tokens written out.
        grammar: The grammar that was read by.
        is_exact: Whether it was read from ids: then calls in its own format are there as plain text.
        is_complete: Whether the text was ended; a call without an end is none then.
        tools: The tools, where they are known: without any marker only what names one is a call.
    """
    for marker in grammar.unread:
        if marker in text:
            raw = text[text.index(marker) :]
            return [_foreign(None, raw, f"the grammar {grammar.name!r} can't read its calls")]
    if not any(sign in text for sign in _SIGNS) or _HINT.search(text) is None:
        return []
    formats = known_formats()
    own = {_shape(form) for form in grammar.calls} if is_exact else set()
    made = []
    for call in _looked_through(text, formats, is_complete):
        assert call.form is not None  # each call that is yielded has one
        form = call.form.form
        if tools is not None and call.name not in tools and _is_unmarked(form, formats):
            continue
        if _shape(form) in own:
            problem = "its markers are plain text, not the control tokens that they are in a call"
        else:
            problem = (
                f"it looks like a call in the format {_owners(form, formats)}, which the grammar "
                f"{grammar.name!r} does not read"
            )
        made.append(_foreign(call.name, call.raw, problem))
    return made


def format_of(raw: str) -> str:
    """Return in whose format a call is written that could not be read; "" where nobody's is."""
    formats = known_formats()
    for call in _looked_through(raw, formats, is_complete=False):
        if call.status in ("ok", "incomplete") and call.form is not None:
            return _owners(call.form.form, formats)
    return ""


def known_formats() -> Formats:
    """Return the known formats, gathered anew where families were registered since."""
    from antiphon.registry import families

    registered: tuple[ModelFamily, ...] = ()
    # With a broken plugin host there is still what core knows; the host says itself what is wrong.
    with contextlib.suppress(AntiphonError):
        registered = families()
    kept = _Kept.found
    if kept is None or not _same(kept[0], registered):
        kept = _Kept.found = registered, _gathered(registered)
    return kept[1]


def _same(one: tuple[Any, ...], two: tuple[Any, ...]) -> bool:
    return len(one) == len(two) and all(a is b for a, b in zip(one, two, strict=True))


def _gathered(registered: Iterable[ModelFamily]) -> Formats:
    known: list[tuple[str, CallForm]] = []
    for family in registered:
        grammar = None
        with contextlib.suppress(AntiphonError, ImportError):  # a broken plugin's affair
            grammar = family.load_grammar()
        known += [(family.name, form) for form in grammar.calls] if grammar is not None else []
    known += FORMATS
    known.sort(key=lambda item: item[1].values == "python")  # which would read JSON as well
    owners: dict[Shape, list[str]] = {}
    for name, form in known:
        names = owners.setdefault(_shape(form), [])
        names += [name] if name not in names else []
    forms = tuple(dict.fromkeys(form for _, form in known))
    compiled = Compiled(Grammar("known formats", (), calls=forms), lambda text: text, {})
    bare = Compiled(Grammar("behind markers", (), calls=(_JSON, _PYTHON)), lambda text: text, {})
    return Formats(compiled, bare.calls, owners)


def _looked_through(text: str, formats: Formats, is_complete: bool) -> Iterator[Call]:
    """Yield what certainly is meant as a call."""
    machine = Machine(formats.compiled, after_thought=True, shows=False)
    machine.close(text)
    place, found = 0, False
    for call in machine.calls:
        place = text.find(call.raw, place)
        if call.form is not None and _is_meant(call, text, place, is_complete):
            found = True
            yield call
    if not found:
        yield from _behind_markers(text, formats)


def _behind_markers(text: str, formats: Formats) -> Iterator[Call]:
    """Yield JSON objects and lists of Python calls that stand behind a marker of any name."""
    end = 0
    for marker in _MARKER.finditer(text):
        if marker.start() < end or _is_quoted(text, marker.start()):
            continue
        for form in formats.behind_markers:
            try:
                read = read_call(form, text, marker.end(), True, Progress())
            except Invalid:
                continue
            if read is None:
                continue
            body = text[marker.end() : read.end]
            if not all(_is_nothing_else(call, body) for call in read.calls):
                continue
            end = read.end
            for call in read.calls:
                call.raw = text[marker.start() : end]
                yield call
            break


def _is_meant(call: Call, text: str, place: int, is_complete: bool) -> bool:
    """Whether what looks like a call is more than a mention of one."""
    assert call.form is not None
    form = call.form.form
    if _is_quoted(text, place):
        return False
    if form.fixed_name:
        # Anything may stand behind this marker: it says something only where it comes first.
        return not text[:place].strip(WHITE)
    if call.status == "ok":
        return _is_nothing_else(call, call.raw)
    if call.name is None or not _NAME.fullmatch(call.name):
        return False
    if call.status == "incomplete" and not is_complete:
        return True
    closer = call.form.closer.parts[-1:] or call.form.block_closer.parts[-1:]
    return bool(closer) and call.raw.endswith(closer[0])


def _is_nothing_else(call: Call, body: str) -> bool:
    """Whether an object with a name is a call, and not a tool's schema or somebody's data.

    Args:
        call: The call.
        body: Its text; without a marker before it, where the format has none.
    """
    assert call.form is not None
    form = call.form.form
    arguments = call.arguments
    if isinstance(arguments, dict) and "properties" in arguments and "type" in arguments:
        return False
    if not form.bare:
        return True
    if form.style == "pythonic":
        return bool(arguments)
    known = {*form.name_keys, *call.form.argument_keys, *_OF_CALLS}
    return all(set(item) <= known for item in _objects(body))


def _objects(raw: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of bare JSON calls."""
    with contextlib.suppress(Invalid):
        value = decode_json(raw)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield item


def _is_quoted(text: str, place: int) -> bool:
    """Whether a place is inside a code fence, or right behind a backtick."""
    if text[place - 1 : place] == "`":
        return True
    return len(_FENCE.findall(text, 0, place)) % 2 == 1


def _is_unmarked(form: CallForm, formats: Formats) -> bool:
    """Whether nothing stands before such a call but the beginning of the answer."""
    return form.bare and all(form is not each.form for each in formats.behind_markers)


def _foreign(name: str | None, raw: str, problem: str) -> Call:
    return Call(name, status="foreign", problem=problem, raw=raw)


def _shape(form: CallForm) -> Shape:
    return form.style, form.block_opener.strip(WHITE), form.opener.strip(WHITE), form.values


def _owners(form: CallForm, formats: Formats) -> str:
    """Say whose format a call is written in."""
    names = formats.owners[_shape(form)]
    return "of " + ", ".join(names[:_NAMED]) + (" and others" if len(names) > _NAMED else "")
