"""Reading tool calls and tool results off a template."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from antiphon.reading.grammar import CallForm, Grammar, Literals, RoleForm, Slot, ValueForm
from antiphon.reading.infer_check import calls_problem
from antiphon.reading.infer_params import bracket_form, param_form
from antiphon.reading.infer_turns import (
    MARKER,
    THINKING,
    Turns,
    lead_of,
    whole_markers,
    whole_start,
)
from antiphon.reading.literals import python_value
from antiphon.reading.probing import (
    TOOLS,
    Message,
    Prober,
    common_prefix,
    common_suffix,
    word,
)
from antiphon.reading.scan import WHITE, Invalid, decode_json_at

NAME, OTHER = "kalwq", "lomwq"
ARGUMENTS: dict[str, Any] = {"aqx": "Valwq one", "nqx": 7391, "bqx": True}
OTHER_ARGUMENTS: dict[str, Any] = {"aqx": "Wexwq two", "nqx": 8402, "bqx": True}
IDS = ("call00001", "call00002")
NAMED_IDS = (f"functions.{NAME}:0", f"functions.{OTHER}:1")
_SOLID = 6
"""Characters that stand between two results if they are to be told apart."""
_BRACKETS = re.compile(r"[\[{]")


@dataclass
class Shown:
    """One way in which a template takes a call and prints it.

    Attributes:
        prober: The template, with the form of arguments that it takes.
        content: The content of a message that only calls.
        ids: The ids of the calls.
        tools: The tools given.
    """

    prober: Prober
    content: str | None
    ids: tuple[str, str]
    tools: list[Any] | None

    def call(self, number: int = 0) -> Message:
        """Return the n-th call."""
        name = (NAME, OTHER)[number]
        arguments = (ARGUMENTS, OTHER_ARGUMENTS)[number]
        return {
            "id": self.ids[number],
            "type": "function",
            "function": {"name": name, "arguments": dict(arguments)},
        }

    def answer(self, count: int = 1, content: str | None = None) -> Message:
        """Return an assistant's message with calls."""
        return {
            "role": "assistant",
            "content": self.content if content is None else content,
            "tool_calls": [self.call(number) for number in range(count)],
        }

    def result(self, number: int, content: str) -> Message:
        """Return the n-th call's result."""
        return {
            "role": "tool",
            "content": content,
            "name": (NAME, OTHER)[number],
            "tool_call_id": self.ids[number],
        }

    def render(self, *messages: Message, prompt: bool = False) -> str | None:
        """Render a question and these messages; returns what stands after the question's word."""
        question = word("u", 0)
        text = self.prober.render(
            [{"role": "user", "content": question}, *messages], tools=self.tools, prompt=prompt
        )
        if text is None or text.count(question) != 1:
            return None
        return text.partition(question)[2]


def add_calls(grammar: Grammar, prober: Prober, turns: Turns) -> Grammar:
    """Return the grammar with calls and tool results, if the template prints any.

    Where it prints them in a way that can't be read, the grammar says so (`Grammar.unread`).
    """
    shown = _find_way(prober)
    if shown is None:
        return grammar
    grammar = replace(
        grammar,
        empty_content=shown.content,
        arguments="string" if shown.prober.as_text else "either",
    )
    try:
        made = _Calls(grammar, shown, turns).infer()
    except _Unreadable as error:
        return _refuse(grammar, shown, turns, str(error))
    problem = calls_problem(made, shown.prober, shown.content, shown.ids)
    if problem:
        return _refuse(grammar, shown, turns, problem)
    return made


class _Unreadable(Exception):
    """Why calls can't be read."""


def _find_way(prober: Prober) -> Shown | None:
    """Find a form of arguments, content and ids with which the template prints a call."""
    for ids in (IDS, NAMED_IDS):
        for as_text in (False, True):
            for content in ("", None):
                for tools in (TOOLS[0], None):
                    shown = Shown(replace(prober, as_text=as_text), content, ids, tools)
                    tail = shown.render(shown.answer())
                    if tail is not None and NAME in tail and "Valwq" in tail:
                        return shown
    return None


