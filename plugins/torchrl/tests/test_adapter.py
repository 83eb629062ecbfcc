"""TorchRL drives Antiphon's environments and gets what Antiphon gets."""

from __future__ import annotations

from typing import Any

import pytest
import rollout_helpers
import torch
from antiphon import ChatEnv, DatasetChatEnv, LLMEnv, LLMWrapper
from antiphon.envs import Bounded, Composite, NonTensor, Spec, WordProblems
from antiphon.errors import EnvError, InvalidParameter
from antiphon.registry import get_env
from tensordict import TensorDict
from tensordict.nn import TensorDictModuleBase

torchrl = pytest.importorskip("torchrl", reason="torchrl is not installed")

ROWS = [{"question": f"What is {i}?", "answer": f"#### {i}"} for i in range(6)]
MODES = ("history", "text", "tokens")


@pytest.fixture(scope="module")
def helpers() -> Any:
    return rollout_helpers


@pytest.fixture(scope="module")
def backend(helpers: Any) -> Any:
    # Row by row other answers; a right one ends its conversation.
    return helpers.FakeBackend()


def made(mode: Any, backend: Any) -> DatasetChatEnv:
    return DatasetChatEnv(
        dataset=ROWS,
        shuffle=False,
        num_envs=2,
        task=WordProblems(max_turns=2),
        tokenizer=backend.tokenizer,
        input_mode=mode,
    )


def policy(mode: Any, backend: Any) -> LLMWrapper:
    options = {"max_new_tokens": 20, "seed": 1}
    return LLMWrapper(backend, input_mode=mode, generate_kwargs=options)


def figures(steps: Any) -> list[Any]:
    keys: list[Any] = [
        "group_id",
        "turn",
        ("next", "reward"),
        ("next", "done"),
        ("next", "success"),
    ]
    return [steps[key].tolist() for key in keys]


@pytest.mark.parametrize("mode", MODES)
def test_a_rollout_of_torchrl_is_ours(mode: Any, backend: Any) -> None:
    from antiphon_torchrl import TorchRLEnv, to_torchrl

    env = to_torchrl(made(mode, backend))
    assert isinstance(env, torchrl.envs.EnvBase)
    assert isinstance(env, TorchRLEnv)
    options: dict[str, Any] = {"break_when_any_done": False, "return_contiguous": False}
    steps = env.rollout(5, policy(mode, backend), **options)
    ours = made(mode, backend).rollout(5, policy(mode, backend), break_when_any_done=False)
    assert steps.batch_size == (2, 5)
    assert figures(steps) == figures(ours)
    # Rows that ended went on with new data.
    assert steps["group_id"].max() > 1


class Looking(TensorDictModuleBase):  # type: ignore[misc]
    """A policy that remembers which entries it was given."""

    def __init__(self, act: LLMWrapper) -> None:
        super().__init__()
        self.act, self.in_keys, self.out_keys = act, act.in_keys, act.out_keys
        self.seen: list[set[Any]] = []

    def forward(self, root: Any) -> Any:
        self.seen += [set(row.keys(True)) for row in root.unbind(0)]
        return self.act(root)


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_torchrls_transforms_go_around(mode: Any, goes_on: bool, backend: Any) -> None:
    from antiphon_torchrl import to_torchrl
    from torchrl.envs import Compose, RewardScaling, StepCounter, TransformedEnv

    looking = Looking(policy(mode, backend))
    transform = Compose(RewardScaling(1.0, 2.0), StepCounter())
    env = to_torchrl(made(mode, backend)).append_transform(transform)
    assert isinstance(env, TransformedEnv)
    steps = env.rollout(5, looking, break_when_any_done=not goes_on, return_contiguous=False)
    ours = made(mode, backend).rollout(5, policy(mode, backend), break_when_any_done=not goes_on)
    assert steps.batch_size == ours.batch_size
    assert steps.batch_size[1] > 1
    torch.testing.assert_close(steps["next", "reward"], ours["next", "reward"] * 2 + 1)
    for key in ("group_id", "turn", ("next", "done")):
        assert steps[key].tolist() == ours[key].tolist()
    for step in range(ours.batch_size[1]):
        for row, own in zip(steps[:, step].unbind(0), ours[:, step].unbind(0), strict=True):
            assert row["tokens"].get("full").tolist() == own["tokens"].get("full").tolist()
    counts = steps["next", "step_count"][..., 0]
    assert counts.tolist() == steps["next", "turn"][..., 0].tolist()
    # Nothing of a step is in the root of the next.
    assert looking.seen
    for keys in looking.seen:
        assert not keys & {"masks", "log_probs", (mode, "full"), (mode, "response")}


