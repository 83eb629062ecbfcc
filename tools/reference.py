"""Write docs/reference.md: every public name of core, and the first sentence of what it says of itself.

python tools/reference.py
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference.md"
MODULES = (
    *("antiphon", "antiphon.envs", "antiphon.reading", "antiphon.testing"),
    *("antiphon.plugins", "antiphon.families", "antiphon.registry", "antiphon.errors"),
)


def names_of(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield a module's public names with what they name, sorted: what it exports, or else what it defines."""
    exported = getattr(module, "__all__", None)
    for name in sorted(exported if exported is not None else dir(module), key=str.lower):
        value = getattr(module, name)
        own = exported is not None or getattr(value, "__module__", None) == module.__name__
        if own and not name.startswith("_") and (inspect.isclass(value) or callable(value)):
            yield name, value


def first_sentence(value: Any) -> str:
    """Return the first sentence of a docstring, fit for a cell of a table."""
    text = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.!?]) (?=[A-Z`])", text)[0]
    return sentence.replace("``", "`").replace("|", r"\|")


def reference() -> str:
    """Return the text of docs/reference.md."""
    lines = [
        "# Every public name",
        "",
        "`help(name)` says the rest: arguments, results, errors. Plugins name theirs in their READMEs.",
        "This file is written by `python tools/reference.py`; a test holds its names to the code.",
    ]
    for name in MODULES:
        module = importlib.import_module(name)
        lines += ["", f"## {name}", "", first_sentence(module), "", "| name | |", "|---|---|"]
        lines += [f"| `{each}` | {first_sentence(value)} |" for each, value in names_of(module)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
