"""SipHash-2-4 is the real one, and a state's hash is the same after steps, at reset, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import rollout_helpers
import torch
from antiphon.envs.hashing import LLMHashingEnv, SipHash, siphash24
from antiphon.errors import EnvError, InvalidParameter
from tensordict import TensorDict


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return rollout_helpers.byte_tokenizer()


def test_the_vectors_of_the_paper() -> None:
    # Appendix A of the paper, and the first of its authors' list for messages 00, 00 01, ...
    assert siphash24(bytes(range(15))) == 0xA129CA6149BE45E5
    assert siphash24(b"") == 0x726FDB47DD0E0E31
    assert siphash24(bytes([0])) == 0x74F839C593DC67FD
    assert siphash24(bytes(range(8))) == 0x93F5F5799A932462
    with pytest.raises(InvalidParameter, match="16 bytes"):
        siphash24(b"", b"short")


def test_python_agrees_where_it_hashes_with_siphash24() -> None:
    if sys.hash_info.algorithm != "siphash24":
        pytest.skip(f"this Python hashes strings with {sys.hash_info.algorithm}, not siphash24")
    for text in (b"x", b"antiphon", b"a longer text than one word"):
        code = f"print(hash({text!r}))"
        env = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, check=True
        )
        assert int(done.stdout) % 2**64 == siphash24(text, bytes(16))


def test_hashes_depend_on_the_numbers_alone() -> None:
    hashing = SipHash()
    rows = torch.tensor([[1, 2, 3], [1, 2, 4]])
    assert torch.equal(hashing(rows), hashing(rows.to(torch.int32)))
    assert hashing(rows)[0] != hashing(rows)[1]
    assert hashing(rows).shape == (2,)
    assert hashing(rows[None]).shape == (1, 2)
    assert SipHash(as_tensor=False)(rows)[0] % 2**64 == hashing(rows)[0].item() % 2**64
    # A sequence and the same with a zero behind it are not the same.
    assert hashing(torch.tensor([1])) != hashing(torch.tensor([1, 0]))


def test_a_step_gives_the_hash_of_the_same_tokens_at_reset(tokenizer: Any) -> None:
    env = LLMHashingEnv(tokenizer=tokenizer)
    root = env.reset(env.make_tensordict("hello"))
    (token,) = tokenizer.encode("!")
    step = env.step(root.set("action", torch.tensor(token)))
    assert step["next", "observation"] == env.make_tensordict("hello!")["observation"]
    assert step["next", "text"] == "hello!"
    again = env.reset(TensorDict({"tokens": step["next", "tokens"]}))
    assert again["observation"] == step["next", "observation"]


def test_batches_hash_as_their_rows(tokenizer: Any) -> None:
    env = LLMHashingEnv(tokenizer=tokenizer)
    batch = env.make_tensordict(["abc", "abd"])
    single = env.make_tensordict("abd")
    assert batch["observation"][1] == single["observation"]
    root = env.reset(batch).set("action", torch.tensor([5, 6]))
    step = env.step(root)
    alone = env.step(env.reset(single).set("action", torch.tensor(6)))
    assert step["next", "observation"][1] == alone["next", "observation"]
    with pytest.raises(EnvError, match="3, 1"):
        env.make_tensordict(["abc", "a"])


def test_the_hash_is_the_same_in_another_process() -> None:
    code = (
        "import torch; from antiphon.envs.hashing import SipHash;"
        "print(SipHash()(torch.tensor([[3, 1, 4], [1, 5, 9]])).tolist())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert told == {f"{SipHash()(torch.tensor([[3, 1, 4], [1, 5, 9]])).tolist()}\n"}


def test_rollouts_and_errors(tokenizer: Any) -> None:
    env = LLMHashingEnv(vocab_size=50, text_output=False)
    steps = env.rollout(4)
    assert steps.batch_size == (4,)
    assert len({int(step["next", "observation"]) for step in steps.unbind(0)}) == 4
    with pytest.raises(EnvError, match="no token"):
        env.step(env.reset().set("action", torch.tensor(50)))
    with pytest.raises(InvalidParameter, match="tokenizer for text"):
        LLMHashingEnv(vocab_size=5)
    with pytest.raises(InvalidParameter, match="vocab_size or a tokenizer"):
        LLMHashingEnv()
    assert LLMHashingEnv(tokenizer=tokenizer).vocab_size == len(tokenizer)
