"""Checking an environment against its own specs."""

from __future__ import annotations

from typing import cast

import torch
from tensordict import TensorDictBase

from antiphon.envs.base import EnvBase, Policy, acted
from antiphon.envs.composite import Composite
from antiphon.envs.entries import DONE_KEYS, has_key
from antiphon.errors import EnvError


def check_env(
    env: EnvBase,
    tensordict: TensorDictBase | None = None,
    policy: Policy | None = None,
    *,
    steps: int = 2,
) -> None:
    """Reset and step an environment and compare all it gives with its specs.

    Args:
        env: The environment.
        tensordict: What to reset from, where it needs something.
        policy: What acts; None acts at random.
        steps: How many steps to take at most.

    Raises:
        EnvError: Something does not fit; the message names the call, the key and the reason.
    """
    root = env.reset(tensordict)
    _check(env, "reset", root, env.full_observation_spec, env.full_done_spec)
    for number in range(steps):
        root = acted(env.rand_action if policy is None else policy, root)
        _check(env, "the policy", root, env.full_action_spec)
        before = root.copy()
        step = env.step(root)
        for key in before.keys():  # noqa: SIM118 (a tensordict yields its rows)
            flag = key in DONE_KEYS
            if not has_key(step, key) or (flag and not torch.equal(step.get(key), before.get(key))):
                raise EnvError(f"{type(env).__name__}.step changed the entry {key!r} of its root.")
        following = step.get("next")
        _check(
            env,
            f"step {number + 1}",
            following,
            env.full_observation_spec,
            env.full_reward_spec,
            env.full_done_spec,
        )
        flags = [cast("torch.Tensor", following.get(key)) for key in DONE_KEYS]
        if not torch.equal(flags[0], flags[1] | flags[2]):
            raise EnvError(f"{type(env).__name__}: done is not terminated or truncated.")
        if bool(flags[0].any()):
            break
        root = env.step_mdp(step)
        _check(env, "step_mdp", root, env.full_observation_spec)


def _check(env: EnvBase, call: str, data: TensorDictBase, *specs: Composite) -> None:
    if data.batch_size[: len(env.batch_size)] != env.batch_size:
        raise EnvError(
            f"{type(env).__name__}: {call} gave batch size {tuple(data.batch_size)}, the "
            f"environment says {tuple(env.batch_size)}."
        )
    for spec in specs:
        problem = spec.problem(data)
        if problem is not None:
            raise EnvError(f"{type(env).__name__}: {call} does not fit the specs: {problem}.")
