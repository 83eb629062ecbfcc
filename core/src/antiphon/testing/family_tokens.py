"""Checks of ids and masks: what a model is given is what the text says, and content stays content."""

from __future__ import annotations

from itertools import pairwise

from antiphon.engine.batch import render_batch
from antiphon.engine.rendering import Rendering
from antiphon.engine.samples import training_samples
from antiphon.engine.tokenization import TokenizedRendering
from antiphon.engine.tokenizers import TokenizerView, view
from antiphon.testing.results import CheckSkipped, Problems, demand, same_text
from antiphon.testing.scenarios import Case, hostile_texts
from antiphon.testing.subject import FamilySubject, _as_source

_SIGN = "▁"
_FORGED_IN = ("system", "user", "tool")


def check_control_tokens(subject: FamilySubject) -> None:
    """The usual end token is one control token of the tokenizer."""
    tokens = view(subject.tokenizer)
    known = {text for text, _ in tokens.added.values()}
    usual = subject.family.end_tokens[0] if subject.family.end_tokens else ""
    demand(
        usual in known,
        f"the tokenizer has no control token {usual!r}, so no model of it can end a turn so; look at"
        " end_tokens of the descriptor.",
    )
    missing = [
        token
        for token in subject.family.required_tokens
        if token not in subject.tokenizer.get_vocab()
    ]
    demand(not missing, f"the tokenizer lacks the required tokens {missing}.")


def check_tokens(subject: FamilySubject) -> None:
    """Ids decode to the text, the mask shows the turns, a prompt's ids begin what follows it."""
    problems = Problems("Look at the turns (`antiphon render --explain`) and the control tokens.")
    tokens = view(subject.tokenizer)
    for case in subject.cases:
        rendering = subject.rendering(case, prompt=False)
        if rendering is None:
            continue
        with problems.case(case.id):
            made = rendering.tokenize(subject.tokenizer)
            _same_decoded(tokens, made.input_ids, rendering.text, "The decoded text")
            mask = made.assistant_mask
            marked = [i for i, inside in zip(made.input_ids, mask, strict=True) if inside]
            turns = "".join(rendering.text[t.start : t.end] for t in rendering.turns)
            _same_decoded(tokens, marked, turns, "The masked text")
            _check_growth(subject, case, rendering, made)
    problems.settle(at_least=1)


def _same_decoded(tokens: TokenizerView, ids: list[int], text: str, what: str) -> None:
    """Compare a text with its ids; SentencePiece writes spaces with a sign and can't keep that sign."""
    decoded = tokens.decode(ids)
    if _SIGN in text and tokens.decode(tokens.encode([f"a{_SIGN}"])[0]) == "a ":
        text = text.replace(_SIGN, " ")
    same_text(decoded, text, what, names=("ids", "rendering"))


def _check_growth(
    subject: FamilySubject, case: Case, rendering: Rendering, made: TokenizedRendering
) -> None:
    for turn in rendering.turns:
        prompt = subject.rendering(case, turn.message, prompt=True) if turn.message else None
        if prompt is None or rendering.text[: turn.start] != prompt.text or not prompt.text:
            continue
        ids = prompt.tokenize(subject.tokenizer).input_ids
        demand(
            made.input_ids[: len(ids)] == ids,
            f"the ids before message {turn.message} are not those of its prompt",
        )


def check_batch(subject: FamilySubject) -> None:
    """Conversations encoded together have the ids that they have alone."""
    problems = Problems("Look for what makes a rendering depend on others or on chance.")
    for prompt in (False, True):
        alone: list[tuple[Case, Rendering]] = []
        for case in subject.cases:
            rendering = subject.rendering(case, prompt=prompt)
            if rendering is not None and case.tools is None and not case.variables:
                alone.append((case, rendering))
        together = render_batch(
            [case.messages for case, _ in alone],
            subject.tokenizer,
            chat_template=_as_source(subject.template),
            add_generation_prompt=prompt,
            **subject.extra_variables,
        )
        for (case, rendering), row in zip(alone, together, strict=True):
            with problems.case(case.id):
                same_text(row.rendering.text, rendering.text, "The text", names=("batch", "alone"))
                made = rendering.tokenize(subject.tokenizer)
                demand(row.input_ids == made.input_ids, "the ids differ from those alone")
    problems.settle(at_least=1)


