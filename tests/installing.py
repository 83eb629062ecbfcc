"""Installs made-up distributions into a folder: a module and its metadata, as pip does it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

BROKEN = Path(__file__).parent / "broken_plugins"


def install(
    site: Path,
    module: str,
    *,
    plugin: str | None = None,
    distribution: str | None = None,
    version: str = "1.0",
    requires: str = "antiphon>=0.1",
    attribute: str = "",
    entry_points: str = "",
) -> str:
    """Install ``broken_plugins/<module>.py`` as a distribution and return its name.

    The entry point's value is the module, or an ``attribute`` of it; ``entry_points`` are further
    lines below it.
    """
    distribution = distribution or f"stranger-{module.replace('_', '-')}"
    package = distribution.replace("-", "_")
    site.mkdir(exist_ok=True)
    source = (BROKEN / f"{module}.py").read_text(encoding="utf-8")
    (site / f"{package}.py").write_text(source, encoding="utf-8")
    info = site / f"{package}-{version}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
    metadata += f"Requires-Dist: {requires}\n" if requires else ""
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    value = f"{package}:{attribute}" if attribute else package
    lines = f"[antiphon.plugins]\n{plugin or module} = {value}\n{entry_points}"
    (info / "entry_points.txt").write_text(lines.format(package=package), encoding="utf-8")
    return distribution


def environment(*sites: Path, **variables: str) -> dict[str, str]:
    """Return the variables of a process that sees the folders."""
    path = [str(site) for site in sites] + [os.environ.get("PYTHONPATH", "")]
    switches = ("ANTIPHON_PLUGINS", "ANTIPHON_DISABLE_PLUGINS", "ANTIPHON_STRICT_PLUGINS")
    kept = {key: value for key, value in os.environ.items() if key not in switches}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, path)), **variables}


def run(arguments: list[str], *sites: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own that sees the folders, and return what it printed."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment(*sites, **variables),
        timeout=600,
        check=False,
    )


def antiphon(*arguments: str, site: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return run(["-m", "antiphon.cli", *arguments], site, **variables)


def records(site: Path, **variables: str) -> dict[str, dict[str, Any]]:
    """Return the plugins' records by distribution, as a fresh process sees them."""
    done = antiphon("plugins", "list", "--json", site=site, **variables)
    assert done.returncode == 0, done.stderr
    return {record["distribution"]: record for record in json.loads(done.stdout)}
