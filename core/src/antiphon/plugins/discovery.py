"""Finding plugins: which distributions have an entry point for us, and which core they ask for.

Only metadata is read here; nothing of a plugin is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import importlib_metadata
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

GROUP = "antiphon.plugins"
CORE = "antiphon"


@dataclass(frozen=True)
class PluginSource:
    """A plugin that was found and not yet imported.

    Attributes:
        name: The entry point's name.
        distribution: The distribution's name.
        version: The distribution's version.
        module: The entry point's value.
        load: Imports the plugin and returns it.
        requires_core: The range of core versions it asks for; empty for any.
        problem: What is wrong with the metadata, None where nothing is.
        builtin: Part of core itself.
    """

    name: str
    distribution: str
    version: str
    module: str
    load: Callable[[], object]
    requires_core: SpecifierSet = field(default_factory=SpecifierSet)
    problem: str | None = None
    builtin: bool = False


def core_version() -> str:
    """Return the version of the installed core."""
    try:
        return importlib_metadata.version(CORE)
    except importlib_metadata.PackageNotFoundError:
        # A source tree on the path without metadata: no range can be checked against it.
        return ""


def builtin_plugins() -> tuple[PluginSource, ...]:
    """Return what core itself registers, in the form of plugins."""
    module = "antiphon.chatml"
    load = partial(importlib.import_module, module)
    return (PluginSource("chatml", CORE, core_version(), module, load, builtin=True),)


def installed_plugins() -> tuple[PluginSource, ...]:
    """Return the installed plugins, sorted by name and distribution.

    A distribution that is on the path twice counts once: the first one on the path, as for
    an import.
    """
    found: dict[str, list[PluginSource]] = {}
    for distribution in importlib_metadata.distributions():
        # Most distributions have nothing for us: look before their metadata are parsed.
        try:
            text = distribution.read_text("entry_points.txt") or ""
        except (OSError, UnicodeDecodeError):
            continue  # whosever it is, nothing can be said of it
        if GROUP in text:
            sources = list(_of_distribution(distribution))
            if sources:
                found.setdefault(canonicalize_name(sources[0].distribution), sources)
    flat = [source for sources in found.values() for source in sources]
    return tuple(sorted(flat, key=lambda source: (source.name, source.distribution)))


def _of_distribution(distribution: Any) -> Iterator[PluginSource]:
    # Its type has other names in other versions of importlib_metadata.
    problem: str | None = None
    name = version = ""
    core_range = SpecifierSet()
    try:
        # An interrupted install leaves folders without metadata, and then each of these may be None
        # or raise.
        name = distribution.metadata["Name"] or ""
        version = distribution.metadata["Version"] or ""
        core_range = core_range_of(distribution.requires or [])
    except InvalidRequirement as error:
        problem = f"its metadata state a requirement that can't be read ({error})"
    except (KeyError, OSError, UnicodeDecodeError, importlib_metadata.MetadataNotFound) as error:
        problem = f"its metadata can't be read ({error})"
    if not name and problem is None:
        problem = "its metadata have no name"
    try:
        entry_points = list(distribution.entry_points.select(group=GROUP))
    except Exception as error:
        # What the parser raises at a broken file differs from version to version.
        entry_points = []
        problem = f"its entry_points.txt can't be read ({error})"
        yield PluginSource("?", name or "?", version, "", _nothing, core_range, problem)
    for point in entry_points:
        yield PluginSource(
            point.name, name or "?", version, point.value, point.load, core_range, problem
        )


def core_range_of(requirements: list[str]) -> SpecifierSet:
    """Return the range of core versions in a distribution's requirements.

    Requirements of extras don't count, nor do those whose marker is false here.

    Raises:
        InvalidRequirement: A requirement on core can't be read.
    """
    core_range = SpecifierSet()
    for text in requirements:
        if not text.lower().startswith(CORE):
            continue
        requirement = Requirement(text)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if canonicalize_name(requirement.name) == CORE and applies:
            core_range &= requirement.specifier
    return core_range


def _nothing() -> object:
    raise ImportError("there is no entry point to import")
