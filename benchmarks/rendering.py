"""Rendering and encoding against transformers: ratios of medians on the same work in one process.

    python benchmarks/rendering.py TOKENIZER_FOLDER

prints a line per figure: ours, the reference, and the ratio. The work: 256 conversations of 8 messages, about 138,000
tokens, and one conversation that grows to 64 turns. Cold: nothing of these conversations is remembered; what is
known about tokenizer and template is.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import antiphon
from antiphon.engine import remembered
from antiphon.engine.tokenizers import view
from transformers import AutoTokenizer
from transformers.utils import logging
from transformers.utils.chat_template_utils import render_jinja_template

WORDS = [
    "river",
    "copper",
    "signal",
    "harbour",
    "window",
    "engine",
    "theory",
    "market",
    "garden",
    "winter",
    "method",
    "answer",
    "number",
    "letter",
    "station",
    "measure",
    "between",
    "because",
    "without",
    "another",
    "quickly",
    "perhaps",
    "through",
    "against",
    "should",
    "explain",
    "compare",
    "consider",
    "temperature",
    "distance",
    "language",
    "memory",
    "question",
    "example",
    "problem",
    "result",
    "system",
]


def conversations(
    count: int, messages: int, words: int, seed: int = 0
) -> list[list[dict[str, str]]]:
    """Make conversations of random words."""
    rng = random.Random(seed)

    def text() -> str:
        size = max(4, int(rng.gauss(words, words / 3)))
        return " ".join(
            rng.choice(WORDS) + rng.choice(("", "", "", ",", ".", f" {rng.randint(0, 9999)}"))
            for _ in range(size)
        )

    return [
        [{"role": ("user", "assistant")[i % 2], "content": text()} for i in range(messages)]
        for _ in range(count)
    ]


def median(run: Callable[[], Any], repeats: int, before: Callable[[], Any] = lambda: None) -> float:
    """Return the median of wall seconds."""
    times = []
    for _ in range(repeats):
        before()
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def report(name: str, ours: float, reference: float) -> None:
    """Print a figure."""
    print(
        f"{name:58} {ours * 1000:9.1f} ms {reference * 1000:9.1f} ms  ratio {ours / reference:.2f}",
        flush=True,
    )


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    template = tokenizer.get_chat_template()
    tokens = view(tokenizer)
    tokens.cuts_at_controls, tokens.inner_mark  # noqa: B018 - once per tokenizer, not part of the work
    work = conversations(256, 8, 29)
    variables = {k: v for k, v in tokenizer.special_tokens_map.items() if isinstance(v, str)}

    def theirs() -> list[str]:
        return render_jinja_template(work, chat_template=template, **variables)[0]

    texts = theirs()
    assert [antiphon.render(c, tokenizer).text for c in work] == texts
    print(
        "tokens:", sum(len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"])
    )

    def forget() -> None:
        remembered.forget()
        tokens.forget()

    plain = median(theirs, options.repeats)
    report(
        "render with spans / transformers' render",
        median(lambda: [antiphon.render(c, tokenizer) for c in work], options.repeats, forget),
        plain,
    )
    backend = tokenizer.backend_tokenizer

    def ours() -> None:
        for item in antiphon.render_batch(work, tokenizer):
            item.assistant_mask  # noqa: B018

    fast = median(
        lambda: [e.ids for e in backend.encode_batch_fast(texts, add_special_tokens=False)],
        options.repeats,
    )
    whole = median(lambda: tokenizer.apply_chat_template(work, return_dict=False), options.repeats)
    cold = median(ours, options.repeats, forget)
    report("render + ids + mask, cold / encode_batch_fast", cold, fast)
    report("render + ids + mask, cold / apply_chat_template", cold, whole)
    report("render + ids + mask, warm / encode_batch_fast", median(ours, options.repeats), fast)

    growing = conversations(1, 128, 48, seed=1)[0]

    def grow() -> None:
        for end in range(2, len(growing) + 1, 2):
            item = antiphon.render(growing[:end], tokenizer).tokenize()
            item.assistant_mask  # noqa: B018

    def grow_theirs() -> None:
        for end in range(2, len(growing) + 1, 2):
            tokenizer.apply_chat_template(growing[:end], return_dict=False)

    report(
        "growing to 64 turns / apply_chat_template",
        median(grow, options.repeats, forget),
        median(grow_theirs, options.repeats),
    )


if __name__ == "__main__":
    main()