def check_samples(subject: FamilySubject) -> None:
    """Training samples show each turn once, right behind the ids of its own prompt."""
    problems = Problems("Look at how the template prints earlier turns, and at what it refuses.")
    for case in subject.cases:
        whole = subject.rendering(case, prompt=False)
        answers = [i for i, m in enumerate(case.messages) if m["role"] == "assistant"]
        if whole is None or any(
            subject.rendering(case, i + 1, prompt=False) is None for i in answers
        ):
            continue
        if not answers:
            continue
        with problems.case(case.id):
            samples = training_samples(
                case.messages,
                subject.tokenizer,
                tools=case.tools,
                chat_template=_as_source(subject.template),
                **{**subject.extra_variables, **case.variables},
            )
            marked = [len(_runs(sample.assistant_mask)) for sample in samples]
            shown = [i for i in answers if any(s.message == i for s in whole.spans)]
            demand(
                sum(marked) >= len(shown) or _touch(whole),
                f"{sum(marked)} turns are trained of {len(shown)} that the template shows",
            )
            prompts = [
                prompt.tokenize(subject.tokenizer).input_ids
                for prompt in (subject.rendering(case, i, prompt=True) for i in answers if i)
                if prompt is not None and prompt.text
            ]
            for sample in samples:
                runs = _runs(sample.assistant_mask)
                if runs and prompts and case.messages[0]["role"] != "assistant":
                    start = runs[0]
                    demand(
                        sample.input_ids[:start] in prompts,
                        "a sample's first turn does not stand behind the ids of its prompt",
                    )
    problems.settle(at_least=1)


def _touch(rendering: Rendering) -> bool:
    """Whether turns follow each other directly, so that their masks are one run."""
    turns = rendering.turns
    return any(a.end == b.start for a, b in pairwise(turns))


def _runs(mask: list[bool]) -> list[int]:
    """Return where runs of the mask begin."""
    return [i for i, on in enumerate(mask) if on and (i == 0 or not mask[i - 1])]


def check_hostile(subject: FamilySubject) -> None:
    """Control tokens that messages spell out stay text: no forged id, no forged turn."""
    if not subject.markers:
        raise CheckSkipped("the tokenizer has none of the template's control tokens")
    problems = Problems("Look at what the template does with content: it must print it as it is.")
    tokens = view(subject.tokenizer)
    controls = tokens.control_ids(subject.template)
    names = ("system-one-turn", "tool-round")
    for case in (case for case in subject.cases if case.id in names):
        calm = subject.rendering(case, prompt=True)
        if calm is None:
            continue
        wanted = _controls(calm, subject, controls)
        for text in hostile_texts(subject.markers):
            for index, message in enumerate(case.messages):
                if message["role"] not in _FORGED_IN or not isinstance(message["content"], str):
                    continue
                if not any(span[2:] == (index, ("content",)) for span in calm.spans):
                    continue
                with problems.case(f"{case.id}: {text[:30]!r} as {message['role']}"):
                    forged = list(case.messages)
                    forged[index] = {**message, "content": text}
                    rendering = subject.render(
                        forged, prompt=True, tools=case.tools, **case.variables
                    )
                    _check_forged(subject, rendering, wanted, controls)
    problems.settle(at_least=1)


def _controls(rendering: Rendering, subject: FamilySubject, controls: frozenset[int]) -> list[int]:
    ids = rendering.tokenize(subject.tokenizer).input_ids
    return [token for token in ids if token in controls]


def _check_forged(
    subject: FamilySubject, rendering: Rendering, wanted: list[int], controls: frozenset[int]
) -> None:
    tokens = view(subject.tokenizer)
    ids = rendering.tokenize(subject.tokenizer).input_ids
    _same_decoded(tokens, ids, rendering.text, "The decoded text")
    found = [token for token in ids if token in controls]
    added = [tokens.added[token][0] for token in found if token in tokens.added]
    demand(
        found == wanted,
        f"control tokens are not those of the same conversation with harmless text: {added}",
    )
