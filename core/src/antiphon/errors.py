"""Every error that Antiphon raises on purpose.

One sentence says what happened, to whom (template, plugin, message, row) and what to do. To add one: derive
from `AntiphonError`, and from the builtin that a caller without Antiphon's names would catch (`ValueError`,
`LookupError`, ...). Errors cross process boundaries, so all their state goes through ``args``.
"""

from __future__ import annotations


class AntiphonError(Exception):
    """Base class: ``except AntiphonError`` catches everything that Antiphon refuses."""


# Rendering


class RenderError(AntiphonError, ValueError):
    """A conversation could not be rendered."""


class TemplateRefused(RenderError):
    """The template itself refused the conversation (``raise_exception`` or an error inside the template)."""


class TemplateInvalid(RenderError):
    """The template is not valid Jinja."""


class TemplateLimitExceeded(RenderError):
    """The template ran too long, nested too deep or built too much text."""


class InvalidMessage(RenderError, TypeError):
    """A message or a tool is not of a form that templates accept."""


class MaskUnavailable(RenderError):
    """Who wrote a part of the text is not known, so no mask can be given for it."""


class TokenizerMismatch(AntiphonError, ValueError):
    """Tokens or renderings of one tokenizer or template were mixed with those of another."""


class TurnRewritten(RenderError):
    """The template rewrote a sampled turn and the policy says to refuse that."""


# Families, detection, parsing


class FamilyNotFound(AntiphonError, LookupError):
    """No family or template has this name."""


class FamilyAmbiguous(AntiphonError, LookupError):
    """Several families claim the same model and nothing says which one is meant."""


class FamilyWarning(UserWarning):
    """A dialect is used with a tokenizer whose own template or vocabulary says something else."""


class GrammarUnavailable(AntiphonError, ValueError):
    """No grammar is declared for a template and none could be inferred that reads its renderings back."""


class ToolSchemaInvalid(AntiphonError, ValueError):
    """A tool that the caller gave has no name, or no JSON Schema that can judge calls."""


class StreamMisused(AntiphonError, TypeError, ValueError):
    """A stream was fed text and ids, or anything after it was closed."""


# Plugins


class PluginError(AntiphonError):
    """A plugin failed, is incompatible, or broke its contract."""


class PluginConflict(PluginError):
    """Two plugins claim one name."""


class PluginWarning(UserWarning):
    """An installed plugin can't be used; everything that doesn't need it goes on."""


# Backends and wrappers


class BackendError(AntiphonError, RuntimeError):
    """A backend could not generate or score."""


class NoLogits(BackendError, NotImplementedError):
    """A distribution was asked of a backend that gives log-probs only."""


class ModelNotFound(BackendError, LookupError):
    """A model, its tokenizer or a file of theirs is not there."""


class NoTokenizer(AntiphonError, TypeError):
    """A tokenizer is needed and none was given, or what was given is neither one nor a model's name."""


class InvalidParameter(AntiphonError, ValueError):
    """A parameter is unknown or out of its range."""


class BatchingClosed(AntiphonError, RuntimeError):
    """The batching worker was closed before the request was answered."""


# Data and environments


class InvalidData(AntiphonError, ValueError):
    """A data row is broken or lacks a field."""


class EnvError(AntiphonError, RuntimeError):
    """An environment was used out of order or broke its specs."""


class ToolError(AntiphonError, RuntimeError):
    """A tool could not do what it was called for; the sentence is told to the model as it is."""


class ContainerError(AntiphonError, RuntimeError, ValueError):
    """Containers were given shapes, devices or fields that do not fit together."""


class NoHistory(ContainerError, TypeError):
    """What should be a History is something else."""


class OutputError(AntiphonError, OSError):
    """A result can't be written, or a file of results does not belong to this run."""


def reason_of(error: BaseException, longest: int = 240) -> str:
    """Return what an error says as a part of another sentence: one line without a full stop.

    Args:
        error: Anybody's error.
        longest: Characters at most.
    """
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= longest else text[: longest - 1] + "…"