def _refuse(grammar: Grammar, shown: Shown, turns: Turns, reason: str) -> Grammar:
    tail = shown.render(shown.answer()) or ""
    before = tail.partition(NAME)[0]
    known = {
        found.group()
        for form in grammar.roles
        for text in (form.opener, form.closer)
        for literal in ([text] if isinstance(text, str) else text)
        if isinstance(literal, str)
        for found in MARKER.finditer(literal)
    }
    markers = [found.group() for found in MARKER.finditer(before) if found.group() not in known]
    header = before[len(turns.closers.get("u", "")) :]
    unread = tuple(markers[-1:]) or ((header[-24:],) if len(header.strip()) > 3 else (NAME,))
    note = f"Calls can't be read: {reason}."
    return replace(grammar, unread=unread, notes=(*grammar.notes, note))


class _Calls:
    """One template's calls."""

    def __init__(self, grammar: Grammar, shown: Shown, turns: Turns) -> None:
        self.grammar = grammar
        self.shown = shown
        self.turns = turns
        self.closer = turns.closers.get("a", "")
        self.header = ""
        self.short_header = ""
        self.has_short_header = False
        self.other_closer = ""

    def infer(self) -> Grammar:
        shown = self.shown
        tail = shown.render(shown.answer())
        if tail is None:
            raise _Unreadable("a call is not printed twice the same way")
        self.header = self._header(tail)
        body = tail[len(self.header) :]
        form, start, end = self._form(body)
        after = body[end:]
        # With a result behind it the answer may have another header: it is the last no more.
        tool = word("t", 2)
        further = shown.render(shown.answer(), shown.result(0, tool))
        before_tool, place = None, 0
        if further is not None and further.count(tool) == 1:
            place = len(self._header(further)) + end
            if further[:place].endswith(body[:end]):
                before_tool = further.partition(tool)[0][place:]
        shared = after if before_tool is None else common_prefix([after, before_tool])
        if before_tool is not None:
            shared = whole_markers(shared, [after, before_tool])
        behind = self._content_behind(form)
        if behind is not None:
            shared = common_prefix([shared, behind])
        post, is_closed = self._without_closer(shared)
        final = after[len(shared) :]
        form = self._layout(form, body[:start], post, final)
        lead = self._lead(body[:start])
        form = replace(form, lead=lead) if lead is not None else form
        if not (form.block_opener + form.opener).strip(WHITE):
            if form.style not in ("json", "pythonic"):
                raise _Unreadable("nothing marks the beginning of a call")
            form = replace(form, bare=True, block_opener="", opener="")
        grammar = replace(self.grammar, calls=(form,))
        prompted = shown.render(shown.answer(), prompt=True) or ""
        whole = tail[: len(self.header) + end] + shared
        asking = prompted[len(whole) :] if prompted.startswith(whole) else ""
        grammar = self._with_endings(grammar, [text for text in (final, asking) if text])
        if before_tool is None or further is None:
            return grammar
        opener = before_tool[len(shared) :]
        return self._results(grammar, body[:end] + shared, opener, is_closed)

    def _with_endings(self, grammar: Grammar, endings: list[str]) -> Grammar:
        """Add the ways in which turns with calls begin and end."""
        roles: list[RoleForm] = []
        for item in grammar.roles:
            if item.role == "assistant":
                finals = tuple(dict.fromkeys((*endings, *item.finals)))
                others = (self.other_closer,) if self.other_closer else ()
                item = replace(item, finals=finals, other_closers=others)
            roles.append(item)
        known = {item.opener for item in roles if item.role == "assistant"}
        if self.has_short_header and self.short_header not in known:
            like = next(item for item in roles if item.role == "assistant")
            roles.append(replace(like, opener=self.short_header, after=("user",), unclosed=False))
        return replace(grammar, roles=tuple(roles))

    def _header(self, tail: str) -> str:
        """Return what stands before the answer's body."""
        closer = self.turns.closers.get("u", "")
        if not tail.startswith(closer):
            raise _Unreadable("the turn before a call is not closed as others are")
        rest = tail[len(closer) :]
        openers = self._openers()
        fitting = [opener for opener in openers if rest.startswith(opener)]
        if not fitting:
            # An answer with calls may have a shorter header: gpt-oss names the tool in it.
            shared = max((common_prefix([rest, item]) for item in openers), key=len, default="")
            shared = whole_markers(shared, [rest, *openers])
            if not MARKER.search(shared) and not (
                not shared.strip(WHITE) and MARKER.search(closer)
            ):
                raise _Unreadable("an answer with calls begins unlike others")
            self.short_header = shared
            self.has_short_header = True
            fitting = [shared]
        return closer + max(fitting, key=len)

    def _openers(self) -> list[str]:
        """Return the literals that open an answer after a question."""
        found = [
            form.opener
            for form in self.grammar.forms("assistant")
            if isinstance(form.opener, str) and (form.after is None or "user" in form.after)
        ]
        if self.has_short_header and self.short_header not in found:
            found.append(self.short_header)
        return sorted(set(found), key=len, reverse=True)

    def _without_closer(self, text: str) -> tuple[str, bool]:
        """Take the turn's closer off the end of what follows a call."""
        closer = self.closer
        if closer and text.endswith(closer):
            return text[: len(text) - len(closer)], True
        bare = closer.rstrip(WHITE)
        if bare and text.rstrip(WHITE).endswith(bare):
            self.other_closer = bare
            return text.rstrip(WHITE)[: -len(bare)], True
        shared = whole_start(common_suffix([text, closer]), [text, closer])
        if MARKER.search(shared) and shared != text:
            self.other_closer = shared
            return text[: len(text) - len(shared)], True
        for token in self._end_tokens():
            if not closer and text.rstrip(WHITE).endswith(token):
                self.other_closer = text[text.rindex(token) :]
                return text[: text.rindex(token)], True
        return text, not closer

    def _end_tokens(self) -> list[str]:
        """Return the tokens that may end a turn which usually has no closer."""
        found = list(self.grammar.end_tokens)
        for (before, _), texts in self.turns.between.items():
            if before == "a":
                marks = [MARKER.match(lead_of(text).lstrip(WHITE)) for text in texts]
                found += [mark.group() for mark in marks if mark is not None]
        return found

    # The call itself

    def _form(self, body: str) -> tuple[CallForm, int, int]:
        """Return the style of the call and where its core stands: without openers and closers."""
        found = _find_json(body, NAME, ARGUMENTS)
        if found is not None:
            return found
        name = body.find(NAME)
        if name < 0:
            raise _Unreadable("the name is not printed")
        arguments = _find_arguments(body, name + len(NAME), ARGUMENTS)
        if arguments is not None:
            start, end, values = arguments
            form = replace(self._named(body, name, start), values=values)
            return form, name - len(form.name_prefix), end
        made = bracket_form(body, name, NAME, ARGUMENTS)
        if made is not None:
            return made
        made = param_form(body, name, NAME, ARGUMENTS)
        if made is not None:
            return made
        raise _Unreadable("neither JSON nor one argument after the other")

    def _named(self, body: str, name: int, arguments: int) -> CallForm:
        between = body[name + len(NAME) : arguments]
        if body[:name].endswith("functions.") and between.startswith(":0"):
            return CallForm(
                "named", name_closer=between[2:], name_prefix="functions.", named_by_id=True
            )
        call_id = self.shown.ids[0]
        if call_id in between:
            opener, _, closer = between.partition(call_id)
            return CallForm("named", name_closer=closer, id_opener=opener)
        if NAME in between:
            raise _Unreadable("the name is printed twice")
        return CallForm("named", name_closer=between)

    def _layout(self, form: CallForm, before: str, after: str, final: str) -> CallForm:
        """Tell what stands around each call from what stands around all of them."""
        if self.shown.ids[0] in before or self.shown.ids[0] in after:
            raise _Unreadable("the call's id stands outside of it")
        if form.listed:
            return replace(form, block_opener=before, block_closer=after)
        shown = self.shown
        tail = shown.render(shown.answer(2))
        if tail is None or OTHER not in tail:
            return replace(form, opener=before, closer=after)
        body = tail[len(self._header(tail)) :]
        first = _core(form, body, NAME, ARGUMENTS, 0)
        second = _core(form, body, OTHER, OTHER_ARGUMENTS, first[1]) if first else None
        if first is None or second is None:
            raise _Unreadable("two calls stand there unlike one")
        between = body[first[1] : second[0]]
        ahead = body[: first[0]]
        opener = whole_start(common_suffix([ahead, between]), [ahead, between])
        closer = whole_markers(common_prefix([between, after]), [between, after])
        if len(opener) + len(closer) > len(between):
            # They overlap in white space: the closer has it.
            opener = opener[len(opener) + len(closer) - len(between) :]
        if self.shown.ids[0] in between:
            raise _Unreadable("the call's id stands outside of it")
        behind = self._without_closer(body[second[1] :].removesuffix(final))[0]
        return replace(
            form,
            block_opener=ahead[: first[0] - len(opener)],
            opener=opener,
            closer=closer,
            separator=between[len(closer) : len(between) - len(opener)],
            # Some templates close the block only after several calls.
            block_closer=after[len(closer) :] or behind[len(closer) :],
        )

    def _content_behind(self, form: CallForm) -> str | None:
        """Return what stands between a call and the content behind it, where that is the order."""
        content = word("a", 1)
        tail = self.shown.render(self.shown.answer(content=content))
        if tail is None or tail.count(content) != 1:
            return None
        body = tail.partition(content)[0][len(self._header(tail)) :]
        core = _core(form, body, NAME, ARGUMENTS, 0) if NAME in body else None
        return body[core[1] :] if core else None

    def _lead(self, before: str) -> str | None:
        """Return what stands between content and calls; None where the content is not printed."""
        content = word("a", 1)
        tail = self.shown.render(self.shown.answer(content=content))
        if tail is None or tail.count(content) != 1:
            return None
        head, _, rest = tail.partition(content)
        if NAME in head:
            return None  # the content stands behind the calls, where the reader leaves it
        stripped = before.lstrip(WHITE)
        at = rest.find(stripped) if stripped else -1
        if at < 0:
            at = rest.find(NAME) if not stripped else -1
            if at < 0:
                return None
            return None
        lead = rest[:at]
        if lead.strip(WHITE):
            return None  # the content stands in a part of its own
        return lead

    # Results

    def _results(self, grammar: Grammar, core: str, opener: str, is_closed: bool) -> Grammar:
        """Add the forms of tool results and of what follows them.

        Args:
            grammar: The grammar so far.
            core: The answer's body with the call, up to the end of its turn.
            opener: What opens a result after it.
            is_closed: Whether the answer's turn was closed before it.
        """
        shown = self.shown
        one, two, answer, user = "Tolwq2x", "Tolwq3x", word("a", 4), word("u", 5)
        quote = self._is_quoted(one)
        replied = {"role": "assistant", "content": answer}
        asked = {"role": "user", "content": user}
        outgoing: list[tuple[str, str]] = []
        for messages in ([], [replied], [asked], [replied, asked], [asked, replied]):
            rest = self._behind(core, [shown.result(0, one), *messages], one)
            if rest is None:
                continue
            role = str(messages[0]["role"]) if messages else ""
            following = str(messages[0]["content"]) if messages else ""
            if not following or rest.count(following) == 1:
                outgoing.append((role, rest.partition(following)[0] if following else rest))
        pair = self._pair(one, two)
        if pair is not None and (MARKER.search(pair) or len(pair.strip(WHITE)) >= _SOLID):
            outgoing.append(("tool", pair))
        texts = [text for _, text in outgoing]
        closer = whole_markers(common_prefix(texts), texts) if texts else ""
        if quote:
            opener, closer = opener.removesuffix(quote), closer.removeprefix(quote)
        skipped = len(closer) + len(quote)
        behind = {text[skipped:] for role, text in outgoing if not role}
        for options in THINKING:
            text = self._prompted(one, options)
            if text is not None and text.startswith(quote + closer):
                behind.add(text[skipped:])
        finals = tuple(sorted(behind - {""}, key=len, reverse=True))
        openers: dict[Literals, list[str]] = {self._slots(opener): ["assistant"]}
        following_roles: dict[str, list[str]] = {"assistant": [], "user": []}
        for role, text in outgoing:
            rest = text[skipped:]
            if role == "tool":
                rest = rest.removesuffix(quote) if quote else rest
                # Templates that count results wrongly print it after an answer as well.
                places = ["tool", "assistant"] if MARKER.search(rest) else ["tool"]
                openers.setdefault(self._slots(rest), []).extend(places)
            elif role and rest not in following_roles[role]:
                following_roles[role].append(rest)
        ending = self._ending(core, one, answer, user)
        following_roles["assistant"] = self._variants(following_roles["assistant"])
        roles = list(grammar.roles)
        for role, literals in following_roles.items():
            for literal in literals:
                # The same text before an answer and a question is the answer's.
                if role == "assistant" or literal not in following_roles["assistant"]:
                    like = next((item for item in roles if item.role == role), RoleForm(role, ""))
                    if role == "assistant" and ending is not None:
                        like = replace(like, closer=ending)
                    roles.append(replace(like, opener=literal, after=("tool",), unclosed=False))
        for literal_or_slots, places in openers.items():
            roles.append(
                RoleForm(
                    "tool",
                    literal_or_slots,
                    self._slots(closer),
                    after=tuple(places),
                    value="json" if quote else "text",
                    unclosed=not is_closed and places == ["assistant"],
                    finals=finals,
                )
            )
        return replace(grammar, roles=tuple(roles))

    def _ending(self, core: str, one: str, answer: str, user: str) -> str | None:
        """Return what closes an answer after results, where that is not what closes others."""
        replied = {"role": "assistant", "content": answer}
        asked = {"role": "user", "content": user}
        texts = []
        for messages in ([replied], [replied, asked]):
            rest = self._behind(core, [self.shown.result(0, one), *messages], one)
            if rest is None or rest.count(answer) != 1:
                return None
            texts.append(rest.partition(answer)[2].partition(user)[0])
        if self.closer and all(text.startswith(self.closer) for text in texts):
            return None
        return whole_markers(common_prefix(texts), texts) or None

    def _behind(self, core: str, messages: list[Message], one: str) -> str | None:
        """Return what stands behind a result's word in a rendering, if the call is as expected."""
        text = self.shown.render(self.shown.answer(), *messages)
        if text is None or text.count(one) != 1:
            return None
        try:
            header = self._header(text)
        except _Unreadable:
            return None
        return text.partition(one)[2] if text[len(header) :].startswith(core) else None

    def _prompted(self, one: str, options: dict[str, object]) -> str | None:
        shown = self.shown
        question = word("u", 0)
        text = shown.prober.render(
            [{"role": "user", "content": question}, shown.answer(), shown.result(0, one)],
            tools=shown.tools,
            prompt=True,
            **options,
        )
        return text.partition(one)[2] if text is not None and text.count(one) == 1 else None

    def _variants(self, literals: list[str]) -> list[str]:
        """Return an answer's openers after results, in each variant that it has after a
        question.
        """
        openers = self._openers()
        made = list(literals)
        for literal in literals:
            fitting = next((item for item in openers if item and literal.endswith(item)), None)
            if fitting is not None:
                before = literal[: len(literal) - len(fitting)]
                made += [before + item for item in openers]
        return list(dict.fromkeys(made))

    def _pair(self, one: str, two: str) -> str | None:
        """Return what stands between two results that follow each other."""
        shown = self.shown
        text = shown.render(shown.answer(2), shown.result(0, one), shown.result(1, two))
        if text is None or text.count(one) != 1 or text.count(two) != 1:
            return None
        return text.partition(one)[2].partition(two)[0]

    def _is_quoted(self, one: str) -> str:
        """Return the quote if a result's text is written as a JSON string."""
        shown = self.shown
        text = shown.render(shown.answer(), shown.result(0, one + '"q'))
        return '"' if text is not None and f'"{one}\\"q"' in text else ""

    def _slots(self, text: str) -> Literals:
        """Put slots in the place of names and ids."""
        fields = {
            NAME: "name",
            OTHER: "name",
            self.shown.ids[0]: "tool_call_id",
            self.shown.ids[1]: "tool_call_id",
        }
        words = "|".join(map(re.escape, sorted(fields, key=len, reverse=True)))
        # Numbers in quotes after an id's key are counted by the template.
        expression = rf'{words}|(?<=id": ")\d+(?=")'
        parts: list[str | Slot] = []
        at = 0
        for found in re.finditer(expression, text):
            if found.start() > at:
                parts.append(text[at : found.start()])
            parts.append(Slot(fields.get(found.group(), "")))
            at = found.end()
        if not parts:
            return text
        if at < len(text):
            parts.append(text[at:])
        return tuple(parts)


