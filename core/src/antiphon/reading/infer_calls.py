"""Reading tool calls and tool results off a template."""

from __future__ import annotations

from dataclasses import replace

from antiphon.reading.grammar import CallForm, Grammar, RoleForm
from antiphon.reading.infer_check import calls_problem
from antiphon.reading.infer_results import Results
from antiphon.reading.infer_shown import (
    ARGUMENTS,
    NAME,
    OTHER,
    OTHER_ARGUMENTS,
    Headers,
    Shown,
    Unreadable,
    find_way,
)
from antiphon.reading.infer_styles import call_form, core_span
from antiphon.reading.infer_turns import (
    MARKER,
    Turns,
    lead_of,
    whole_markers,
    whole_start,
)
from antiphon.reading.probing import Prober, common_prefix, common_suffix, word
from antiphon.reading.scan import WHITE

_SHOWN = 24
"""Characters before a call's name that stand for its opener where that has no marker of its own."""


def add_calls(grammar: Grammar, prober: Prober, turns: Turns) -> Grammar:
    """Return the grammar with calls and tool results, if the template prints any.

    Where it prints them in a way that can't be read, the grammar says so (`Grammar.unread`).
    """
    shown = find_way(prober)
    if shown is None:
        return grammar
    grammar = replace(
        grammar,
        empty_content=shown.content,
        arguments="string" if shown.prober.as_text else "either",
    )
    try:
        made = _Calls(grammar, shown, turns).infer()
    except Unreadable as error:
        return _refuse(grammar, shown, turns, str(error))
    problem = calls_problem(made, shown.prober, shown.content, shown.ids)
    if problem:
        return _refuse(grammar, shown, turns, problem)
    return made


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
    end = whole_start(header[-_SHOWN:], [header])
    unread = tuple(markers[-1:]) or ((end or header,) if len(header.strip()) > 3 else (NAME,))
    note = f"Calls can't be read: {reason}."
    return replace(grammar, unread=unread, notes=(*grammar.notes, note))


class _Calls:
    """One template's calls."""

    def __init__(self, grammar: Grammar, shown: Shown, turns: Turns) -> None:
        self.grammar = grammar
        self.shown = shown
        self.turns = turns
        self.closer = turns.closers.get("a", "")
        self.headers = Headers(grammar, turns)
        self.other_closer = ""

    def infer(self) -> Grammar:
        shown = self.shown
        tail = shown.render(shown.answer())
        if tail is None:
            raise Unreadable("a call is not printed twice the same way")
        header = self.headers.before(tail)
        body = tail[len(header) :]
        form, start, end = call_form(body, shown.ids[0])
        after = body[end:]
        # With a result behind it the answer may have another header: it is the last no more.
        tool = word("t", 2)
        further = shown.render(shown.answer(), shown.result(0, tool))
        before_tool, place = None, 0
        if further is not None and further.count(tool) == 1:
            place = len(self.headers.before(further)) + end
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
        if lead is not None:
            is_always = bool(lead) and body[:start].startswith(lead)
            form = replace(form, lead=lead, lead_always=is_always)
        if not (form.block_opener + form.opener).strip(WHITE):
            if form.style not in ("json", "pythonic"):
                raise Unreadable("nothing marks the beginning of a call")
            form = replace(form, bare=True, block_opener="", opener="")
        if form.param is not None:
            form = replace(form, param=replace(form.param, cdata=self._has_cdata()))
        grammar = replace(self.grammar, calls=(form,))
        prompted = shown.render(shown.answer(), prompt=True) or ""
        whole = tail[: len(header) + end] + shared
        asking = prompted[len(whole) :] if prompted.startswith(whole) else ""
        grammar = self._with_endings(grammar, [text for text in (final, asking) if text])
        if before_tool is None or further is None:
            return grammar
        opener = before_tool[len(shared) :]
        results = Results(shown, self.headers, self.closer)
        return results.add(grammar, body[:end] + shared, opener, is_closed)

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
        short = self.headers.short
        if short is not None and short not in known:
            like = next(item for item in roles if item.role == "assistant")
            roles.append(replace(like, opener=short, after=("user",), unclosed=False))
        return replace(grammar, roles=tuple(roles))

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

    def _layout(self, form: CallForm, before: str, after: str, final: str) -> CallForm:
        """Tell what stands around each call from what stands around all of them."""
        if self.shown.ids[0] in before or self.shown.ids[0] in after:
            raise Unreadable("the call's id stands outside of it")
        if form.listed:
            return replace(form, block_opener=before, block_closer=after)
        shown = self.shown
        tail = shown.render(shown.answer(2))
        if tail is None or OTHER not in tail:
            return replace(form, opener=before, closer=after)
        body = tail[len(self.headers.before(tail)) :]
        first = core_span(form, body, NAME, ARGUMENTS, 0)
        second = core_span(form, body, OTHER, OTHER_ARGUMENTS, first[1]) if first else None
        if first is None or second is None:
            raise Unreadable("two calls stand there unlike one")
        between = body[first[1] : second[0]]
        ahead = body[: first[0]]
        opener = whole_start(common_suffix([ahead, between]), [ahead, between])
        closer = whole_markers(common_prefix([between, after]), [between, after])
        if len(opener) + len(closer) > len(between):
            # They overlap in white space: the closer has it.
            opener = opener[len(opener) + len(closer) - len(between) :]
        if self.shown.ids[0] in between:
            raise Unreadable("the call's id stands outside of it")
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

    def _has_cdata(self) -> bool:
        """Whether values with signs of XML in them stand in a section of their own."""
        answer, value = self.shown.answer(), "Valwq <b> & c"
        answer["tool_calls"][0]["function"]["arguments"] = {"aqx": value}
        return f"<![CDATA[{value}]]>" in (self.shown.render(answer) or "")

    def _content_behind(self, form: CallForm) -> str | None:
        """Return what stands between a call and the content behind it, where that is the order."""
        content = word("a", 1)
        tail = self.shown.render(self.shown.answer(content=content))
        if tail is None or tail.count(content) != 1:
            return None
        body = tail.partition(content)[0][len(self.headers.before(tail)) :]
        core = core_span(form, body, NAME, ARGUMENTS, 0) if NAME in body else None
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
