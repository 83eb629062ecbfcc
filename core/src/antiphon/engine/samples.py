"""Make training samples in which every turn stands in the context that the model has at inference.

A conversation whose template never rewrites what it has printed is one sample. Where the template rewrites history (an
earlier turn loses its reasoning), one sequence can't show every turn as the model would generate it; then the
conversation becomes the fewest sequences that do, each turn trained in exactly one of them.
"""

from __future__ import annotations

import math
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from antiphon.engine.caches import BoundedCache
from antiphon.engine.extension import closing_ids, compose
from antiphon.engine.extents import is_answer
from antiphon.engine.pieces import Pieces
from antiphon.engine.rendering import Rendering, render_source
from antiphon.engine.sampled import Sampled, split_sampled
from antiphon.engine.shapes import shape_of
from antiphon.engine.source import Source, prepare
from antiphon.engine.tokenization import TokenizedRendering, assemble
from antiphon.engine.tokenizers import TokenizerView
from antiphon.engine.turns import context_key
from antiphon.errors import MaskUnavailable, RenderError
from antiphon.plugins.events import rendering_made

if TYPE_CHECKING:
    from antiphon.engine.turns import Turn


def training_samples(
    messages: Any,
    tokenizer: Any,
    *,
    tools: Sequence[Any] | None = None,
    chat_template: str | None = None,
    family: str | None = None,
    **template_kwargs: Any,
) -> list[TokenizedRendering]:
    """Return the fewest token sequences that show each assistant turn behind its own prompt.

    In each, the masked tokens of a turn stand right behind the ids of
    ``render(messages before it, add_generation_prompt=True)``. Turns that a sequence shows rewritten, or that another
    sequence trains, are context there (mask 0). Messages that carry sampled ids have them in their turns, where they
    are trained; a sequence's ``breaks`` tell of those that were edited since.

    Args:
        messages: The conversation; a list of dicts or a History.
        tokenizer: The tokenizer.
        tools: As for `antiphon.render`.
        chat_template: As for `antiphon.render`.
        family: As for `antiphon.render`.
        **template_kwargs: Further variables of the template.

    Raises:
        MaskUnavailable: The turn of a message could not be found.
        TemplateRefused: The template refuses the conversation.
    """
    plain, sampled = split_sampled(messages, 0)
    source = prepare(
        messages if hasattr(messages, "to_chats") else plain,
        tokenizer,
        chat_template=chat_template,
        family=family,
        tools=tools,
        template_kwargs=template_kwargs,
    )
    return [plan.encode(sampled=sampled) for plan in plan_samples(source, tokenizer)]


class SamplePlan:
    """One training sample that is not encoded yet.

    Attributes:
        rendering: The rendering that it is made from.
        messages: The assistant messages that it trains.
    """

    def __init__(
        self,
        rendering: Rendering,
        messages: Iterable[int],
        leaf: _Sample | None,
        covered: dict[int, _Sample],
    ) -> None:
        self.rendering = rendering
        self.messages = frozenset(messages)
        self._leaf = leaf
        self._covered = covered

    @property
    def follows_template(self) -> bool:
        """Whether the sample is the template's own rendering, and not a turn set behind its prompt."""
        return self._leaf is None or self._leaf.text == self.rendering.text

    @property
    def text(self) -> str:
        """The sample's text."""
        return self.rendering.text if self._leaf is None else self._leaf.text

    def encode(
        self,
        only: Container[int] | None = None,
        sampled: Mapping[int, Sampled] | None = None,
    ) -> TokenizedRendering:
        """Encode, with a mask on the turns of `messages`, or on those of them that are in ``only``.

        Args:
            only: Messages that may be trained.
            sampled: What was sampled: those ids stand in their turns. ``breaks`` tell of turns of `messages` whose ids
                could not be kept (mask 0).
        """
        chosen = {message for message in self.messages if only is None or message in only}
        known = {
            message: own
            for message, own in (sampled or {}).items()
            if message < len(self.rendering.source.messages)
        }
        if not self.follows_template:
            assert self._leaf is not None
            made = self._leaf.encode_behind_prompt(chosen, self._covered, known)
        else:
            base = compose(self.rendering, known)
            turns = self._turns(chosen)
            made = base
            if len(turns) < len(self.rendering.turns):
                mask = _mask_on(base, turns)
                both = [a and b for a, b in zip(mask, base._mask, strict=True)] if known else mask
                made = replace(base, _mask=both)
        made.breaks = [found for found in made.breaks if found.message in self.messages]
        made.masked = frozenset(chosen)
        rendering_made(made.rendering)
        return made

    def _turns(self, chosen: Container[int]) -> list[tuple[int, int]]:
        """Where the turns of messages stand in the text."""
        if self._leaf is not None:
            return [(s.start, s.end) for m, s in self._covered.items() if m in chosen]
        return [(t.start, t.end) for t in self.rendering.turns if t.message in chosen]


