"""`LLMEnv`: text or tokens that grow by what the policy appends, for those who have it.

`ChatEnv` is what new code wants: this environment knows no messages, turns or templates.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase, lazy_stack

from antiphon.conversations.fields import nested_entry
from antiphon.conversations.padding import token_rows
from antiphon.envs.base import EnvBase
from antiphon.envs.chat_modes import row_values
from antiphon.envs.composite import Composite
from antiphon.envs.entries import has_key
from antiphon.envs.specs import Bounded, NonTensor, Spec, Unbounded
from antiphon.errors import EnvError, InvalidParameter


class LLMEnv(EnvBase):
    """Appends the policy's answer to what it was given.

    Args:
        token_key: The entry of the tokens so far.
        str_key: The entry of the text so far.
        attention_key: The entry of the attention mask over the tokens.
        action_key: The entry of the answer; ``"text_response"`` or ``"tokens_response"`` if None.
        reward_key: The entry of the reward.
        from_text: Whether prompts and answers are text; otherwise tokens, ragged or dense.
        device: Where tensors are made.
        vocab_size: Bounds the tokens in the specs.
        assign_reward: Give a reward of zero for each token of the answer.
        assign_done: Give flags for each token of the answer under ``"tokens_data"``.
        batch_size: The number of rows.
        has_attention: Whether the attention mask is kept up.
        as_llm_data: Not supported.
        eos_token_id: A row terminates with an answer that holds this token.
    """

    _TOKENS, _TEXT, _MASK = "tokens", "text", "attention_mask"
    _TOKENS_RESPONSE, _TEXT_RESPONSE = "tokens_response", "text_response"

    def __init__(
        self,
        *,
        token_key: str | None = None,
        str_key: str | None = None,
        attention_key: str | None = None,
        action_key: str | None = None,
        reward_key: str = "reward",
        from_text: bool = True,
        device: torch.device | str | None = None,
        vocab_size: int | None = None,
        assign_reward: bool = False,
        assign_done: bool = False,
        batch_size: torch.Size | tuple[int, ...] | int | None = None,
        has_attention: bool = True,
        as_llm_data: bool = False,
        eos_token_id: int | None = None,
    ) -> None:
        super().__init__(device=device, batch_size=(1,) if batch_size is None else batch_size)
        if as_llm_data:
            raise InvalidParameter("LLMEnv has no as_llm_data; use ChatEnv and its containers.")
        if len(self.batch_size) != 1:
            raise InvalidParameter("LLMEnv needs a batch size of one dimension, such as (1,).")
        if from_text and (assign_reward or assign_done):
            raise InvalidParameter(
                "assign_reward and assign_done are per token; they need from_text=False."
            )
        self.token_key = token_key or self._TOKENS
        self.str_key = str_key or self._TEXT
        self.attention_key = attention_key or self._MASK
        default = self._TEXT_RESPONSE if from_text else self._TOKENS_RESPONSE
        self.action_key = action_key or default
        self.reward_key = reward_key
        self.from_text = from_text
        self.vocab_size = vocab_size
        self.assign_reward, self.assign_done = assign_reward, assign_done
        self.has_attention = has_attention and not from_text
        self.eos_token_id = eos_token_id
        self.step_keys = (self.action_key,)
        self._make_specs()

    def _make_specs(self) -> None:
        size = self.batch_size
        ids: Spec = Unbounded((*size, -1), dtype=torch.int64, device=self.device)
        if self.vocab_size is not None:
            ids = Bounded(0, self.vocab_size - 1, (*size, -1), torch.int64, self.device)
        text = NonTensor(size, example_data="a text")
        key = self.str_key if self.from_text else self.token_key
        self.full_observation_spec = Composite({key: text if self.from_text else ids}, shape=size)
        if self.has_attention:
            self.full_observation_spec[self.attention_key] = ids.clone()
        self.full_state_spec = self.full_observation_spec.clone()
        self.full_action_spec = Composite(
            {self.action_key: text if self.from_text else ids}, shape=size
        )
        if self.assign_reward:
            per_token = Unbounded((*size, -1), device=self.device)
            self.full_reward_spec = Composite({self.reward_key: per_token}, shape=size)
        else:
            per_row = Unbounded((*size, 1), device=self.device)
            self.full_reward_spec = Composite({self.reward_key: per_row}, shape=size)

    @classmethod
    def from_dataloader(
        cls,
        dataloader: Iterable[Any],
        *,
        tokenizer: Any = None,
        primers: Composite | None = None,
        example_data: Any = None,
        stack_method: Any = None,
        repeats: int | None = None,
        group_repeats: bool = True,
        batch_size: torch.Size | tuple[int, ...] | int | None = None,
        **options: Any,
    ) -> Any:
        """Return an environment whose prompts come from ``dataloader``; see `DataLoadingPrimer`.

        With a ``tokenizer`` the rows' texts become tokens at reset (``from_text=False``).

        Args:
            dataloader: As for `DataLoadingPrimer`.
            tokenizer: See above.
            primers: The specs of the rows' entries; found from the first row if None.
            example_data: Accepted; specs need no example here.
            stack_method: Makes a tensordict of a list of rows; by default each field becomes an
                entry.
            repeats: How often each row is handed out in succession.
            group_repeats: Refuse batches that would split a group.
            batch_size: The number of rows.
            **options: Further arguments of `LLMEnv`.
        """
        from antiphon.envs.data import DataLoadingPrimer
        from antiphon.envs.transformed import TransformedEnv

        del example_data  # specs need no example here
        env = cls(batch_size=batch_size, **options)
        rename = env.str_key if env.from_text else env.token_key

        def stacked(rows: list[Any]) -> TensorDictBase:
            values = [_value(row, rename) for row in rows]
            if tokenizer is not None and not env.from_text:
                values = [
                    torch.tensor(tokenizer.encode(v), dtype=torch.int64)
                    if isinstance(v, str)
                    else v
                    for v in values
                ]
            made = TensorDict(batch_size=(len(rows),))
            if env.from_text:
                return made.set(rename, nested_entry(values, 1))
            tensors = [torch.as_tensor(value, dtype=torch.int64) for value in values]
            return lazy_stack([TensorDict({rename: tensor}) for tensor in tensors])

        primer = DataLoadingPrimer(
            dataloader,
            primers=primers,
            stack_method=stack_method or stacked,
            repeats=repeats,
            group_repeats=group_repeats,
            batch_size=batch_size,
        )
        return TransformedEnv(env, primer)

    def _reset(self, tensordict: TensorDictBase | None, **kwargs: Any) -> TensorDictBase:
        key = self.str_key if self.from_text else self.token_key
        if tensordict is None or not has_key(tensordict, key):
            raise EnvError(
                f"LLMEnv.reset needs a tensordict with the entry {key!r}; give it one, or build the "
                "environment with from_dataloader."
            )
        if self.from_text:
            texts = nested_entry(row_values(tensordict, key), 1)
            return TensorDict({key: texts}, batch_size=tensordict.batch_size)
        rows = self._rows(tensordict, key)
        masks = [torch.ones_like(row) for row in rows]
        given = token_rows(tensordict, self.attention_key) if self.has_attention else None
        return self._observed(rows, given or masks)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if not has_key(tensordict, self.action_key):
            raise EnvError(f"LLMEnv.step needs the policy's answer under {self.action_key!r}.")
        if self.from_text:
            prompts = row_values(tensordict, self.str_key)
            answers = row_values(tensordict, self.action_key)
            texts = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
            following: TensorDictBase = TensorDict(
                {self.str_key: nested_entry(texts, 1)}, batch_size=tensordict.batch_size
            )
        else:
            following = self._extended(tensordict)
        if self.eos_token_id is not None:
            following.set("terminated", self._ended(tensordict))
        return following

    def _extended(self, tensordict: TensorDictBase) -> TensorDictBase:
        answers = self._rows(tensordict, self.action_key)
        rows = [
            torch.cat([row, answer])
            for row, answer in zip(self._rows(tensordict, self.token_key), answers, strict=True)
        ]
        masks = None
        if self.has_attention:
            old = token_rows(tensordict, self.attention_key) or [
                torch.ones_like(row[: len(row) - len(answer)])
                for row, answer in zip(rows, answers, strict=True)
            ]
            masks = [
                torch.cat([mask, mask.new_ones(answer.shape)])
                for mask, answer in zip(old, answers, strict=True)
            ]
        following = self._observed(rows, masks)
        parts = following.unbind(0)
        for part, answer in zip(parts, answers, strict=True):
            if self.assign_reward:
                part.set(self.reward_key, torch.zeros(answer.shape))
            if self.assign_done:
                ended = answer == (-1 if self.eos_token_id is None else self.eos_token_id)
                part.set("tokens_data", TensorDict({"done": ended, "terminated": ended.clone()}))
        return lazy_stack(list(parts))

    def _ended(self, tensordict: TensorDictBase) -> torch.Tensor:
        key = self._TOKENS_RESPONSE if self.from_text else self.action_key
        if not has_key(tensordict, key):
            raise EnvError(
                f"eos_token_id needs the answer's tokens under {key!r}; let the policy write them."
            )
        rows = self._rows(tensordict, key)
        flags = [self.eos_token_id in row.tolist() for row in rows]
        return torch.tensor(flags, device=self.device)[:, None]

    def _rows(self, tensordict: TensorDictBase, key: str) -> list[torch.Tensor]:
        return list(token_rows(tensordict, key))

    def _observed(
        self, rows: list[torch.Tensor], masks: list[torch.Tensor] | None
    ) -> TensorDictBase:
        made = [TensorDict({self.token_key: row}, device=self.device) for row in rows]
        if self.has_attention and masks is not None:
            for part, mask in zip(made, masks, strict=True):
                part.set(self.attention_key, mask)
        stacked: TensorDictBase = lazy_stack(made)
        return stacked


def _value(row: Any, key: str) -> Any:
    """Return a row's prompt: under the key, or under another name of a text."""
    if isinstance(row, TensorDictBase):
        return row.get(key)
    for name in (key, "query", "text"):
        if row.get(name) is not None:
            return row[name]
    raise EnvError(f"A row of the data has no {key!r}; it has {', '.join(map(repr, row))}.")
