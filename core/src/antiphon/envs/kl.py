"""Reference log-probs and the KL penalty in rewards.

The estimate is the plain one: the sum over the sampled tokens of ``log p(token) - log q(token)``,
p the sampler's and q the reference's probability. It is unbiased for KL(p || q) where the tokens
were sampled from p; Schulman, "Approximating KL divergence", 2020, calls it k1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from antiphon.conversations.containers import LogProbs
from antiphon.conversations.padding import token_rows
from antiphon.conversations.ragged import ragged
from antiphon.envs.composite import Composite
from antiphon.envs.specs import Unbounded
from antiphon.envs.transformed import Compose, Transform
from antiphon.errors import EnvError, InvalidParameter

PartKey = tuple[str, str]


def log_prob_rows(tensordict: TensorDictBase, key: PartKey) -> list[torch.Tensor]:
    """Return the log-probs under ``key``, one tensor ``[tokens]`` for each row.

    Raises:
        EnvError: There are none.
    """
    container: Any = tensordict.get(key[0], None)
    held = getattr(container, "_tensordict", container)
    rows = None if held is None else token_rows(held, key[1])
    if rows is None:
        raise EnvError(
            f"There are no log-probs under {key!r}; let the wrapper write them, or name their key."
        )
    return list(rows)


class RetrieveLogProb(Transform):
    """Scores each step's conversation with a wrapper and keeps the log-probs with the step.

    Args:
        model: A wrapper that scores (``generate=False``) in the environment's mode.
        log_probs_full_key: Where they are put; the wrapper's log-prob key with ``"full"``.
        assistant_only: NaN on all that the policy did not sample in this step; on stored data on all
            but the assistant's turns, which only a wrapper in history mode tells.
        tokenizer: Taken for TorchRL's sake; the wrapper's own is used.
        detach: Score without a graph.
        device: Where they are put.
    """

    def __init__(
        self,
        model: Any,
        *,
        log_probs_full_key: PartKey | None = None,
        assistant_only: bool = True,
        tokenizer: Any = None,
        detach: bool = True,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if getattr(model, "generate", False):
            raise InvalidParameter(
                "RetrieveLogProb needs a wrapper that scores; build it with generate=False, or call "
                "get_new_version(generate=False)."
            )
        del tokenizer
        self.model = model
        self.source_key: PartKey = (model.log_probs_key, "full")
        self.key = self.source_key if log_probs_full_key is None else tuple(log_probs_full_key)
        if len(self.key) != 2 or self.key[1] != "full":
            raise InvalidParameter(
                f"log_probs_full_key must be of the form (name, 'full'), not {self.key!r}."
            )
        self.assistant_only = assistant_only
        self.detach = detach
        self.device = None if device is None else torch.device(device)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        # The policy's own log-probs stay: scoring goes into a copy.
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.detach):
            scored = self.model(tensordict.copy())
        rows = [row.clone() for row in log_prob_rows(scored, self.source_key)]
        if self.assistant_only:
            for row, length in zip(rows, _answer_lengths(tensordict, rows), strict=True):
                row[: len(row) - length] = torch.nan
        return self._put(next_tensordict, rows)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Score stored conversations: the log-probs are put beside them."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.detach):
            scored = self.model(tensordict.copy())
        made: Any = scored.get(self.source_key[0])
        if self.assistant_only:
            masks: Any = scored.get(self.model.masks_key)
            turns = token_rows(masks._tensordict, "all_assistant_mask")
            if turns is None:
                raise EnvError(
                    "Nothing says who wrote what; score a history, or use assistant_only=False."
                )
            rows = [
                torch.where(turn, row, torch.nan)
                for row, turn in zip(token_rows(made._tensordict, "full"), turns, strict=True)
            ]
            made = (
                LogProbs(full=torch.stack(rows), padded=True, batch_size=(len(rows),))
                if self.model.pad_output
                else ragged(LogProbs, (len(rows),), {"full": rows})
            )
        if self.device is not None:
            made = made.to(self.device)
        return tensordict.set(self.key[0], made)

    def _put(self, tensordict: TensorDictBase, rows: list[torch.Tensor]) -> TensorDictBase:
        made = ragged(LogProbs, (len(rows),), {"full": rows}, self.device)
        return tensordict.set(self.key[0], made)

    def transform_reward_spec(self, reward_spec: Composite) -> Composite:
        # Like a reward it belongs to the step: a reset has none, the next step another.
        reward_spec[self.key[0]] = LogProbs.default_spec(reward_spec.shape, keys=["full"])
        return reward_spec


def _answer_lengths(tensordict: TensorDictBase, rows: list[torch.Tensor]) -> list[int]:
    """Return how many tokens the policy sampled in each row in this step."""
    tokens: Any = tensordict.get("tokens", None)
    held = getattr(tokens, "_tensordict", tokens)
    answers = None if held is None else token_rows(held, "response")
    if answers is not None:
        return [len(answer) for answer in answers]
    prompts = None if held is None else token_rows(held, "prompt")
    if prompts is None:
        raise EnvError(
            "What was sampled in this step is not known without ('tokens', 'response'); let the "
            "wrapper write tokens, or use assistant_only=False."
        )
    return [len(row) - len(prompt) for row, prompt in zip(rows, prompts, strict=True)]


class KLComputation(Transform):
    """Writes the KL penalty of each row and, if asked, takes it off the reward.

    Args:
        gen_log_probs_full_key: The sampler's log-probs, in the root of the step.
        ref_log_probs_full_key: The reference's, in what the step gave.
        kl_key: Where the sum over the row's tokens is put, ``[*batch, 1]``.
        add_to_reward: Whether ``coeff`` times it is taken off the reward.
        coeff: The weight.
    """

    def __init__(
        self,
        gen_log_probs_full_key: PartKey = ("log_probs", "full"),
        ref_log_probs_full_key: PartKey = ("ref_log_probs", "full"),
        *,
        kl_key: str = "kl_penalty",
        add_to_reward: bool = True,
        coeff: float = 1.0,
    ) -> None:
        super().__init__()
        self.gen_key, self.ref_key = gen_log_probs_full_key, ref_log_probs_full_key
        self.kl_key = kl_key
        self.add_to_reward = add_to_reward
        self.coeff = coeff

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        there = tensordict.get(self.gen_key[0], None) is not None
        sampled = log_prob_rows(tensordict if there else next_tensordict, self.gen_key)
        reference = log_prob_rows(next_tensordict, self.ref_key)
        sums = []
        for row, (own, other) in enumerate(zip(sampled, reference, strict=True)):
            if own.shape != other.shape:
                raise EnvError(
                    f"Row {row}: the sampler's log-probs are of {len(own)} tokens and the reference's "
                    f"of {len(other)}; both must score the same ids."
                )
            difference = own - other.to(own.device)
            # NaN marks what nobody sampled (the prompt), which has no part in the sum.
            sums.append(torch.nansum(difference))
        penalty = torch.stack(sums)[:, None]
        next_tensordict.set(self.kl_key, penalty)
        reward: Any = next_tensordict.get("reward", None)
        if self.add_to_reward and reward is not None:  # stored conversations may have none
            next_tensordict.set("reward", reward - self.coeff * penalty.view_as(reward))
        return next_tensordict

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Compute on stored steps: on what lies under ``next``, or on the tensordict itself."""
        following: Any = tensordict.get("next", None)
        if following is None:
            return self._step(tensordict, tensordict)
        self._step(tensordict, following)
        return tensordict

    def transform_reward_spec(self, reward_spec: Composite) -> Composite:
        reward_spec[self.kl_key] = Unbounded((*reward_spec.shape, 1))
        return reward_spec


