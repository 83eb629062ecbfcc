"""Peak memory and time of scoring against the naive log-softmax over the whole vocabulary.

    python benchmarks/scoring.py [--rows 8] [--length 2048] [--vocabulary 151936] [--threads N]

A small Qwen3 (random weights) with a large vocabulary. Each figure is a process of its own: resident memory at its peak
less that before the work. "body" is the model without its head: its own activations. The naive way would need more
than most machines have, so it is measured on fewer positions and scaled up (its memory is linear in them).

All cores are used: about three minutes on two, most of it scoring with gradients.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import multiprocessing
import os
import resource
import time
from pathlib import Path

import torch
import transformers
from antiphon.generation.backends import TokenBatch
from antiphon.generation.scoring import CHUNK_ELEMENTS
from antiphon_transformers import TransformersBackend

HIDDEN, LAYERS = 128, 4


def build(vocabulary: int, length: int) -> torch.nn.Module:
    """A Qwen3 of 4 layers."""
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=HIDDEN,
        intermediate_size=3 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=HIDDEN // 4,
        max_position_embeddings=length + 1,
        tie_word_embeddings=True,
    )
    return transformers.Qwen3ForCausalLM(config).eval()


def peak() -> int:
    """Most resident bytes since the last `forget_peak` (Linux), or so far."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def forget_peak() -> None:
    """Begin anew to look for a peak, where the system can."""
    gc.collect()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def work(
    kind: str, gradient: bool, rows: int, length: int, vocabulary: int, threads: int
) -> dict[str, float]:
    """Do one kind of work and say what it took."""
    torch.set_num_threads(threads)
    model = build(vocabulary, length)
    backend = TransformersBackend(model)
    _ = backend.forward.splits
    ids = torch.randint(vocabulary, (rows, length), generator=torch.Generator().manual_seed(1))
    if gradient:
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
    forget_peak()
    before, start = peak(), time.process_time()
    with torch.set_grad_enabled(gradient):
        if kind == "body":
            total = backend.forward.hidden(ids).sum()
        elif kind == "naive":
            log_probs = model(ids).logits[:, :-1].float().log_softmax(-1)
            total = log_probs.gather(-1, ids[:, 1:, None]).sum()
        else:
            scores = backend.score(TokenBatch(ids.tolist()), requires_grad=gradient)
            total = torch.stack([row[1:].sum() for row in scores.log_probs]).sum()
        if gradient:
            total.backward()
    return {
        "bytes": peak() - before,
        "seconds": time.process_time() - start,
        "value": float(total.detach()),
    }


def main() -> None:
    """Measure each kind in a process of its own and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--naive-length", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()

    # A process of its own each: one that was forked has memory to use again, and its peak says little.
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, maxtasksperchild=1) as pool:

        def measure(kind: str, gradient: bool, rows: int, length: int) -> dict[str, float]:
            arguments = (kind, gradient, rows, length, options.vocabulary, options.threads)
            return pool.apply(work, arguments)

        chunk = 4 * CHUNK_ELEMENTS / 2**20
        print(
            f"{options.rows} x {options.length} tokens, vocabulary {options.vocabulary}, "
            f"a chunk's logits {chunk:.0f} MiB, {options.threads} threads"
        )
        for name, gradient in (("plain", False), ("gradient", True)):
            body = measure("body", gradient, options.rows, options.length)
            ours = measure("ours", gradient, options.rows, options.length)
            naive = measure("naive", gradient, 1, options.naive_length)
            scale = options.rows * options.length / options.naive_length
            mib = {
                kind: found["bytes"] / 2**20
                for kind, found in (("body", body), ("ours", ours), ("naive", naive))
            }
            allowed = 1.5 * mib["body"] + chunk
            print(
                f"{name:9} body {mib['body']:7.0f} MiB   ours {mib['ours']:7.0f} MiB "
                f"({mib['ours'] / allowed:.2f} of 1.5 x body + chunk)   "
                f"naive about {mib['naive'] * scale:7.0f} MiB"
            )
            print(
                f"          ours {ours['seconds']:6.1f} CPU s   naive about "
                f"{naive['seconds'] * scale:6.1f} CPU s",
                flush=True,
            )


if __name__ == "__main__":
    main()
