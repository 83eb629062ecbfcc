"""KL to a reference, policy versions, the best of a group, format and length in the reward."""

from __future__ import annotations

import math
from typing import Any

import pytest
import rollout_helpers
import torch
from antiphon import ChatEnv, History, LLMWrapper, LogProbs, Tokens
from antiphon.conversations.containers import ChatHistory
from antiphon.conversations.ragged import ragged
from antiphon.envs import (
    FormatReward,
    KLComputation,
    KLRewardTransform,
    LengthReward,
    PolicyVersion,
    RetrieveKL,
    RetrieveLogProb,
    TopKRewardSelector,
    WordProblems,
    check_env,
)
from antiphon.errors import EnvError, InvalidParameter
from tensordict import TensorDict, TensorDictBase


@pytest.fixture(scope="module")
def helpers() -> Any:
    return rollout_helpers


def sampled(env: Any, lengths: tuple[int, ...]) -> TensorDictBase:
    """Reset and answer with ids and log-probs of these lengths, as a policy in tokens mode does."""
    return sampled_from(env.reset(asked()), lengths)


def asked() -> TensorDict:
    return TensorDict({"query": ["a", "a longer one"]}, batch_size=2)


def sampled_from(root: TensorDictBase, lengths: tuple[int, ...]) -> TensorDictBase:
    root = root.copy()
    prompts = list(root.get("tokens").get("prompt", as_list=True))
    answers = [torch.arange(5, 5 + n) for n in lengths]
    fulls = [torch.cat(pair) for pair in zip(prompts, answers, strict=True)]
    root["tokens"] = ragged(Tokens, (2,), {"prompt": prompts, "response": answers, "full": fulls})
    probs = [
        torch.cat([torch.full((len(p),), math.nan), torch.full((len(a),), -1.0)])
        for p, a in zip(prompts, answers, strict=True)
    ]
    root["log_probs"] = ragged(LogProbs, (2,), {"full": probs})
    return root


class Scorer:
    """Stands for a wrapper that scores: the same log-prob for every token, NaN for the first."""

    generate = False
    log_probs_key = "log_probs"

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        fulls = tensordict.get("tokens").get("full", as_list=True)  # type: ignore[union-attr]
        rows = [torch.full((len(full),), self.value) for full in fulls]
        for row in rows:
            row[0] = math.nan
        return tensordict.set("log_probs", ragged(LogProbs, (len(rows),), {"full": rows}))


@pytest.fixture
def env(helpers: Any) -> ChatEnv:
    return ChatEnv(input_mode="tokens", tokenizer=helpers.byte_tokenizer(), batch_size=2)


def test_the_penalty_is_the_sum_over_what_was_sampled(env: ChatEnv) -> None:
    transformed = env.append_transform(KLRewardTransform(Scorer(-3.0), coef=0.5))
    step = transformed.step(sampled(transformed, (2, 4)))
    # Each token: -1 - (-3) = 2.
    assert step["next", "kl_penalty"].tolist() == [[4.0], [8.0]]
    assert step["next", "reward"].tolist() == [[-2.0], [-4.0]]
    # The policy's own log-probs are left alone.
    assert step.get("log_probs").get("full", as_list=True)[0][-1].item() == -1.0
    reference = step["next"].get("ref_log_probs").get("full", as_list=True)
    assert torch.isnan(reference[0][:-2]).all()
    assert reference[1][-4:].tolist() == [-3.0] * 4


def test_the_reward_may_be_left_alone(env: ChatEnv) -> None:
    transformed = env.append_transform(RetrieveKL(ref_model=Scorer(-3.0), add_to_reward=False))
    step = transformed.step(sampled(transformed, (1, 1)))
    assert step["next", "reward"].tolist() == [[0.0], [0.0]]
    assert step["next", "kl_penalty"].tolist() == [[2.0], [2.0]]
    assert "kl_penalty" in transformed.full_reward_spec


def test_log_probs_of_a_real_wrapper(env: ChatEnv, helpers: Any) -> None:
    backend = helpers.FakeBackend()
    wrapper = LLMWrapper(backend, input_mode="tokens", generate=False)
    transformed = env.append_transform(
        RetrieveLogProb(wrapper, log_probs_full_key=("ref_log_probs", "full"), assistant_only=False)
    )
    root = sampled(transformed, (3, 3))
    fulls = [row.tolist() for row in root.get("tokens").get("full", as_list=True)]
    if len({len(full) for full in fulls}) > 1:
        root, fulls = root[:1], fulls[:1]
    step = transformed.step(root)
    rows = step["next"].get("ref_log_probs").get("full", as_list=True)
    for row, full in zip(rows, fulls, strict=True):
        assert torch.equal(row[1:], backend._log_probs(full)[1:])


def test_what_does_not_fit_is_refused(env: ChatEnv) -> None:
    generating = Scorer(0.0)
    generating.generate = True
    with pytest.raises(InvalidParameter, match="generate=False"):
        RetrieveLogProb(generating)
    with pytest.raises(InvalidParameter, match="name, 'full'"):
        RetrieveLogProb(Scorer(0.0), log_probs_full_key=("a", "b"))
    with pytest.raises(InvalidParameter, match="ref_model"):
        RetrieveKL()
    with pytest.raises(InvalidParameter, match="either ref_model"):
        KLRewardTransform()
    transformed = env.append_transform(KLComputation())
    with pytest.raises(EnvError, match="no log-probs under"):
        transformed.step(sampled(transformed, (1, 1)))


