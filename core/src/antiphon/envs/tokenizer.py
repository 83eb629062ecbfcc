"""`Tokenizer`: text entries as ids on the way out, ids as text on the way in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NonTensorData, TensorDictBase, lazy_stack

from antiphon.envs.composite import Composite
from antiphon.envs.specs import Unbounded
from antiphon.envs.transformed import Transform
from antiphon.errors import EnvError, InvalidParameter


class Tokenizer(Transform):
    """Lets a policy that reads and writes ids act in an environment of texts.

    For `ChatEnv` use ``input_mode="tokens"`` instead: this transform encodes whole texts anew at each
    step, so what was sampled need not keep its ids.

    Args:
        in_keys: Text entries that the environment gives; a conversation's control tokens in them
            become control ids.
        out_keys: Where their ids are put, int64 ``[*batch, tokens]``, ragged unless padded.
        in_keys_inv: Text entries that the environment takes.
        out_keys_inv: Where the policy puts the ids of these.
        tokenizer: The policy's tokenizer, of transformers or tokenizers.
        add_special_tokens: Whether the tokenizer adds its own, such as BOS.
        skip_special_tokens: Whether the policy's special tokens are left out of its text.
        padding: Whether rows are padded on the left to one length.
        max_length: Keep this many ids of each row, the last ones.
        return_attention_mask: Whether a mask, int64 like the ids, is put beside them.
        attention_mask_key: Its entry.
    """

    def __init__(
        self,
        in_keys: Sequence[Any] | None = None,
        out_keys: Sequence[Any] | None = None,
        in_keys_inv: Sequence[Any] | None = None,
        out_keys_inv: Sequence[Any] | None = None,
        *,
        tokenizer: Any = None,
        add_special_tokens: bool = False,
        skip_special_tokens: bool = True,
        padding: bool = False,
        max_length: int | None = None,
        return_attention_mask: bool = True,
        attention_mask_key: str = "attention_mask",
    ) -> None:
        if in_keys and out_keys is None and len(in_keys) == 1:
            out_keys = ["tokens"]
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)
        if tokenizer is None:
            raise InvalidParameter("Tokenizer needs a tokenizer; give it the policy's.")
        if not self.in_keys and not self.in_keys_inv:
            raise InvalidParameter("Tokenizer needs in_keys, in_keys_inv, or both.")
        if max_length is not None and max_length < 1:
            raise InvalidParameter(f"max_length must be at least 1, not {max_length}.")
        self.tokenizer = tokenizer
        self.add_special_tokens = add_special_tokens
        self.skip_special_tokens = skip_special_tokens
        self.padding = padding
        self.max_length = max_length
        # One mask can't stand for several entries of ids.
        self.mask_key = (
            attention_mask_key if return_attention_mask and len(in_keys or ()) == 1 else None
        )

    # Out: texts become ids.

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        if not self.in_keys:
            return next_tensordict
        if not next_tensordict.batch_dims:
            return self._encoded([next_tensordict])[0]
        if next_tensordict.batch_dims > 1:
            stacked: TensorDictBase = lazy_stack([self._call(p) for p in next_tensordict.unbind(0)])
            return stacked
        rows = list(next_tensordict.unbind(0))
        encoded: TensorDictBase = lazy_stack(self._encoded(rows)) if rows else next_tensordict
        return encoded

    def _encoded(self, rows: Sequence[TensorDictBase]) -> list[TensorDictBase]:
        rows = [row.copy() for row in rows]
        for read, written in zip(self.in_keys, self.out_keys, strict=True):
            texts = [_text(row, read) for row in rows]
            ids = [self.encode(text) for text in texts]
            longest = max(map(len, ids))
            for row, own in zip(rows, ids, strict=True):
                missing = longest - len(own) if self.padding else 0
                device = row.device
                row.set(
                    written, torch.tensor([self._pad_id()] * missing + own, device=device).long()
                )
                if self.mask_key is not None:
                    mask = torch.tensor([0] * missing + [1] * len(own), device=device)
                    row.set(self.mask_key, mask.long())
        return list(rows)

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text."""
        encoded = self.tokenizer.encode(text, add_special_tokens=self.add_special_tokens)
        ids = list(getattr(encoded, "ids", encoded))
        return ids if self.max_length is None else ids[-self.max_length :]

    def _pad_id(self) -> int:
        found = getattr(self.tokenizer, "pad_token_id", None)
        return 0 if found is None else int(found)

    # In: ids become texts.

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        if not self.in_keys_inv:
            return tensordict
        if not tensordict.batch_dims:
            return self._decoded(tensordict)
        stacked: TensorDictBase = lazy_stack([self._inv_call(row) for row in tensordict.unbind(0)])
        return stacked

    def _decoded(self, row: TensorDictBase) -> TensorDictBase:
        row = row.copy()
        for written, read in zip(self.in_keys_inv, self.out_keys_inv, strict=True):
            ids: Any = row.get(read, None)
            if isinstance(ids, torch.Tensor):
                text: Any = NonTensorData(self.decode(ids.reshape(-1).tolist()))
                row.set(written, text)
        return row

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of one row of ids."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=self.skip_special_tokens)
        return text

    # Specs.

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        ids = Unbounded((*observation_spec.shape, -1), dtype=torch.int64)
        for read, written in zip(self.in_keys, self.out_keys, strict=True):
            if read in observation_spec:
                observation_spec[written] = ids.clone()
                if self.mask_key is not None:
                    observation_spec[self.mask_key] = ids.clone()
        return observation_spec

    def transform_action_spec(self, action_spec: Composite) -> Composite:
        for written, read in zip(self.in_keys_inv, self.out_keys_inv, strict=True):
            if written in action_spec:
                del action_spec[written]
                action_spec[read] = Unbounded((*action_spec.shape, -1), dtype=torch.int64)
        return action_spec


def _text(row: TensorDictBase, key: Any) -> str:
    value: Any = row.get(key, None)
    value = getattr(value, "data", value)
    if not isinstance(value, str):
        raise EnvError(
            f"Tokenizer found {type(value).__name__}, not text, under {key!r}; name an entry of texts."
        )
    return value
