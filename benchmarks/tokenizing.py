"""`antiphon tokenize` against apply_chat_template with masks in `datasets.map`: the same work, by the wall.

    python benchmarks/tokenizing.py TOKENIZER_FOLDER [--rows 8192] [--workers 2]

Both read the same JSON lines and write Parquet with ids, attention mask, labels and assistant masks; ours writes the
message index as well. The reference renders a template of our own with generation tags, prints the same text, and maps
one row at a time and in batches; the better one counts. Each run is a process of its own, start included, and the
medians of alternating runs are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# ChatML without a default system message: what the chatml dialect prints.
TEMPLATE = (
    "{%- for message in messages %}{%- if message.role == 'assistant' %}{{- '<|im_start|>assistant\n' }}"
    "{%- generation %}{{- message.content + '<|im_end|>' }}{%- endgeneration %}{{- '\n' }}"
    "{%- else %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endif %}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)


def reference(folder: Path, tokenizer_folder: str, batched: bool, workers: int) -> None:
    """Do the work with datasets and transformers."""
    import datasets
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)

    def one(row: dict) -> dict:
        made = tokenizer.apply_chat_template(
            row["messages"],
            chat_template=TEMPLATE,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        made["labels"] = labels(made["input_ids"], made["assistant_masks"])
        return dict(made)

    def many(rows: dict) -> dict:
        made = tokenizer.apply_chat_template(
            rows["messages"],
            chat_template=TEMPLATE,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        pairs = zip(made["input_ids"], made["assistant_masks"], strict=True)
        made["labels"] = [labels(ids, mask) for ids, mask in pairs]
        return dict(made)

    def labels(ids: list[int], mask: list[int]) -> list[int]:
        return [token if inside else -100 for token, inside in zip(ids, mask, strict=True)]

    found = datasets.load_dataset(
        "json", data_files=str(folder / "in.jsonl"), split="train", cache_dir=str(folder / "cache")
    )
    found = found.map(
        many if batched else one, batched=batched, num_proc=workers, remove_columns=["messages"]
    )
    found.to_parquet(str(folder / "reference.parquet"))


def check(folder: Path, tokenizer_folder: str) -> int:
    """Compare ids and masks, and return the number of tokens."""
    import pyarrow.parquet as pq

    columns = ["input_ids", "attention_mask", "assistant_masks", "labels"]
    ours = pq.read_table(folder / "ours").sort_by("row").select(columns)
    other = pq.read_table(folder / "reference.parquet").select(columns)
    tokens = 0
    for mine, theirs in zip(ours.to_pylist(), other.to_pylist(), strict=True):
        assert mine == theirs, "ids or masks differ"
        tokens += len(mine["input_ids"])
    return tokens


def main() -> None:
    """Run all, or one part in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--part", nargs=2)
    options = parser.parse_args()
    if options.part:
        name, folder = options.part
        reference(Path(folder), options.tokenizer, name == "batched", options.workers)
        return
    from rendering import conversations

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "in.jsonl").open("w") as file:
            for messages in conversations(options.rows, 8, 48, seed=5):
                file.write(json.dumps({"messages": messages}) + "\n")
        template = folder / "chatml.jinja"
        template.write_text(TEMPLATE)
        ours = [
            sys.executable, "-m", "antiphon.cli", "tokenize", str(folder / "in.jsonl"), str(folder / "ours"),
            "--tokenizer", options.tokenizer, "--template", str(template),
            "--workers", str(options.workers), "--overwrite", "--shard-rows", "512",
        ]  # fmt: skip
        own = [sys.executable, __file__, options.tokenizer, "--workers", str(options.workers)]
        runs = {
            "antiphon tokenize": ours,
            "datasets.map, row by row": [*own, "--part", "single", name],
            "datasets.map, batched": [*own, "--part", "batched", name],
        }
        times: dict[str, list[float]] = {key: [] for key in runs}
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        for _ in range(options.repeats):
            for key, command in runs.items():
                subprocess.run(["rm", "-rf", str(folder / "cache")], check=True)
                start = time.perf_counter()
                subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
                times[key].append(time.perf_counter() - start)
                print(f"  {key:26} {times[key][-1]:7.2f} s", flush=True)
        tokens = check(folder, options.tokenizer)
        medians = {key: statistics.median(value) for key, value in times.items()}
        for key, seconds in medians.items():
            print(f"{key:26} {seconds:7.2f} s  {tokens / seconds:10.0f} tokens/s")
        best = min(value for key, value in medians.items() if key != "antiphon tokenize")
        print(
            f"throughput, ours to the better reference: {best / medians['antiphon tokenize']:.2f}"
        )


if __name__ == "__main__":
    main()
