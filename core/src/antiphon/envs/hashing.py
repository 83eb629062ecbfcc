"""Hashes of token sequences that are the same in every process: SipHash-2-4, and an environment on
it.

SipHash: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012; with 2 compression and 4
finalisation rounds and a 128-bit key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import NonTensorStack, TensorDict, TensorDictBase

from antiphon.envs.base import EnvBase
from antiphon.envs.composite import Composite
from antiphon.envs.specs import Categorical, NonTensor, Unbounded
from antiphon.errors import EnvError, InvalidParameter

_MASK = (1 << 64) - 1
#: The key of the paper's test vectors: bytes 0 to 15.
DEFAULT_KEY = bytes(range(16))


def siphash24(data: bytes, key: bytes = DEFAULT_KEY) -> int:
    """Return the 64-bit SipHash-2-4 of ``data`` under a key of 16 bytes."""
    if len(key) != 16:
        raise InvalidParameter(f"SipHash needs a key of 16 bytes, not {len(key)}.")
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    state = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]
    whole = len(data) - len(data) % 8
    for position in range(0, whole, 8):
        _absorb(state, int.from_bytes(data[position : position + 8], "little"))
    _absorb(state, int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56)
    state[2] ^= 0xFF
    for _ in range(4):
        _round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _absorb(state: list[int], word: int) -> None:
    state[3] ^= word
    _round(state)
    _round(state)
    state[0] ^= word


def _round(v: list[int]) -> None:
    v0, v1, v2, v3 = v
    v0 = (v0 + v1) & _MASK
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 = (v2 + v3) & _MASK
    v3 = _rotated(v3, 16) ^ v2
    v0 = (v0 + v3) & _MASK
    v3 = _rotated(v3, 21) ^ v0
    v2 = (v2 + v1) & _MASK
    v1 = _rotated(v1, 17) ^ v2
    v2 = _rotated(v2, 32)
    v[:] = v0, v1, v2, v3


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


class SipHash:
    """Hashes rows of whole numbers.

    Args:
        as_tensor: Return int64 tensors (the hash's bits as a signed number), else plain ints.
        key: The 128-bit key.
    """

    def __init__(self, as_tensor: bool = True, *, key: bytes = DEFAULT_KEY) -> None:
        self.as_tensor = as_tensor
        self.key = key

    def __call__(self, rows: torch.Tensor | Sequence[Sequence[int]]) -> Any:
        """Return the hashes of the rows along the last dimension, ``[..., n] -> [...]``.

        The dtype and device of the rows do not matter, their numbers do.
        """
        if not isinstance(rows, torch.Tensor):
            return self._finish([self.hash_ids(row) for row in rows], (len(rows),))
        flat = rows.reshape(-1, rows.shape[-1]) if rows.ndim > 1 else rows[None]
        hashes = [self.hash_ids(row) for row in flat.tolist()]
        return self._finish(hashes, tuple(rows.shape[:-1]))

    def hash_ids(self, ids: Sequence[int]) -> int:
        """Return the hash of one sequence: of its numbers as 64-bit little-endian words.

        Args:
            ids: Whole numbers of at most 64 bits, with sign.

        Returns:
            64 bits, without sign.
        """
        data = b"".join(int(token).to_bytes(8, "little", signed=True) for token in ids)
        return siphash24(data, self.key)

    def _finish(self, hashes: list[int], shape: tuple[int, ...]) -> Any:
        if not self.as_tensor:
            return hashes
        signed = [value - (1 << 64) if value >> 63 else value for value in hashes]
        return torch.tensor(signed, dtype=torch.int64).reshape(shape)


class LLMHashingEnv(EnvBase):
    """Text generation as a decision process, each state known by a hash of its tokens.

    The action is one token; the state after it is the hash of all tokens so far, equal to the hash
    that `make_tensordict` gives for the same tokens, in this process and in any other.

    Args:
        vocab_size: The number of actions; the tokenizer's size if None.
        hashing_module: What hashes token rows ``[..., n] -> [...]``; SipHash-2-4 if None.
        observation_key: The entry of the hash.
        text_output: Whether the text so far is part of the observation.
        tokenizer: Needed for text.
        text_key: The entry of the text.
        action_key: The entry of the token that the policy chooses.
        tokens_key: The entry of the tokens so far.
    """

    step_keys = ("action",)

    def __init__(
        self,
        vocab_size: int | None = None,
        *,
        hashing_module: Callable[[torch.Tensor], torch.Tensor] | None = None,
        observation_key: str = "observation",
        text_output: bool = True,
        tokenizer: Any = None,
        text_key: str = "text",
        action_key: str = "action",
        tokens_key: str = "tokens",
    ) -> None:
        super().__init__(batch_size=())
        if vocab_size is None:
            if tokenizer is None:
                raise InvalidParameter("LLMHashingEnv needs vocab_size or a tokenizer; give one.")
            vocab_size = len(tokenizer)
        if text_output and tokenizer is None:
            raise InvalidParameter(
                "LLMHashingEnv needs a tokenizer for text; give one, or text_output=False."
            )
        self.vocab_size = vocab_size
        self.hashing_module = hashing_module or SipHash()
        self.observation_key, self.text_key = observation_key, text_key
        self.action_key, self.tokens_key = action_key, tokens_key
        self.text_output = text_output
        self.tokenizer = tokenizer
        self.full_observation_spec = Composite(
            {
                observation_key: Unbounded((), dtype=torch.int64),
                tokens_key: Unbounded((-1,), dtype=torch.int64),
            }
        )
        if text_output:
            self.full_observation_spec[text_key] = NonTensor((), example_data="a text")
        self.full_action_spec = Composite({action_key: Categorical(vocab_size)})
        self.full_state_spec = Composite({tokens_key: Unbounded((-1,), dtype=torch.int64)})

    def make_tensordict(self, input: str | list[str]) -> TensorDictBase:
        """Return the state of a text, or of a batch of texts of one length in tokens.

        Args:
            input: A text, or texts with equally many tokens.

        Returns:
            The state ``[]`` or ``[texts]``, int64 ids among it.
        """
        if self.tokenizer is None:
            raise EnvError("make_tensordict needs a tokenizer; give LLMHashingEnv one.")
        if isinstance(input, str):
            ids = torch.tensor(_encoded(self.tokenizer, input), dtype=torch.int64)
            return self._state(ids, input)
        rows = [_encoded(self.tokenizer, text) for text in input]
        if len({len(row) for row in rows}) > 1:
            raise EnvError(
                "make_tensordict makes a batch of texts with equally many tokens only; these have "
                f"{', '.join(str(len(row)) for row in rows)}. Make them one by one."
            )
        return self._state(torch.tensor(rows, dtype=torch.int64), list(input))

    def _reset(self, tensordict: TensorDictBase | None, **kwargs: Any) -> TensorDictBase:
        tokens = None if tensordict is None else tensordict.get(self.tokens_key, None)
        if tokens is None:
            return self._state(torch.zeros(0, dtype=torch.int64), "")
        return self._state(tokens)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        action: Any = tensordict.get(self.action_key, None)
        if action is None:
            raise EnvError(f"LLMHashingEnv.step needs a token under {self.action_key!r}.")
        tokens: Any = tensordict.get(self.tokens_key)
        action = action.reshape((*tokens.shape[:-1], 1)).to(torch.int64)
        if int(action.min()) < 0 or int(action.max()) >= self.vocab_size:
            raise EnvError(
                f"The action {int(action.max())} is no token: they run from 0 to "
                f"{self.vocab_size - 1}."
            )
        return self._state(torch.cat([tokens, action], -1))

    def _state(self, tokens: torch.Tensor, text: str | list[str] | None = None) -> TensorDictBase:
        state = TensorDict(
            {self.observation_key: self.hashing_module(tokens), self.tokens_key: tokens},
            batch_size=tokens.shape[:-1],
        )
        if self.text_output:
            if text is None:
                text = (
                    self.tokenizer.batch_decode(tokens.tolist())
                    if tokens.ndim > 1
                    else self.tokenizer.decode(tokens.tolist())
                )
            state[self.text_key] = text if isinstance(text, str) else NonTensorStack(*text)
        return state


def _encoded(tokenizer: Any, text: str) -> list[int]:
    found = tokenizer.encode(text, add_special_tokens=False)
    return list(getattr(found, "ids", found))