def plan_samples(source: Source, tokenizer: Any) -> list[SamplePlan]:
    """Return the fewest samples for a conversation, in the order of the turns that they train.

    Rendering the conversation up to each of its turns tells where the template rewrites what it has printed. Which
    turns stand together is remembered by the conversation's shape (`antiphon.engine.shapes`); then one rendering for
    each sample is enough.

    Raises:
        MaskUnavailable: The turn of a message could not be found.
        TemplateRefused: The template refuses the conversation.
    """
    assistants = _assistants(source)
    if not assistants:
        return [SamplePlan(render_source(source, tokenizer, False), (), None, {})]
    shown = source.messages[: assistants[-1] + 1]
    key = (context_key(source), shape_of(shown, source.template))
    known = _parts.get(key)
    if known is not None:
        plans = [
            SamplePlan(
                render_source(replace(source, messages=shown[: last + 1]), tokenizer, False),
                messages,
                None,
                {},
            )
            for last, messages in known
        ]
        if all(plan.messages <= {t.message for t in plan.rendering.turns} for plan in plans):
            return plans
    samples = [_sample(source, index, tokenizer) for index in assistants]
    found = [sample for sample in samples if sample is not None]
    if not found:
        return [SamplePlan(render_source(source, tokenizer, False), (), None, {})]
    # A sequence that another one begins with adds nothing: the longest ones are enough, and none of them can go.
    longest: list[_Sample] = []
    for sample in sorted(found, key=lambda s: len(s.known), reverse=True):
        if not any(other.known.startswith(sample.known) for other in longest):
            longest.append(sample)
    longest.sort(key=lambda sample: sample.message)
    trained: set[int] = set()
    result = []
    for leaf in longest:
        covered = {
            s.message: s
            for s in found
            if s.message not in trained and leaf.known.startswith(s.known)
        }
        trained |= covered.keys()
        result.append(SamplePlan(leaf.rendering, covered, leaf, covered))
    if all(_is_rendered(leaf, plan) for leaf, plan in zip(longest, result, strict=True)):
        parts = zip(longest, result, strict=True)
        _parts.put(key, tuple((leaf.message, plan.messages) for leaf, plan in parts))
    return result


def _is_rendered(leaf: _Sample, plan: SamplePlan) -> bool:
    """Whether the rendering up to the leaf's message shows the turns just where they are trained."""
    turns = {(t.message, t.start, t.end) for t in leaf.rendering.turns}
    own = {(s.message, s.start, s.end) for s in plan._covered.values()}
    located = plan.messages.isdisjoint(leaf.rendering.unlocated)
    return plan.follows_template and located and own <= turns


def _mask_on(base: TokenizedRendering, turns: Iterable[tuple[int, int]]) -> list[bool]:
    """Return the mask of ``base`` on some of its turns only."""
    allowed = list(turns)
    pieces = base._pieces
    inside = [
        turn and any(a <= start and end <= b for a, b in allowed)
        for start, end, _, turn in pieces.rows()
    ]
    return Pieces(pieces.starts, pieces.ends, pieces.controls, inside, pieces.counts).mask()


def _assistants(source: Source) -> list[int]:
    return [i for i, message in enumerate(source.messages) if is_answer(message)]