def _core(
    form: CallForm, body: str, name: str, arguments: dict[str, Any], pos: int
) -> tuple[int, int] | None:
    """Return where a call's core stands in a body, at or after a position."""
    if form.style == "json":
        found = _find_json(body, name, arguments, pos)
        return (found[1], found[2]) if found else None
    at = body.find(name, pos)
    if at < 0:
        return None
    if form.style == "named" and form.values != "braces":
        span = _find_arguments(body, at + len(name), arguments)
        if span is None:
            return None
        start = at
        if form.name_prefix and body[:at].endswith(form.name_prefix):
            start = at - len(form.name_prefix)
        return start, span[1]
    made = (
        param_form(body, at, name, arguments)
        if form.style == "params"
        else bracket_form(body, at, name, arguments)
    )
    return (made[1], made[2]) if made else None


def _equal(value: Any, arguments: dict[str, Any]) -> bool:
    """Whether a value is the arguments, or JSON text of them."""
    if isinstance(value, str):
        read = decode_json_at(value, 0)
        value = read[0] if read else None
    return bool(value == arguments)


def _find_json(
    body: str, name: str, arguments: dict[str, Any], pos: int = 0
) -> tuple[CallForm, int, int] | None:
    """Find a JSON object or list that holds the whole call."""
    for found in _BRACKETS.finditer(body, pos):
        read = decode_json_at(body, found.start())
        if read is None:
            continue
        value, end = read
        listed = isinstance(value, list)
        item = value[0] if listed and value else value
        if not isinstance(item, dict):
            continue
        for wrapper in (None, *item):
            inner = item if wrapper is None else item[wrapper]
            if not isinstance(inner, dict):
                continue
            names = [key for key, held in inner.items() if held == name]
            holding = [key for key, held in inner.items() if _equal(held, arguments)]
            if names and holding:
                form = CallForm(
                    "json",
                    listed=listed,
                    name_keys=(names[0],),
                    argument_keys=(holding[0],),
                    wrapper_keys=(wrapper,) if wrapper else (),
                    id_keys=tuple(
                        key for key, held in (inner | item).items() if held in (*IDS, *NAMED_IDS)
                    )
                    or ("id",),
                )
                return form, found.start(), end
    return None


def _find_arguments(
    body: str, pos: int, arguments: dict[str, Any]
) -> tuple[int, int, ValueForm] | None:
    """Find the arguments as one JSON object, or a Python one, after a name."""
    for found in re.compile(r"\{").finditer(body, pos):
        read = decode_json_at(body, found.start())
        if read is not None and read[0] == arguments:
            return found.start(), read[1], "json"
        try:
            literal = python_value(body, found.start())
        except Invalid:
            continue
        if literal is not None and literal[0] == arguments:
            return found.start(), literal[1], "python"
    return None
