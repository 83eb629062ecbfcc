"""Plugins: hooks, records, and the host that loads them.

What a plugin's author needs is `hookimpl`; what a user of the framework needs is in
`antiphon.registry`.
"""

from __future__ import annotations

from antiphon.plugins.events import (
    PluginFault,
    RenderingMade,
    TrajectoryFinished,
    TurnSampled,
    faults,
)
from antiphon.plugins.hookspecs import hookimpl
from antiphon.plugins.host import PluginHost, get_host
from antiphon.plugins.records import PluginRecord
from antiphon.plugins.specs import RewardSpec, TransformSpec

__all__ = [
    "PluginFault",
    "PluginHost",
    "PluginRecord",
    "RenderingMade",
    "RewardSpec",
    "TrajectoryFinished",
    "TransformSpec",
    "TurnSampled",
    "faults",
    "get_host",
    "hookimpl",
]
