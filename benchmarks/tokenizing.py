"""`antiphon tokenize` against apply_chat_template with masks in `datasets.map`: the same work, by the wall.

    python benchmarks/tokenizing.py TOKENIZER_FOLDER [--rows 8192] [--workers 2]
    python benchmarks/tokenizing.py TOKENIZER_FOLDER --memory [--rows 600]

Both read the same JSON lines and write Parquet with ids, attention mask, labels and assistant masks; ours writes the
message index as well. The reference renders a template of our own with generation tags, prints the same text, and maps
one row at a time and in batches; the better one counts. Each run is a process of its own, start included, and the
medians of alternating runs are compared; so is the time of the processors, which says more on a busy machine (Linux
only).

With ``--memory`` nothing is compared: it prints how much memory `antiphon tokenize` and all its processes take at most
together, on some rows and on ten times as many, from JSON lines, Parquet and a saved data set, with short and with long
messages. Memory is the sum of the proportional set sizes, looked at ten times a second (Linux only).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
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


def processes(root: int) -> list[int]:
    """Return a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def proportional_size(process: int) -> int:
    """Return the memory of a process in bytes, pages that several share counted in parts."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def peak_memory(command: list[str], environment: dict[str, str]) -> int:
    """Run a command and return how many bytes all its processes took at most."""
    peak = 0
    running = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    while running.poll() is None:
        peak = max(peak, sum(map(proportional_size, processes(running.pid))))
        time.sleep(0.1)
    if running.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {running.returncode}")
    return peak


def adopt_orphans() -> None:
    """Let processes whose parent has ended become children of this one, so that their time counts (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def timed(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run a command and return the seconds that passed, and those of the processors, all its processes together."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    start, before = time.perf_counter(), used()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    passed = time.perf_counter() - start
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return passed, used() - before


def write_rows(path: Path, form: str, chats: list[list[dict[str, str]]]) -> None:
    """Write conversations in one of the forms."""
    rows = [{"messages": messages} for messages in chats]
    if form == "JSON lines":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return
    import datasets

    datasets.disable_progress_bars()
    found = datasets.Dataset.from_list(rows)
    if form == "Parquet":
        # One row group, as large as the file.
        found.to_parquet(str(path), batch_size=len(rows))
    else:
        found.save_to_disk(str(path))


def measure_memory(command: list[str], folder: Path, rows: int, environment: dict) -> None:
    """Print the memory for each form, on ``rows`` conversations and on ten times as many."""
    from rendering import conversations

    suffixes = {"JSON lines": ".jsonl", "Parquet": ".parquet", "saved data set": ""}
    for told, words, some in (("short", 48, rows), ("long", 4800, max(1, rows // 10))):
        for form, suffix in suffixes.items():
            peaks = []
            for count in (some, 10 * some):
                path = folder / f"{told}-{count}{suffix}"
                # In a process of its own: what was written takes no memory while it is read.
                if os.fork() == 0:
                    write_rows(path, form, conversations(count, 8, words, seed=count))
                    os._exit(0)
                os.wait()
                peaks.append(peak_memory([part.format(data=path) for part in command], environment))
            one, other = (peak / 2**20 for peak in peaks)
            print(
                f"{form:15} {told:5} messages: {some:6} rows {one:6.0f} MiB, {10 * some:6} rows {other:6.0f} MiB, "
                f"ratio {other / one:.2f}",
                flush=True,
            )


def main() -> None:
    """Run all, or one part in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--part", nargs=2)
    options = parser.parse_args()
    if options.part:
        name, folder = options.part
        reference(Path(folder), options.tokenizer, name == "batched", options.workers)
        return
    from rendering import conversations

    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        template = folder / "chatml.jinja"
        template.write_text(TEMPLATE)
        common = [
            "--tokenizer", options.tokenizer, "--template", str(template),
            "--workers", str(options.workers), "--overwrite", "--shard-rows",
        ]  # fmt: skip
        command = [sys.executable, "-m", "antiphon.cli", "tokenize"]
        output = str(folder / "ours")
        if options.memory:
            line = [*command, "{data}", output, *common, "100"]
            measure_memory(line, folder, options.rows or 600, environment)
            return
        with (folder / "in.jsonl").open("w") as file:
            for messages in conversations(options.rows or 8192, 8, 48, seed=5):
                file.write(json.dumps({"messages": messages}) + "\n")
        ours = [*command, str(folder / "in.jsonl"), output, *common, "512"]
        own = [sys.executable, __file__, options.tokenizer, "--workers", str(options.workers)]
        runs = {
            "antiphon tokenize": ours,
            "datasets.map, row by row": [*own, "--part", "single", name],
            "datasets.map, batched": [*own, "--part", "batched", name],
        }
        times: dict[str, list[tuple[float, float]]] = {key: [] for key in runs}
        adopt_orphans()
        for _ in range(options.repeats):
            for key, command in runs.items():
                subprocess.run(["rm", "-rf", str(folder / "cache")], check=True)
                times[key].append(timed(command, environment))
                print(
                    "  {:26} {:7.2f} s, {:7.2f} s of processors".format(key, *times[key][-1]),
                    flush=True,
                )
        tokens = check(folder, options.tokenizer)
        for number, told in enumerate(("by the wall", "of processors")):
            medians = {k: statistics.median(each[number] for each in v) for k, v in times.items()}
            for key, seconds in medians.items():
                print(f"{key:26} {seconds:7.2f} s {told}  {tokens / seconds:10.0f} tokens/s")
            ours_took = medians.pop("antiphon tokenize")
            print(
                f"throughput, ours to the better reference: {min(medians.values()) / ours_took:.2f} {told}"
            )


if __name__ == "__main__":
    main()
