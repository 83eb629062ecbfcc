"""Fixtures: models made once, one thread, a tokenizer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from tiny_models import build
from tiny_tokenizer import byte_tokenizer


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def models_by_name():
    made = {}

    def get(name):
        if name not in made:
            made[name] = build(name)
        return made[name]

    return get


@pytest.fixture(scope="session")
def tokenizer():
    return byte_tokenizer()
