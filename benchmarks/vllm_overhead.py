"""What our backend costs over bare ``vllm.LLM.generate`` on the same prompts.

    python benchmarks/vllm_overhead.py [--model embedded] [--prompts 256] [--tokens 32] [--repeats 5]

Every prompt the same number of new tokens, each with a seed of its own, sampled log-probs on both sides; one engine
for both, its prefix cache emptied before each run. CPU seconds of the process, so that other processes on the machine
do not count. Medians of interleaved repeats, and their ratio. Run it with ``OMP_NUM_THREADS=1``.
"""

from __future__ import annotations

import argparse
import random
from typing import Any

from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon_vllm import VLLMBackend
from antiphon_vllm.engine import eager
from timing import medians


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    backend = VLLMBackend(options.model, max_model_len=512)
    draw = random.Random(0)
    rows = [
        [draw.randrange(1000, 40000) for _ in range(draw.randrange(8, 40))]
        for _ in range(options.prompts)
    ]
    batch = TokenBatch(rows, list(range(options.prompts)))
    params = SamplingParams(max_new_tokens=options.tokens, ignore_eos=True)
    from vllm import SamplingParams as EngineParams

    def bare() -> Any:
        backend.llm.reset_prefix_cache()
        asked = [
            EngineParams(max_tokens=options.tokens, ignore_eos=True, logprobs=0, seed=seed)
            for seed in range(options.prompts)
        ]
        prompts = [{"prompt_token_ids": row} for row in rows]
        with eager(True):  # else its first call compiles for half a minute
            return backend.llm.generate(prompts, asked, use_tqdm=False)

    def ours() -> Any:
        backend.llm.reset_prefix_cache()
        return backend.generate(batch, params)

    found = medians({"vllm.LLM.generate": bare, "VLLMBackend.generate": ours}, options.repeats)
    for name, seconds in found.items():
        print(f"{name:<24}{seconds:8.2f} s")
    share = found["VLLMBackend.generate"] / found["vllm.LLM.generate"] - 1
    print(f"{'overhead':<24}{100 * share:8.1f} %")
    backend.close()


if __name__ == "__main__":
    main()
