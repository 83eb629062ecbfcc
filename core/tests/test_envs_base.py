"""The loop: reset, step, step_mdp, rollout, partial resets, transforms, the checker."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from antiphon.envs import (
    Bounded,
    Categorical,
    Composite,
    EnvBase,
    LLMHashingEnv,
    NonTensor,
    Transform,
    TransformedEnv,
    Unbounded,
    check_env,
    step_mdp,
)
from antiphon.envs.row_stacks import flat_rows
from antiphon.errors import EnvError, InvalidParameter
from tensordict import NonTensorStack, TensorDict, TensorDictBase, lazy_stack


class Counter(EnvBase):
    """Counts up by the action; a row terminates at its own limit."""

    def __init__(self, rows: int = 3, **kwargs: Any) -> None:
        super().__init__(batch_size=rows, **kwargs)
        shape = (rows, 1)
        self.full_observation_spec = Composite(
            count=Unbounded(shape, dtype=torch.int64), shape=(rows,)
        )
        self.full_action_spec = Composite(
            action=Bounded(1, 3, shape, dtype=torch.int64), shape=(rows,)
        )
        self.full_state_spec = Composite(limit=Unbounded(shape, dtype=torch.int64), shape=(rows,))

    def _reset(self, tensordict: TensorDictBase | None, **kwargs: Any) -> TensorDictBase:
        size = self.batch_size if tensordict is None else tensordict.batch_size
        count = torch.zeros((*size, 1), dtype=torch.int64)
        limit = torch.full((*size, 1), 5)
        if tensordict is not None and tensordict.get("limit", None) is not None:
            limit = tensordict.get("limit")
        return TensorDict({"count": count, "limit": limit}, batch_size=size)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        count = tensordict["count"] + tensordict["action"]
        return TensorDict(
            {
                "count": count,
                "reward": tensordict["action"].float(),
                "terminated": count >= tensordict["limit"],
            },
            batch_size=tensordict.batch_size,
        )


def one(root: TensorDictBase) -> TensorDictBase:
    return root.set("action", torch.ones((*root.batch_size, 1), dtype=torch.int64))


def limits(*values: int) -> TensorDict:
    return TensorDict({"limit": torch.tensor(values)[:, None]}, batch_size=len(values))


def test_a_step_stands_under_next_and_flags_are_filled_in() -> None:
    env = Counter()
    root = env.reset()
    assert not root["done"].any()
    step = env.step(one(root))
    assert step is root
    assert step["next", "count"].tolist() == [[1], [1], [1]]
    assert step["next", "done"].dtype == torch.bool
    assert step["next", "truncated"].shape == (3, 1)
    check_env(Counter())
    check_env(Counter(), limits(1, 2, 3), one, steps=4)


def test_reset_leaves_its_input_as_it_is() -> None:
    given = limits(1, 2, 3)
    root = Counter().reset(given)
    assert set(given.keys()) == {"limit"}
    assert root["limit"].tolist() == [[1], [2], [3]]


def test_step_mdp_carries_over_and_drops_reward_and_action() -> None:
    env = Counter()
    step = env.step(one(env.reset()))
    root = env.step_mdp(step)
    assert set(root.keys()) == {"count", "limit", "done", "terminated", "truncated"}
    assert root["count"].tolist() == [[1]] * 3
    kept = step_mdp(step, exclude_reward=False, exclude_action=False, exclude_done=True)
    assert {"reward", "action"} <= set(kept.keys())
    assert "done" not in set(kept.keys())
    with pytest.raises(EnvError, match="no 'next'"):
        step_mdp(env.reset())


def test_a_rollout_ends_with_the_first_row() -> None:
    steps = Counter().rollout(10, one, tensordict=limits(2, 4, 9))
    assert steps.batch_size == (3, 2)
    assert steps["next", "done"][:, -1, 0].tolist() == [True, False, False]


def test_rows_that_ended_wait_and_the_policy_does_not_see_them() -> None:
    seen: list[int] = []

    def policy(root: TensorDictBase) -> TensorDictBase:
        seen.append(root.batch_size[0])
        return one(root)

    steps = Counter().rollout(10, policy, tensordict=limits(1, 2, 4), break_when_all_done=True)
    assert steps.batch_size == (3, 4)
    assert seen == [3, 2, 1, 1]
    rewards = [[step["next", "reward"].item() for step in row.unbind(0)] for row in steps.unbind(0)]
    assert rewards == [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [1.0] * 4]
    last = [row[-1]["next", "count"].item() for row in steps.unbind(0)]
    assert last == [1, 2, 4]


def test_rows_that_ended_are_started_again_alone() -> None:
    steps = Counter().rollout(4, one, tensordict=limits(2, 3, 9), break_when_any_done=False)
    counts = [[step["next", "count"].item() for step in row.unbind(0)] for row in steps.unbind(0)]
    assert counts == [[1, 2, 1, 2], [1, 2, 3, 1], [1, 2, 3, 4]]


def test_a_partial_reset_touches_only_the_rows_it_names() -> None:
    env = Counter()
    root = env.step_mdp(env.step(one(env.reset(limits(5, 6, 7)))))
    root.set("_reset", torch.tensor([[False], [True], [False]]))
    again = env.reset(root)
    assert [row["count"].item() for row in again.unbind(0)] == [1, 0, 1]
    assert [row["limit"].item() for row in again.unbind(0)] == [5, 6, 7]


def test_a_partial_reset_takes_a_batch_of_any_shape() -> None:
    env = LLMHashingEnv(9, text_output=False)
    for shape in ((), (3,), (2, 3)):
        tokens = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(*shape, 1)
        root = env.reset(TensorDict({"tokens": tokens}, batch_size=shape))
        root["action"] = torch.full(shape, 7)
        root = env.step_mdp(env.step(root))
        marks = torch.zeros(shape, dtype=torch.bool)
        marks.view(-1)[-1] = True
        again = env.reset(root.set("_reset", marks))
        assert again.batch_size == shape
        rows = [again] if not shape else flat_rows(again)
        expected = [[place, 7] for place in range(1, len(rows) + 1)]
        expected[-1].pop()
        assert [row["tokens"].tolist() for row in rows] == expected
    with pytest.raises(EnvError, match="one flag for each row"):
        env.reset(root.set("_reset", torch.ones((2, 3, 2), dtype=torch.bool)))


def test_rows_that_start_again_keep_their_other_entries() -> None:
    env = Counter()
    given = limits(1, 2, 9).set("word", NonTensorStack("a", "b", "c"))
    step = env.step(one(env.reset(given)))
    again = env.reset(env.step_mdp(step).set("_reset", torch.tensor([True, False, False])))
    assert again["word"] == ["a", "b", "c"]
    assert env.step(one(again))["next", "count"].tolist() == [[1], [2], [2]]
    # The same where every row starts again.
    step["next", "done"].fill_(True)
    root = env.step_and_maybe_reset(one(env.reset(limits(1, 1, 1).set("word", given["word"]))))[1]
    assert root["count"].tolist() == [[0]] * 3
    assert root["word"] == ["a", "b", "c"]


def test_rollout_says_what_it_needs() -> None:
    with pytest.raises(InvalidParameter, match="max_steps"):
        Counter().rollout(0)
    with pytest.raises(InvalidParameter, match="auto_reset"):
        Counter().rollout(1, auto_reset=False)
    with pytest.raises(EnvError, match="must return a tensordict"):
        Counter().rollout(1, lambda root: None)
    env = Counter()
    env.close()
    with pytest.raises(EnvError, match="closed"):
        env.reset()


def test_a_policy_may_return_only_what_it_wrote() -> None:
    def policy(root: TensorDictBase) -> TensorDictBase:
        return one(TensorDict(batch_size=root.batch_size))

    assert Counter().rollout(2, policy)["next", "count"][0].tolist() == [[1], [2]]


def test_random_rollouts_and_seeds() -> None:
    env = Counter()
    assert env.rand_step(env.reset())["next", "count"].min() >= 1
    assert env.rollout(2).batch_size == (3, 2)
    first, second = env.set_seed(7), env.set_seed(7)
    assert first == second != 7
    assert env.set_seed(7, static_seed=True) == 7
    assert env.fake_tensordict()["next", "count"].shape == (3, 1)


class Forgetful(Counter):
    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        return super()._step(tensordict).exclude("count")


class WrongDtype(Counter):
    def _reset(self, tensordict: TensorDictBase | None, **kwargs: Any) -> TensorDictBase:
        made = super()._reset(tensordict)
        return made.set("count", made["count"].float())


@pytest.mark.parametrize(
    ("env", "reason"),
    [(Forgetful(), "step 1 .* nothing under 'count'"), (WrongDtype(), "reset .* dtype")],
)
def test_the_checker_names_the_call_the_key_and_the_reason(env: EnvBase, reason: str) -> None:
    with pytest.raises(EnvError, match=reason):
        check_env(env)


# Transforms


class Doubled(Transform):
    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value * 2

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value * 2


class Bonus(Transform):
    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        reward = next_tensordict["reward"] + 10
        truncated = next_tensordict["count"] >= 2
        return next_tensordict.set("reward", reward).set("truncated", truncated)

    def transform_reward_spec(self, reward_spec: Composite) -> Composite:
        reward_spec["bonus"] = Unbounded((3, 1))
        return reward_spec


def test_transforms_act_on_the_way_out_and_in() -> None:
    env = TransformedEnv(Counter(), Doubled(["count"], ["twice"], ["action"]))
    step = env.step(one(env.reset()))
    assert step["twice"].tolist() == [[0]] * 3
    assert step["next", "count"].tolist() == [[2]] * 3
    assert step["next", "twice"].tolist() == [[4]] * 3
    # The policy's own action is left as it was.
    assert step["action"].tolist() == [[1]] * 3


def test_a_transform_changes_rewards_flags_and_specs() -> None:
    env = Counter().append_transform(Bonus())
    steps = env.rollout(5, one)
    assert steps["next", "reward"][0].tolist() == [[11.0], [11.0]]
    assert steps["next", "done"][0].tolist() == [[False], [True]]
    assert "bonus" in env.full_reward_spec
    assert "bonus" not in env.base_env.full_reward_spec


def test_transforms_know_what_stands_before_them() -> None:
    first, second = Doubled(["count"], ["twice"]), Bonus()
    env = TransformedEnv(TransformedEnv(Counter(), first), [second])
    assert second.container is env
    assert len(second.parent.transform) == 1  # type: ignore[union-attr]
    assert env.transform[0].parent is env.base_env
    with pytest.raises(EnvError, match="part of another"):
        TransformedEnv(Counter(), second)
    assert TransformedEnv(Counter(), second.clone()).transform[0].parent is not None
    with pytest.raises(InvalidParameter, match="out_keys"):
        Doubled(["a"], ["b", "c"])


# Specs


def test_specs_say_what_is_wrong() -> None:
    spec = Composite(
        a=Bounded(0, 1, (2, 1)),
        b={"kind": Categorical(3, (2,)), "text": NonTensor((2,), example_data="x")},
        ragged=Unbounded((2, -1), dtype=torch.int64),
        shape=(2,),
    )
    zero = spec.zero()
    assert spec.is_in(zero)
    assert spec.is_in(spec.rand())
    assert spec.keys(True, True) == ["a", ("b", "kind"), ("b", "text"), "ragged"]
    bad = zero.clone()
    bad["a"] += 2
    assert spec.problem(bad) == "'a': values between 0 and 1 were expected"
    bad = zero.clone()
    bad["b", "kind"] += 3
    assert "'b': 'kind': classes 0 to 2" in str(spec.problem(bad))
    bad = zero.clone()
    bad["b", "text"] = NonTensorStack(1, 2)
    assert "str was expected, not int" in str(spec.problem(bad))
    assert "batch size (2,)" in str(spec.problem(zero[:1]))
    with pytest.raises(EnvError, match="nothing under 'ragged'"):
        spec.assert_is_in(zero.exclude("ragged"))


def test_a_ragged_batch_fits_a_ragged_dimension() -> None:
    rows = lazy_stack([TensorDict({"ids": torch.arange(n)}) for n in (3, 5)])
    spec = Composite(ids=Unbounded((2, -1), dtype=torch.int64), shape=(2,))
    assert spec.is_in(rows)
    assert "dtype" in str(Composite(ids=Unbounded((2, -1)), shape=(2,)).problem(rows))


def test_specs_are_edited_expanded_and_compared() -> None:
    spec = Composite(shape=(2,))
    spec["x", "y"] = Unbounded((2, 4))
    assert spec["x", "y"].shape == (2, 4)
    assert spec.expand(7, 2)["x", "y"].shape == (7, 2, 4)
    assert spec.clone() == spec
    copy = spec.clone()
    copy.update(Composite(x={"z": Unbounded((2,))}, shape=(2,)))
    assert ("x", "z") in copy
    assert ("x", "z") not in spec
    del copy["x", "y"]
    assert ("x", "y") not in copy
    with pytest.raises(InvalidParameter, match="must start with"):
        spec["bad"] = Unbounded((3,))
    with pytest.raises(KeyError, match="no spec"):
        spec["missing"]
    with pytest.raises(InvalidParameter, match="low <= high"):
        Bounded(1, 0)
    with pytest.raises(InvalidParameter, match="at least one class"):
        Categorical(0)
