"""The entries of a step's tensordict: what is there, and what is carried over to the next step."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, cast

from tensordict import LazyStackedTensorDict, TensorDictBase, lazy_stack

from antiphon.errors import EnvError

DONE_KEYS = ("done", "terminated", "truncated")


def has_key(tensordict: TensorDictBase, key: str) -> bool:
    """Return whether there is an entry under the top-level ``key``."""
    return key in tensordict.keys()  # noqa: SIM118 (a tensordict can't be searched itself)


def with_entries(
    new: TensorDictBase, old: TensorDictBase, without: Container[str]
) -> TensorDictBase:
    """Return ``new`` with those entries of ``old`` that it lacks, less ``without``."""
    lazy = isinstance(new, LazyStackedTensorDict) or isinstance(old, LazyStackedTensorDict)
    if lazy and new.batch_dims and new.batch_size == old.batch_size:
        # Row by row: entries may be ragged.
        pairs = zip(new.unbind(0), old.unbind(0), strict=True)
        return lazy_stack([with_entries(mine, other, without) for mine, other in pairs])
    result = new.copy()
    for key, value in old.items():
        if key not in without and not has_key(result, key):
            result.set(key, value)
    return result


def step_mdp(
    tensordict: TensorDictBase,
    *,
    keep_other: bool = True,
    exclude_reward: bool = True,
    exclude_done: bool = False,
    exclude_action: bool = True,
    action_keys: Iterable[Any] = ("action",),
    reward_keys: Iterable[Any] = ("reward",),
) -> TensorDictBase:
    """Return the root of the next step: what is under ``"next"``, and what it did not replace.

    An entry that stands on both sides is taken whole from ``"next"``: a container (history, text,
    tokens) never keeps a response of the step before.

    Args:
        tensordict: A step, with ``"next"``.
        keep_other: Whether entries of the root that ``"next"`` lacks are carried over.
        exclude_reward: Whether rewards are left out.
        exclude_done: Whether done flags are left out.
        exclude_action: Whether ``action_keys`` of the root are left out.
        action_keys: The keys that the policy wrote.
        reward_keys: The keys of the rewards.
    """
    following = tensordict.get("next", None)
    if following is None:
        raise EnvError("step_mdp needs a step: call env.step first, there is no 'next' entry.")
    dropped = {"next", "_reset"}
    if exclude_reward:
        dropped.update(key for key in reward_keys if isinstance(key, str))
    if exclude_done:
        dropped.update(DONE_KEYS)
    result = following.exclude(*dropped) if dropped else following.copy()
    if keep_other:
        if exclude_action:
            dropped.update(key if isinstance(key, str) else key[0] for key in action_keys)
        result = with_entries(result, tensordict, dropped)
    return cast("TensorDictBase", result)