def test_what_a_transform_adds_is_what_its_specs_say(env: ChatEnv) -> None:
    def policy(root: TensorDictBase) -> TensorDictBase:
        return sampled_from(root, (2, 4))

    for added in (
        KLRewardTransform(Scorer(-3.0)),
        RetrieveLogProb(Scorer(-3.0), log_probs_full_key=("ref_log_probs", "full")),
        PolicyVersion(),
        PolicyVersion("uuid"),
        FormatReward("x"),
        LengthReward(3, 3),
    ):
        check_env(env.append_transform(added), asked(), policy)


# Versions and selections


def test_each_step_knows_the_policys_version() -> None:
    version = PolicyVersion()
    env = ChatEnv(batch_size=2).append_transform(version)
    first = env.rollout(1, tensordict=TensorDict({"query": ["a", "b"]}, batch_size=2))
    assert version.increment_version() == 1
    second = env.rollout(1, tensordict=TensorDict({"query": ["a", "b"]}, batch_size=2))
    assert first["next", "policy_version"].tolist() == [[0], [0]]
    assert second["next", "policy_version"].tolist() == [[1], [1]]
    named = PolicyVersion("uuid")
    root = ChatEnv().append_transform(named).reset(TensorDict({"query": ["a"]}, batch_size=1))
    assert root["policy_version"] == named.version
    assert named.increment_version() != root["policy_version"]
    with pytest.raises(InvalidParameter, match="version_type"):
        PolicyVersion("roman")  # type: ignore[arg-type]


def steps(groups: list[int], rewards: list[float]) -> TensorDict:
    following = TensorDict({"reward": torch.tensor(rewards)[:, None]}, batch_size=len(groups))
    return TensorDict({"group_id": torch.tensor(groups), "next": following}, batch_size=len(groups))


def test_the_best_of_each_group_once_the_group_is_whole() -> None:
    selector = TopKRewardSelector(total_dialog_turns=3, topk_size=2)
    assert len(selector.inv(steps([0, 1, 0], [1.0, 5.0, 3.0]))) == 0
    chosen = selector.inv(steps([1, 0, 1], [6.0, 2.0, 5.0]))
    found = [(row["group_id"].item(), row["next", "reward"].item()) for row in chosen.unbind(0)]
    assert found == [(0, 3.0), (0, 2.0), (1, 6.0), (1, 5.0)]
    # The groups are done with: equal numbers begin anew.
    assert len(selector.inv(steps([0], [1.0]))) == 0
    with pytest.raises(InvalidParameter, match="topk_size"):
        TopKRewardSelector(2, 3)
    with pytest.raises(EnvError, match="tells prompts apart by 'query'"):
        TopKRewardSelector(2, 1).inv(steps([0], [1.0]).exclude("group_id"))


def answered(env: Any, *texts: str) -> TensorDictBase:
    rows = {"question": ["q"] * len(texts), "answer": ["#### 1"] * len(texts)}
    root = env.reset(TensorDict(rows, batch_size=len(texts)))
    prompt = root["history"].prompt
    response = History.from_chats([[{"role": "assistant", "content": t}] for t in texts])
    full = prompt.extend(response, inplace=False, dim=-1)
    root["history"] = ChatHistory(prompt=prompt, full=full, batch_size=root.batch_size)
    return env.step(root)


def test_format_and_length_count_in_the_reward() -> None:
    env = ChatEnv(task=WordProblems(), batch_size=2)
    env = env.append_transform(FormatReward(r"####", weight=0.5)).append_transform(
        LengthReward(limit=10, tolerance=10)
    )
    step = answered(env, "#### 1", "x" * 15)
    assert step["next", "reward_format"].tolist() == [[1.0], [0.0]]
    assert step["next", "reward_length"].tolist() == [[0.0], [-0.5]]
    assert step["next", "reward"].tolist() == [[1.5], [-0.5]]
    env.full_reward_spec.assert_is_in(step["next"])
    with pytest.raises(InvalidParameter, match="tolerance"):
        LengthReward(5, 0)


@pytest.mark.parametrize("pad", [True, False])
def test_stored_conversations_can_be_scored_and_compared(pad: bool, helpers: Any) -> None:
    """Without an environment, as TorchRL's documentation uses these transforms."""
    backend = helpers.FakeBackend()
    own, reference = (
        LLMWrapper(backend, input_mode="tokens", generate=False, pad_output=pad, log_probs_key=name)
        for name in ("gen_log_probs", "ref_log_probs")
    )
    rows = [torch.tensor([3, 4, 5]), torch.tensor([6, 7])]
    data = TensorDict(tokens=ragged(Tokens, (2,), {"full": rows}), batch_size=2)
    scored = RetrieveLogProb(own, assistant_only=False)(data.copy())
    assert ("gen_log_probs", "full") in scored
    compare = RetrieveKL(
        gen_model=own,
        ref_model=reference,
        assistant_only=False,
        gen_log_probs_full_key=("gen_log_probs", "full"),
    )
    result = compare(data.copy())
    assert result["kl_penalty"].tolist() == [[0.0], [0.0]]
    step = data.copy().set("next", TensorDict(reward=torch.ones(2, 1, 1), batch_size=2))
    step["next"].update(own(data.copy()), keys_to_update=[("gen_log_probs", "full")])
    step["next"].update(reference(data.copy()), keys_to_update=[("ref_log_probs", "full")])
    after = KLComputation(("gen_log_probs", "full"), kl_key="kl")(step)["next"]
    assert after["kl"].tolist() == [[0.0], [0.0]]
    assert after["reward"].shape == (2, 1, 1)
    with pytest.raises(EnvError, match="who wrote what"):
        RetrieveLogProb(own)(data.copy())