class _Sample:
    """The conversation up to one assistant turn, as the model would have it right after generating that."""

    def __init__(
        self,
        message: int,
        prompt: str | None,
        rendering: Rendering,
        start: int,
        end: int,
        text: str,
    ) -> None:
        self.message = message
        self.prompt = prompt
        self.rendering = rendering
        self.start, self.end = start, end  # of the turn in ``text``
        self.text = text
        self.known = text[:end]

    def encode_behind_prompt(
        self, chosen: Container[int], covered: dict[int, _Sample], sampled: dict[int, Sampled]
    ) -> TokenizedRendering:
        """Encode prompt and turn where the template's own rendering does not go on from its prompt."""
        source = self.rendering.source
        prompt = render_source(
            replace(source, messages=source.messages[: self.message]),
            self.rendering.tokenizer,
            True,
        )
        own = sampled.get(self.message)
        base = compose(prompt, {m: s for m, s in sampled.items() if m < self.message})
        turns = [(s.start, s.end) for m, s in covered.items() if m in chosen and s is not self]
        earlier = [a and b for a, b in zip(_mask_on(base, turns), base._mask, strict=True)]
        breaks, placed = list(base.breaks), dict(base.sampled)
        ids, closing, trained = self._turn_ids(base._view), [], self.message in chosen
        log_probs = base.log_probs or [math.nan] * len(base)
        if own is not None:
            verdict = compose(self.rendering, {self.message: own})
            if own.edited:
                breaks += verdict.breaks
                trained = False
            else:
                placed[self.message] = own.placed(len(base))
                ids, closing = own.ids, closing_ids(self.rendering, own)
                log_probs = log_probs + (own.log_probs or [math.nan] * len(ids))
        whole = [*base.input_ids, *ids, *closing]
        log_probs = log_probs + [math.nan] * (len(whole) - len(log_probs))
        return TokenizedRendering(
            whole,
            prompt,
            [*earlier, *[trained] * len(ids), *[False] * len(closing)],
            Pieces(),
            base._view,
            breaks,
            placed,
            log_probs if any(s.log_probs is not None for s in placed.values()) else None,
            settled=[*base.message_index, *[self.message] * len(ids), *[-1] * len(closing)],
        )

    def _turn_ids(self, tokens: TokenizerView) -> list[int]:
        """The ids of the turn's text, encoded alone."""
        answer = replace(
            self.rendering,
            text=self.text[self.start : self.end],
            origins=(),
            found={},
        )
        pieces = Pieces()
        position = 0
        for first, last, token in tokens.controls(answer.text, answer.source.template):
            if first > position:
                pieces.add(position, first, -1, True)
            pieces.add(first, last, token, True)
            position = last
        if position < len(answer.text):
            pieces.add(position, len(answer.text), -1, True)
        return assemble(answer, pieces, tokens, allow_control_tokens=True).input_ids


def _sample(source: Source, index: int, tokenizer: Any) -> _Sample | None:
    """Return the conversation up to message ``index``; None where the template shows nothing of it."""
    last = render_source(replace(source, messages=source.messages[: index + 1]), tokenizer, False)
    for message, reason in last.unlocated.items():
        if message == index:
            raise MaskUnavailable(
                f"The turn of message {index} could not be found in the rendering of the template {source.name}: "
                f"{reason}; give another template."
            )
    turn = next((turn for turn in last.turns if turn.message == index), None)
    if turn is None:
        return None
    try:
        prompt = render_source(
            replace(source, messages=source.messages[:index]), tokenizer, True
        ).text
    except RenderError:  # an assistant message that comes first has no prompt of its own
        prompt = None
    if prompt is None or not prompt or last.text[: turn.start] == prompt:
        return _Sample(index, prompt, last, turn.start, turn.end, last.text)
    text = _as_generated(source, index, prompt, last, turn)
    return _Sample(index, prompt, last, len(prompt), len(text), text)


def _as_generated(source: Source, index: int, prompt: str, last: Rendering, turn: Turn) -> str:
    """Return prompt and turn, where the template prints the turn otherwise than behind its prompt.

    Where the template cuts reasoning out of the content, the content is what was generated; what of it the prompt has
    opened already does not stand twice.
    """
    content = source.messages[index].get("content")
    shown = [
        span for span in last.spans if span.message == index and span.field[:1] == ("content",)
    ]
    if isinstance(content, str) and shown and not source.messages[index].get("tool_calls"):
        opened = max(
            size
            for size in range(min(len(content), len(prompt)) + 1)
            if prompt.endswith(content[:size])
        )
        if content[:opened].strip():
            return (
                prompt
                + str.__getitem__(content, slice(opened, None))
                + last.text[shown[-1].end : turn.end]
            )
    return prompt + last.text[turn.start : turn.end]


# For shapes of conversations: the last message of each sample, and the messages that it trains.
_parts: BoundedCache[Hashable, tuple[tuple[int, frozenset[int]], ...]] = BoundedCache(4096)
