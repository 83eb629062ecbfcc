"""What a plugin changes in the process while it is loaded is put back, and told of it.

Code can't be kept from doing what it likes within a process; this is for mistakes, not for malice. What is
looked at stands in `antiphon.plugins.process_state` and `antiphon.plugins.patches`. While other threads
run, a setting that changes may be their doing: then only exchanged functions are looked at.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from antiphon.plugins.patches import WATCHED, Namespaces
from antiphon.plugins.process_state import FILTERS, Snapshot
from antiphon.plugins.records import PluginRecord
from antiphon.plugins.tracing import note

#: How long a plugin may take to load before a line says that it is it that takes so long, in seconds.
PATIENCE = 10.0


@dataclass
class Changes:
    """What a plugin changed.

    Attributes:
        undone: What was put back.
        left: What could not be.
    """

    undone: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def told(self, record: PluginRecord) -> tuple[str, ...]:
        """Return a sentence for what was put back, and one for what was not."""
        sentences = []
        if self.undone:
            sentences.append(
                f"{record.who} changed {', '.join(self.undone)} while it was loaded; that was put back:"
                " its author may do so, if at all, when what it brings is used."
            )
        if self.left:
            sentences.append(
                f"{record.who} {', '.join(self.left)} while it was loaded, which can't be undone: leave"
                f" it out with ANTIPHON_DISABLE_PLUGINS={record.name}, and tell its author."
            )
        return tuple(sentences)


class Containment:
    """Watches over plugins while they are loaded, one after the other."""

    def __init__(self) -> None:
        self._alone = threading.active_count() == 1
        self._namespaces = Namespaces()

    @contextmanager
    def around(self, module: str) -> Iterator[Changes]:
        """Put back what is changed within, and note it in what is yielded.

        Args:
            module: The plugin's entry point, whose package tells its functions from others'.
        """
        package = module.partition(":")[0].partition(".")[0]
        changes = Changes()
        threads = set(threading.enumerate())
        known = WATCHED & sys.modules.keys()
        before = Snapshot() if self._alone else None
        try:
            yield changes
        finally:
            if before is not None:
                # Libraries have filters of their own, which are not the plugin's doing.
                libraries = bool(WATCHED & sys.modules.keys() - known)
                changes.undone += before.put_back(but=(FILTERS,) if libraries else ())
                started = [each.name for each in threading.enumerate() if each not in threads]
                if started:
                    changes.left.append(f"started threads ({', '.join(started)})")
            patched: list[str] = []
            for name, restored in self._namespaces.put_back("" if package in WATCHED else package):
                (changes.undone if restored else patched).append(name)
            if patched:
                changes.left.append(f"exchanged {', '.join(patched)}")


class Reminder:
    """Says on standard error which plugin has not loaded for long, or was interrupted."""

    def __init__(self) -> None:
        self.who = ""
        self._timer = threading.Timer(PATIENCE, self._say)
        self._timer.daemon = True  # a program that ends meanwhile does not wait for it

    def __enter__(self) -> Reminder:
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        # Nothing tells a Ctrl-C from an interrupt that the plugin raises itself, so it goes on.
        if kind is KeyboardInterrupt:
            note(
                f"{self.who} was interrupted while it was loaded; where nobody pressed Ctrl-C, leave it out with"
                " ANTIPHON_DISABLE_PLUGINS."
            )

    def _say(self) -> None:
        note(
            f"{self.who} is still being loaded after {PATIENCE:g} seconds; `antiphon plugins doctor` says"
            " whether it ever ends, ANTIPHON_DISABLE_PLUGINS leaves it out."
        )
