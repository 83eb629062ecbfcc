"""Checks of a family's descriptor, its template and its turns."""

from __future__ import annotations

import contextlib
import importlib.util
import pickle
import re
from typing import Any

from antiphon.agreement import first_difference
from antiphon.engine.environment import compile_template
from antiphon.engine.rendering import Rendering, render
from antiphon.errors import GrammarUnavailable, RenderError
from antiphon.families import ModelFamily
from antiphon.testing.results import CheckSkipped, Problems, demand, fail, same_text
from antiphon.testing.running import FAMILY_CHECKS
from antiphon.testing.scenarios import Case, with_arguments
from antiphon.testing.shapes import wrong_fields
from antiphon.testing.subject import FamilySubject

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_TAG = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")
_OPEN, _CLOSE = "\ue000", "\ue001"


def check_descriptor(subject: FamilySubject) -> None:
    """What the descriptor names is there and makes sense."""
    family = subject.family
    for digest in family.digests:
        demand(
            _DIGEST.match(digest),
            f"digests holds {digest!r}, which is no SHA-256 in hexadecimal; hash the UTF-8 text of the"
            " official template.",
        )
    demand(
        family.end_tokens,
        "end_tokens is empty: name the token that ends a turn, or nothing tells an answer from a cut.",
    )
    both = set(family.required_tokens) & set(family.excluded_tokens)
    demand(not both, f"{sorted(both)} are required and excluded at once; no vocabulary fits.")
    demand(subject.template.strip(), "the template is empty; look at `template`.")
    names = {key.partition("/")[0] for key, _ in family.known_failures}
    strange = sorted(names - {*FAMILY_CHECKS, "capabilities", "random"})
    demand(not strange, f"known_failures name {strange}, and there are no such checks.")
    if family.grammar is not None:
        grammar = subject.grammar
        wrong = list(wrong_fields(grammar, "the grammar"))
        demand(not wrong, f"{'; '.join(wrong)}: see `antiphon.reading.grammar`.")
        unknown = set(family.end_tokens) - set(grammar.end_tokens)
        demand(
            not unknown,
            f"the grammar does not know the end tokens {sorted(unknown)} of the descriptor.",
        )
        _demand_bos(subject)


def _demand_bos(subject: FamilySubject) -> None:
    """Fail where the template begins with the token that begins texts, and the grammar knows none."""
    grammar = subject.grammar
    first = subject.rendering(next(case for case in subject.cases if case.id == "one-turn"))
    bos = dict(getattr(subject.tokenizer, "special_tokens_map", None) or {}).get("bos_token")
    if first is None or not bos or not first.text.startswith(str(bos)):
        return
    openers = (grammar.bos, grammar.prefix, *(form.opener for form in grammar.roles))
    demand(
        any(openers[:2])
        or not all(isinstance(each, str) for each in openers)
        or any(str(each).startswith(str(bos)) for each in openers),
        f"the template begins with {str(bos)!r}, the tokenizer's bos_token, and the grammar's bos is empty:"
        " name it there.",
    )


def check_pickling(subject: FamilySubject) -> None:
    """The descriptor and the grammar cross processes, and compare and hash by value."""
    parts: list[tuple[str, Any]] = [("descriptor", subject.family)]
    with contextlib.suppress(GrammarUnavailable):  # which the checks of reading say
        parts.append(("grammar", subject.grammar))
    for what, value in parts:
        try:
            copy = pickle.loads(pickle.dumps(value))
        except Exception as error:  # objects of plugins may fail in any way
            fail(
                f"the {what} can't be pickled ({type(error).__name__}: {error}); keep nothing in it but"
                " plain data, and name heavy parts by 'module:attribute'."
            )
        demand(copy == value, f"the pickled {what} is another one; make it a frozen dataclass.")
        demand(hash(copy) == hash(value), f"the {what}'s hash changes; make it a frozen dataclass.")
    copy = pickle.loads(pickle.dumps(subject.family))
    same_text(
        copy.load_template(),
        subject.template,
        "The template of the pickled descriptor",
        names=("it has", "before"),
    )


