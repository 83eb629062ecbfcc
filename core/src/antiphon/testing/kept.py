"""What a family's template printed once, as digests: a change is noticed where no official template is at hand.

An author who has held his template to whatever there is (an encoder, recorded prompts, a paper) keeps what
it prints of the corpus in a file of his package::

    antiphon check parrot --keep src/antiphon_parrot/renderings.json

and names that file in the descriptor: ``renderings="antiphon_parrot:renderings.json"``.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from antiphon.engine.rendering import render
from antiphon.errors import RenderError
from antiphon.families import load_resource
from antiphon.testing.results import CheckSkipped, Problems, demand, fail
from antiphon.testing.scenarios import Case
from antiphon.testing.subject import FamilySubject, _as_source

#: By conversation: the digest of what was rendered, and of what that came to.
Kept = dict[str, list[str]]

# The same with every tokenizer and on every day.
_VARIABLES = {
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}


def check_kept(subject: FamilySubject) -> None:
    """The template prints what it printed when its renderings were kept."""
    if subject.family.renderings is None:
        if subject.official:
            raise CheckSkipped("the official template, which says more, is at hand")
        raise CheckSkipped("no renderings are kept (antiphon check NAME --keep FILE)")
    families: dict[str, Kept] = json.loads(load_resource(subject.family.renderings))
    kept = families.get(subject.family.name)
    if kept is None:
        fail(f"{subject.family.renderings} holds nothing of {subject.family.name}: keep it anew.")
    assert kept is not None
    problems = Problems(
        "Look at what was changed in the template. If that is meant, keep the renderings anew:"
        f" antiphon check {subject.family.name} --keep FILE."
    )
    for case in subject.cases:
        given, text = kept.get(case.id, ["", ""])
        # A conversation that the corpus has got, or changed, since then says nothing.
        if given != _given(case):
            continue
        with problems.case(case.id):
            demand(_printed(subject, case) == text, "the text is not the one that was kept")
    problems.settle(at_least=1)


def keep(subject: FamilySubject, file: Path) -> int:
    """Write what a family's template prints into a file, which may hold other families' too.

    Returns:
        The number of conversations.
    """
    kept: Kept = {case.id: [_given(case), _printed(subject, case)] for case in subject.cases}
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    known[subject.family.name] = kept
    lines = [
        f"{json.dumps(name)}: {json.dumps(known[name], sort_keys=True)}" for name in sorted(known)
    ]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return len(kept)


def _given(case: Case) -> str:
    return _digest([case.messages, case.tools, case.variables])


def _printed(subject: FamilySubject, case: Case) -> str:
    texts: list[str | None] = []
    for prompt in (False, True):
        try:
            texts.append(
                render(
                    case.messages,
                    chat_template=_as_source(subject.template),
                    tools=case.tools,
                    add_generation_prompt=prompt,
                    **{**_VARIABLES, "strftime_now": _on_one_day, **case.variables},
                ).text
            )
        except RenderError:
            texts.append(None)
    return _digest(texts)


def _on_one_day(form: str) -> str:
    return f"<{form}>"


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