@pytest.mark.parametrize("mode", ["history", "text"])
def test_torchrls_own_transformed_env_takes_it_for_one_step(mode: Any, backend: Any) -> None:
    from antiphon_torchrl import to_torchrl
    from torchrl.envs import RewardScaling, TransformedEnv

    env = TransformedEnv(to_torchrl(made(mode, backend)), RewardScaling(1.0, 2.0))
    steps = env.rollout(1, policy(mode, backend), return_contiguous=False)
    ours = made(mode, backend).rollout(1, policy(mode, backend))
    torch.testing.assert_close(steps["next", "reward"], ours["next", "reward"] * 2 + 1)


# TorchRL deprecates classes of its own, and tells whoever imports them; the other is about its next version.
@pytest.mark.filterwarnings("ignore:.*WeightUpdaterBase:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*missing transforms required:FutureWarning")
@pytest.mark.parametrize("mode", MODES)
def test_torchrls_collector_and_buffer_take_it(mode: Any, backend: Any) -> None:
    from antiphon_torchrl import to_torchrl
    from torchrl.collectors.llm import LLMCollector
    from torchrl.data import LazyStackStorage, ReplayBuffer

    collector = LLMCollector(
        to_torchrl(made(mode, backend)),
        policy=policy(mode, backend),
        dialog_turns_per_batch=4,
        total_dialog_turns=8,
    )
    buffer = ReplayBuffer(storage=LazyStackStorage(8), batch_size=3)
    for item in collector:
        assert item.numel() == 4
        buffer.extend(item.reshape(-1))
    assert len(buffer) == 8
    assert buffer.sample()["next", "reward"].shape == (3, 1)
    collector.shutdown()


def test_reset_step_and_close() -> None:
    from antiphon_torchrl import to_torchrl

    env = to_torchrl(ChatEnv(batch_size=2, max_turns=1))
    root = env.reset(TensorDict({"query": ["a", "b"]}, batch_size=2))
    step = env.step(env.rand_action(root))
    assert step["next", "truncated"].all()
    following = env.step_mdp(step)
    assert "reward" not in set(following.keys())
    again = env.maybe_reset(following)
    assert again["turn"].tolist() == [[0], [0]]
    assert [chat[0]["content"] for chat in again["history"].prompt.to_chats()] == ["a", "b"]
    marked = following.set("_reset", torch.tensor([[True], [False]]))
    assert env.reset(marked)["turn"].tolist() == [[0], [1]]
    env.close()
    with pytest.raises(EnvError, match="closed"):
        env.env.reset()
    with pytest.raises(InvalidParameter, match="not str"):
        to_torchrl("env")  # type: ignore[arg-type]


def test_specs_say_the_same() -> None:
    from antiphon_torchrl import to_torchrl, to_torchrl_spec

    env = LLMEnv(from_text=False, vocab_size=9, batch_size=(2,))
    adapted = to_torchrl(env)
    assert set(adapted.full_done_spec.keys()) == set(env.full_done_spec.keys())
    spec = adapted.full_action_spec["tokens_response"]
    assert spec.shape == (2, -1)
    assert spec.dtype == torch.int64
    bounded = to_torchrl_spec(Bounded(0, 3, (2,), dtype=torch.float32))
    assert bounded.is_in(torch.tensor([0.0, 3.0]))
    assert not bounded.is_in(torch.tensor([0.0, 4.0]))
    nested = to_torchrl_spec(Composite({"a": {"b": NonTensor((2,), example_data="x")}}, shape=(2,)))
    assert nested["a", "b"].shape == (2,)
    with pytest.raises(InvalidParameter, match="no spec like Strange"):
        to_torchrl_spec(type("Strange", (Spec,), {})())


def test_the_plugin_registers_it() -> None:
    from antiphon_torchrl import to_torchrl

    assert get_env("torchrl").load() is to_torchrl