def check_template(subject: FamilySubject) -> None:
    """The template is Jinja, prints a simple conversation, and the same one each time."""
    try:
        compile_template(subject.template)
    except RenderError as error:
        fail(f"{error} Look at the template's source.")
    problems = Problems("Look at the template: it must print or refuse, never fail otherwise.")
    shown = 0
    for case in subject.cases:
        with problems.case(case.id):
            first = subject.rendering(case)
            if first is None:
                continue
            shown += 1
            again = subject.render(
                case.messages, prompt=case.prompt, tools=case.tools, **case.variables
            )
            same_text(again.text, first.text, "A second rendering", names=("now", "before"))
    problems.settle()
    if not shown:
        _raise_refusal(subject)
    simple = next(case for case in subject.cases if case.id == "one-turn")
    demand(
        subject.rendering(simple) is not None,
        "the template refuses one question with one answer.",
    )


def _raise_refusal(subject: FamilySubject) -> None:
    try:
        subject.render([{"role": "user", "content": "Hi"}], prompt=True)
    except RenderError as error:
        fail(f"the template refuses every conversation of the corpus: {error}")
    fail("the template refuses every conversation of the corpus.")


def check_arguments(subject: FamilySubject) -> None:
    """Call arguments are taken in the form that the descriptor says, and both where it says either."""
    form = subject.family.arguments
    if not any(_shows_calls(subject, case) for case in subject.cases):
        other = "mapping" if form == "string" else "string"
        demand(
            not any(_shows_calls(subject, case, other) for case in subject.cases),
            f"`arguments` of the descriptor says {form!r}, and the template takes them as {other} only.",
        )
        raise CheckSkipped("the template prints no calls")
    problems = Problems(
        f"Look at `arguments` of the descriptor, which says {form!r}: it may say 'mapping', 'string' or"
        " 'either'."
    )
    for case in subject.cases:
        if not _shows_calls(subject, case):
            continue
        forms = ("mapping", "string") if form == "either" else (form,)
        texts: list[str] = []
        with problems.case(case.id):
            for each in forms:
                try:
                    made = subject.render(
                        with_arguments(case.messages, each),
                        prompt=case.prompt,
                        tools=case.tools,
                        **case.variables,
                    )
                except RenderError as error:
                    fail(f"arguments given as {each} are refused: {error}")
                texts.append(_as_plain(made.text))
                if _changes_form(made):
                    fail(f"arguments given as {each} are printed as text in a string")
            if len(texts) > 1:
                same_text(texts[1], texts[0], "The text", names=("as string", "as mapping"))
    problems.settle()


def _shows_calls(subject: FamilySubject, case: Case, form: str | None = None) -> bool:
    if form is not None:
        messages = with_arguments(case.messages, form)
        case = Case(f"{case.id} ({form})", messages, case.tools, case.prompt, case.variables)
    rendering = subject.rendering(case)
    return rendering is not None and any(s.field[:1] == ("tool_calls",) for s in rendering.spans)


def _as_plain(text: str) -> str:
    """JSON may be spaced one way or the other."""
    return re.sub(r"\s+", "", text)


def _changes_form(rendering: Rendering) -> bool:
    """Whether arguments came out as JSON text inside a JSON string."""
    return any(
        "arguments" in span.field
        and rendering.text[span.start : span.end].lstrip().startswith('{\\"')
        for span in rendering.spans
    )


def check_parity(subject: FamilySubject) -> None:
    """The template writes what the official one writes, and refuses what that refuses."""
    if not subject.official:
        raise CheckSkipped("no official template is at hand: give a tokenizer or templates")
    problems = Problems("Look at the template where its text parts from the official one's.")
    for number, official in enumerate(subject.official):
        for case in subject.cases:
            for prompt in (False, True):
                what = "The text" + (" with a generation prompt" if prompt else "")
                what += f" (official template {number})" if number else ""
                with problems.case(case.id):
                    ours = subject.rendering(case, prompt=prompt)
                    theirs = _official_text(subject, official, case, prompt)
                    if ours is None or theirs is None:
                        demand(
                            ours is None and theirs is None,
                            f"{'ours' if ours is None else 'the official one'} refuses it, the other not",
                        )
                    else:
                        same_text(ours.text, theirs, what, names=("ours", "official"))
    problems.settle()


