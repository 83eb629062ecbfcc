"""`antiphon tokenize`: shards that a trainer takes, that survive a stop, and that say what became of every row."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from antiphon.cli import run as command_line
from antiphon.data import (
    Sample,
    SampleBatch,
    SampleOptions,
    Totals,
    TrainOn,
    make_samples,
    open_rows,
    tokenize_dataset,
)
from antiphon.data import run as run_module
from antiphon.data.sources import from_values, rows_of
from antiphon.errors import (
    AntiphonError,
    InvalidData,
    InvalidParameter,
    OutputError,
    TemplateInvalid,
)
from rendering_helpers import tokenizer

pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow, which writes shards, is not installed")
datasets = pytest.importorskip("datasets", reason="datasets is not installed")

CHATML = SampleOptions(family="chatml")
BROKEN = {3: "not json", 7: json.dumps({"messages": []})}


def conversation(number: int) -> dict[str, Any]:
    turns = [
        {"role": role, "content": f"{role} {number}.{turn} speaks of the weather"}
        for turn in range(2)
        for role in ("user", "assistant")
    ]
    return {"messages": turns}


def write_lines(path: Path, count: int, broken: dict[int, str] | None = None) -> Path:
    lines = [json.dumps(conversation(i)) for i in range(count)]
    for row, text in (broken or {}).items():
        lines[row] = text
    path.write_text("\n".join(lines) + "\n\n")
    return path


def folder_of(name: str) -> str:
    return str(tokenizer(name).name_or_path)


def loaded(output: Path) -> Any:
    return datasets.load_dataset(
        "parquet",
        data_files=str(output / "*.parquet"),
        split="train",
        cache_dir=str(output.parent / "cache"),
    )


def test_the_command_writes_what_the_samples_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_lines(tmp_path / "in.jsonl", 20, BROKEN)
    output = tmp_path / "out"
    line = ["tokenize", str(data), str(output), "--tokenizer", folder_of("qwen3")]
    assert command_line([*line, "--family", "chatml", "--shard-rows", "6"]) == 0
    told = capsys.readouterr().out
    assert "20 conversations: 18 samples" in told
    assert "refused 2" in told
    assert "the conversation is empty (row 7)" in told
    rows = loaded(output)
    wanted = make_samples(
        [(i, conversation(i)) for i in range(20) if i not in BROKEN], tokenizer("qwen3"), CHATML
    )
    assert len(rows) == len(wanted.samples) == 18
    for row, sample in zip(rows, wanted.samples, strict=True):
        assert row["row"] == sample.row
        assert row["input_ids"] == sample.input_ids
        assert row["attention_mask"] == [1] * len(sample.input_ids)
        assert row["assistant_masks"] == [int(m) for m in sample.mask]
        assert row["message_index"] == sample.message_index
        pairs = zip(sample.input_ids, sample.mask, strict=True)
        assert row["labels"] == [token if m else -100 for token, m in pairs]
    report = [json.loads(text) for text in (output / "_report.jsonl").read_text().splitlines()]
    assert [(note["row"], note["what"]) for note in report] == [(3, "refused"), (7, "refused")]
    manifest = json.loads((output / "_manifest.json").read_text())
    assert set(manifest["fingerprints"]) == {"template", "tokenizer", "plugins", "input", "options"}
    assert manifest["finished"]["samples"] == 18


def test_every_kind_of_file_gives_the_same_samples(tmp_path: Path) -> None:
    rows = [conversation(i) for i in range(5)]
    write_lines(tmp_path / "a.jsonl", 5)
    (tmp_path / "b.json").write_text(json.dumps(rows))
    frame = datasets.Dataset.from_list(rows)
    frame.to_parquet(str(tmp_path / "c.parquet"))
    frame.save_to_disk(str(tmp_path / "saved"))
    stored = next((tmp_path / "saved").glob("*.arrow"))
    (tmp_path / "d.arrow").write_bytes(stored.read_bytes())
    (tmp_path / "folder").mkdir()
    write_lines(tmp_path / "folder" / "part.jsonl", 5)
    import gzip

    (tmp_path / "e.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    found = {}
    for name in ("a.jsonl", "b.json", "c.parquet", "d.arrow", "e.jsonl.gz", "saved", "folder"):
        source = open_rows(tmp_path / name)
        items = [item for block in source.blocks(2) for item in rows_of(block)]
        assert [number for number, _ in items] == [0, 1, 2, 3, 4], name
        found[name] = make_samples(items, tokenizer("qwen3"), CHATML).samples
        assert found[name] == found["a.jsonl"], name


def test_a_streamed_data_set_is_read_in_blocks() -> None:
    from antiphon.data.sources import from_dataset

    frame = datasets.Dataset.from_list([{**conversation(i), "other": i} for i in range(7)])
    blocks = list(from_dataset(frame.to_iterable_dataset()).blocks(3))
    assert [(block.first, block.size) for block in blocks] == [(0, 3), (3, 3), (6, 1)]
    assert [row for block in blocks for _, row in rows_of(block)] == [
        conversation(i) for i in range(7)
    ]


def read_back(path: Path) -> list[Any]:
    return [row for block in open_rows(path).blocks(2) for _, row in rows_of(block)]


@pytest.mark.skipif(not hasattr(datasets, "Json"), reason="this datasets has no JSON columns")
def test_what_datasets_stores_as_json_is_read_as_it_was(tmp_path: Path) -> None:
    """Contents and arguments of mixed types: read as text, each would have had quotes around it."""
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": None}}}
    rows = [
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "c"}]}]},
        {"messages": [{"role": "assistant", "content": "d", "tool_calls": [call]}]},
        {"messages": [{"role": "tool", "content": 5}]},
    ]
    frame = datasets.Dataset.from_list(rows, on_mixed_types="use_json")
    frame.to_parquet(str(tmp_path / "a.parquet"))
    frame.save_to_disk(str(tmp_path / "saved"))
    assert "Json" in str(frame.features)
    assert read_back(tmp_path / "a.parquet") == rows
    assert read_back(tmp_path / "saved") == rows


def test_keys_that_arrow_filled_and_its_maps_are_read_as_they_were(tmp_path: Path) -> None:
    import pyarrow as pa

    rows = [
        {
            "messages": [{"role": "user", "content": "a", "meta": {"x": 1}}],
            "tools": [{"name": "f"}],
        },
        {"messages": [{"role": "user", "name": "b", "meta": {"y": [1, 2]}}], "tools": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert read_back(tmp_path / "a.parquet") == rows
    kind = pa.list_(pa.struct({"role": pa.string(), "said": pa.map_(pa.string(), pa.int64())}))
    messages = pa.array([[{"role": "user", "said": [("x", 1)]}, {"role": "user"}], None], kind)
    pq.write_table(pa.table({"messages": messages}), tmp_path / "b.parquet")
    assert read_back(tmp_path / "b.parquet") == [
        {"messages": [{"role": "user", "said": {"x": 1}}, {"role": "user"}]},
        {"messages": None},
    ]


def test_patterns_several_files_and_splits_choose_what_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, count in (
        ("train-00000-of-00002", 2),
        ("train-00001-of-00002", 3),
        ("test-00000-of-00001", 4),
    ):
        write_lines(folder / f"{name}.jsonl", count)  # fmt: skip

    def counted(*names: object, **more: Any) -> int:
        return sum(block.size for block in open_rows(*map(str, names), **more).blocks(10))

    assert counted(folder, split="train") == counted(folder / "train*.jsonl") == 5
    assert counted(folder / "*.jsonl", split="test") == counted(folder, split="eval") == 4
    assert counted(*sorted(folder.iterdir()), split="train") == 5
    with pytest.raises(InvalidParameter, match=r"several splits \(test, train\)"):
        open_rows(folder)
    with pytest.raises(InvalidParameter, match="no split 'val'; its files are of test, train"):
        open_rows(folder, split="val")
    with pytest.raises(InvalidParameter, match="config"):
        open_rows(folder, split="train", config="main")
    with pytest.raises(InvalidData, match=r"no file .*none"):
        open_rows(folder / "none*.jsonl")
    plain = write_lines(tmp_path / "mine.JSONL", 3)
    assert counted(plain) == counted(plain, split="train") == 3
    with pytest.raises(InvalidParameter, match="its files name none"):
        open_rows(plain, split="test")


def test_an_output_inside_its_input_is_not_read_as_input(tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", 4)
    for more in ({}, {"overwrite": True}):
        totals = tokenize_dataset(
            open_rows(tmp_path), tmp_path / "tokens", tokenizer("qwen3"), CHATML, **more
        )
        assert totals.samples == 4


def test_json_is_read_value_by_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from antiphon.data import files

    monkeypatch.setattr(files, "_READ_AT_ONCE", 7)
    rows = [conversation(i) for i in range(5)]
    for text in (
        json.dumps(rows),
        json.dumps(rows, indent=2, ensure_ascii=False),
        "\ufeff " + json.dumps(rows),
        "\n".join(map(json.dumps, rows)),
        "[" + ",\n".join(map(json.dumps, rows)) + "]\n",
    ):
        (tmp_path / "a.json").write_text(text, "utf-8")
        assert read_back(tmp_path / "a.json") == rows
    for text, one in ((json.dumps(rows[0]), rows[0]), (json.dumps(rows[0]["messages"]), None)):
        (tmp_path / "a.json").write_text(text)
        assert read_back(tmp_path / "a.json") == [one or rows[0]["messages"]]
    for text, words in (
        (json.dumps(rows)[:-1], "the end is missing .*after 5 rows"),
        (json.dumps(rows) + "x", "more follows the list"),
        (json.dumps(rows).replace("]}, {", "]} {"), "lacks a comma .*after 1 rows"),
        ("", "the file is empty"),
        ("5", "holds no conversations"),
        ("[" * 10**5, "nested too deeply"),
    ):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(InvalidData, match=words):
            read_back(tmp_path / "a.json")


def test_a_packed_file_that_is_cut_off_is_told_after_its_rows(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "a.jsonl.gz"
    data = gzip.compress(b"".join(json.dumps(conversation(i)).encode() + b"\n" for i in range(9)))
    path.write_bytes(data[:-20])
    with pytest.raises(InvalidData, match=r"a\.jsonl\.gz can't be read as gzip"):
        read_back(path)
    path.write_bytes(b"{}")
    with pytest.raises(InvalidData, match="gzip"):
        read_back(path)


def test_long_rows_make_small_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from antiphon.data import files

    monkeypatch.setattr(files, "BLOCK_BYTES", 1000)
    rows = [{"messages": [{"role": "user", "content": "x" * n}]} for n in [300] * 9 + [5000, 1]]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.json").write_text(json.dumps(rows))
    frame = datasets.Dataset.from_list(rows)
    frame.to_parquet(str(tmp_path / "a.parquet"))
    frame.save_to_disk(str(tmp_path / "saved"))
    for name in ("a.jsonl", "a.json", "a.parquet", "saved"):
        blocks = list(open_rows(tmp_path / name).blocks(1000))
        assert [row for block in blocks for _, row in rows_of(block)] == rows, name
        assert max(block.size for block in blocks) <= 4, name


def test_a_run_that_was_stopped_goes_on_where_it_stopped(tmp_path: Path) -> None:
    source = open_rows(write_lines(tmp_path / "in.jsonl", 20, BROKEN))
    own, output = tokenizer("qwen3"), tmp_path / "out"

    def stop(_: int, totals: Any) -> None:
        if totals.shards == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenize_dataset(source, output, own, CHATML, shard_rows=5, progress=stop)
    finished = {path: path.stat().st_mtime_ns for path in output.glob("*.parquet")}
    assert len(finished) == 2
    with pytest.raises(OutputError, match="--resume"):
        tokenize_dataset(source, output, own, CHATML, shard_rows=5)
    totals = tokenize_dataset(source, output, own, CHATML, shard_rows=5, resume=True)
    assert (totals.kept, totals.shards, totals.rows, totals.refused) == (2, 4, 20, 2)
    assert all(path.stat().st_mtime_ns == time for path, time in finished.items())
    assert [row["row"] for row in loaded(output)] == [i for i in range(20) if i not in BROKEN]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"options": SampleOptions(family="chatml-bos")}, "template"),
        ({"options": SampleOptions(family="chatml", train_on=TrainOn("last-turn"))}, "options"),
        ({"tokenizer": "llama3"}, "tokenizer"),
        ({"rows": 21}, "input"),
    ],
)
# One of the runs has a tokenizer that ChatML does not fit.
@pytest.mark.filterwarnings("ignore::antiphon.errors.FamilyWarning")
def test_another_run_does_not_go_on_with_this_one(
    tmp_path: Path, change: dict[str, Any], word: str
) -> None:
    def start(rows: int = 20, tokenizer: str = "qwen3", options: SampleOptions = CHATML) -> None:
        source = open_rows(write_lines(tmp_path / "in.jsonl", rows))
        own = globals()["tokenizer"](tokenizer)
        tokenize_dataset(source, tmp_path / "out", own, options, shard_rows=8, resume=True)

    start()
    before = {path: path.read_bytes() for path in (tmp_path / "out").glob("*.parquet")}
    with pytest.raises(OutputError, match=f"another .*{word}"):
        start(**change)
    assert before == {path: path.read_bytes() for path in (tmp_path / "out").glob("*.parquet")}


def test_a_full_disk_names_the_row_and_leaves_finished_shards_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_rows(write_lines(tmp_path / "in.jsonl", 20))
    output, written = tmp_path / "out", 0
    original = pq.ParquetWriter.write_table

    def full(self: Any, table: Any, *args: Any) -> None:
        nonlocal written
        written += 1
        if written == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(self, table, *args)

    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", full)
        with pytest.raises(OutputError, match=r"rows 10 to 14 .*row 10: No space left"):
            tokenize_dataset(source, output, tokenizer("qwen3"), CHATML, shard_rows=5)
    assert sorted(p.name for p in output.iterdir()) == [
        "_manifest.json",
        "shard-000000.parquet",
        "shard-000001.parquet",
    ]
    assert [row["row"] for row in loaded(output)] == list(range(10))
    totals = tokenize_dataset(source, output, tokenizer("qwen3"), CHATML, shard_rows=5, resume=True)
    assert (totals.kept, totals.rows) == (2, 20)


def test_a_file_that_may_not_grow_ends_in_one_sentence(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "in.jsonl", 400)
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096));"
        "from antiphon.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    line = [data, tmp_path / "out", "--tokenizer", folder_of("qwen3"), "--family", "chatml"]
    done = subprocess.run(
        [sys.executable, "-c", code, "tokenize", *map(str, line)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "rows 0 to 399" in done.stderr.splitlines()[-1]
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    source = open_rows(write_lines(tmp_path / "in.jsonl", 40, BROKEN))
    name = folder_of("qwen3")
    one = tokenize_dataset(source, tmp_path / "one", name, CHATML, shard_rows=7)
    two = tokenize_dataset(source, tmp_path / "two", name, CHATML, shard_rows=7, workers=2)
    assert one == two
    for path in sorted((tmp_path / "one").glob("*.parquet")):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_an_error_in_another_process_comes_back_as_it_is(tmp_path: Path) -> None:
    source = open_rows(write_lines(tmp_path / "in.jsonl", 8, {5: "{"}))
    with pytest.raises(InvalidData, match="Row 5 is refused: the line is not JSON"):
        tokenize_dataset(
            source,
            tmp_path / "out",
            tokenizer("qwen3"),
            CHATML,
            shard_rows=4,
            workers=2,
            strict=True,
        )


def test_a_tokenizer_that_is_not_there_ends_in_one_sentence_with_two_processes_too(
    tmp_path: Path,
) -> None:
    data = write_lines(tmp_path / "in.jsonl", 2)
    line = ["tokenize", data, tmp_path / "out", "--tokenizer", tmp_path / "no" / "such" / "folder"]
    done = subprocess.run(
        [sys.executable, "-m", "antiphon.cli", *map(str, line), "--workers", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "There is no tokenizer" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_trainer_takes_the_result_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tiny_llama import tiny_llama
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

    own = tokenizer("qwen3")
    tokenize_dataset(
        open_rows(write_lines(tmp_path / "in.jsonl", 6)), tmp_path / "out", own, CHATML
    )
    trainer = Trainer(
        model=tiny_llama(own),
        args=TrainingArguments(
            output_dir=str(tmp_path / "model"),
            max_steps=1,
            per_device_train_batch_size=3,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=loaded(tmp_path / "out"),
        data_collator=DataCollatorForSeq2Seq(own),
    )
    assert 5 < trainer.train().training_loss < 20


@pytest.mark.filterwarnings("ignore")  # trl's own, of what it deprecates in itself and in others
@pytest.mark.parametrize("packing", [False, True])
def test_trl_takes_the_result_as_it_is(tmp_path: Path, packing: bool) -> None:
    """Its trainer trains on exactly the tokens of the assistant: the loss is that of the masked labels."""
    torch = pytest.importorskip("torch")
    trl = pytest.importorskip("trl", reason="trl is not installed")
    from tiny_llama import tiny_llama

    own = tokenizer("qwen3")
    tokenize_dataset(
        open_rows(write_lines(tmp_path / "in.jsonl", 3)), tmp_path / "out", own, CHATML
    )
    rows = loaded(tmp_path / "out")
    model = tiny_llama(own)
    with torch.no_grad():
        sums, count = 0.0, 0
        for row in rows:
            ids, labels = (torch.tensor([row[name]]) for name in ("input_ids", "labels"))
            shown = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
            chosen = labels[0, 1:] != -100
            sums -= shown[chosen, labels[0, 1:][chosen]].sum().item()
            count += int(chosen.sum())
    trainer = trl.SFTTrainer(
        model=model,
        args=trl.SFTConfig(
            output_dir=str(tmp_path / "model"),
            max_steps=1,
            per_device_train_batch_size=3,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            packing=packing,
            padding_free=False if not packing else None,
            max_length=512,
        ),
        train_dataset=rows,
        processing_class=own,
    )
    assert set(trainer.train_dataset.column_names) >= {"input_ids"}
    loss = trainer.train().training_loss
    assert loss == pytest.approx(sums / count, rel=1e-3)


def test_memory_does_not_grow_with_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What encoding keeps is bounded by its cache; here samples are made cheaply, and large.
    def large(rows: Any, *_: Any, **__: Any) -> Any:
        ids = list(range(1000, 3000))
        return SampleBatch(
            [Sample(row, 0, list(ids), [True] * 2000, list(ids)) for row, _ in rows], []
        )

    monkeypatch.setattr(run_module, "make_samples", large)
    own = tokenizer("qwen3")
    tokenize_dataset(from_values([conversation(0)]), tmp_path / "first", own, CHATML)
    peaks = []
    for count in (100, 1000):
        source = open_rows(write_lines(tmp_path / f"{count}.jsonl", count))
        tracemalloc.start()
        tokenize_dataset(source, tmp_path / str(count), own, CHATML, shard_rows=20)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0], peaks


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"options": SampleOptions(chat_template="{% for m in %}")}, "not valid Jinja"),
        ({"options": SampleOptions(family="qwen99")}, "qwen99"),
        ({"output": "/dev/null"}, "is a file"),
        ({"output": "/proc/nowhere/out"}, "can't be written"),
    ],
)
def test_what_can_not_work_is_told_before_anything_is_loaded(
    tmp_path: Path, more: dict[str, Any], word: str
) -> None:
    line = {"output": tmp_path / "out", "tokenizer": tmp_path / "not there", **more}
    for workers in (1, 2):
        with pytest.raises(AntiphonError, match=word):
            tokenize_dataset(from_values([conversation(0)]), workers=workers, **line)


def test_a_tokenizer_whose_own_template_is_broken_is_refused_at_once(tmp_path: Path) -> None:
    import copy

    own = copy.deepcopy(tokenizer("qwen3"))
    own.chat_template = "{% for m in messages %}{{ m.content }"
    with pytest.raises(TemplateInvalid, match="not valid Jinja"):
        tokenize_dataset(from_values([conversation(0)]), tmp_path / "out", own)


def test_what_can_not_be_read_or_written_is_told_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(write_lines(tmp_path / "in.jsonl", 2))
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "wrong.parquet").write_text("x")
    datasets.Dataset.from_list([{"x": 1}]).to_parquet(str(tmp_path / "other.parquet"))
    (tmp_path / "hollow").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "mine.parquet").write_text("x")
    out = str(tmp_path / "out")
    capsys.readouterr()
    for line, words in (
        ([str(tmp_path / "absent.jsonl"), out], "There is no file"),
        ([str(empty), out], "holds no conversations"),
        ([str(tmp_path / "notes.txt"), out], "ends in none of"),
        ([str(tmp_path / "hollow"), out], "holds no file"),
        ([str(tmp_path / "wrong.parquet"), out], "can't be read as Parquet"),
        ([str(tmp_path / "other.parquet"), out], "no column with conversations"),
        ([data, data], "is a file"),
        ([data, str(tmp_path / "foreign")], "mine.parquet"),
    ):
        assert (
            command_line(["tokenize", *line, "--tokenizer", folder_of("qwen3"), "--overwrite"]) == 1
        )
        told = capsys.readouterr().err
        assert words in told
        assert told.count("\n") == 1, told


def test_parameters_out_of_range_are_refused(tmp_path: Path) -> None:
    for more in ({"workers": 0}, {"shard_rows": 0}):
        with pytest.raises(InvalidParameter, match="1 or more"):
            tokenize_dataset(from_values([]), tmp_path / "out", None, **more)


def test_nothing_usable_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_lines(tmp_path / "in.jsonl", 2, {0: "[]", 1: "{}"})
    line = ["tokenize", str(data), str(tmp_path / "out"), "--tokenizer", folder_of("qwen3")]
    assert command_line(line) == 1
    assert "No sample could be made." in capsys.readouterr().out


def test_many_different_reasons_are_told_in_few_lines() -> None:
    totals = Totals()
    notes = [(row, "refused", f"reason {row}") for row in range(200)]
    totals.add({"rows": 200, "samples": 0, "tokens": 0, "trained": 0, "notes": notes}, kept=False)
    assert totals.refused == 200
    assert len(totals.reasons) <= 51
    assert sum(count for count, _ in totals.reasons.values()) == 200
