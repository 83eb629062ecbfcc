"""Laws on random conversations. Needs hypothesis, which finds and shrinks the counterexample."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from antiphon.engine.tokenizers import view
from antiphon.errors import RenderError
from antiphon.reading import read_conversation
from antiphon.testing.family_reading import without_verdicts
from antiphon.testing.results import CheckFailed, CheckSkipped, demand, same_text
from antiphon.testing.strategies import conversations, hostile, texts
from antiphon.testing.subject import FamilySubject

_EXAMPLES = 10
_QUICK = settings(
    max_examples=_EXAMPLES,
    deadline=None,
    report_multiple_bugs=False,
    print_blob=False,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def check_random(subject: FamilySubject) -> None:
    """Hostile content comes back from ids as it was printed, and the text is the same again."""
    tokens = view(subject.tokenizer)
    accepted = 0

    @_QUICK
    @given(conversations(hostile(subject.markers), texts()))
    def law(messages: list[Any]) -> None:
        nonlocal accepted
        try:
            rendering = subject.render(messages)
        except RenderError:
            return
        accepted += 1
        ids = rendering.tokenize(subject.tokenizer).input_ids
        same_text(tokens.decode(ids), rendering.text, "The decoded text", names=("ids", "text"))
        read = read_conversation(ids, tokenizer=subject.tokenizer, family=subject.grammar)
        demand(
            len(read.messages) <= len(messages),
            f"{len(messages)} messages come back as {len(read.messages)}"
            f" ({', '.join(message['role'] for message in read.messages)}): {messages!r}; one that the"
            " template prints of its own is named by its RoleForm's `default`.",
        )
        again = subject.render(without_verdicts(read.messages))
        same_text(again.text, rendering.text, "The text", names=("again", "first"))

    try:
        law()
    except CheckFailed:
        raise
    except Exception as error:  # whatever a plugin's parts raise on a conversation is a fault
        raise CheckFailed(
            f"a random conversation fails: {type(error).__name__}: {error}"
        ) from error
    if not accepted:
        raise CheckSkipped("the template refuses all random conversations")
