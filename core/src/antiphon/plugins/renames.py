"""Hooks and arguments that have a new name: plugins that use the old one go on working for a while.

To rename a hook, rename its specification and add a `Renamed` to `RENAMED`. To rename an argument, let
the specification take both names and add a `Renamed` with ``hook`` set: implementations that take
the old name are given the same value. What a plugin still uses is told in its record, by ``antiphon
plugins doctor``, and by one `DeprecationWarning` for each.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pluggy


@dataclass(frozen=True)
class Renamed:
    """A hook with a new name, or an argument of a hook.

    Attributes:
        old: The name that plugins may still use.
        new: The name that it has now.
        gone: The version of core that won't know the old name.
        hook: The hook whose argument was renamed; None where the hook was.
    """

    old: str
    new: str
    gone: str
    hook: str | None = None

    def told(self, who: str) -> str:
        """Return the sentence for a plugin that uses the old name."""
        what = (
            f"implements {self.old}, which is called {self.new} now"
            if self.hook is None
            else f"takes {self.old!r} in {self.hook}, which is called {self.new!r} now"
        )
        return f"{who} {what}; antiphon {self.gone} will not know the old name: use the new one."


#: What has been renamed so far.
RENAMED: tuple[Renamed, ...] = ()


class Manager(pluggy.PluginManager):
    """pluggy's manager, which takes implementations under old names for those of the new hooks."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        """Return how a function implements a hook, None where it does not."""
        options = super().parse_hookimpl_opts(plugin, name)
        renamed = renamed_hook(name)
        if options is None or renamed is None:
            return options
        if super().parse_hookimpl_opts(plugin, renamed.new) is not None:
            return None  # it serves an older core too, under both names: here by the new one
        options["specname"] = renamed.new
        return options


def renamed_hook(name: str) -> Renamed | None:
    """Return the new name of a hook, None where the name is no old one."""
    return next((each for each in RENAMED if each.hook is None and each.old == name), None)


def old_names(manager: pluggy.PluginManager) -> Iterator[Renamed]:
    """Yield what a registered plugin still uses the old name of."""
    for name, caller in sorted(vars(manager.hook).items()):
        if not isinstance(caller, pluggy.HookCaller):
            continue
        for implementation in caller.get_hookimpls():
            renamed = renamed_hook(implementation.function.__name__)
            if renamed is not None and renamed.new == name:
                yield renamed
            taken = inspect.signature(implementation.function).parameters
            yield from (each for each in RENAMED if each.hook == name and each.old in taken)


def with_old_names(hook: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a hook's arguments under their old names too."""
    old = {each.old: arguments[each.new] for each in RENAMED if each.hook == hook}
    return {**arguments, **old} if old else arguments
