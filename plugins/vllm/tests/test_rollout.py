"""`antiphon rollout --backend vllm`, on a model small enough for a test, with a real trainer beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from antiphon.rollouts.files import read_about, read_records
from tiny_models import build


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tokenizer):
    path = tmp_path_factory.mktemp("model")
    build("llama", tie_word_embeddings=True, max_position_embeddings=1024).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def rollout(folder, output, *options):
    command = [sys.executable, "-m", "antiphon.cli", "rollout", "--backend", "vllm"]
    command += ["--model", str(folder), "--output", str(output), "--system-prompt", ""]
    return subprocess.run(
        [*command, "--max-new-tokens", "12", *options],
        capture_output=True,
        check=False,
        text=True,
        timeout=500,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_a_run_says_how_far_the_trainer_is_and_can_be_resumed(folder, tmp_path):
    output = tmp_path / "out.jsonl"
    done = rollout(folder, output, "--limit", "4", "-n", "2")
    assert done.returncode == 0, done.stderr
    told = dict(line.split("  ", 1) for line in done.stdout.splitlines() if "  " in line)
    assert told["conversations"].strip() == "8"
    assert "effective samples" in told
    assert float(told["effective samples"].strip().split()[0]) > 99.9
    records = read_records(output)
    assert read_about(output)["settings"]["scorer"] == "transformers"
    assert {record["conversation"] for record in records} == {
        f"{p}/{s}" for p in range(4) for s in range(2)
    }
    for record in records:
        assert record["log_prob_difference"] < 1e-4
        for sampled, scored, mask in zip(
            record["log_probs"], record["scored_log_probs"], record["assistant_mask"], strict=True
        ):
            assert (sampled is not None) == (scored is not None) == mask
        for turn in record["turns"]:
            assert json.loads(turn["versions"]) == [[0, 0]]
    again = rollout(folder, output, "--limit", "4", "-n", "2", "--resume")
    assert again.returncode == 0, again.stderr
    assert "nothing to resume" in again.stdout


def test_a_model_that_is_not_there_is_one_sentence(tmp_path):
    done = rollout("/no/such/model", tmp_path / "out.jsonl")
    assert done.returncode not in (0, None)
    assert "/no/such/model" in done.stderr
    assert "Traceback" not in done.stderr
