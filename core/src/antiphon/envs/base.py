"""The environment loop on tensordicts: reset, step and rollout.

An environment keeps no conversation in itself: all that belongs to a row is in the tensordict that
goes in and comes out, so rows can't leak into each other and any subset of them can be stepped on
its own. Authors write `EnvBase._reset` and `EnvBase._step`; this module fills in what they leave
out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from tensordict import (
    TensorDict,
    TensorDictBase,
    lazy_stack,
)

from antiphon.envs.composite import Composite
from antiphon.envs.entries import DONE_KEYS, has_key, step_mdp, with_entries
from antiphon.envs.row_stacks import alike, flat_rows, stacked
from antiphon.envs.specs import Categorical, Spec, Unbounded
from antiphon.envs.trajectories import OpenConversations
from antiphon.errors import EnvError, InvalidParameter
from antiphon.plugins.events import TRAJECTORY_FINISHED, observers

Policy = Callable[[TensorDictBase], Any]
START = "_start"


class EnvBase:
    """Base class of environments.

    Args:
        device: Where values are made; None is wherever torch makes them.
        batch_size: The number of rows (conversations) that are stepped together.
    """

    # Top-level entries that belong to one step alone: `step_mdp` never carries them over.
    step_keys: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        device: torch.device | str | None = None,
        batch_size: torch.Size | tuple[int, ...] | int | None = None,
    ) -> None:
        if batch_size is None:
            batch_size = ()
        self.batch_size = torch.Size((batch_size,) if isinstance(batch_size, int) else batch_size)
        self.device = None if device is None else torch.device(device)
        self.is_closed = False
        flag = (*self.batch_size, 1)
        self.full_observation_spec = Composite(shape=self.batch_size)
        self.full_action_spec = Composite(shape=self.batch_size)
        self.full_state_spec = Composite(shape=self.batch_size)
        self.full_reward_spec = Composite(reward=Unbounded(flag), shape=self.batch_size)
        self.full_done_spec = Composite(
            {key: Categorical(2, flag, dtype=torch.bool) for key in DONE_KEYS},
            shape=self.batch_size,
        )

    # What authors write.

    def _reset(self, tensordict: TensorDictBase | None, **kwargs: Any) -> TensorDictBase:
        """Return the first observation of every row; ``tensordict`` holds what to start from."""
        raise NotImplementedError(f"{type(self).__name__} has no _reset: write it.")

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the next observation, with reward and done flags where they aren't zero."""
        raise NotImplementedError(f"{type(self).__name__} has no _step: write it.")

    def _set_seed(self, seed: int | None) -> None:
        """Seed the environment's own generators."""

    # Specs.

    @property
    def observation_spec(self) -> Composite:
        """The spec of what reset and step give."""
        return self.full_observation_spec

    @property
    def state_spec(self) -> Composite:
        """The spec of what reset takes."""
        return self.full_state_spec

    @property
    def action_spec(self) -> Spec:
        """The spec of what the policy writes: the leaf itself where there is only one."""
        return _single(self.full_action_spec)

    @property
    def reward_spec(self) -> Spec:
        """The spec of the reward: the leaf itself where there is only one."""
        return _single(self.full_reward_spec)

    @property
    def done_spec(self) -> Composite:
        """The spec of done, terminated and truncated."""
        return self.full_done_spec

    @property
    def input_spec(self) -> Composite:
        """State and action specs together."""
        return Composite(
            full_state_spec=self.full_state_spec,
            full_action_spec=self.full_action_spec,
            shape=self.batch_size,
        )

    @property
    def output_spec(self) -> Composite:
        """Observation, reward and done specs together."""
        return Composite(
            full_observation_spec=self.full_observation_spec,
            full_reward_spec=self.full_reward_spec,
            full_done_spec=self.full_done_spec,
            shape=self.batch_size,
        )

    @property
    def specs(self) -> Composite:
        """All specs."""
        return Composite(
            input_spec=self.input_spec, output_spec=self.output_spec, shape=self.batch_size
        )

    @property
    def action_keys(self) -> list[Any]:
        """The keys that the policy must have written when `step` is called."""
        return self.full_action_spec.keys(True, True)

    @property
    def reward_keys(self) -> list[Any]:
        """The keys of the rewards."""
        return self.full_reward_spec.keys(True, True)

    @property
    def done_keys(self) -> list[Any]:
        """The keys of the done flags."""
        return self.full_done_spec.keys(True, True)

    # The loop.

    def reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        """Start conversations.

        Args:
            tensordict: What to start from, ``[*batch]``. A bool entry ``"_reset"`` ``[*batch]`` or
                ``[*batch, 1]`` names the rows to start again; the others stay as they are. What
                grows with the steps (an entry that is state and observation) starts again as it
                stands under ``"_start"``.
            **kwargs: Handed to the environment's own reset.

        Returns:
            The input's entries and the first observation, ``[*batch]``; the input is left as it is.
        """
        self._check_open()
        if tensordict is not None and has_key(tensordict, "_reset"):
            return self._partial_reset(tensordict, **kwargs)
        result = self._reset_and_complete(tensordict, **kwargs)
        return result if tensordict is None else result.exclude(*self._reward_entries())

    def _reset_and_complete(
        self, tensordict: TensorDictBase | None, **kwargs: Any
    ) -> TensorDictBase:
        result = self._reset(tensordict, **kwargs)
        growing = [key for key in self.full_state_spec if key in self.full_observation_spec]
        if growing:
            # The steps write over what the row started from; it is kept for when it starts again.
            result.set(START, result.select(*growing))
        if tensordict is not None:
            result = with_entries(result, tensordict, ("next", *DONE_KEYS))
        self._complete_flags(result)
        return result

    def step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Take one step in every row.

        Args:
            tensordict: The observation and what the policy wrote, ``[*batch]``.

        Returns:
            ``tensordict`` itself, with observation, reward and flags under ``"next"``.

        Raises:
            EnvError: The policy's entry is missing, or a conversation had already ended.
        """
        self._check_open()
        tensordict.set("next", self._step_and_complete(tensordict))
        return tensordict

    def _step_and_complete(self, tensordict: TensorDictBase) -> TensorDictBase:
        following = self._step(tensordict)
        batch = following.batch_size
        for key in self.reward_keys:
            present = (
                has_key(following, key) if isinstance(key, str) else key in following.keys(True)
            )
            if not present:
                spec = self.full_reward_spec[key].expand(
                    *batch, *self.full_reward_spec[key].shape[len(self.batch_size) :]
                )
                following.set(key, spec.zero())
        self._complete_flags(following)
        return following

    def _complete_flags(self, tensordict: TensorDictBase) -> None:
        """Fill in missing flags; done is always terminated or truncated."""
        flags = {key: tensordict.get(key, None) for key in DONE_KEYS}
        shape = (*tensordict.batch_size, 1)
        for key in ("terminated", "truncated"):
            if flags[key] is None:
                if key == "terminated" and flags["done"] is not None:
                    flags[key] = flags["done"]
                    if flags["truncated"] is not None:
                        flags[key] = flags[key] & ~flags["truncated"]
                else:
                    flags[key] = torch.zeros(shape, dtype=torch.bool, device=self.device)
        flags["done"] = flags["terminated"] | flags["truncated"]
        for key, value in flags.items():
            tensordict.set(key, value)

    def _reward_entries(self) -> list[str]:
        """Return the top-level entries that hold rewards and nothing that is observed."""
        observed = self.full_observation_spec
        return [key for key in self.full_reward_spec if key not in observed]

    def _partial_reset(self, tensordict: TensorDictBase, **kwargs: Any) -> TensorDictBase:
        mask = cast("torch.Tensor", tensordict.get("_reset")).reshape(-1)
        shape = tensordict.batch_size
        if mask.numel() != shape.numel():
            raise EnvError(
                f"A partial reset needs one flag for each row, not a '_reset' of {mask.numel()} flags "
                f"for batch size {tuple(shape)}."
            )
        rest = tensordict.exclude("_reset", "next")
        chosen = [index for index, flag in enumerate(mask.tolist()) if flag]
        if not chosen:
            return rest
        if not shape:
            return self._reset_and_complete(self._restarted(rest), **kwargs)
        rows = flat_rows(rest)
        begun = lazy_stack([rows[index] for index in chosen])
        fresh = self._reset_and_complete(self._restarted(begun), **kwargs)
        for index, row in zip(chosen, fresh.unbind(0), strict=True):
            rows[index] = row
        return stacked(alike(rows), shape)

    def _restarted(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return what rows start again from: all but what their conversation has made."""
        state = set(self.full_state_spec.keys())
        made = {"next", "_reset", *self.step_keys, *self._reward_entries(), *DONE_KEYS}
        for spec in (self.full_observation_spec, self.full_action_spec):
            made.update(spec.keys())
        start = cast("TensorDictBase | None", tensordict.get(START, None))
        if start is None:
            return tensordict.exclude(*made.difference(state))
        rest = tensordict.exclude(*made.difference(state), START, *start.keys())
        return with_entries(rest, start.select(*state, strict=False), ())

    def step_mdp(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the root of the next step; see the function of the same name.

        Args:
            tensordict: A step, ``[*batch]``, with ``"next"``.

        Raises:
            EnvError: There is no step in it.
        """
        return step_mdp(
            tensordict,
            action_keys=[*self.action_keys, *self.step_keys],
            reward_keys=self._reward_entries(),
        )

    def step_and_maybe_reset(
        self, tensordict: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """Step, then start ended rows again; returns the step and the root of the next one.

        Args:
            tensordict: The observation and what the policy wrote, ``[*batch]``.
        """
        self.step(tensordict)
        root = self.step_mdp(tensordict)
        return tensordict, self.maybe_reset(root)

    def maybe_reset(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Start the rows again whose ``"done"`` is set.

        Args:
            tensordict: A root, ``[*batch]``, with ``"done"`` ``[*batch, 1]``.
        """
        done = cast("torch.Tensor", tensordict.get("done"))
        if not bool(done.any()):
            return tensordict
        if bool(done.all()):
            return self.reset(self._restarted(tensordict))
        marked = tensordict.copy()
        marked.set("_reset", done.reshape(tensordict.batch_size))
        return self.reset(marked)

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Write a random action into ``tensordict`` (a new one if None) and return it."""
        if tensordict is None:
            tensordict = TensorDict(batch_size=self.batch_size, device=self.device)
        return tensordict.update(self.full_action_spec.rand())

    def rand_step(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Take a random action and step.

        Args:
            tensordict: A root, ``[*batch]``; a new one if None.
        """
        return self.step(self.rand_action(tensordict))

    def rollout(
        self,
        max_steps: int,
        policy: Policy | None = None,
        callback: Callable[[EnvBase, TensorDictBase], None] | None = None,
        *,
        auto_reset: bool = True,
        break_when_any_done: bool = True,
        break_when_all_done: bool = False,
        return_contiguous: bool = False,
        tensordict: TensorDictBase | None = None,
    ) -> TensorDictBase:
        """Run ``policy`` for at most ``max_steps`` steps.

        Args:
            max_steps: At least 1.
            policy: Reads the root tensordict and returns it with its action; None acts at random.
            callback: Called with the environment and each finished step.
            auto_reset: Whether to reset first, from ``tensordict``; else ``tensordict`` is the
                root.
            break_when_any_done: Stop after the first step in which a row ended. If False, ended
                rows are started again.
            break_when_all_done: Go on until every row ended; ended rows wait, with reward 0, and
                the policy does not see them. Overrides ``break_when_any_done``.
            return_contiguous: Whether to copy the steps into dense tensors; ragged entries can't
                be.
            tensordict: What to reset from, or the root.

        Returns:
            The steps, stacked lazily as the last batch dimension: ``[*batch, steps]``.
        """
        if max_steps < 1:
            raise InvalidParameter(f"rollout needs max_steps of at least 1, not {max_steps}.")
        if auto_reset:
            root = self.reset(tensordict)
        elif tensordict is None:
            raise InvalidParameter("rollout with auto_reset=False needs the root in `tensordict`.")
        else:
            root = tensordict
        act = self.rand_action if policy is None else policy
        steps: list[TensorDictBase] = []
        conversations = OpenConversations() if observers(TRAJECTORY_FINISHED) else None
        while True:
            go = self._step_active if break_when_all_done else self._step_all
            step = go(root, act)
            steps.append(step)
            if conversations is not None:
                conversations.add(step)
            if callback is not None:
                callback(self, step)
            done = cast("torch.Tensor", step.get(("next", "done")))
            ended = done.all() if break_when_all_done else break_when_any_done and done.any()
            if len(steps) == max_steps or bool(ended):
                break
            root = self.step_mdp(step)
            if not break_when_all_done:
                root = self.maybe_reset(root)
        stacked = lazy_stack(steps, len(self.batch_size))
        return stacked.contiguous() if return_contiguous else stacked

    def _step_all(self, root: TensorDictBase, act: Policy) -> TensorDictBase:
        return self.step(acted(act, root))

    def _step_active(self, root: TensorDictBase, act: Policy) -> TensorDictBase:
        done = cast("torch.Tensor", root.get("done")).reshape(-1)
        if not bool(done.any()):
            return self.step(acted(act, root))
        if len(root.batch_size) != 1:
            raise EnvError("break_when_all_done needs an environment with one batch dimension.")
        active = (~done).nonzero()[:, 0]
        stepped = self.step(acted(act, root[active]))
        rows = [self._waiting(row) for row in root.unbind(0)]
        for index, row in zip(active.tolist(), stepped.unbind(0), strict=True):
            rows[index] = row
        return lazy_stack(rows)

    def _waiting(self, row: TensorDictBase) -> TensorDictBase:
        """Return the step of a row that has ended: nothing changes, reward 0."""
        row = row.copy()
        following = row.select(*self.full_observation_spec.keys(), *DONE_KEYS, strict=False)
        for key, spec in self.full_reward_spec.items():
            following.set(key, spec.expand(*spec.shape[len(self.batch_size) :]).zero())
        row.set("next", following)
        return row

    def set_seed(self, seed: int | None = None, *, static_seed: bool = False) -> int | None:
        """Seed the environment.

        Args:
            seed: Of the environment's own generators; None leaves them as they are.
            static_seed: Whether the next environment gets the same seed.

        Returns:
            A seed for the next environment of a row: the same one if ``static_seed``, else a new
            one.
        """
        self._set_seed(seed)
        if seed is None or static_seed:
            return seed
        generator = torch.Generator().manual_seed(seed)
        return int(torch.randint(0, 2**31 - 1, (), generator=generator))

    def append_transform(self, transform: Any) -> Any:
        """Return a `TransformedEnv` of this environment and ``transform``."""
        from antiphon.envs.transformed import TransformedEnv

        return TransformedEnv(self, transform)

    def fake_tensordict(self) -> TensorDictBase:
        """Return a tensordict of zeros with every key of a step."""
        root = self.full_observation_spec.zero()
        for spec in (self.full_state_spec, self.full_done_spec, self.full_action_spec):
            root.update(spec.zero())
        following = self.full_observation_spec.zero()
        for spec in (self.full_reward_spec, self.full_done_spec):
            following.update(spec.zero())
        return cast("TensorDictBase", root.set("next", following))

    def close(self) -> None:
        """Free what the environment holds; it can't be used afterwards."""
        self.is_closed = True

    def _check_open(self) -> None:
        if self.is_closed:
            raise EnvError(f"{type(self).__name__} is closed; build a new one.")


def acted(act: Policy, root: TensorDictBase) -> TensorDictBase:
    """Return ``root`` with what the policy ``act`` wrote."""
    result = act(root)
    if not isinstance(result, TensorDictBase):
        raise EnvError(
            f"The policy must return a tensordict with its action, not {type(result).__name__}."
        )
    if result is not root:
        # A policy that returns only what it wrote leaves the rest where it was.
        result = with_entries(result, root, ())
    return result


def _single(spec: Composite) -> Spec:
    leaves = spec.keys(True, True)
    return cast("Spec", spec[leaves[0]]) if len(leaves) == 1 else spec
