"""What the readers of calls have in common: a call, how far reading it has come, its name, its end."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from antiphon.reading.compiled import TOKEN, CompiledCall, Mark
from antiphon.reading.scan import WHITE, Invalid, Nested, json_member, skip_white

_NO_NAME = re.compile('[\\s<>{}\\[\\]"\ud800-\udfff]')


NO_ARGUMENTS = "the call's name is not followed by its arguments"


@dataclass
class Call:
    """One call as read.

    Attributes:
        name: The tool's name; None where it could not be read.
        arguments: The arguments: a mapping, or what stood in its place.
        text: The arguments as they stood in the text, where they stood there as one JSON value;
            `written` gives it.
        object: For a call that is a JSON object: the text, where in it the object with the
            arguments stands, their key, and whether that is its last; from which `text` can be had.
        id: The call's id, where the text has one.
        status: ``"ok"``, ``"incomplete"``, ``"malformed"`` or ``"foreign"`` (a call in a format
            that the grammar does not read), and what `antiphon.reading.schema` adds.
        problem: What is wrong, as a sentence.
        raw: The call's whole text; "" where it is only known where it stands, see `keep_raw`.
        place: The text that was read, and where in it the call stands.
        untyped: Arguments that stood there as bare text, which a schema may type.
        form: How it was written.
    """

    name: str | None = None
    arguments: Any = None
    text: str | None = None
    id: str | None = None
    object: tuple[str, int, int, str, bool] | None = field(default=None, repr=False)
    status: str = "ok"
    problem: str = ""
    raw: str = ""
    place: tuple[str, int, int] | None = field(default=None, repr=False)
    untyped: frozenset[str] = frozenset()
    form: CompiledCall | None = field(default=None, repr=False)

    def keep_raw(self) -> None:
        """Set `raw` from the place where the call stands: who reads a good call seldom asks for it."""
        if not self.raw and self.place is not None and self.form is not None:
            text, start, end = self.place
            self.raw = self.form.plain(text[start:end])

    def written(self) -> str | None:
        """Return the arguments as they stood in the text; None where they were no one value."""
        if self.text is None and self.object is not None and self.form is not None:
            span = json_member(*self.object)
            # Only who asks for it pays for the search.
            self.text = self.form.plain(self.object[0][span[0] : span[1]]) if span else None
            self.object = None
        return self.text


@dataclass
class Found:
    """Calls that were read, and where the last of them ends."""

    calls: list[Call]
    end: int


@dataclass
class Draft:
    """What is shown of one call while it is written.

    Attributes:
        name: Its name.
        news: More of the arguments' JSON text, which no event has shown yet.
        size: How many characters of that text there were, these and those shown before.
        is_open: Whether the text is an object's members so far, not a part of what stands there.
        is_announced: Whether an event has shown that the call began.
    """

    name: str
    news: str = ""
    size: int = 0
    is_open: bool = False
    is_announced: bool = False

    def say(self, text: str) -> None:
        """Add to the arguments' text."""
        self.news += text
        self.size += len(text)


class Growing(NamedTuple):
    """An argument whose value is being written.

    Attributes:
        key: Its name.
        start: Where the value begins.
        end: Up to where the text is the value's for certain.
        is_text: Whether the form says that the value is a string; else a schema may say so.
    """

    key: str
    start: int
    end: int
    is_text: bool


@dataclass
class Progress:
    """What a reader keeps between two looks at a growing text.

    Attributes:
        nested: The value that is being scanned.
        value: The arguments inside it, likewise, where they are being shown as they grow.
        name: The tool's name, once it is known.
        arguments: Where the arguments' text begins, once that is known; -1 before.
        params: The parameters read so far.
        members: The same as they came: name, value, and whether it is bare text; a name may come twice.
        growing: The next one, while its value is being written.
        certain: Up to where that value, or arguments in braces, have been looked through; -1 before.
        drafts: What a stream shows of the calls.
        shown: Up to where the text of the arguments, or of the one that grows, has been shown.
        told: How many arguments have been shown whole.
        part: How many characters of the JSON text of the next one.
        pos: Where the next parameter is expected.
        calls: The calls read so far, where several stand behind each other.
        end: Where the last of them ends.
        next: Where the next one begins.
        kept: How many of them are calls whatever follows, since another one has begun behind them.
        kept_end: Where the last of those ends.
        listed: Whether they stand in a list that is open.
        tools: The parameter schema of each tool, where the tools are known.
    """

    nested: Nested | None = None
    value: Nested | None = None
    name: str | None = None
    id: str | None = None
    arguments: int = -1
    params: dict[str, Any] = field(default_factory=dict)
    members: list[tuple[str, Any, bool]] = field(default_factory=list)
    growing: Growing | None = None
    certain: int = -1
    drafts: list[Draft] = field(default_factory=list)
    shown: int = -1
    told: int = 0
    part: int = 0
    pos: int = -1
    calls: list[Call] = field(default_factory=list)
    end: int = -1
    next: int = -1
    kept: int = 0
    kept_end: int = -1
    listed: bool = False
    tools: Mapping[str, Mapping[str, Any]] | None = None

    def take(self, call: Call, end: int) -> None:
        """Keep a call that was read, and forget what was known of it before."""
        self.calls.append(call)
        self.end = end
        self.nested = self.value = self.name = None
        self.arguments = self.pos = -1

    def label(self) -> str | None:
        """Return the name of the call that is being read, or is read but for its end."""
        return self.calls[self.kept].name if len(self.calls) > self.kept else self.name

    def go_on(self, pos: int) -> None:
        """Begin with the call at a position behind the last one."""
        self.kept, self.kept_end, self.next = len(self.calls), self.end, pos

    def add(self, key: str, value: Any, is_bare: bool) -> None:
        """Keep a parameter; the last one of a name counts."""
        self.params[key] = value
        self.members.append((key, value, is_bare))
        self.growing, self.certain = None, -1

    def untyped(self) -> frozenset[str]:
        """Return the parameters that are bare text."""
        bare = {key: is_bare for key, _, is_bare in self.members}
        return frozenset(key for key, is_bare in bare.items() if is_bare)

    def show_again(self) -> None:
        """Forget what was shown."""
        self.drafts = []
        self.shown, self.certain, self.told, self.part = self.arguments, -1, 0, 0

    def keys(self) -> tuple[str, ...] | None:
        """Return the tool's parameters that have not been read yet; None where its schema is not known."""
        schema = (self.tools or {}).get(self.name or "")
        properties = schema.get("properties") if schema else None
        if not isinstance(properties, Mapping):
            return None
        return tuple(key for key in properties if isinstance(key, str) and key not in self.params)


