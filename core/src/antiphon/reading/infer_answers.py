"""Reading the inside of an answer off a template: reasoning, calls, tool results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from antiphon.reading.grammar import (
    ContentForm,
    Grammar,
    Literals,
    Opened,
    ReasoningForm,
    RoleForm,
)
from antiphon.reading.infer_calls import add_calls
from antiphon.reading.infer_turns import MARKER, Turns, whole_markers
from antiphon.reading.probing import TOOLS, Prober, common_prefix, cut, word
from antiphon.reading.scan import WHITE

_REASON = "Rsnwq1x"
_DEFAULT = ReasoningForm("<think>\n", "\n</think>\n\n", separate=False)


def add_answers(grammar: Grammar, prober: Prober, turns: Turns) -> Grammar:
    """Return the grammar with what stands inside answers."""
    grammar = _add_reasoning(grammar, prober, turns)
    return add_calls(grammar, prober, turns)


def answer_openers(grammar: Grammar, before: str = "user") -> list[str]:
    """Return the literals that open an answer after a role, longest first."""
    found = [
        form.opener
        for form in grammar.forms("assistant")
        if isinstance(form.opener, str) and (form.after is None or before in form.after)
    ]
    return sorted(found, key=len, reverse=True)


def _add_reasoning(grammar: Grammar, prober: Prober, turns: Turns) -> Grammar:
    prompts = [
        text[len(turns.closers.get("u", "")) :]
        for text in turns.prompts["u"]
        if text.startswith(turns.closers.get("u", ""))
    ]
    question, answer = word("u", 0), word("a", 1)
    text = prober.render(
        [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer, "reasoning_content": _REASON},
        ]
    )
    parts = cut(text, [question, _REASON, answer]) if text is not None else None
    closer = turns.closers.get("u", "")
    if parts is None or not parts[1].startswith(closer):
        block = _elsewhere(grammar, prober, turns)
        if block is not None:
            opened = _opened(block.opener.strip(WHITE), prompts)
            return replace(grammar, reasoning=replace(block, opened=opened))
        thinks = "</think>" in prober.template or any("<think>" in prompt for prompt in prompts)
        if not thinks:
            return grammar
        return replace(grammar, reasoning=replace(_DEFAULT, opened=_opened("<think>", prompts)))
    before, after = parts[1][len(closer) :], parts[2]
    openers = answer_openers(grammar)
    fitting = [opener for opener in openers if before.startswith(opener) and opener != before]
    content = None
    empty: tuple[str, ...] = ()
    if fitting:
        base = fitting[0]
    else:
        base, section = _split_header(before, openers)
        if section:
            content = ContentForm(section)
            after = after.removesuffix(section)
    sections = [item[len(base) :] for item in openers if item.startswith(base)]
    for section in sections:
        if (
            content is None
            and MARKER.search(section)
            and after.endswith(section)
            and after.strip(WHITE) != section.strip(WHITE)
        ):
            # The content has a marker of its own, which calls do without.
            content = ContentForm(section)
            after = after.removesuffix(section)
    opener = before[len(base) :]
    if not opener.strip(WHITE) or not after.strip(WHITE):
        return grammar
    if base not in openers and not base.strip(WHITE):
        return grammar
    core = after.strip(WHITE)
    empty = tuple(
        dict.fromkeys(
            opening[len(base) :]
            for opening in openers
            if opening.startswith(base) and core in opening[len(base) :]
        )
    )
    roles: tuple[RoleForm, ...] = grammar.roles
    if base not in openers:
        like = next(form for form in roles if form.role == "assistant")
        roles += (replace(like, opener=base, after=("user",), unclosed=False),)
    # What stands between reasoning and content stands between two answers in some formats.
    roles = tuple(
        form
        for form in roles
        if not (
            form.role == "assistant"
            and form.after == ("assistant",)
            and literal_text(form.opener).startswith(after.strip(WHITE))
        )
    )
    reasoning = ReasoningForm(
        opener,
        after,
        trimmed=_trimmed(prober),
        opened=_opened(opener.strip(WHITE), prompts),
        empty=empty,
        empty_cut=True,
    )
    continued: tuple[str, ...] = ()
    header = base.strip(WHITE)
    if content is not None and after.strip(WHITE).endswith(header) and MARKER.match(header):
        # Each part of an answer has the header again.
        continued = tuple(dict.fromkeys((after.strip(WHITE), header)))
    return replace(grammar, roles=roles, reasoning=reasoning, content=content, continued=continued)


def _trimmed(prober: Prober) -> str | None:
    """Return what a template strips from reasoning; see `ReasoningForm.trimmed`."""
    ways: tuple[tuple[str | None, str], ...] = ((None, " "), ("\n", "\n"))
    for chars, around in ways:
        thought = f"{around}{_REASON}{around}"
        answer = {"role": "assistant", "content": word("a", 1), "reasoning_content": thought}
        text = prober.render([{"role": "user", "content": word("u", 0)}, answer])
        if text is not None and thought not in text:
            return chars
    return ""


def _elsewhere(grammar: Grammar, prober: Prober, turns: Turns) -> ReasoningForm | None:
    """Find the reasoning block where templates print it only beside calls, or only as a part."""
    question, answer = word("u", 0), word("a", 1)
    asked = {"role": "user", "content": question}
    call = {"id": "call00001", "type": "function", "function": {"name": "kalwq", "arguments": {}}}
    said = {"type": "text", "text": answer}
    ways: tuple[tuple[dict[str, Any], dict[str, Any], bool], ...] = (
        ({"content": "", "tool_calls": [call]}, {"reasoning_content": _REASON}, True),
        (
            {"content": [said]},
            {"content": [{"type": "thinking", "thinking": _REASON}, said]},
            False,
        ),
    )
    closer = turns.closers.get("u", "")
    for usual, more, separate in ways:
        texts = []
        for fields in (usual, {**usual, **more}):
            text = prober.render([asked, {"role": "assistant", **fields}], tools=TOOLS[0])
            texts.append((text or "").partition(question + closer)[2])
        without, within = texts
        if within.count(_REASON) != 1:
            continue
        before, _, after = within.partition(_REASON)
        for header in answer_openers(grammar):
            body = without[len(header) :]
            opener = before[len(header) :]
            if not (without.startswith(header) and before.startswith(header)):
                continue
            if body and after.endswith(body) and MARKER.match(opener.strip(WHITE)):
                end = after[: len(after) - len(body)]
                if end.strip(WHITE):
                    return ReasoningForm(opener, end, separate=separate)
    return None


def _split_header(before: str, openers: list[str]) -> tuple[str, str]:
    """Split what stands before the reasoning into the answer's header and the block's opener.

    Returns:
        The header, and what marks the content where that has a marker of its own.
    """
    shared = max((common_prefix([before, opener]) for opener in openers), key=len, default="")
    shared = whole_markers(shared, [before, *openers])
    nearest = next((opener for opener in openers if opener.startswith(shared)), "")
    markers = [found for found in MARKER.finditer(before)]
    rest = nearest[len(shared) :]
    if shared and rest and markers and not MARKER.match(before[len(shared) :].lstrip(WHITE)):
        # Both go on with plain text: the marker that they share is the section's own.
        last = [found for found in markers if found.end() <= len(shared.rstrip(WHITE))]
        if last and last[-1].end() == len(shared.rstrip(WHITE)):
            base = before[: last[-1].start()]
            inner = nearest[len(base) :]
            if MARKER.search(inner[1:]) and "/" not in inner:
                return base, inner
            return base, ""
    if markers:
        return before[: markers[-1].start()], ""
    return shared, ""


def _opened(core: str, prompts: list[str]) -> Opened:
    """Say whether generation prompts open the block."""
    opens = [prompt.rstrip(WHITE).endswith(core) for prompt in prompts]
    if opens and opens[0]:
        return "always"
    return "sometimes" if any(opens) else "never"


def literal_text(literals: Literals) -> str:
    """Return literals with slots left out."""
    if isinstance(literals, str):
        return literals
    return "".join(part for part in literals if isinstance(part, str))
