"""Reading tool results, and what follows them, off a template."""

from __future__ import annotations

import re
from dataclasses import replace

from antiphon.reading.grammar import Grammar, Literals, RoleForm, Slot
from antiphon.reading.infer_shown import NAME, OTHER, Headers, Shown, Unreadable
from antiphon.reading.infer_turns import MARKER, THINKING, whole_markers
from antiphon.reading.probing import Message, common_prefix, word
from antiphon.reading.scan import WHITE

_SOLID = 6
"""Characters that stand between two results if they are to be told apart."""


class Results:
    """One template's tool results.

    Args:
        shown: How the template takes a call.
        headers: What stands before answers.
        closer: What usually closes an answer.
    """

    def __init__(self, shown: Shown, headers: Headers, closer: str) -> None:
        self.shown = shown
        self.headers = headers
        self.closer = closer

    def add(self, grammar: Grammar, core: str, opener: str, is_closed: bool) -> Grammar:
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
            header = self.headers.before(text)
        except Unreadable:
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
        openers = self.headers.openers()
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
