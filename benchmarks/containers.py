"""The containers against torchrl 0.14.1: the same work in the same process, medians and ratios.

Needs an environment with both (torchrl wants tensordict < 0.15), transformers, and a Qwen3 tokenizer folder:

    python benchmarks/containers.py TOKENIZER_FOLDER

torchrl renders with its own ChatML template and Antiphon with its `chatml` dialect: the same text.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

CONVERSATIONS, MESSAGES = 256, 8
WORDS = (
    *("the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "as", "with"),
    *("his", "they", "at", "be", "this", "from", "have", "or", "by", "one", "had", "not", "but"),
    *("what", "all", "were", "when", "we", "there", "can", "an", "your", "which", "their", "said"),
    *("if", "do", "will", "each", "about", "how", "up", "out", "them", "then", "she", "many"),
    *("some", "so", "these", "would", "other", "into", "has", "more", "her", "two", "like", "him"),
    *("see", "time", "could", "no", "make", "than", "first", "been", "its", "who", "now", "people"),
)


def conversations(seed: int) -> list[list[dict[str, Any]]]:
    """256 conversations of 8 messages, about 65 tokens each; another seed shares no text with it."""
    rng = random.Random(seed)

    def text() -> str:
        return " ".join(
            f"{rng.choice(WORDS)}{rng.randrange(10) if rng.random() < 0.2 else ''}"
            for _ in range(55)
        )

    roles = ("user", "assistant")
    return [
        [{"role": roles[i % 2], "content": text()} for i in range(MESSAGES)]
        for _ in range(CONVERSATIONS)
    ]


def median(function: Callable[[int], Any], repeats: int) -> float:
    """Median wall seconds of `function(run)`."""
    times = []
    for run in range(repeats):
        gc.collect()
        start = time.perf_counter()
        function(run)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def memory(function: Callable[[], Any]) -> float:
    """Bytes that what `function` returns holds, for each message."""
    function()
    gc.collect()
    tracemalloc.start()
    kept = function()
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return held / (CONVERSATIONS * MESSAGES)


def grow_history(history_class: Any, chats: list[list[dict[str, Any]]], ids: Any) -> None:
    """Conversations that grow by one message at a time, all ids after each: as code for TorchRL does it."""
    history = history_class.from_chats([chat[:1] for chat in chats])
    ids(history)
    for turn in range(1, len(chats[0])):
        following = history_class.from_chats([[chat[turn]] for chat in chats])
        history = history.extend(following, dim=1)
        ids(history)


def grow_tokens(chats: list[list[dict[str, Any]]], tokenizer: Any) -> None:
    """The same with `antiphon.extend`: only what is new is encoded."""
    import antiphon

    for chat in chats:
        item = antiphon.extend(None, chat[:1], tokenizer=tokenizer, family="chatml")
        for message in chat[1:]:
            item = antiphon.extend(item, [message])


def main() -> None:
    """Prints one JSON line for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    from antiphon import ChatHistory, History
    from torchrl.data.llm import History as TorchHistory
    from torchrl.modules.llm.policies import ChatHistory as TorchChatHistory
    from transformers import AutoTokenizer

    repeats = options.repeats
    chats = [conversations(seed) for seed in range(repeats)]

    def fresh_tokenizer() -> Any:
        return AutoTokenizer.from_pretrained(options.tokenizer)

    def report(name: str, ours: float, theirs: float, unit: str) -> None:
        print(
            json.dumps(
                {
                    "name": name,
                    "antiphon": round(ours, 6),
                    "torchrl": round(theirs, 6),
                    "unit": unit,
                    "ratio": round(theirs / ours, 2),
                }
            ),
            flush=True,
        )

    report(
        "from_chats",
        median(lambda run: History.from_chats(chats[run]), repeats),
        median(lambda run: TorchHistory.from_chats(chats[run]), repeats),
        "s",
    )
    report(
        "memory per message",
        memory(lambda: History.from_chats(chats[0])),
        memory(lambda: TorchHistory.from_chats(chats[0])),
        "bytes",
    )
    tokenizer = fresh_tokenizer()
    # Cold: each run has conversations of its own, so no piece of text was encoded before.
    ours = [ChatHistory(full=History.from_chats(c), batch_size=(CONVERSATIONS,)) for c in chats]
    theirs = [TorchChatHistory(full=TorchHistory.from_chats(c)) for c in chats]
    name = "chatml_format"
    ours[0][:2].to_tokens(tokenizer, chat_template_name=name)
    theirs[0].full[:2].apply_chat_template(tokenizer=tokenizer, chat_template_name=name)
    report(
        "to_tokens, cold",
        median(lambda run: ours[run].to_tokens(tokenizer, chat_template_name=name), repeats),
        median(lambda run: theirs[run].to_tokens(tokenizer, chat_template_name=name), repeats),
        "s",
    )
    our_tokens = [c.to_tokens(tokenizer, chat_template_name=name) for c in ours]
    their_tokens = [c.to_tokens(tokenizer, chat_template_name=name) for c in theirs]
    our_rows = our_tokens[0].get("full", as_list=True)
    their_rows = their_tokens[0].get("full", as_list=True)
    equal = all(
        a.tolist() == b.flatten().tolist() for a, b in zip(our_rows, their_rows, strict=True)
    )
    print(
        json.dumps(
            {"name": "same ids", "value": equal, "tokens": sum(len(row) for row in our_rows)}
        )
    )
    report(
        "to_history",
        median(lambda run: our_tokens[run].to_history(tokenizer, chat_template_name=name), repeats),
        median(
            lambda run: their_tokens[run].to_history(tokenizer, chat_template_name=name), repeats
        ),
        "s",
    )
    growing = [
        [[m for chat in chats[run][i : i + 8] for m in chat][:64] for i in range(0, 128, 8)]
        for run in range(repeats)
    ]
    options_of = {"tokenizer": tokenizer, "chat_template_name": name, "tokenize": True}

    def ids(history: Any) -> None:
        history.apply_chat_template(add_generation_prompt=False, **options_of)

    theirs_growing = median(
        lambda run: grow_history(TorchHistory, growing[run], ids), min(repeats, 2)
    )
    report(
        "16 conversations growing to 64 messages, ids after each, by History",
        median(lambda run: grow_history(History, growing[run], ids), repeats),
        theirs_growing,
        "s",
    )
    fresh = [
        [[{**m, "content": m["content"] + "."} for m in chat] for chat in run] for run in growing
    ]
    report(
        "the same by extend",
        median(lambda run: grow_tokens(fresh[run], tokenizer), repeats),
        theirs_growing,
        "s",
    )
    back = our_tokens[0].to_history(tokenizer, chat_template_name=name).full.to_chats()
    print(json.dumps({"name": "to_history gives the messages back", "value": back == chats[0]}))


if __name__ == "__main__":
    main()
