"""Descriptors: what a plugin says about a model family, a backend, an environment.

They are frozen, picklable and light. Heavy parts are named by ``"module:attribute"`` strings and loaded on first
use, so that listing the plugins imports no torch, transformers or vllm.
"""

from __future__ import annotations

import importlib
import importlib.resources
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from antiphon.errors import PluginError, reason_of

if TYPE_CHECKING:
    from antiphon.reading.grammar import Grammar

ArgumentsForm = Literal["mapping", "string", "either"]

#: TorchRL's template names, and the dialect that TorchRL printed under each.
TEMPLATE_NAMES = {
    "chatml_format": "chatml",
    "qwen": "qwen2.5",
    "dialogpt": "dialogpt",
    "falcon": "falcon",
    "deepseek": "deepseek-v2",
    "llama": "llama4",
}


@dataclass(frozen=True)
class ModelFamily:
    """One dialect: the template, the grammar and the marks by which its models are known.

    Attributes:
        name: The dialect's name, for example ``"qwen2.5"``; unique over all plugins.
        line: The model line it belongs to, for example ``"qwen"``.
        template: Where our own template is: ``"package:path/in/package.jinja"``.
        edits: Pairs (text in that file, text in its place), for revisions of one dialect that differ in a sentence:
            each text stands there exactly once.
        grammar: Where the `Grammar` is: ``"module:attribute"``; None lets core infer it from the template.
        digests: SHA-256 hex digests (of the UTF-8 text) of official templates that this dialect equals.
        model_ids: Exact hub names, compared without regard to case.
        other_ids: Exact hub names that a name pattern fits and that are known to have another template.
        required_tokens: Control tokens that the vocabulary of each of its models has.
        excluded_tokens: Control tokens that no vocabulary of its models has.
        name_patterns: Regular expressions, searched without regard to case in the model's own name (the last
            part of a path), the most telling first.
        arguments: The form in which the template takes call arguments.
        end_tokens: Tokens that end a turn, the usual one first.
        priority: A higher one wins, whatever the marks; plugins of a user's own take 1 or more.
        variant_of: The dialect of which this is another revision, for descriptors that only differ in defaults.
        notes: Known faults of the official template that parity keeps, one sentence each.
        known_failures: What of the conformance kit is known to fail: a check (``"parse"``) or one of its cases
            (``"parse/think-inline"``), each with the reason. Whatever runs the kit reads them here.
        renderings: Where digests of what the template prints of the conformance kit's corpus are kept:
            ``"package:path/in/package.json"``, for dialects whose official template is not to be had. See
            `antiphon.testing.kept`.
        source: The template itself, for a dialect that is registered at run time; `template` is not read then.
    """

    name: str
    line: str
    template: str
    grammar: str | None = None
    digests: tuple[str, ...] = ()
    model_ids: tuple[str, ...] = ()
    required_tokens: tuple[str, ...] = ()
    excluded_tokens: tuple[str, ...] = ()
    name_patterns: tuple[str, ...] = ()
    arguments: ArgumentsForm = "either"
    end_tokens: tuple[str, ...] = ()
    priority: int = 0
    variant_of: str | None = None
    notes: tuple[str, ...] = ()
    source: str | None = None
    known_failures: tuple[tuple[str, str], ...] = ()
    edits: tuple[tuple[str, str], ...] = ()
    renderings: str | None = None
    other_ids: tuple[str, ...] = ()

    def load_template(self) -> str:
        """Return the Jinja source of the template.

        Raises:
            PluginError: An edit does not fit the file.
        """
        if self.source is not None:
            return self.source
        source = load_resource(self.template)
        for old, new in self.edits:
            if source.count(old) != 1:
                path = self.template.partition(":")[2]
                raise PluginError(
                    f"The template of {self.name!r} can't be made: {old!r} must stand in {path} once."
                )
            source = source.replace(old, new)
        return source

    def load_grammar(self) -> Grammar | None:
        """Return the declared grammar, or None where it is to be inferred."""
        return cast("Grammar", load_object(self.grammar)) if self.grammar else None


@dataclass(frozen=True)
class FactorySpec:
    """Something that a plugin can build.

    Attributes:
        name: Its name, unique among its kind over all plugins.
        factory: ``"module:attribute"`` of a callable that builds it.
        summary: One line for listings.
        requires: Distributions that must be installed to use it.
    """

    name: str
    factory: str
    summary: str = ""
    requires: tuple[str, ...] = ()

    def load(self) -> Callable[..., Any]:
        """Return the factory."""
        return cast("Callable[..., Any]", load_object(self.factory))


@dataclass(frozen=True)
class BackendSpec(FactorySpec):
    """A backend, which generates and scores: ``factory`` names a callable ``(model, **options) -> Backend``."""


@dataclass(frozen=True)
class EnvSpec(FactorySpec):
    """An environment: ``factory`` names a callable that builds it."""


def load_resource(path: str) -> str:
    """Return the text of the file that ``"package:path/in/package"`` names.

    Args:
        path: As a descriptor has it.

    Raises:
        PluginError: The package or the file is not there, or the file is no UTF-8.
    """
    package, _, file = path.partition(":")
    try:
        return importlib.resources.files(package).joinpath(file).read_text(encoding="utf-8")
    except (OSError, ImportError, ValueError, TypeError) as error:
        # ValueError and TypeError: of texts that are no UTF-8, of packages that are no folders.
        raise PluginError(
            f"{path!r} can't be read ({type(error).__name__}: {reason_of(error)})."
        ) from error


def load_object(path: str) -> object:
    """Return what ``"module:attribute"`` names.

    Args:
        path: ``"package.module:attribute"``; the attribute may have dots.

    Raises:
        PluginError: The module or the attribute is not there, or the module fails when it is imported.
    """
    module, separator, attribute = path.partition(":")
    if not separator or not attribute:
        raise PluginError(f"{path!r} is not of the form 'module:attribute'.")
    try:
        loaded: object = importlib.import_module(module)
        for name in attribute.split("."):
            loaded = getattr(loaded, name)
    except (Exception, SystemExit) as error:  # a stranger's module may raise anything
        kind = (
            "" if isinstance(error, (ImportError, AttributeError)) else f"{type(error).__name__}: "
        )
        raise PluginError(f"{path!r} could not be loaded: {kind}{reason_of(error)}.") from error
    return loaded
