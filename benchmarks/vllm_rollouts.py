"""Rollouts that go on as soon as each answer is there, against rounds that wait for the longest one.

    python benchmarks/vllm_rollouts.py [--model embedded] [--dtype bfloat16] [--conversations 64]
        [--turns 4] [--median 10] [--longest 160] [--tools 0.25] [--only FIGURE] [--repeats 1]

One engine and the same conversations with the same seeds, both ways in turn, by the wall; under three minutes on two
cores. The conversations are unequal as those of agents are: how many turns each has is geometric (``--turns`` on
average, four times that at most), how long an answer is lognormal (``--median``, a sigma of 1, ``--longest`` at most),
both settled by seeds, so that both ways sample the same numbers of tokens. Answers are short for a processor's sake;
the longest is 16 times the median, as where answers are long. Two figures:

- answers alone: the other side replies at once;
- with tools: each reply takes a time of its own (lognormal, a median of ``--tools`` seconds, a sigma of 1, ten times
  the median at most). In rounds all tools of a round run at once, and the slowest is waited for.

What a trainer would score is not scored: that is no part of sampling. On a machine that others use the wall says
little: the CPU seconds of the process that holds the model (which spins for a while when it waits), and the least
number of its steps, say more.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import psutil
import torch
from antiphon.envs.conversation import Prompter
from antiphon.envs.tasks import FunctionTask, Reply
from antiphon.generation.backends import Generation, Scores, TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon.rollouts.async_loop import iterate, roll_out_async
from antiphon.rollouts.sampling_loop import RolloutSettings, Trajectory, roll_out
from antiphon_vllm.async_engine import AsyncVLLMBackend
from antiphon_vllm.requests import Request

SIGMA = 1.0
FIGURES = ("answers alone", "with tools")


def lognormal(draw: random.Random, median: float, most: float) -> float:
    """Draw one number with a long tail."""
    return min(most, draw.lognormvariate(math.log(median), SIGMA))


class Drawn(AsyncVLLMBackend):
    """Ends each answer after a number of tokens that its seed settles; waits for the tools of a round."""

    median = 10.0
    round_ends = 0.0  # when the slowest tool of the last round is done

    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        """Begin a round."""
        time.sleep(max(0.0, self.round_ends - time.perf_counter()))
        return super().generate(batch, params)

    async def _ask(self, request: Request, *arguments: Any) -> Any:
        draw = random.Random(request.settings["seed"])
        length = max(1, round(lognormal(draw, self.median, request.limit)))
        request = replace(request, settings={**request.settings, "max_tokens": length})
        return await super()._ask(request, *arguments)


class NoScores:
    """Stands where a trainer would, and takes no time."""

    name, vocab_size, max_context, weight_version = "none", 1 << 30, None, None
    extra_parameters: frozenset[str] = frozenset()

    def score(self, batch: TokenBatch, *, starts: Sequence[int], **_: Any) -> Scores:
        """Say nothing of any id."""
        rows = zip(batch.rows, starts, strict=True)
        return Scores([torch.zeros(len(row) - start) for row, start in rows])

    async def score_async(self, batch: TokenBatch, **options: Any) -> Scores:
        """Likewise."""
        return self.score(batch, **options)

    def generate(self, *_: Any) -> Generation:
        """Refuse: a trainer is asked for scores alone."""
        raise NotImplementedError

    generate_async = generate


class Conversations:
    """How many turns each conversation has, and how long each of its tools takes."""

    def __init__(self, backend: Drawn, turns: float, tools: float) -> None:
        self._backend, self._turns, self._tools = backend, turns, tools

    def _reply(self, row: Mapping[str, Any], turn: int) -> tuple[Reply, float]:
        draw, last = random.Random(row["query"]), 1
        while last < 4 * self._turns and draw.random() > 1 / self._turns:
            last += 1
        seconds = lognormal(
            random.Random(f"{row['query']} {turn}"), self._tools or 1, 10 * self._tools
        )
        reply = Reply([{"role": "user", "content": "And the next?"}], truncated=turn >= last)
        return reply, 0.0 if turn >= last else seconds

    def in_rounds(self, _messages: Sequence[Any], row: Mapping[str, Any], turn: int) -> Reply:
        """Reply, and have the next round begin no sooner than when this tool is done."""
        reply, seconds = self._reply(row, turn)
        ends = time.perf_counter() + seconds
        self._backend.round_ends = max(self._backend.round_ends, ends)
        return reply

    async def continuously(
        self, _messages: Sequence[Any], row: Mapping[str, Any], turn: int
    ) -> Reply:
        """Reply when the tool is done."""
        reply, seconds = self._reply(row, turn)
        await asyncio.sleep(seconds)
        return reply


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--conversations", type=int, default=64)
    parser.add_argument("--turns", type=float, default=4)
    parser.add_argument("--median", type=float, default=10)
    parser.add_argument("--longest", type=int, default=160)
    parser.add_argument("--tools", type=float, default=0.25)
    parser.add_argument("--only", choices=FIGURES, default=None)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()

    backend = Drawn(options.model, dtype=options.dtype)
    backend.median = options.median
    prompter = Prompter(backend.tokenizer)
    rows = [{"query": f"Tell me about the number {i}."} for i in range(options.conversations)]
    params = SamplingParams(max_new_tokens=options.longest, ignore_eos=True)
    settings = RolloutSettings(samples=1, batch_size=options.conversations, params=params)

    def run(way: str, tools: float) -> list[Trajectory]:
        drawn = Conversations(backend, options.turns, tools)
        given = (rows, backend, settings)
        also: Any = {"prompter": prompter, "scorer": NoScores()}
        if way == "in rounds":
            found = roll_out(FunctionTask(drawn.in_rounds), *given, **also)
        else:
            found = iterate(roll_out_async(FunctionTask(drawn.continuously), *given, **also))
        return [each for finished in found for each in finished]

    times: dict[tuple[str, str], list[float]] = {}
    wanted = [figure for figure in FIGURES if options.only in (None, figure)]
    try:
        backend.generate(TokenBatch([[1, 2, 3]], [0]), replace(params, max_new_tokens=8))
        for _ in range(options.repeats):
            for figure in wanted:
                tools = options.tools if figure == "with tools" else 0.0
                for way in ("in rounds", "continuously"):
                    start, before = time.perf_counter(), busy(backend)
                    made = run(way, tools)
                    seconds = time.perf_counter() - start
                    times.setdefault((figure, way), []).append(seconds)
                    tell(figure, way, made, seconds, busy(backend) - before)
    finally:
        backend.close()
    for figure in wanted:
        rounds, continuous = (
            statistics.median(times[figure, way]) for way in ("in rounds", "continuously")
        )
        print(f"{figure}: {rounds / continuous:.2f} times the throughput of rounds")


def busy(backend: Drawn) -> float:
    """CPU seconds of the processes that hold the model."""
    cores = [psutil.Process(number) for number in backend.process_ids]
    models = [child for core in cores for child in core.children()] or cores
    return sum(sum(process.cpu_times()[:2]) for process in models)


def tell(figure: str, way: str, made: list[Trajectory], seconds: float, cpu: float) -> None:
    """Print one run, and the least number of the engine's steps that it can have taken."""
    lengths = [[turn.end - turn.start for turn in t.turns] for t in made]
    tokens = sum(map(sum, lengths))
    if way == "in rounds":
        last = max(map(len, lengths))
        steps = sum(max(t[turn] for t in lengths if len(t) > turn) for turn in range(last))
    else:
        steps = max(map(sum, lengths))
    print(
        f"{figure:<14} {way:<13}{seconds:6.1f} s {tokens / seconds:6.0f} tokens/s {cpu:6.1f} CPU s   "
        f"({len(made)} conversations, {sum(map(len, lengths))} answers, {tokens} tokens, at least "
        f"{steps} steps; load {os.getloadavg()[0]:.1f})",
        flush=True,
    )


if __name__ == "__main__":
    main()