class RetrieveKL(Compose):
    """`RetrieveLogProb` with a reference, then `KLComputation`.

    Args:
        gen_model: What scores as the sampler; ``"from_collector"`` uses the log-probs that the
            policy wrote when it sampled.
        ref_model: What scores as the reference.
        assistant_only: Only what was sampled counts.
        tokenizer: Taken for TorchRL's sake; the wrappers' own are used.
        gen_log_probs_full_key: Where the sampler's log-probs are.
        ref_log_probs_full_key: Where the reference's are put.
        kl_key: See `KLComputation`.
        add_to_reward: See `KLComputation`.
        coeff: See `KLComputation`.
    """

    def __init__(
        self,
        gen_model: Any = "from_collector",
        ref_model: Any = None,
        *,
        assistant_only: bool = True,
        tokenizer: Any = None,
        gen_log_probs_full_key: PartKey = ("log_probs", "full"),
        ref_log_probs_full_key: PartKey = ("ref_log_probs", "full"),
        kl_key: str = "kl_penalty",
        add_to_reward: bool = True,
        coeff: float = 1.0,
    ) -> None:
        if ref_model is None:
            raise InvalidParameter("RetrieveKL needs ref_model, a wrapper that scores.")
        del tokenizer
        scored = [(ref_model, ref_log_probs_full_key)]
        if gen_model not in (None, "from_collector"):
            scored.insert(0, (gen_model, gen_log_probs_full_key))
        super().__init__(
            *(
                RetrieveLogProb(model, log_probs_full_key=key, assistant_only=assistant_only)
                for model, key in scored
            ),
            KLComputation(
                gen_log_probs_full_key,
                ref_log_probs_full_key,
                kl_key=kl_key,
                add_to_reward=add_to_reward,
                coeff=coeff,
            ),
        )


class KLRewardTransform(RetrieveKL):
    """Takes ``coef`` times the KL to a reference model off the reward.

    Args:
        ref_model: A wrapper that scores.
        ref_model_factory: Makes it, in its place.
        coef: The weight.
        log_prob_key: Where the sampler's log-probs are.
        add_to_reward: Whether the reward is changed, or only ``"kl_penalty"`` written.
        assistant_only: Only what was sampled counts.
    """

    def __init__(
        self,
        ref_model: Any = None,
        *,
        ref_model_factory: Callable[[], Any] | None = None,
        coef: float = 1.0,
        log_prob_key: PartKey = ("log_probs", "full"),
        add_to_reward: bool = True,
        assistant_only: bool = True,
    ) -> None:
        if (ref_model is None) == (ref_model_factory is None):
            raise InvalidParameter("Give either ref_model or ref_model_factory.")
        super().__init__(
            ref_model=ref_model if ref_model_factory is None else ref_model_factory(),
            gen_log_probs_full_key=log_prob_key,
            add_to_reward=add_to_reward,
            assistant_only=assistant_only,
            coeff=coef,
        )
