"""The plugin host: loads what is installed and records what became of each plugin.

No plugin harms another. pluggy validates and calls the hooks, but its own entry-point loader is not
used: one ImportError would end it, and of two plugins with one name the second would vanish.
`antiphon.plugins.loading` loads one plugin, this module all of them.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from packaging.utils import canonicalize_name

from antiphon.errors import PluginConflict, PluginError, PluginWarning
from antiphon.plugins.claims import settle
from antiphon.plugins.containment import Containment, Reminder
from antiphon.plugins.discovery import (
    PluginSource,
    builtin_plugins,
    core_version,
    installed_plugins,
)
from antiphon.plugins.hookspecs import EVENTS
from antiphon.plugins.loading import STRICT, Plugin, load
from antiphon.plugins.records import PluginRecord
from antiphon.plugins.renames import with_old_names
from antiphon.plugins.tracing import TRACE, note

if TYPE_CHECKING:
    from antiphon.cli import PluginCommands

_Descriptor = TypeVar("_Descriptor")

DISABLE = "ANTIPHON_DISABLE_PLUGINS"
ONLY = "ANTIPHON_PLUGINS"

#: A plugin that listens to an event: its record, and its hook.
Observer = tuple[PluginRecord, Callable[..., object]]


class PluginHost:
    """What the installed plugins registered, and a record of each.

    It does not change once it is built, so any number of threads may read it.

    Attributes:
        records: One record per plugin, core's own first, then by name and distribution.
        strict: Whether what fails is raised.
        observers: By event hook the plugins that implement it, in the order of the records.

    Args:
        sources: The plugins to load; None looks for the installed ones.
        environ: Where the switches are read from; None for the process's environment.

    Raises:
        PluginError: A plugin can't be used and ``ANTIPHON_STRICT_PLUGINS`` is set.
    """

    records: tuple[PluginRecord, ...]
    observers: Mapping[str, tuple[Observer, ...]]

    def __init__(
        self,
        sources: Iterable[PluginSource] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        environ = os.environ if environ is None else environ
        found = installed_plugins() if sources is None else tuple(sources)
        disabled, only = _names(environ.get(DISABLE)), _names(environ.get(ONLY))
        self.strict = strict = _is_set(environ, STRICT)
        trace = _is_set(environ, TRACE)
        version = core_version()
        plugins = []
        containment = Containment()
        with Reminder() as reminder:
            for source in (*builtin_plugins(), *found):
                plugin = Plugin(_record_of(source))
                reminder.who = plugin.record.who
                if _switched_off(source, disabled, only):
                    plugin.record = replace(plugin.record, status="disabled")
                else:
                    with containment.around(source.module) as changes:
                        load(plugin, source, version, strict=strict, trace=trace)
                    plugin.record = replace(plugin.record, changed=changes.told(plugin.record))
                if trace and plugin.record.status != "loaded":
                    note(plugin.record.error or f"{plugin.record.who}: {plugin.record.status}")
                plugins.append(plugin)
        plugins += [Plugin(record) for record in _unknown(only, found)]
        loaded = [plugin for plugin in plugins if plugin.record.status == "loaded"]
        self._claims, errors = settle((plugin.record, plugin.objects) for plugin in loaded)
        for index, error in errors.items():
            loaded[index].record = replace(loaded[index].record, status="conflict", error=error)
        self.records = tuple(plugin.record for plugin in plugins)
        self._managers = tuple((p.record, p.manager) for p in loaded if p.manager is not None)
        self.observers = {
            event: tuple(
                (record, caller)
                for record, manager in self._managers
                if (caller := getattr(manager.hook, event)).get_hookimpls()
            )
            for event in EVENTS
        }
        if strict:
            for record in self.records:
                wrong = [*([] if record.ok else [record.error]), *record.changed]
                if wrong:
                    raise PluginError(f"{wrong[0]} ({STRICT} is set.)")

    def get(self, kind: str, name: str) -> Any | None:
        """Return what is registered under a name, None where nothing is.

        Args:
            kind: ``family``, ``backend``, ``env``, ``transform`` or ``reward``.
            name: Its name.

        Raises:
            PluginConflict: Several plugins claim the name.
        """
        claim = self._claims.get((kind, name))
        if claim is None:
            return None
        if claim.error is not None:
            raise PluginConflict(claim.error)
        return claim.values[0]

    def all(self, kind: str, of: type[_Descriptor]) -> tuple[_Descriptor, ...]:
        """Return everything of a kind that one plugin alone claims, sorted by name."""
        return tuple(
            value
            for (its_kind, _), claim in sorted(self._claims.items())
            if its_kind == kind and claim.error is None
            for value in claim.values
            if isinstance(value, of)
        )

    def contested(self, kind: str, of: type[_Descriptor]) -> tuple[_Descriptor, ...]:
        """Return everything of a kind whose name is contested: `get` raises for each of them."""
        return tuple(
            value
            for (its_kind, _), claim in sorted(self._claims.items())
            if its_kind == kind and claim.error is not None
            for value in claim.values
            if isinstance(value, of)
        )

    def registered(self) -> tuple[tuple[PluginRecord, str, Any], ...]:
        """Return all that can be used: by whom, its kind, the descriptor; by kind and name."""
        return tuple(
            (claim.owner, kind, value)
            for (kind, _), claim in sorted(self._claims.items())
            if claim.error is None
            for value in claim.values
        )

    def owner(self, kind: str, name: str) -> PluginRecord | None:
        """Return the record of the plugin that registered a name, None where none did."""
        claim = self._claims.get((kind, name))
        if claim is None:
            return None
        who = (claim.owner.name, claim.owner.distribution)
        return next(r for r in self.records if (r.name, r.distribution) == who)

    def register_commands(self, app_of: Callable[[PluginRecord], PluginCommands]) -> None:
        """Call the command hooks, each plugin with the object that ``app_of(record)`` gives for it.

        A hook that raises is told on standard error by the object's ``failed`` method and skipped.
        """
        containment = Containment()
        for record, manager in self._managers:
            if manager.hook.antiphon_register_commands.get_hookimpls():
                app = app_of(record)
                try:
                    with containment.around(record.module) as changes, redirect_stdout(sys.stderr):
                        manager.hook.antiphon_register_commands(
                            **with_old_names("antiphon_register_commands", {"app": app})
                        )
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    # A stranger's hook: without its commands every other command still works.
                    app.failed(error)
                app.faults += changes.told(record)

    def inventory(self) -> dict[str, str]:
        """Return the plugins in use as ``{name: "distribution version"}``, for another process."""
        return {
            record.name: f"{record.distribution} {record.version}"
            for record in self.records
            if record.status in ("loaded", "conflict")
        }

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits that are equal where name and version of all plugins are."""
        lines = sorted(
            f"{record.name} {record.distribution} {record.version} {record.status}"
            for record in self.records
            if record.status in ("loaded", "conflict")
        )
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def check_same(self, inventory: Mapping[str, str]) -> None:
        """Raise where another process's `inventory` is not this one's.

        Raises:
            PluginError: With the plugins that differ.
        """
        mine = self.inventory()
        if mine != dict(inventory):
            told = "; ".join(
                f"{name}: {mine.get(name, 'absent')} here, {inventory.get(name, 'absent')} there"
                for name in sorted({*mine, *inventory})
                if mine.get(name) != inventory.get(name)
            )
            raise PluginError(
                f"Two processes do not have the same plugins ({told}): install the same versions in"
                " both."
            )