def prompts_unasked(subject: FamilySubject) -> bool:
    """Whether the official text is the family's, but with a prompt where none is asked for."""
    (official,) = subject.official[:1]
    for case in subject.cases:
        ours = subject.rendering(case, prompt=True)
        text = None if ours is None else ours.text
        for prompt in (False, True):
            if _official_text(subject, official, case, prompt) != text:
                return False
    return True


def _official_text(subject: FamilySubject, official: str, case: Case, prompt: bool) -> str | None:
    """Render as transformers does, by transformers itself where it is installed."""
    variables = {
        **dict(getattr(subject.tokenizer, "special_tokens_map", None) or {}),
        **subject.extra_variables,
        **case.variables,
    }
    if importlib.util.find_spec("transformers") is None:
        try:
            return render(
                case.messages,
                chat_template=official,
                tools=case.tools,
                add_generation_prompt=prompt,
                **variables,
            ).text
        except RenderError:
            return None
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        texts = render_jinja_template(
            [case.messages],
            tools=case.tools,
            chat_template=official,
            add_generation_prompt=prompt,
            **variables,
        )[0]
    except Exception:  # a template may raise anything, and then it refuses
        return None
    return str(texts[0])


def check_turns(subject: FamilySubject) -> None:
    """The turns are what the prompts' own renderings say they are.

    Where ``render(messages[:i], add_generation_prompt=True)`` begins the text, turn ``i`` begins
    right behind it. A closed turn ends with an end token, and what follows it is no text.
    """
    problems = Problems(
        "Look at the template around the assistant's messages: header, end token, generation prompt."
    )
    for case in subject.cases:
        for index, message in enumerate(case.messages):
            if message["role"] != "assistant":
                continue
            last = subject.rendering(case, index + 1, prompt=False)
            if last is None:
                continue
            with problems.case(case.id):
                _check_turn(subject, case, index, last)
    problems.settle(at_least=1)


def _check_turn(subject: FamilySubject, case: Case, index: int, last: Rendering) -> None:
    demand(
        index not in last.unlocated,
        f"the turn of message {index} can't be found: {last.unlocated.get(index)}",
    )
    turn = next((each for each in last.turns if each.message == index), None)
    shown = any(span.message == index for span in last.spans)
    if turn is None:
        demand(not shown, f"message {index} is printed and has no turn")
        return
    text, ends = last.text, subject.family.end_tokens
    prompt = subject.rendering(case, index, prompt=True) if index else None
    if prompt is not None and prompt.text and text.startswith(prompt.text):
        demand(
            turn.start == len(prompt.text),
            f"the turn of message {index} begins with {text[turn.start :][:30]!r}, but behind the"
            f" generation prompt stands {text[len(prompt.text) :][:30]!r}",
        )
    ended = next((end for end in ends if text[turn.start : turn.end].endswith(end)), None)
    demand(
        (ended is not None) == turn.closed or not ends,
        f"the turn of message {index} ends with {text[turn.start : turn.end][-30:]!r}, which is"
        f"{' no' if turn.closed else ' an'} end token of the descriptor ({', '.join(ends)})",
    )
    rest = text[turn.end :]
    demand(
        not any(end in rest for end in ends) or rest.strip() in ends,
        f"behind the turn of message {index} stands {rest[:40]!r} with an end token",
    )


def check_closing(subject: FamilySubject) -> None:
    """A plain answer is closed by the usual end token, and grows on from its prompt."""
    case = next(case for case in subject.cases if case.id == "three-turns-prompt")
    problems = Problems("Look at the end token behind answers, and at the generation prompt.")
    for count in range(2, len(case.messages), 2):
        with problems.case(case.id):
            rendering = subject.rendering(case, count, prompt=False)
            if rendering is None:
                continue
            turns = rendering.turns
            demand(turns, "no turn was found")
            turn = turns[-1]
            body = rendering.text[turn.start : turn.end]
            demand(
                turn.closed and body.endswith(subject.family.end_tokens),
                f"the answer {body[-40:]!r} is not closed by one of {subject.family.end_tokens}",
            )
            prompt = subject.rendering(case, count - 1, prompt=True)
            demand(prompt is not None, "the template refuses to ask for the answer")
            assert prompt is not None
            bare = subject.rendering(case, count - 1, prompt=False)
            demand(
                _is_asking(rendering.text, prompt.text, bare.text if bare else ""),
                f"the generation prompt {prompt.text[-40:]!r} is not what stands before the answer"
                f" ({rendering.text[: turn.start][-40:]!r})",
            )
    problems.settle()


