"""The part file and the output: whole or not there, whatever happens."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from antiphon.errors import InvalidData, OutputError
from antiphon.rollouts.files import (
    PartFile,
    check_output,
    part_path,
    read_about,
    read_records,
    write_output,
)

SETTINGS = {"seed": 0, "rows": 2}


def record(name: str) -> dict[str, Any]:
    return {
        "conversation": name,
        "problem": 1,
        "sample": 0,
        "segment": 0,
        "input_ids": [1, 2, 3],
        "assistant_mask": [False, True, True],
        "log_probs": [None, -0.5, -0.25],
        "scored_log_probs": [None, -0.5, -0.25],
        "reward": 1.0,
        "turns": [
            {
                "start": 1,
                "end": 3,
                "segment": 0,
                "finish": "end",
                "versions": "[[0, null]]",
                "reward": 1.0,
                "info": "{}",
            }
        ],
        "terminated": True,
        "truncated": False,
        "breaks": [],
        "log_prob_difference": 0.0,
        "messages": json.dumps([{"role": "user", "content": "é🦙"}], ensure_ascii=False),
    }


def names(part: PartFile) -> list[str]:
    return [r["conversation"] for r in part.records]


def written(output: Path, *conversations: str) -> Path:
    with PartFile(output, SETTINGS, resume=False) as part:
        for name in conversations:
            part.append_conversation([record(name)])
    return part_path(output)


def test_conversations_are_there_again_on_resume(tmp_path: Path) -> None:
    output = tmp_path / "deep" / "o.parquet"
    written(output, "0/0", "0/1")
    with PartFile(output, SETTINGS, resume=True) as part:
        assert names(part) == ["0/0", "0/1"]
        part.append_conversation([record("1/0"), {**record("1/0"), "segment": 1}])
    with PartFile(output, SETTINGS, resume=True) as part:
        assert names(part) == ["0/0", "0/1", "1/0", "1/0"]
        part.close(remove=True)
    assert not part_path(output).exists()


def test_a_torn_last_line_is_cut_off_at_every_byte(tmp_path: Path) -> None:
    path = written(tmp_path / "o.parquet", "0/0", "0/1")
    whole = path.read_bytes()
    begins = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    for size in range(begins, len(whole), 7):
        path.write_bytes(whole[:size])
        with PartFile(tmp_path / "o.parquet", SETTINGS, resume=True) as part:
            assert names(part) == ["0/0"]
            part.append_conversation([record("0/1")])
        assert path.read_bytes() == whole


def test_a_part_file_that_died_before_its_header_begins_anew(tmp_path: Path) -> None:
    path = part_path(tmp_path / "o.parquet")
    for content in (b"", b'{"antiphon_ro'):
        path.write_bytes(content)
        with PartFile(tmp_path / "o.parquet", SETTINGS, resume=True) as part:
            assert part.records == []
        assert path.read_bytes().endswith(b"\n")


def test_an_unfinished_run_is_not_overwritten_without_being_asked(tmp_path: Path) -> None:
    path = written(tmp_path / "o.parquet", "0/0")
    before = path.read_bytes()
    with pytest.raises(OutputError, match="unfinished run; go on with --resume"):
        PartFile(tmp_path / "o.parquet", SETTINGS, resume=False)
    assert path.read_bytes() == before


def test_another_run_is_not_resumed(tmp_path: Path) -> None:
    written(tmp_path / "o.parquet", "0/0")
    with pytest.raises(OutputError, match="seed = 0, and this one has 1"):
        PartFile(tmp_path / "o.parquet", {**SETTINGS, "seed": 1}, resume=True)


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "o.parquet", "0/0", "0/1")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b'{"broken\n' + lines[2])
    with pytest.raises(InvalidData, match=r"Line 2 of .* not valid JSON"):
        PartFile(tmp_path / "o.parquet", SETTINGS, resume=True)
    path.write_bytes(b'{"some": "other file"}\n')
    with pytest.raises(InvalidData, match="no part file"):
        PartFile(tmp_path / "o.parquet", SETTINGS, resume=True)


def test_two_processes_do_not_write_one_run(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="file locks need fcntl, which this system lacks")
    with (
        PartFile(tmp_path / "o.parquet", SETTINGS, resume=False),
        pytest.raises(OutputError, match="Another process is writing"),
    ):
        PartFile(tmp_path / "o.parquet", SETTINGS, resume=True)
    PartFile(tmp_path / "o.parquet", SETTINGS, resume=True).close()


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no file size limits here")
def test_a_full_disk_loses_nothing_that_was_finished(tmp_path: Path) -> None:
    """A limit on the file size stands for a full disk: writing stops in the middle of a line."""
    script = textwrap.dedent(
        """
        import json, resource, sys
        from pathlib import Path
        from antiphon.errors import OutputError
        from antiphon.rollouts.files import PartFile
        output, row = Path(sys.argv[1]), json.loads(sys.argv[2])
        with PartFile(output, {"seed": 0, "rows": 2}, resume=False) as part:
            part.append_conversation([row])
            size = part.path.stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, size + 50))
            try:
                part.append_conversation([row])
            except OutputError as error:
                print(error)
                sys.exit(3)
        """
    )
    output = tmp_path / "o.parquet"
    done = subprocess.run(
        [sys.executable, "-c", script, str(output), json.dumps(record("0/0"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "failed: File too large; the 1 conversations finished before are safe" in done.stdout
    assert "--resume" in done.stdout
    with PartFile(output, SETTINGS, resume=True) as part:
        assert names(part) == ["0/0"]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_what_is_written_is_read_back(tmp_path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="Parquet needs pyarrow, which is not installed")
    output = tmp_path / f"o{suffix}"
    about = {"fingerprints": {"template": "abc"}, "settings": SETTINGS}
    write_output(output, [record("0/0"), record("0/1")], about)
    rows = read_records(output)
    assert [{k: v for k, v in row.items() if k != "about"} for row in rows] == [
        record("0/0"),
        record("0/1"),
    ]
    assert read_about(output) == about
    assert os.listdir(tmp_path) == [output.name]
    write_output(output, [], about)
    assert read_records(output) == []


def test_a_parquet_file_loads_with_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow, which is not installed")
    write_output(tmp_path / "o.parquet", [record("0/0")], {})
    loaded = datasets.Dataset.from_parquet(
        str(tmp_path / "o.parquet"), cache_dir=str(tmp_path / "cache")
    )
    assert loaded[0]["input_ids"] == [1, 2, 3]
    assert loaded[0]["log_probs"] == [None, -0.5, -0.25]


def test_an_output_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    output = tmp_path / "o.jsonl"
    write_output(output, [record("0/0")], {})
    before = output.read_bytes()

    def failing() -> Any:
        yield record("0/1")
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="No space left on device"):
        write_output(output, failing(), {})
    assert output.read_bytes() == before
    assert os.listdir(tmp_path) == ["o.jsonl"]


def test_outputs_that_can_not_be_are_refused_first(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is a folder"):
        check_output(tmp_path)
    with pytest.raises(OutputError, match=r"must end in \.parquet or \.jsonl"):
        check_output(tmp_path / "o.csv")
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="can't be written"):
        PartFile(tmp_path / "file" / "o.jsonl", SETTINGS, resume=False)
    with pytest.raises(InvalidData, match="no file of trajectories"):
        read_about(tmp_path / "none.jsonl")
