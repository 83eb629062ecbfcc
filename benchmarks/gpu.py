"""Generating and scoring on a GPU, in bfloat16, in under three minutes: throughput, memory, and agreement.

    python benchmarks/gpu.py [--model NAME] [--rows 64] [--prompt 256] [--tokens 256]
    python benchmarks/gpu.py --device cpu --small        a smoke test where there is no GPU

Without ``--model`` a Qwen3 of some 0.6 billion parameters with random weights. Each line is one JSON object: tokens a
second (median of the repeats, after one run to warm up), ratios to bare ``model.generate`` and to the naive
log-softmax, peak memory, and how far sampling log-probs are from re-scored ones.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon_transformers import TransformersBackend

SIZES = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
SMALL = {
    **SIZES,
    "vocab_size": 1024,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def build(sizes: dict[str, Any], device: str) -> Any:
    """A Qwen3 with random weights, bfloat16."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    with torch.device(device):
        return Qwen3ForCausalLM(Qwen3Config(**sizes)).to(torch.bfloat16).eval()


def tell(name: str, **values: Any) -> None:
    """Print one result."""
    print(json.dumps({"name": name, **values}), flush=True)


class Clock:
    """Seconds and bytes of runs on a device; a slow one is repeated less, so that the whole stays short."""

    LONGEST = 20.0  # seconds of repeats of one measurement, beyond which there is no further one

    def __init__(self, device: str, repeats: int) -> None:
        self.cuda = device.startswith("cuda")
        self.repeats = repeats

    def seconds(self, run: Callable[[], Any]) -> float:
        """Median seconds of `run`, after one run to warm up."""
        times: list[float] = []
        while len(times) <= self.repeats and (len(times) < 2 or sum(times[1:]) < self.LONGEST):
            self._wait()
            start = time.perf_counter()
            run()
            self._wait()
            times.append(time.perf_counter() - start)
        return statistics.median(times[1:])

    def peak(self, run: Callable[[], Any]) -> int | None:
        """Most bytes that `run` takes on the device above what was there; None on a CPU."""
        if not self.cuda:
            return None
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        self._wait()
        return torch.cuda.max_memory_allocated() - before

    def _wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


def generating(
    backend: TransformersBackend, rows: list[list[int]], count: int, clock: Clock
) -> None:
    """Compare with bare ``model.generate``, greedy, every row ``count`` tokens."""
    values = {"max_new_tokens": count, "temperature": 0.0, "ignore_eos": True}
    params = SamplingParams.from_kwargs(values)
    ids = torch.tensor(rows, device=backend.model.device)

    def bare() -> None:
        with torch.no_grad():
            backend.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=count,
                do_sample=False,
                eos_token_id=[backend.vocab_size],  # none
                pad_token_id=0,
            )

    theirs = clock.seconds(bare)
    ours = clock.seconds(lambda: backend.generate(TokenBatch(rows), params))
    total = len(rows) * count
    tell(
        "generate",
        tokens_per_second=round(total / ours),
        bare_tokens_per_second=round(total / theirs),
        times_bare=round(ours / theirs, 3),
    )
    grouped = SamplingParams(max_new_tokens=count, num_return_sequences=8, seed=0, ignore_eos=True)
    few = rows[: max(1, len(rows) // 8)]
    seconds = clock.seconds(lambda: backend.generate(TokenBatch(few), grouped))
    tell("generate, 8 samples of a prompt", tokens_per_second=round(len(few) * 8 * count / seconds))


def scoring(backend: TransformersBackend, rows: list[list[int]], count: int, clock: Clock) -> None:
    """Compare with the naive log-softmax, and sampled log-probs with re-scored ones."""
    made = backend.generate(TokenBatch(rows), SamplingParams(max_new_tokens=count, seed=1))
    full = [row + ids for row, ids in zip(rows, made.ids, strict=True)]
    scores = backend.score(TokenBatch(full), starts=[len(row) for row in rows])
    apart = torch.cat(
        [
            (one - other.detach().cpu()).abs()
            for one, other in zip(made.log_probs, scores.log_probs, strict=True)
        ]
    )
    tell(
        "sampled against re-scored log-probs",
        mean=round(apart.mean().item(), 5),
        most=round(apart.max().item(), 5),
    )
    same = [row + row[:count] for row in rows]
    ids = torch.tensor(same, device=backend.model.device)

    def ours() -> None:
        backend.score(TokenBatch(same))

    def naive() -> None:
        with torch.no_grad():
            log_probs = backend.model(ids).logits[:, :-1].float().log_softmax(-1)
            log_probs.gather(-1, ids[:, 1:, None])

    seconds = clock.seconds(ours)
    tell("score", tokens_per_second=round(ids.numel() / seconds), bytes=clock.peak(ours))
    try:
        bare = clock.seconds(naive)
        tell("naive log-softmax", times_ours=round(bare / seconds, 3), bytes=clock.peak(naive))
    except torch.OutOfMemoryError:
        tell("naive log-softmax", error="it needs more memory than the device has")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="a tiny model and few tokens")
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("there is no CUDA device; use --device cpu --small for a smoke test")
    rows, prompt, count, repeats = options.rows, options.prompt, options.tokens, options.repeats
    if options.small:
        rows, prompt, count, repeats = min(rows, 8), min(prompt, 16), min(count, 8), 1
    start = time.perf_counter()
    model = options.model or build(SMALL if options.small else SIZES, options.device)
    backend = TransformersBackend(model, device=options.device, dtype=torch.bfloat16, reuse_bytes=0)
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(5, backend.vocab_size, (rows, prompt), generator=generator).tolist()
    clock = Clock(options.device, repeats)
    generating(backend, ids, count, clock)
    scoring(backend, ids, count, clock)
    tell("all of it", seconds=round(time.perf_counter() - start, 1), device=options.device)


if __name__ == "__main__":
    main()
