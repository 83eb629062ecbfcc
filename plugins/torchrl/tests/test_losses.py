"""TorchRL's losses train Antiphon's wrappers on what these sampled."""

from __future__ import annotations

from typing import Any

import pytest
import rollout_helpers
import torch
from antiphon import ChatHistory, History, LLMWrapper
from antiphon.generation.backends import TokenBatch
from tensordict import TensorDict

torchrl = pytest.importorskip("torchrl", reason="torchrl is not installed")

CHATS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "user", "content": "What is it that you want?"}],
]


class Bigrams(rollout_helpers.FakeBackend):
    """Samples as its base does; its logits are a table of the id before."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = torch.nn.Embedding(self.vocab_size, self.vocab_size)

    def logits(self, batch: TokenBatch, *, requires_grad: bool = False) -> list[torch.Tensor]:
        with torch.set_grad_enabled(requires_grad):
            return [self.model(torch.tensor(row)) for row in batch.rows]

    def _log_probs(self, ids: Any) -> torch.Tensor:
        row = torch.tensor(ids)
        log_probs = self.model(row[:-1]).log_softmax(-1).gather(-1, row[1:, None])[:, 0]
        return torch.cat([torch.tensor([torch.nan]), log_probs]).detach()


def sampled(pad: bool) -> tuple[Bigrams, LLMWrapper, TensorDict]:
    backend = Bigrams()
    policy = LLMWrapper(backend, pad_output=pad, generate_kwargs={"seed": 1, "max_new_tokens": 30})
    chats = ChatHistory(prompt=History.from_chats(CHATS), batch_size=(2,))
    data = policy(TensorDict(history=chats, batch_size=(2,)))
    return backend, policy.get_new_version(generate=False), data


@pytest.mark.parametrize("pad", [True, False], ids=["padded", "ragged"])
@pytest.mark.parametrize("strategy", ["sft", "rlhf", "generic"])
def test_grpo_moves_the_policy_towards_what_paid(pad: bool, strategy: str) -> None:
    from torchrl.objectives.llm.grpo import GRPOLoss

    backend, actor, data = sampled(pad)
    answers = data.get(("tokens", "response"), as_list=True)
    width = data.get(("tokens", "full"), as_padded_tensor=True, padding_side="left").shape[-1]
    data.set("advantage", torch.tensor([1.0, -1.0])[:, None, None].expand(2, width, 1))
    loss = GRPOLoss(
        actor_network=actor, masking_strategy=strategy, entropy_bonus=False, kl_to_ref_coeff=None
    )
    out = loss(data)
    assert out.kl_approx.abs() < 1e-5  # the policy is the one that sampled
    (before,) = (actor.log_prob(data, as_list=True),)
    out.loss_objective.backward()
    with torch.no_grad():
        backend.model.weight -= 1.0 * backend.model.weight.grad
    after = actor.log_prob(data, as_list=True)
    moved = [
        float((new - old)[-len(answer) :].sum())
        for new, old, answer in zip(after, before, answers, strict=True)
    ]
    assert moved[0] > 0 > moved[1]


def test_sft_raises_the_probability_of_the_answers() -> None:
    from torchrl.objectives.llm.sft import SFTLoss

    backend, actor, _ = sampled(pad=False)
    whole = History.from_chats(
        [[*chat, {"role": "assistant", "content": "Yes."}] for chat in CHATS]
    )
    data = TensorDict(history=ChatHistory(full=whole, batch_size=(2,)), batch_size=(2,))
    loss = SFTLoss(actor_network=actor, tokenizer=backend.tokenizer)
    assert loss(data.copy()).loss_sft > 0
