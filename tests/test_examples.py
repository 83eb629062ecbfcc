"""The examples run as they are started by hand, learn, and train what the assistant wrote."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NUMBER = r"(-?\d+\.\d+(?:e[+-]\d+)?)"


def run(*command: str) -> str:
    """Run an example in a process of its own and return what it printed."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=EXAMPLES,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def summary(pattern: str, printed: str) -> list[float]:
    """Return the numbers of the one line that a pattern fits."""
    (found,) = re.findall(pattern, printed)
    return [float(number) for number in (found if isinstance(found, tuple) else (found,))]


def test_sft_lowers_the_loss() -> None:
    printed = run("sft.py", "--steps", "24")
    first, last = summary(f"mean loss: first quarter {NUMBER}, last quarter {NUMBER}", printed)
    assert last < 0.7 * first


def test_grpo_trains_with_the_log_probs_it_sampled_with(tmp_path: Path) -> None:
    size = ["--steps", "3", "--prompts", "2", "--group", "4", "--kl", "0.1"]
    printed = run("grpo.py", *size, "--plot", str(tmp_path / "curve.png"))
    assert len(re.findall(r"^step .* reward", printed, re.MULTILINE)) == 3
    first, last = summary(f"mean reward: first quarter {NUMBER}, last quarter {NUMBER}", printed)
    assert 0 <= first <= 1
    assert 0 <= last <= 1
    (difference,) = summary(f"log-prob difference: {NUMBER}", printed)
    assert difference < 1e-3
    (curve,) = tmp_path.iterdir()  # CSV where matplotlib is not installed
    assert curve.name in ("curve.png", "curve.csv")
    assert curve.stat().st_size > 0


def test_labels_are_the_answers_with_their_end_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import sft
    import tiny_model
    from antiphon import training_samples

    _, tokenizer = tiny_model.tiny_model()
    short, long = tiny_model.repeat_rows(1, seed=1), tiny_model.repeat_rows(2, seed=2)
    samples = [
        sample
        for rows in (short, long)
        for sample in training_samples(sft.as_messages(rows), tokenizer, family="chatml")
    ]
    batch = sft.collate(samples, tokenizer.eos_token_id)
    for row, labels, mask in zip(
        (short, long), batch["labels"], batch["attention_mask"], strict=True
    ):
        trained = labels[labels != sft.IGNORED]
        wanted = "".join(each["answer"] + "<|im_end|>" for each in row)
        assert tokenizer.decode(trained) == wanted
        assert (labels[mask == 0] == sft.IGNORED).all()