def _is_asking(text: str, prompt: str, bare: str) -> bool:
    """Whether a text goes on from its prompt; what a prompt opens for reasoning may be missing."""
    if text.startswith(prompt):
        return True
    asked = prompt.removeprefix(bare)
    header = asked.split("<think>")[0].removesuffix("</think>")
    return bool(header) and text.startswith(
        prompt[: len(prompt) - len(asked)] + header.rstrip("\n")
    )


def check_generation_tags(subject: FamilySubject) -> None:
    """``{% generation %}`` tags, which other programs mask by, stand around the turns exactly."""
    if not _TAG.search(subject.template):
        raise CheckSkipped("the template has no generation tags")
    marked = _TAG.sub(
        lambda tag: (
            f"{{%{tag[1]} if true %}}{{{{ '{_CLOSE if tag[2] else _OPEN}' }}}}{{% endif {tag[3]}%}}"
        ),
        subject.template,
    )
    problems = Problems("Look at the places of {% generation %} and {% endgeneration %}.")
    for case in (*subject.cases, *_with_thinking(subject)):
        plain = subject.rendering(case, prompt=False)
        if plain is None or plain.unlocated:
            continue
        with problems.case(case.id):
            spans = _marked_spans(subject, case, marked, plain.text)
            for turn in plain.turns:
                found = (turn.start, turn.end) in spans
                near = min(spans, key=lambda span: abs(span[0] - turn.start), default=(0, 0))
                demand(
                    found,
                    f"the tags mark {plain.text[slice(*near)][:60]!r}, and the turn of message"
                    f" {turn.message} is {plain.text[turn.start : turn.end][:60]!r}",
                )
            demand(
                len(spans) == len(plain.turns),
                f"the tags mark {len(spans)} places and there are {len(plain.turns)} turns",
            )
    problems.settle(at_least=1)


def _with_thinking(subject: FamilySubject) -> list[Case]:
    """Return the cases with thinking on, under both names for it, where the template knows one of them."""
    if "thinking" not in subject.template:
        return []
    on = {"thinking": True, "enable_thinking": True}
    return [
        Case(f"{c.id}, thinking", c.messages, c.tools, c.prompt, {**c.variables, **on})
        for c in subject.cases
    ]


def _marked_spans(
    subject: FamilySubject, case: Case, marked: str, plain: str
) -> list[tuple[int, int]]:
    variables = {**subject.extra_variables, **case.variables}
    text = render(
        case.messages, subject.tokenizer, chat_template=marked, tools=case.tools, **variables
    ).text
    spans: list[tuple[int, int]] = []
    begun: list[int] = []
    position = 0
    for part in re.split(f"([{_OPEN}{_CLOSE}])", text):
        if part == _OPEN:
            begun.append(position)
        elif part == _CLOSE:
            spans.append((begun.pop(), position))
        else:
            position += len(part)
    if text.replace(_OPEN, "").replace(_CLOSE, "") != plain:
        raise CheckSkipped("the marks change the text")
    return spans


def check_agreement(subject: FamilySubject) -> None:
    """The tokenizer's own template, where it has one, agrees on the probes that detection uses."""
    own: Any = None if subject.is_stand_in else getattr(subject.tokenizer, "chat_template", None)
    if not isinstance(own, str):
        raise CheckSkipped("the tokenizer has no template of its own")
    family: ModelFamily = subject.family
    special = dict(getattr(subject.tokenizer, "special_tokens_map", None) or {})
    difference = first_difference(
        family, own, {key: str(value) for key, value in special.items() if isinstance(value, str)}
    )
    demand(difference is None, f"{difference}; this tokenizer's models speak another dialect.")
