"""Where a completion begins: what the prompt opened, closed or began to say."""

from __future__ import annotations

from antiphon.reading.compiled import Compiled
from antiphon.reading.conversation import Splitter, splitter_of
from antiphon.reading.events import Tools
from antiphon.reading.machine import Machine
from antiphon.reading.scan import WHITE

_TAIL = 100_000
"""Characters at the end of a prompt that are looked at; an answer that goes on is no longer."""


def begin(
    compiled: Compiled,
    prompt: str | None,
    tools: Tools = None,
    *,
    shows: bool = True,
    keeps: bool = True,
) -> Machine:
    """Return a machine that stands where the completion begins.

    Args:
        compiled: The grammar.
        prompt: The prompt, in the form that `compiled` reads; None where it is not known.
        tools: The parameter schema of each tool, where the tools are known.
        shows: Whether what is read makes events.
        keeps: Whether what each part of the text was is kept.
    """
    reasoning = compiled.grammar.reasoning
    if prompt is None:
        inside = reasoning is not None and reasoning.opened == "always"
        return Machine(compiled, inside=inside, tools=tools, shows=shows, keeps=keeps)
    rest = _rest_of_opener(splitter_of(compiled), prompt)
    if rest:
        return Machine(compiled, tools=tools, shows=shows, keeps=keeps, lead=rest)
    machine = Machine(compiled, tools=tools, shows=shows, keeps=keeps)
    began = answer_begun(compiled, prompt[-_TAIL:])
    if began:
        machine.feed(began)
        if machine.ended_by is not None:
            # That answer has ended: the prompt is behind a later question, whose header has no
            # text of its own.
            return Machine(compiled, tools=tools, shows=shows, keeps=keeps)
        machine.forget()
    return machine


def _rest_of_opener(splitter: Splitter, prompt: str) -> str:
    """Return the white space of an answer's opener that the prompt leaves to the model
    (``"Assistant:"`` for ``"Assistant: "``).
    """
    for opener in splitter.answer_openers:
        bare = opener.rstrip(WHITE)
        if bare and bare != opener and prompt.endswith(bare):
            return opener[len(bare) :]
    return ""


def answer_begun(compiled: Compiled, prompt: str) -> str:
    """Return what the prompt holds of the answer: the text after the last assistant's opener."""
    splitter = splitter_of(compiled)
    best, opening = -1, ""
    for literal in splitter.answer_openers:
        found = prompt.rfind(literal)
        if found >= 0 and found + len(literal) > best:
            best, opening = found + len(literal), literal
    if best >= 0:
        # A block that the header holds was begun and is over: the machine must see it.
        for mark in (compiled.think_open.core, compiled.think_close.core):
            if mark and mark in opening:
                return prompt[best - len(opening) + opening.index(mark) :]
        return prompt[best:]
    # No opener is known: what the prompt says of the reasoning can still be seen at its end.
    opener, closer = compiled.think_open.core, compiled.think_close.core
    if opener:
        at = prompt.rfind(opener)
        if at >= 0 and (not prompt[at + len(opener) :].strip(WHITE) or closer in prompt[at:]):
            rest = prompt[at:]
            if len(rest) < len(opener) + len(closer) + 16:
                return rest
    return ""