MORE = None
"""More text is needed."""


def step(text: str, pos: int, part: str, final: bool) -> int | None:
    """Step over white space and `part`.

    Returns:
        Where it ends; -1 where something else stands; None where the text ends too soon to say, or
        if `final`, in the middle of `part`: it was cut off there.
    """
    at = skip_white(text, pos)
    if text.startswith(part, at):
        return at + len(part)
    if part.startswith(text[at:]) and not (final and at >= len(text)):
        return None
    return -1


def close(mark: Mark, text: str, pos: int, final: bool) -> int | None:
    """Step over a closer, as `step`: its first part must be there, the others may be."""
    if not mark.parts:
        return pos
    end = step(text, pos, mark.parts[0], final)
    for part in mark.parts[1:]:
        if end is None or end < 0:
            return end
        further = step(text, end, part, final)
        if further is None:
            return None
        if further < 0:
            break
        end = further
    return end


def closed(call: CompiledCall, text: str, pos: int, final: bool, calls: list[Call]) -> Found | None:
    """Finish calls whose value ends at `pos`: step over the closer.

    A closer that the model left out does no harm where the text ends or another marker stands.
    """
    end = close(call.closer, text, pos, final)
    if end is None:
        return MORE
    if end >= 0:
        return Found(calls, end)
    at = skip_white(text, pos)
    if at >= len(text) or (call.stop is not None and call.stop.match(text, at)):
        return Found(calls, pos) if final or at < len(text) else MORE
    if any(stop.startswith(text[at:]) for stop in call.stops):
        return MORE
    raise Invalid("the call's closing marker does not follow its arguments")


def name_end(call: CompiledCall, text: str, pos: int, final: bool) -> tuple[str, int] | None:
    """Read a name: returns it and where it ends (before the separator), None for more."""
    candidates = [*call.name_closer.parts[:1], *call.closer.parts[:1], *call.id_opener.parts[:1]]
    tokens = TOKEN.findall("".join(call.name_closer.parts))
    if len(tokens) >= 2:
        candidates += [tokens[0], tokens[-1], " "]
    if call.param is not None:
        candidates += call.param.opener.parts[:1]
        candidates += [part[:-1] + "/>" for part in call.name_closer.parts[:1] if part[-1:] == ">"]
    if not call.name_closer.parts:
        if call.form.style == "named":
            candidates += ["{", "["]
        elif "\n" in call.name_closer.lead:
            candidates.append("\n")
    at = skip_white(text, pos)
    places = [place for part in candidates if (place := text.find(part, at)) >= 0]
    if len(tokens) >= 2 and (token := TOKEN.search(text, at)) is not None:
        # In a header any marker ends the name (gpt-oss: ``to=functions.f<|constrain|>json``).
        places.append(token.start())
    best = min(places, default=-1)
    line = text.find("\n", at)
    if line >= 0 and (best < 0 or best > line):
        # A name is one line; what ends it may stand on the next.
        rest = text[skip_white(text, line) :]
        if not any(rest.startswith(part) or part.startswith(rest) for part in candidates):
            raise Invalid(NO_ARGUMENTS)
    if best < 0:
        return MORE
    return text[at:best].strip(WHITE), best


def checked_name(call: CompiledCall, name: str) -> str:
    prefix = call.form.name_prefix
    if prefix and name.startswith(prefix):
        name = name[len(prefix) :]
    if not name:
        raise Invalid("the call has no name")
    if _NO_NAME.search(name):
        raise Invalid(NO_ARGUMENTS)
    return call.plain(name)


def holds_marker(call: CompiledCall, name: str) -> bool:
    """Whether a name holds what ends a broken call: such a call is over before its name is."""
    return call.stop is not None and call.stop.search(name) is not None


def spelled_out(call: CompiledCall, value: Any) -> Any:
    """Return a value with control characters written out in its strings."""
    if isinstance(value, str):
        return call.plain(value)
    if isinstance(value, list):
        return [spelled_out(call, item) for item in value]
    if isinstance(value, dict):
        return {call.plain(key): spelled_out(call, item) for key, item in value.items()}
    return value


_NAME = re.compile(r'"([^"\\]+)"\s*:\s*"([^"\\]+)"')


def name_of(call: CompiledCall | None, known: str | None, raw: str) -> str | None:
    """Return the name of a call that could not be read, if it is known or as far as its text shows one."""
    if known is not None or call is None or call.form.style != "json":
        return known
    for found in _NAME.finditer(raw):
        if found.group(1) in call.form.name_keys:
            return found.group(2)
    return None


def arguments_text(call: Call) -> str:
    """Return a call's arguments as JSON text: as it stood there, or written anew."""
    if isinstance(call.arguments, str):
        return call.arguments
    written = call.written()
    if written is None or not (call.arguments or written.startswith("{")):
        return json.dumps(call.arguments, ensure_ascii=False)
    return written
