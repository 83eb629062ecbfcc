"""Looking closer at what plugins registered: whether what descriptors name is there.

Nothing heavy is imported: of a factory its module is found and read, not run.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from antiphon.errors import AntiphonError, PluginError
from antiphon.families import FactorySpec, ModelFamily, load_resource
from antiphon.plugins.tracing import told


def problems_of(kind: str, descriptor: Any) -> Iterator[str]:
    """Yield a sentence, but for who it is of, for each thing that a descriptor names in vain."""
    if isinstance(descriptor, ModelFamily):
        yield from _of_family(descriptor)
    elif isinstance(descriptor, FactorySpec):
        missing = _missing(descriptor.factory)
        if missing:
            yield (
                f"the {kind} {descriptor.name!r} can't be used: its factory is"
                f" {descriptor.factory!r}, and {missing}."
            )


def lacking(kind: str, descriptor: Any) -> Iterator[str]:
    """Yield a sentence for each distribution that must be installed to use what is described."""
    for name in getattr(descriptor, "requires", ()):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield f"the {kind} {descriptor.name!r} needs {name}, which is not installed."


def _of_family(family: ModelFamily) -> Iterator[str]:
    from antiphon.engine.environment import compile_template

    whose = f"the family {family.name!r} can't be used: its"
    unread = None if family.source is not None else _unreadable(family.template)
    if unread:
        yield f"{whose} template {unread}"
    else:
        try:
            compile_template(family.load_template())
        except AntiphonError as error:
            yield f"{whose} template is wrong: {error}"
    unread = None if family.renderings is None else _unreadable(family.renderings)
    if unread:
        yield f"the family {family.name!r} can't be checked: its renderings {unread}"
    missing = _missing(family.grammar) if family.grammar else None
    if missing:
        yield f"{whose} grammar is {family.grammar!r}, and {missing}."


def _unreadable(path: str) -> str | None:
    """Return why a file can't be read, None where it can."""
    try:
        load_resource(path)
    except PluginError as error:
        return str(error)
    return None


def _missing(path: str) -> str | None:
    """Return what is missing of ``"module:attribute"``, None where nothing is."""
    name, _, attribute = path.partition(":")
    try:
        spec = importlib.util.find_spec(name)
    except Exception as error:  # it imports the packages above, which are a stranger's code
        return f"{name!r} can't be found ({told(error)})"
    if spec is None:
        return f"there is no module {name!r}"
    first = attribute.partition(".")[0]
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None  # a compiled module, a namespace: nothing to be read
    names = _names_in(Path(spec.origin))
    if names is None or first in names:
        return None
    return f"there is no {first!r} in {name!r}"


def _names_in(file: Path) -> set[str] | None:
    """Return the names that a module's source binds, None where that can't be told."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
    return None if {"*", "__getattr__"} & names else names
