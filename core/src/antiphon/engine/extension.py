"""Extend a conversation without encoding a sampled token again.

An assistant message that a backend sampled carries its exact ids (``token_ids``) and log-probs (``log_probs``). The
conversation is rendered whole. Where the turn of a sampled message still has the text that it had when it was the last
one, its sampled ids stand there, whatever they were: malformed calls, odd white space, half a character, a cut-off
answer (which an end token closes, with mask 0). Only what is new is encoded. Where the template has rewritten the turn
since (Qwen3 drops earlier reasoning) the rewritten text is used, and ``breaks`` says so; likewise where somebody has
edited the message (see `antiphon.engine.sampled`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from antiphon.engine.growing import longer
from antiphon.engine.pieces import Pieces
from antiphon.engine.rendering import Rendering, render_source
from antiphon.engine.sampled import Sampled, attach, check_tokenizer, split_sampled
from antiphon.engine.source import Source, prepare
from antiphon.engine.tokenization import (
    Break,
    TokenizedRendering,
    assemble,
    plan,
    tokenize,
)
from antiphon.engine.tokenizers import view
from antiphon.engine.tracing import trace
from antiphon.errors import InvalidMessage, TokenizerMismatch, TurnRewritten
from antiphon.plugins.events import rendering_made

if TYPE_CHECKING:
    from antiphon.engine.turns import Turn

BreakPolicy = Literal["keep", "append", "raise", "split"]


def extend(
    previous: TokenizedRendering | None,
    new_messages: Any,
    *,
    tokenizer: Any = None,
    add_generation_prompt: bool = False,
    on_break: BreakPolicy = "keep",
    **render_options: Any,
) -> TokenizedRendering:
    """Return the conversation of ``previous`` with ``new_messages`` behind it.

    Args:
        previous: The tokens so far, usually a prompt; None begins a conversation.
        new_messages: Messages, or a History. A sampled one carries ``token_ids`` (list of int) and may carry
            ``log_probs`` (a float for each); templates don't see these.
        tokenizer: Needed where there is no ``previous``.
        add_generation_prompt: End with what precedes the model's next answer.
        on_break: What to do where the template has rewritten a sampled turn: "keep" the rewritten turn as context
            (mask 0); "append" to the ids so far all the same, as if the template had left them alone; "raise"; or
            "split": as keep, with ``starts_anew`` set, so that the caller ends the trajectory so far and begins
            another.
        **render_options: What `antiphon.render` takes, where there is no ``previous``.

    Returns:
        Tokens that start with ``previous.input_ids``, unless ``breaks`` says otherwise.

    Raises:
        TurnRewritten: A sampled turn was rewritten and ``on_break`` is "raise".
        TokenizerMismatch: ``previous`` was made with another tokenizer.
    """
    if on_break not in get_args(BreakPolicy):
        raise InvalidMessage(
            f"on_break is one of {', '.join(get_args(BreakPolicy))}, not {on_break!r}."
        )
    if not isinstance(previous, (TokenizedRendering, type(None))):
        raise InvalidMessage(
            f"extend() goes on from a TokenizedRendering, or from None, not {type(previous).__name__}: call "
            "rendering.tokenize() first."
        )
    count = 0 if previous is None else len(previous.rendering.messages)
    plain, fresh = split_sampled(new_messages, count)
    if previous is None:
        if tokenizer is None:
            raise TokenizerMismatch(
                "extend() needs a tokenizer to begin a conversation; pass tokenizer=."
            )
        template = {k: v for k, v in render_options.items() if k not in _PREPARED}
        known = {k: v for k, v in render_options.items() if k in _PREPARED}
        source = prepare(plain, tokenizer, **known, template_kwargs=template)
        rendering = render_source(source, tokenizer, add_generation_prompt)
        rendering_made(rendering)
        return _settle(compose(rendering, fresh), on_break)
    if tokenizer is not None and view(tokenizer) is not previous._view:
        now, before = view(tokenizer), previous._view
        if not now.is_of(before.fingerprint):
            raise TokenizerMismatch(
                f"The conversation so far was encoded with another tokenizer ({before.fingerprint}) than this one "
                f"({now.fingerprint}); use the one it began with, or begin anew."
            )
    if render_options:
        raise InvalidMessage(
            f"{', '.join(sorted(render_options))}: a conversation keeps the template and variables that it began with."
        )
    tokenizer = previous.rendering.tokenizer if tokenizer is None else tokenizer
    source = longer(previous.rendering.source, plain)
    rendering = render_source(source, tokenizer, add_generation_prompt)
    rendering_made(rendering)
    result = _append(previous, rendering, fresh, on_break) or compose(
        rendering, {**previous.sampled, **fresh}, previous
    )
    return _settle(result, on_break)


def _settle(result: TokenizedRendering, on_break: BreakPolicy) -> TokenizedRendering:
    """Do what the policy says about sampled turns that could not be kept.

    Raises:
        TurnRewritten: There are some and the policy is "raise".
    """
    if result.breaks and on_break == "raise":
        raise TurnRewritten(rewritten(result.breaks[0], result.rendering.source.name))
    result.starts_anew = bool(result.breaks) and on_break == "split"
    return result


def rewritten(found: Break, template: str) -> str:
    """Say to people what has become of a sampled turn, and what to do."""
    if found.edited:
        return (
            f"Message {found.message} was edited after it was sampled ({found.was[:60]!r} became {found.now[:60]!r}); "
            "leave its token_ids out, or use on_break='split' or 'keep'."
        )
    return (
        f"The template {template} has rewritten the sampled turn of message {found.message} "
        f"({found.was[:60]!r} became {found.now[:60]!r}); use on_break='split' or 'keep', or a template that leaves "
        "earlier turns alone."
    )


_PREPARED = frozenset({"chat_template", "family", "tools", "documents"})


def _append(
    previous: TokenizedRendering,
    rendering: Rendering,
    fresh: dict[int, Sampled],
    on_break: BreakPolicy,
) -> TokenizedRendering | None:
    """Put the new tokens behind those of ``previous``; None where the text does not simply go on."""
    first = len(previous.rendering.messages)
    text, before = rendering.text, previous.rendering.text
    if previous.rendering.continued:
        return None
    if not fresh:
        if text.startswith(before) and _cut_there(rendering, len(before)):
            return _join(previous, rendering, len(before), None, None)
        return None
    if list(fresh) != [first] or not previous.rendering.add_generation_prompt:
        return None
    own = fresh[first]
    check_tokenizer(fresh, rendering.tokenizer)
    _canonical(rendering, first, own, before)
    if own.edited:
        return None
    # All that came before must stand unchanged: the prompt's text, less what it opened for the answer.
    if own.context is not None and own.text is not None and before.startswith(own.context):
        whole = own.context + own.text
        if text.startswith(whole):
            return _join(previous, rendering, len(whole), first, own)
    turn = next((turn for turn in rendering.turns if turn.message == first), None)
    if turn is None:
        return None
    now = text[turn.start : turn.end]
    if text.startswith(before) and turn.start == len(before) and _stands(rendering, own, now):
        return _join(previous, rendering, turn.end, first, own)
    if on_break == "append":
        result = _join(previous, rendering, turn.end, first, own)
        result.breaks.append(_break(first, own.text or "", now))
        return result
    return None


def _stands(rendering: Rendering, own: Sampled, now: str) -> bool:
    """Whether a sampled turn that now reads ``now`` is still what was sampled.

    A message that was edited is not. Else it is where it reads as it did while the message was the last one, or as the
    ids themselves (with or without the end token that they may lack). Templates may also have put something in front
    of the last turn, an empty reasoning block, that the ids never had and that is gone now.
    """
    if own.edited:
        return False
    if now == own.text:
        return True
    tokens = view(rendering.tokenizer)
    spelled = tokens.decode(own.ids)
    if now in (spelled, tokens.decode([*own.ids, *closing_ids(rendering, own)])):
        return True
    added = (own.text or "").removesuffix(now)
    return now != "" and 0 < len(added) <= own.scaffold and not spelled.startswith(added)


def _break(message: int, was: str, now: str) -> Break:
    return Break(message, _first_difference(was, now), was, now)


def _cut_there(rendering: Rendering, position: int) -> bool:
    """Whether pieces of the text end at ``position``, so that the ids on both sides add up."""
    tokens = view(rendering.tokenizer)
    return position == 0 or position in plan(rendering, tokens).ends


def _join(
    previous: TokenizedRendering,
    rendering: Rendering,
    start: int,
    message: int | None,
    own: Sampled | None,
) -> TokenizedRendering:
    """Return the ids so far, those sampled for ``message``, and the text from ``start`` on."""
    tokens = previous._view
    rest = assemble(rendering, plan(rendering, tokens).since(start), tokens)
    ids, mask = list(previous.input_ids), list(previous._mask)
    log_probs = previous.log_probs
    sampled = dict(previous.sampled)
    if message is not None and own is not None:
        own = own.placed(len(ids))
        sampled[message] = own
        closing = closing_ids(rendering, own)
        ids += own.ids + closing
        mask += [True] * len(own.ids) + [False] * len(closing)
        if own.log_probs is not None:
            log_probs = [
                *(log_probs or []),
                *[math.nan] * (own.start - len(log_probs or [])),
                *own.log_probs,
            ]
    # Places of earlier pieces hold where the earlier text still stands; otherwise what they show is settled now.
    same = rendering.text.startswith(previous.rendering.text)
    settled = previous.settled if same else previous.message_index
    sampled_now = Pieces([start], [start], [-1], [True], [len(ids) - len(previous.input_ids)])
    placed = (previous._pieces if same else Pieces()) + sampled_now + rest._pieces
    ids += rest.input_ids
    mask += rest._mask
    if log_probs is not None:
        log_probs = [*log_probs, *[math.nan] * (len(ids) - len(log_probs))]
    return TokenizedRendering(
        ids,
        rendering,
        mask,
        placed,
        tokens,
        list(previous.breaks),
        sampled,
        log_probs,
        settled=settled,
    )


def compose(
    rendering: Rendering, sampled: dict[int, Sampled], previous: TokenizedRendering | None = None
) -> TokenizedRendering:
    """Encode a rendering with the ids of its sampled messages in their turns."""
    base = tokenize([rendering], rendering.tokenizer)[0]
    if not sampled:
        return base
    tokens = base._view
    check_tokenizer(sampled, rendering.tokenizer)
    turns: dict[int, Turn] = {turn.message: turn for turn in rendering.turns}
    breaks: list[Break] = []
    kept: dict[int, Sampled] = {}
    for message, own in sorted(sampled.items()):
        _canonical(rendering, message, own)
        turn = turns.get(message)
        now = rendering.text[turn.start : turn.end] if turn is not None else ""
        if turn is not None and _stands(rendering, own, now):
            kept[message] = own
        elif own.edited:
            was = tokens.decode(own.ids)
            breaks.append(_break(message, was, now)._replace(edited=True))
        else:
            breaks.append(_break(message, own.text or "", now))
    if not breaks and previous is not None:
        changed = _first_difference(previous.rendering.text, rendering.text)
        if changed < len(previous.rendering.text) and not _same_but_prompt(
            previous, rendering, kept
        ):
            where = next((s.message for s in previous.rendering.spans if s.end > changed), -1)
            breaks.append(
                Break(
                    where,
                    changed,
                    previous.rendering.text[changed:][:200],
                    rendering.text[changed:][:200],
                )
            )
    rewritten = {b.message for b in breaks}
    ids: list[int] = []
    mask: list[bool] = []
    log_probs: list[float] = []
    placed = Pieces()
    result_sampled: dict[int, Sampled] = {}
    position = 0
    owners = sorted((turns[m].start, turns[m].end, m) for m in {*kept, *(rewritten & turns.keys())})
    number = 0

    def add(
        tokens_: list[int],
        masked: bool,
        first: int,
        last: int,
        turn: bool,
        probs: list[float] | None = None,
    ) -> None:
        ids.extend(tokens_)
        mask.extend([masked] * len(tokens_))
        log_probs.extend(probs or [math.nan] * len(tokens_))
        placed.add_encoded(first, last, turn, len(tokens_))

    for (first, last, _, inside), count in zip(
        base._pieces.rows(), base._pieces.counts, strict=True
    ):
        part = base.input_ids[position : position + count]
        position += count
        while number < len(owners) and first >= owners[number][1]:
            number += 1
        start, end, message = (
            owners[number] if number < len(owners) else (len(rendering.text) + 1, 0, -1)
        )
        if first < start or message not in kept:
            masked = inside and not (first >= start and message in rewritten)
            add(part, masked, first, last, inside)
        elif first == start:
            own = kept[message]
            add(own.lead, False, start, start, False)
            result_sampled[message] = own.placed(len(ids))
            add(own.ids, True, start, end, True, own.log_probs)
            add(closing_ids(rendering, own), False, end, end, False)
    has_probs = any(own.log_probs is not None for own in result_sampled.values())
    return TokenizedRendering(
        ids,
        rendering,
        mask,
        placed,
        tokens,
        breaks=breaks,
        sampled=result_sampled,
        log_probs=log_probs if has_probs else None,
    )


def _canonical(
    rendering: Rendering, message: int, sampled: Sampled, prompt: str | None = None
) -> None:
    """Fill in what the turn of a sampled message looks like while the message is the last one.

    ``prompt`` is the text that it was sampled behind, where that is at hand.
    """
    if sampled.text is not None or sampled.known:
        return
    source = rendering.source
    shorter = replace(source, messages=source.messages[: message + 1])
    last = render_source(shorter, rendering.tokenizer, False)
    turn = next((t for t in last.turns if t.message == message), None)
    sampled.known = True
    if turn is None:
        return
    sampled.text, sampled.context = last.text[turn.start : turn.end], last.text[: turn.start]
    first = min((span.start for span in last.spans if span.start >= turn.start), default=turn.end)
    sampled.scaffold = min(first, turn.end) - turn.start
    if turn.closed:
        pieces = plan(last, view(rendering.tokenizer))
        ends = [control for _, _, control, inside in pieces.rows() if inside and control >= 0]
        sampled.closing = ends[-1:]
    if prompt is None:
        before = replace(source, messages=source.messages[:message])
        prompt = render_source(before, rendering.tokenizer, True).text
    if prompt.startswith(sampled.context) and len(prompt) > len(sampled.context):
        # The prompt opened something that the rendered turn does not show.
        tokens = view(rendering.tokenizer)
        sampled.lead = _encode_scaffold(prompt[len(sampled.context) :], source, tokens)


def _encode_scaffold(text: str, source: Source, tokens: Any) -> list[int]:
    ids: list[int] = []
    position = 0
    for start, end, token in tokens.controls(text, source.template):
        ids += tokens.encode([text[position:start]])[0] if start > position else []
        ids.append(token)
        position = end
    return ids + (tokens.encode([text[position:]])[0] if position < len(text) else [])


def closing_ids(rendering: Rendering, sampled: Sampled) -> list[int]:
    """Return the end token that a cut-off answer lacks."""
    last = sampled.ids[-1] if sampled.ids else None
    added = view(rendering.tokenizer).added
    if last is not None and (last in sampled.closing or added.get(last, ("", False))[1]):
        return []
    return sampled.closing


def _same_but_prompt(
    previous: TokenizedRendering, rendering: Rendering, kept: dict[int, Sampled]
) -> bool:
    """Whether all of the text so far is there but for what the prompt opened for an answer."""
    changed = _first_difference(previous.rendering.text, rendering.text)
    return any(
        own.context is not None and len(own.context) == changed and own.lead
        for own in kept.values()
    )


def _first_difference(one: str, other: str) -> int:
    if other.startswith(one):
        return len(one)
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


__all__ = ["BreakPolicy", "attach", "compose", "extend", "split_sampled", "trace"]
