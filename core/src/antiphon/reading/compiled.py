"""A grammar made ready to read by: markers looked up, expressions compiled.

Text and token ids are read by the same machine. Where ids are read, each control token stands in
the text as one character that no decoded text can hold (a lone surrogate), and the grammar's
literals are rewritten in the same way: so a marker is a marker only as its control id, and the
same characters typed by somebody are just characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from antiphon.reading.grammar import CallForm, Grammar, Literals, ParamForm, RoleForm
from antiphon.reading.scan import WHITE

Convert = Callable[[str], str]
"""Rewrites a literal so that its control tokens are single characters."""

_DISTINCT = 4
"""Characters that a part of an opener must have to stand for the whole."""

_LINES = re.compile(r"[ \t\r]*\n\s*|(?<=>)(?=<)")
_WORDED = re.compile(r"[^\w\s]\S*\w\S*[^\w\s]\Z")
_SYMBOL = re.compile("[\ud800-\udfff]")
TOKEN = re.compile(r"<\|[^<>|\s]+\|>|<[^<>\s]+>|[\ud800-\udfff]")


class Mark(NamedTuple):
    """A literal: the white space before it, its parts (with free white space between), that
    after.
    """

    lead: str
    parts: tuple[str, ...]
    tail: str

    @property
    def core(self) -> str:
        """The first part: what is searched for."""
        return self.parts[0] if self.parts else ""


def make_mark(literal: str, convert: Convert) -> Mark:
    """Split a literal at its line breaks and between its tags; `convert` rewrites control
    tokens.
    """
    core = literal.strip(WHITE)
    if not core:
        return Mark(literal, (), "")
    start = literal.index(core)
    parts = tuple(convert(part) for part in _LINES.split(core))
    return Mark(literal[:start], parts, literal[start + len(core) :])


class CompiledParam(NamedTuple):
    """A `ParamForm` as marks.

    Attributes:
        ends: Finds what may end a value, or be a part of it.
        prefixes: Every proper beginning of that.
        longest: The length of the longest of them.
    """

    opener: Mark
    key_closer: Mark
    flag_closer: Mark
    closer: Mark
    ends: re.Pattern[str]
    prefixes: frozenset[str]
    longest: int


class CompiledCall(NamedTuple):
    """A `CallForm` as marks.

    Attributes:
        form: The form.
        triggers: What begins a region of calls: the block's opener, the call's opener, or its last
            line alone.
        lead: White space before the calls that is the format's.
        stops: What may follow a call, or ends a malformed one: closers, openers, end tokens.
        stop: `stops` as an expression.
        argument_keys: Under which arguments may stand: the format's keys, then those that models
            write.
        boundary: The call's whole closer where the closer of its last argument was left out.
        quote: What quotes strings in braces, which may be a control token.
        plain: Writes control characters out.
    """

    form: CallForm
    block_opener: Mark
    opener: Mark
    name_closer: Mark
    id_opener: Mark
    closer: Mark
    block_closer: Mark
    separator: str
    param: CompiledParam | None
    triggers: tuple[str, ...]
    lead: str
    ends: tuple[str, ...]
    argument_keys: tuple[str, ...]
    stops: tuple[str, ...]
    stop: re.Pattern[str] | None
    boundary: re.Pattern[str] | None
    quote: str
    plain: Callable[[str], str]


def alternation(literals: object) -> str:
    """Return an expression for any of some literals, longer ones first."""
    found = sorted({str(item) for item in literals if item}, key=len, reverse=True)  # type: ignore[attr-defined]
    return "|".join(map(re.escape, found))


def _boundary(
    closer: Mark, param: CompiledParam | None, following: list[str]
) -> re.Pattern[str] | None:
    if not closer.parts or param is None:
        return None
    whole = r"\s*".join(map(re.escape, closer.parts))
    line = r"\n" if "\n" in closer.lead + param.closer.tail else ""
    return re.compile(rf"{line}{whole}(?=\s*(?:{alternation(following)}|(\Z)))")


def _compile_param(
    form: ParamForm, call_closer: Mark, convert: Convert, end_tokens: tuple[str, ...]
) -> CompiledParam:
    opener, closer = make_mark(form.opener, convert), make_mark(form.closer, convert)
    ends = [closer.core, f"\n{opener.core}", *end_tokens]
    for part in call_closer.parts[:1]:
        ends += [part, f"\n{part}"]
    return CompiledParam(
        opener,
        make_mark(form.key_closer, convert),
        make_mark(form.flag_closer, convert),
        closer,
        re.compile(alternation(ends)),
        _prefixes(ends),
        max(map(len, ends)) - 1,
    )


def _compile_call(
    form: CallForm, convert: Convert, end_tokens: tuple[str, ...], plain: Callable[[str], str]
) -> CompiledCall:
    def mark(literal: str) -> Mark:
        return make_mark(literal, convert)

    opener, block_opener = mark(form.opener), mark(form.block_opener)
    closer, block_closer = mark(form.closer), mark(form.block_closer)
    param = None
    if form.param is not None:
        param = _compile_param(form.param, closer, convert, end_tokens)
    triggers = [mark_.core for mark_ in (block_opener, opener) if mark_.core]
    if len(opener.parts) > 1 and len(opener.parts[-1]) >= _DISTINCT:
        # Models leave out the first line of an opener; its last tells as much.
        triggers.append(opener.parts[-1])
    ends = tuple(convert(end) for end in form.ends)
    stops = [*closer.parts[-1:], *block_closer.parts[-1:], *ends, *triggers, *end_tokens]
    first = block_opener if block_opener.parts else opener
    return CompiledCall(
        form=form,
        block_opener=block_opener,
        opener=opener,
        name_closer=mark(form.name_closer),
        id_opener=mark(form.id_opener),
        closer=closer,
        block_closer=block_closer,
        separator=convert(form.separator.strip(WHITE)),
        param=param,
        triggers=tuple(triggers),
        lead=form.lead or first.lead,
        ends=ends,
        argument_keys=tuple(dict.fromkeys((*form.argument_keys, "arguments", "parameters"))),
        stops=tuple(filter(None, stops)),
        stop=re.compile(alternation(stops)) if any(stops) else None,
        boundary=_boundary(closer, param, [*triggers, *end_tokens]),
        quote=convert(form.quote),
        plain=plain,
    )


class Compiled:
    """What the machine works by.

    Attributes:
        grammar: The grammar.
        symbols: Text of each control character; empty when text is read as text.
        stops: The end tokens.
        certain: Those that are control characters: nothing after them belongs to the turn.
        triggers: For each opener of calls the forms that it may begin, in order.
        header: What begins and ends the header of a part of an answer, where reasoning and content
            have headers of one shape (gpt-oss: ``<|channel|>NAME<|message|>``).
        marker: Finds what may interrupt content: openers of calls, end tokens, section markers.
        prefixes: Every proper beginning of such a marker: a text that ends with one may go on to
            it.
    """

    def __init__(self, grammar: Grammar, convert: Convert, symbols: Mapping[str, str]) -> None:
        self.grammar = grammar
        self.convert = convert
        self.symbols = dict(symbols)
        self.is_exact = bool(symbols)
        """Whether markers are control characters."""
        tokens = grammar.end_tokens or _worded_ends(grammar)
        ends = [*tokens, *(end for form in grammar.calls for end in form.ends)]
        self.stops = tuple(dict.fromkeys(convert(end.strip(WHITE)) for end in ends))
        self.calls = tuple(
            _compile_call(form, convert, self.stops, self.plain) for form in grammar.calls
        )
        self.bare = tuple(call for call in self.calls if call.form.bare)
        self.triggers: dict[str, list[CompiledCall]] = {}
        for call in self.calls:
            for trigger in call.triggers:
                self.triggers.setdefault(trigger, []).append(call)
        reasoning = grammar.reasoning
        self.think_open = make_mark(reasoning.opener if reasoning else "", convert)
        self.think_close = make_mark(reasoning.closer if reasoning else "", convert)
        content = grammar.content
        self.content_open = make_mark(content.opener if content else "", convert)
        self.content_close = make_mark(content.closer if content else "", convert)
        self.continued = tuple(convert(text) for text in grammar.continued)
        self.header = _shared_header(self.think_open, self.content_open)
        self.sections = tuple(
            core
            for core in (self.content_open.core, self.content_close.core, *self.continued)
            if core
        )
        self.max_lead = max((len(call.lead) for call in self.calls), default=0)
        markers = [*self.triggers, *self.stops, *self.sections]
        self.marker = re.compile(alternation(markers)) if any(markers) else None
        self.prefixes = _prefixes(markers)
        self.stop = re.compile(alternation(self.stops)) if self.stops else None
        self.certain = tuple(stop for stop in self.stops if stop in self.symbols)
        closers = [self.think_close.core, *self.stops, *self.continued, *self.triggers]
        self.think_end = re.compile(alternation(closers)) if any(closers) else None
        self.think_prefixes = _prefixes(closers)
        self.longest = max(map(len, self.prefixes | self.think_prefixes), default=0)
        self.conversation: object | None = None
        """What `antiphon.reading.conversation` compiled, on first use."""

    def plain(self, text: str) -> str:
        """Return text with control characters written out."""
        if not self.symbols or text.isascii():
            return text
        if len(text) == 1:
            return self.symbols.get(text, text)
        return _SYMBOL.sub(self._written, text)

    def _written(self, found: re.Match[str]) -> str:
        symbol = found.group()
        return self.symbols.get(symbol, symbol)

    def certain_end(self, text: str) -> int:
        """Return where the first end token stands that is certain, or -1."""
        first = -1
        for stop in self.certain:
            at = text.find(stop) if first < 0 else text.find(stop, 0, first)
            if at >= 0:
                first = at
        return first

    def convert_literals(self, literals: Literals) -> Literals:
        """Rewrite a literal or a tuple of literals and slots."""
        if isinstance(literals, str):
            return self.convert(literals)
        return tuple(self.convert(part) if isinstance(part, str) else part for part in literals)

    def held(self, text: str, start: int, prefixes: frozenset[str]) -> int:
        """Return where the last part of a text begins that may be the beginning of a marker."""
        return held(text, start, prefixes, self.longest)


def held(text: str, start: int, prefixes: frozenset[str], longest: int) -> int:
    """Return where the last part of a text begins that is one of some beginnings.

    Args:
        text: The text.
        start: Where to begin to look.
        prefixes: The beginnings.
        longest: The length of the longest of them.
    """
    size = len(text)
    for at in range(max(start, size - longest), size):
        if text[at:] in prefixes:
            return at
    return size


def _worded_ends(grammar: Grammar) -> list[str]:
    """Return what ends answers where no token does: closers that begin with more than a word or a
    sign.
    """
    closers = [form.closer for form in grammar.forms("assistant") if isinstance(form.closer, str)]
    firsts = dict.fromkeys(closer.split()[0] for closer in closers if closer.strip())
    return [first for first in firsts if _WORDED.match(first)]


def _shared_header(think: Mark, content: Mark) -> tuple[str, str] | None:
    tokens = [TOKEN.findall("".join(mark.parts)) for mark in (think, content)]
    if not all(len(found) >= 2 for found in tokens):
        return None
    ends = {(found[0], found[-1]) for found in tokens}
    first = all(
        mark.core.startswith(found[0])
        for mark, found in zip((think, content), tokens, strict=False)
    )
    return ends.pop() if len(ends) == 1 and first else None


def _prefixes(markers: list[str]) -> frozenset[str]:
    return frozenset(marker[:size] for marker in markers for size in range(1, len(marker)))


class GrammarCache:
    """Compiled grammars by key, emptied when full. Without a lock: single dict operations are safe
    between threads and after a fork, and making one twice does no harm.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: dict[object, tuple[object, Compiled]] = {}

    def get(self, key: object, owner: object, make: Callable[[], Compiled]) -> Compiled:
        """Return what is kept under `key` for this very `owner`, or make it.

        Args:
            key: Built from ids of objects; `owner` is kept beside it, so its id stays its own.
            owner: The object, or a tuple of objects, whose ids are in `key`.
            make: Makes it.
        """
        kept = self._kept.get(key)
        if kept is not None:
            return kept[1]
        compiled = make()
        if len(self._kept) >= self._size:
            self._kept.clear()
        self._kept[key] = (owner, compiled)
        return compiled


_TEXT = GrammarCache(64)


def compile_text(grammar: Grammar) -> Compiled:
    """Return the grammar compiled for text in which markers are text."""
    return _TEXT.get(id(grammar), grammar, lambda: Compiled(grammar, lambda text: text, {}))


__all__ = ["Compiled", "CompiledCall", "CompiledParam", "Mark", "RoleForm", "compile_text"]
