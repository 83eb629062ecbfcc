"""What became of each plugin: plain data to print, to compare and to send to other processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["loaded", "disabled", "incompatible", "failed", "conflict"]


@dataclass(frozen=True)
class PluginRecord:
    """One plugin of one distribution.

    Attributes:
        name: The entry point's name.
        distribution: The distribution that installed it, as its metadata spells it.
        version: The distribution's version, empty where its metadata has none.
        module: The entry point's value, for example ``"antiphon_qwen.plugin"``.
        requires_core: The range of core versions that the distribution asks for, empty for any.
        status: ``loaded``; ``disabled`` by a switch; ``incompatible`` with this core; ``failed``;
            or ``conflict`` where it claims a name that another plugin claims too.
        error: One sentence that says what went wrong and what to do, None where nothing did.
        traceback: The traceback's text where the plugin's own code raised.
        provides: What it registered, as ``"family:qwen3"``, ``"backend:transformers"``, ...
        deprecated: One sentence for each old name of a hook or an argument that it still uses.
        changed: What it changed in the process while it was loaded: a sentence on what was put back,
            a sentence on what could not be.
    """

    name: str
    distribution: str
    version: str
    module: str = ""
    requires_core: str = ""
    status: Status = "loaded"
    error: str | None = None
    traceback: str | None = None
    provides: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def who(self) -> str:
        """What to call the plugin in a sentence."""
        return f"Plugin {self.name!r} of {self.distribution} {self.version}".rstrip()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong: loaded, or left out because somebody said so."""
        return self.status in ("loaded", "disabled")
