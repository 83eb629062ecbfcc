"""Rollouts that go on as soon as each answer is there, against rounds that wait for the longest one.

    python benchmarks/vllm_rollouts.py [--model embedded] [--dtype bfloat16] [--conversations 64]
        [--turns 8] [--longest 256] [--repeats 3]

One engine, the same conversations with the same seeds, by the wall, in turn; medians and their ratio. How
long an answer is, is drawn from its seed, as likely between 8 and 16 tokens as between 128 and 256, and
conversations have between one turn and ``--turns``: so both ways sample exactly the same number of tokens.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from antiphon.envs.conversation import Prompter
from antiphon.envs.tasks import FunctionTask, Reply
from antiphon.generation.sampling import SamplingParams
from antiphon.rollouts.async_loop import iterate, roll_out_async
from antiphon.rollouts.sampling_loop import RolloutSettings, Trajectory, roll_out
from antiphon_vllm.async_engine import AsyncVLLMBackend
from antiphon_vllm.requests import Request

SHORTEST = 4


class Drawn(AsyncVLLMBackend):
    """Ends each answer after a number of tokens that its seed settles."""

    async def _ask(self, request: Request, *arguments: Any) -> Any:
        if "seed" in request.settings:
            share = random.Random(request.settings["seed"]).random()
            length = round(SHORTEST * (request.limit / SHORTEST) ** share)
            request = replace(request, settings={**request.settings, "max_tokens": length})
        return await super()._ask(request, *arguments)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--conversations", type=int, default=64)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--longest", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()

    backend = Drawn(options.model, dtype=options.dtype)
    prompter = Prompter(backend.tokenizer)
    rows = [{"query": f"Tell me about the number {i}."} for i in range(options.conversations)]

    def respond(_messages: Sequence[Any], row: Mapping[str, Any], turn: int) -> Reply:
        last = random.Random(row["query"]).randint(1, options.turns)
        return Reply([{"role": "user", "content": "And the next?"}], truncated=turn >= last)

    task = FunctionTask(respond)
    params = SamplingParams(max_new_tokens=options.longest, ignore_eos=True)
    settings = RolloutSettings(samples=1, batch_size=options.conversations, params=params)

    def in_rounds() -> list[Trajectory]:
        found = roll_out(task, rows, backend, settings, prompter=prompter)
        return [each for finished in found for each in finished]

    def continuously() -> list[Trajectory]:
        found = iterate(roll_out_async(task, rows, backend, settings, prompter=prompter))
        return [each for finished in found for each in finished]

    runs: dict[str, Callable[[], list[Trajectory]]] = {
        "in rounds": in_rounds,
        "continuously": continuously,
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    try:
        for _ in range(options.repeats):
            for name, run in runs.items():
                start = time.perf_counter()
                made = run()
                times[name].append(time.perf_counter() - start)
                sampled = sum(sum(s.sampled) for t in made for s in t.segments)
                answers = sum(len(t.turns) for t in made)
                print(
                    f"{name:<14}{times[name][-1]:7.1f} s   {sampled / times[name][-1]:6.0f} tokens/s   "
                    f"({len(made)} conversations, {answers} answers, {sampled} tokens)",
                    flush=True,
                )
    finally:
        backend.close()
    median = {name: statistics.median(values) for name, values in times.items()}
    ratio = median["in rounds"] / median["continuously"]
    print(f"median of {options.repeats}: {ratio:.2f} times the throughput of rounds")


if __name__ == "__main__":
    main()
