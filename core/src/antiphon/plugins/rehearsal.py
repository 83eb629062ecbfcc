"""Loads the plugins in a process of its own, to find those that end a process or never come to an end.

Nothing within a process can hold `os._exit`, a crash of compiled code or an endless loop; `antiphon
plugins doctor` asks here first, so that it lives to tell of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from antiphon.plugins.discovery import installed_plugins
from antiphon.plugins.host import ONLY, switched_on
from antiphon.plugins.loading import STRICT
from antiphon.plugins.records import PluginRecord

_DONE = "the plugins are loaded"
_CODE = f"""
from antiphon.cli import plugin_commands
from antiphon.plugins import PluginHost
plugin_commands(PluginHost())
print({_DONE!r})
"""


def fatal(limit: float) -> dict[str, str]:
    """Return a sentence for each plugin that ends the process that loads it, by the plugin's name.

    Args:
        limit: How long loading may take, in seconds.
    """
    if _ending({}, limit) is None:
        return {}
    found = {}
    for source in switched_on(installed_plugins(), os.environ):
        ending = _ending({ONLY: source.name}, limit)
        if ending is not None:
            who = PluginRecord(source.name, source.distribution, source.version).who
            found[source.name] = (
                f"{who} {ending} when it is loaded: leave it out with"
                f" ANTIPHON_DISABLE_PLUGINS={source.name}, and tell its author."
            )
    return found


def _ending(switches: dict[str, str], limit: float) -> str | None:
    """Return what becomes of a process that loads the plugins, None where nothing happens to it."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CODE],
            env={**os.environ, STRICT: "", **switches},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"does not come to an end within {limit:g} seconds"
    if done.stdout.endswith(f"{_DONE}\n"):
        return None
    if done.returncode < 0:
        return f"crashes the process ({signal.Signals(-done.returncode).name})"
    return f"ends the process (exit code {done.returncode})"