def _record_of(source: PluginSource) -> PluginRecord:
    return PluginRecord(
        name=source.name,
        distribution=source.distribution,
        version=source.version,
        module=source.module,
        requires_core=str(source.requires_core),
    )


def _is_set(environ: Mapping[str, str], switch: str) -> bool:
    return environ.get(switch, "") not in ("", "0")


def _names(switch: str | None) -> frozenset[str]:
    """Return the plugin and distribution names in a switch, in the spelling that compares."""
    names = (name.strip() for name in (switch or "").replace(",", " ").split())
    return frozenset(name if name == "*" else canonicalize_name(name) for name in names)


def switched_on(sources: Iterable[PluginSource], environ: Mapping[str, str]) -> list[PluginSource]:
    """Return the plugins that the switches leave in use."""
    disabled, only = _names(environ.get(DISABLE)), _names(environ.get(ONLY))
    return [source for source in sources if not _switched_off(source, disabled, only)]


def _switched_off(source: PluginSource, disabled: frozenset[str], only: frozenset[str]) -> bool:
    own = {canonicalize_name(source.name)}
    if not source.builtin:
        own.add(canonicalize_name(source.distribution))
        if "*" in disabled or (only and not own & only):
            return True
    return bool(own & disabled)


def _unknown(only: frozenset[str], found: Iterable[PluginSource]) -> list[PluginRecord]:
    """Return a record for each plugin that ``ANTIPHON_PLUGINS`` asks for and nobody installed."""
    known = {
        canonicalize_name(name) for source in found for name in (source.name, source.distribution)
    }
    known |= {canonicalize_name(source.name) for source in builtin_plugins()}
    return [
        PluginRecord(
            name=name,
            distribution="",
            version="",
            status="failed",
            error=f"{ONLY} names {name!r}, and no installed plugin or distribution has that name.",
        )
        for name in sorted(only - known)
    ]


class _Process:
    """The process's own host, built on first use."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.host: PluginHost | None = None
        self.building = False
        self.warned = False


_process = _Process()


def _after_fork() -> None:
    # Another thread of the parent may have held the lock: the child starts with a lock of its own,
    # and keeps a host that was finished.
    _process.lock = threading.RLock()
    _process.building = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def get_host(*, quiet: bool = False) -> PluginHost:
    """Return the process's plugin host, built by the first call; one call warns of what can't be used.

    Args:
        quiet: Don't warn: the caller shows the records, or needs no plugin in particular.

    Raises:
        PluginError: A plugin can't be used and ``ANTIPHON_STRICT_PLUGINS`` is set, or a plugin
            asked for the host while it was being loaded.
    """
    host = _process.host
    if host is not None and (quiet or _process.warned):
        return host
    with _process.lock:
        if _process.host is None:
            if _process.building:
                raise PluginError(
                    "A plugin asked for the plugin host while the host was loading it."
                )
            _process.building = True
            try:
                _process.host = PluginHost()
            finally:
                _process.building = False
        host = _process.host
        if not quiet and not _process.warned:
            _process.warned = True
            _warn(host)
        return host


def host_unless_loading() -> PluginHost | None:
    """Return the process's host, None to code that a plugin runs while the host is loading it."""
    if _process.host is not None:
        return _process.host
    with _process.lock:
        return None if _process.building else get_host(quiet=True)


def _warn(host: PluginHost) -> None:
    for record in host.records:
        if not record.ok:
            warnings.warn(f"{record.error}", PluginWarning, stacklevel=3)
        for sentence in record.changed:
            warnings.warn(sentence, PluginWarning, stacklevel=3)
        for sentence in record.deprecated:
            warnings.warn(sentence, DeprecationWarning, stacklevel=3)
