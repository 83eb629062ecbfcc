"""Peak memory and time of scoring against the naive log-softmax over the whole vocabulary.

    python benchmarks/scoring.py [--rows 8] [--length 2048] [--vocabulary 151936]

A small Qwen3 (random weights) with a large vocabulary. Each figure is a process of its own: resident memory at its peak
less that before the work. "body" is the model without its head: its own activations. The naive way would need more
than most machines have, so it is measured on fewer positions and scaled up (its memory is linear in them).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

HIDDEN, LAYERS = 128, 4


def build(vocabulary: int, length: int) -> torch.nn.Module:
    """A Qwen3 of 4 layers."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
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
    return Qwen3ForCausalLM(config).eval()


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


def work(kind: str, gradient: bool, rows: int, length: int, vocabulary: int) -> dict[str, float]:
    """Do one kind of work and say what it took."""
    from antiphon.generation.backends import TokenBatch
    from antiphon_transformers import TransformersBackend

    torch.set_num_threads(1)
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
    return {"bytes": peak() - before, "seconds": time.process_time() - start, "value": float(total)}


def main() -> None:
    """Measure each kind in a process of its own and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--naive-length", type=int, default=256)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        kind, gradient = options.work[0], options.work[1] == "gradient"
        print(json.dumps(work(kind, gradient, options.rows, options.length, options.vocabulary)))
        return

    def measure(kind: str, gradient: str, rows: int, length: int) -> dict[str, float]:
        command = [sys.executable, __file__, "--work", kind, gradient]
        command += [
            "--rows",
            str(rows),
            "--length",
            str(length),
            "--vocabulary",
            str(options.vocabulary),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found

    from antiphon.generation.scoring import CHUNK_ELEMENTS

    chunk = 4 * CHUNK_ELEMENTS / 2**20
    print(
        f"{options.rows} x {options.length} tokens, vocabulary {options.vocabulary}, a chunk's logits {chunk:.0f} MiB"
    )
    for gradient in ("plain", "gradient"):
        body = measure("body", gradient, options.rows, options.length)
        ours = measure("ours", gradient, options.rows, options.length)
        naive = measure("naive", gradient, 1, options.naive_length)
        scale = options.rows * options.length / options.naive_length
        mib = {
            name: found["bytes"] / 2**20
            for name, found in (("body", body), ("ours", ours), ("naive", naive))
        }
        allowed = 1.5 * mib["body"] + chunk
        print(
            f"{gradient:9} body {mib['body']:7.0f} MiB   ours {mib['ours']:7.0f} MiB ({mib['ours'] / allowed:.2f} of"
        )
        print(f"          1.5 x body + chunk)   naive about {mib['naive'] * scale:7.0f} MiB")
        print(
            f"          ours {ours['seconds']:6.1f} CPU s   naive about {naive['seconds'] * scale:6.1f} CPU s"
        )


if __name__ == "__main__":
    main()
