"""What a descriptor must look like; the sentences end in its plugin's record."""

from __future__ import annotations

import re
from typing import Any

from antiphon.errors import PluginError
from antiphon.families import TEMPLATE_NAMES, ModelFamily

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_OBJECT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*\Z")
_RESOURCE = re.compile(r"[A-Za-z_][\w.]*:[^/\\:][^\\:]*\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")

# Names that no model has. A pattern that matches one of them would match every model.
_NOBODY = ("", "0", "zzzz-unheard-of-0b-name")


def check_descriptor(kind: str, descriptor: Any) -> None:
    """Raise `PluginError` with the reason where a descriptor can't work."""
    name = descriptor.name
    if not isinstance(name, str) or not _NAME.match(name):
        raise PluginError(
            f"registers a {kind} named {name!r}: a name is made of letters, digits, dots, dashes"
            " and underscores and begins with a letter or a digit."
        )
    whose = f"registers the {kind} {name!r} whose"
    if isinstance(descriptor, ModelFamily):
        _check_family(whose, descriptor)
    elif not isinstance(descriptor.factory, str) or not _OBJECT.match(descriptor.factory):
        raise PluginError(
            f"{whose} factory is {descriptor.factory!r}: it must be 'module:attribute'."
        )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _check_family(whose: str, family: ModelFamily) -> None:
    if TEMPLATE_NAMES.get(family.name, family.name) != family.name:
        raise PluginError(
            f"registers the family {family.name!r}, and that is a template name of TorchRL's, which"
            " means another dialect: choose another name."
        )
    if family.source is None and not _RESOURCE.match(family.template):
        raise PluginError(
            f"{whose} template is {family.template!r}: it must be 'package:path/in/package.jinja'."
        )
    if family.grammar is not None and not _OBJECT.match(family.grammar):
        raise PluginError(f"{whose} grammar is {family.grammar!r}: it must be 'module:attribute'.")
    if family.renderings is not None and not _RESOURCE.match(family.renderings):
        raise PluginError(
            f"{whose} renderings are {family.renderings!r}: it must be 'package:path/in/package.json'."
        )
    for field in (
        *("digests", "model_ids", "other_ids"),
        *("required_tokens", "excluded_tokens", "name_patterns"),
    ):
        values = getattr(family, field)
        if not isinstance(values, tuple) or not all(isinstance(value, str) for value in values):
            raise PluginError(f"{whose} {field} is {values!r}: it must be a tuple of strings.")
    if not isinstance(family.known_failures, tuple):
        raise PluginError(
            f"{whose} known_failures is {family.known_failures!r}: it must be a tuple of pairs."
        )
    for entry in family.known_failures:
        if not (isinstance(entry, tuple) and len(entry) == 2 and all(map(_is_text, entry))):
            raise PluginError(
                f"{whose} known_failures hold {entry!r}: each must be a check or a case of it, and"
                " the reason."
            )
    for digest in family.digests:
        if not _DIGEST.match(digest):
            raise PluginError(
                f"{whose} digest {digest!r} is no SHA-256 in 64 small hexadecimal digits."
            )
    for pattern in family.name_patterns:
        try:
            compiled = re.compile(pattern, re.IGNORECASE)
        except re.error as error:
            raise PluginError(
                f"{whose} name pattern {pattern!r} is no regular expression ({error})."
            ) from error
        if any(compiled.search(nobody) for nobody in _NOBODY):
            raise PluginError(
                f"{whose} name pattern {pattern!r} matches every model: name what its models have"
                " in common."
            )
