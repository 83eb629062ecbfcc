"""Loading one plugin: import it, check its hooks, and take what they register.

Every plugin gets a manager of its own, so that nothing of one that failed half-way is left where
others could meet it. What goes wrong ends in the plugin's record.
"""

from __future__ import annotations

import difflib
import inspect
import itertools
import sys
import traceback
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pluggy

from antiphon.errors import PluginError
from antiphon.plugins import hookspecs, tracing
from antiphon.plugins.claims import Key
from antiphon.plugins.discovery import PluginSource
from antiphon.plugins.records import PluginRecord
from antiphon.plugins.renames import Manager, old_names
from antiphon.plugins.tracing import short, told
from antiphon.plugins.validation import check_descriptor

STRICT = "ANTIPHON_STRICT_PLUGINS"

#: More than any distribution brings: a hook that goes on for ever is stopped there.
_MOST = 10_000


@dataclass
class Plugin:
    """A plugin while the host is being built: its record, its hooks, what it registered."""

    record: PluginRecord
    manager: pluggy.PluginManager | None = None
    objects: dict[Key, Any] = field(default_factory=dict)

    def fail(self, error: str, *, trace: bool = False) -> None:
        """Note what went wrong; ``trace`` keeps the traceback of the exception at hand."""
        text = traceback.format_exc() if trace else None
        self.record = replace(self.record, status="failed", error=error, traceback=text)


def load(
    plugin: Plugin, source: PluginSource, version: str, *, strict: bool = False, trace: bool = False
) -> None:
    """Import one plugin and call its registering hooks; what goes wrong ends in its record.

    Raises:
        PluginError: The plugin's own code failed, and ``strict`` is set.
    """
    who = plugin.record.who
    if source.problem is not None:
        plugin.fail(f"{who} can't be loaded: {source.problem}; install it again.")
        return
    if version and not source.requires_core.contains(version, prereleases=True):
        error = (
            f"{who} needs antiphon{source.requires_core} and this is {version}: install another"
            f" version of {source.distribution} or of antiphon."
        )
        plugin.record = replace(plugin.record, status="incompatible", error=error)
        return
    cause: BaseException
    if trace:
        tracing.note(f"{who}: importing {source.module}")
    try:
        # What a plugin prints now would stand within the output of the program that uses Antiphon.
        with redirect_stdout(sys.stderr):
            module = source.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # Whatever a stranger's code raises at import (sys.exit() and panics of compiled code too)
        # is that plugin's failure: it is recorded, and the other plugins go on.
        cause = error
        plugin.fail(f"{who} {_import_failure(source, error)}", trace=True)
    else:
        try:
            with redirect_stdout(sys.stderr):
                manager = _register(module, source.name)
                if trace:
                    tracing.watch(manager, who)
                plugin.objects = _collect(manager)
        except PluginError as error:
            cause = error
            plugin.fail(f"{who} {error}", trace=error.__cause__ is not None)
        else:
            plugin.manager = manager
            provides = tuple(f"{kind}:{name}" for kind, name in sorted(plugin.objects))
            deprecated = tuple(renamed.told(who) for renamed in old_names(manager))
            plugin.record = replace(plugin.record, provides=provides, deprecated=deprecated)
            return
    if strict:
        raise PluginError(f"{plugin.record.error} ({STRICT} is set.)") from cause


def _register(module: object, name: str) -> pluggy.PluginManager:
    """Return a manager that holds this plugin alone, its hooks checked against the specs."""
    manager = Manager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module, name)
    except (pluggy.PluginValidationError, ValueError) as error:
        # The manager's own sentence spans lines and names files; the last part says what is wrong.
        reason = " ".join(str(error).split())
        raise PluginError(
            f"has a hook with a wrong signature ({reason}); see `hookspecs.py`."
        ) from error
    except Exception as error:
        # The entry point may name any object, whose attributes may do anything when looked at.
        raise PluginError(
            f"can't be looked at for hooks ({told(error)}): let its entry point name a module."
        ) from error
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        unknown = [hook for hook in vars(manager.hook) if hook not in hookspecs.HOOKS]
        raise PluginError(f"implements {_unknown_hooks(unknown)}") from error
    implemented = [hook for hook in hookspecs.HOOKS if getattr(manager.hook, hook).get_hookimpls()]
    unmarked = [
        hook
        for hook in dir(module)
        if (hook in hookspecs.HOOKS or hook.startswith("antiphon_register_"))
        and callable(getattr(module, hook, None))
        and not hasattr(getattr(module, hook), f"{hookspecs.PROJECT}_impl")
    ]
    if unmarked:
        raise PluginError(
            f"defines {unmarked[0]} without @hookimpl, so it would never be called: mark it."
        )
    if not implemented:
        raise PluginError(
            "implements no hook: define one of "
            + ", ".join(hookspecs.HOOKS)
            + ", marked with @hookimpl."
        )
    return manager


def _collect(manager: pluggy.PluginManager) -> dict[Key, Any]:
    """Call the registering hooks and return what they gave, by kind and name."""
    objects: dict[Key, Any] = {}
    values: list[Any] | None
    for hook, kind, expected in hookspecs.REGISTERING:
        caller = getattr(manager.hook, hook)
        if not caller.get_hookimpls():
            continue
        try:
            results = caller()
            # A hook may be a generator: its body runs here.
            given = results[0] if results else None
            is_list = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
            found = itertools.islice(cast("Iterable[Any]", given), _MOST) if is_list else None
            values = None if found is None else list(found)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # A stranger's code again, see `load`.
            raise PluginError(
                f"failed in {hook} ({told(error)}); see `antiphon plugins doctor`."
            ) from error
        if inspect.iscoroutine(given):
            given.close()
            raise PluginError(f"has an asynchronous {hook}: nobody awaits it, make it a plain one.")
        if values is None:
            raise PluginError(
                f"returned {short(given, 60)} from {hook}: it must return a list of"
                f" {expected.__name__}."
            )
        if len(values) == _MOST:
            raise PluginError(
                f"returned {_MOST} things or more from {hook}: it must come to an end."
            )
        for value in values:
            if not isinstance(value, expected):
                raise PluginError(
                    f"returned a list with {short(value, 60)} from {hook}: each item must be a"
                    f" {expected.__name__}."
                )
            try:
                check_descriptor(kind, value)
            except PluginError:
                raise
            except Exception as error:
                # A subclass of a descriptor may do anything when it is looked at.
                raise PluginError(
                    f"returned something from {hook} that can't be looked at ({told(error)})."
                ) from error
            key = (kind, getattr(value, "name"))  # noqa: B009 (all descriptors have one)
            if key in objects:
                raise PluginError(f"registers the {kind} {key[1]!r} twice.")
            objects[key] = value
    return objects


def _import_failure(source: PluginSource, error: BaseException) -> str:
    failure = f"failed to import ({told(error)})"
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and missing.partition(".")[0] != source.module.partition(".")[0]:
        return f"{failure}: install {missing!r}, or the plugin again."
    return f"{failure}; see `antiphon plugins doctor`."


def _unknown_hooks(names: list[str]) -> str:
    parts = []
    for name in names:
        near = difflib.get_close_matches(name, hookspecs.HOOKS, n=1)
        parts.append(f"{name}, which is no hook" + (f" (did you mean {near[0]}?)" if near else ""))
    return "; ".join(parts) + "."
