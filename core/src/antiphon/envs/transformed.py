"""Transforms: pieces of behaviour put around an environment.

A transform sees what reset and step give (`_reset`, `_step`, or `_call` for both), what goes into a
step (`_inv_call`) and the specs. Going out they act in order, going in in reverse order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from tensordict import TensorDictBase

from antiphon.envs.base import EnvBase
from antiphon.envs.composite import Composite
from antiphon.errors import EnvError, InvalidParameter


class Transform:
    """Base class of transforms; does nothing by itself.

    Args:
        in_keys: Keys that `_apply_transform` reads on the way out.
        out_keys: Keys that it writes; ``in_keys`` if None.
        in_keys_inv: Keys that `_inv_apply_transform` writes for the environment.
        out_keys_inv: Keys that it reads from the policy; ``in_keys_inv`` if None.
    """

    def __init__(
        self,
        in_keys: Sequence[Any] | None = None,
        out_keys: Sequence[Any] | None = None,
        in_keys_inv: Sequence[Any] | None = None,
        out_keys_inv: Sequence[Any] | None = None,
    ) -> None:
        self.in_keys = list(in_keys or ())
        self.out_keys = list(self.in_keys if out_keys is None else out_keys)
        self.in_keys_inv = list(in_keys_inv or ())
        self.out_keys_inv = list(self.in_keys_inv if out_keys_inv is None else out_keys_inv)
        self._container: TransformedEnv | None = None
        for read, written in (
            (self.in_keys, self.out_keys),
            (self.in_keys_inv, self.out_keys_inv),
        ):
            if len(read) != len(written):
                raise InvalidParameter(
                    f"{type(self).__name__} needs as many out_keys as in_keys, not {len(written)} "
                    f"for {len(read)}."
                )

    # What authors write.

    def _apply_transform(self, value: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has in_keys and no _apply_transform.")

    def _inv_apply_transform(self, value: Any) -> Any:
        return value

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        """Change what reset or step gives."""
        for read, written in zip(self.in_keys, self.out_keys, strict=True):
            value = next_tensordict.get(read, None)
            if value is not None:
                next_tensordict.set(written, self._apply_transform(value))
        return next_tensordict

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        """Change what step gives; ``tensordict`` is the root with the policy's action."""
        del tensordict
        return self._call(next_tensordict)

    def _reset(
        self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase
    ) -> TensorDictBase:
        """Change what reset gives; ``tensordict`` is what it was asked to start from."""
        del tensordict
        return self._call(tensordict_reset)

    def _reset_env_preprocess(self, tensordict: TensorDictBase | None) -> TensorDictBase | None:
        """Change what the environment is reset from."""
        return tensordict

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Change what goes into a step."""
        for written, read in zip(self.in_keys_inv, self.out_keys_inv, strict=True):
            value = tensordict.get(read, None)
            if value is not None:
                tensordict.set(written, self._inv_apply_transform(value))
        return tensordict

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        """Return the observation spec as it is outside.

        Args:
            observation_spec: What it is inside; it may be changed in place.
        """
        return observation_spec

    def transform_reward_spec(self, reward_spec: Composite) -> Composite:
        """Return the reward spec as it is outside.

        Args:
            reward_spec: What it is inside; it may be changed in place.
        """
        return reward_spec

    def transform_done_spec(self, done_spec: Composite) -> Composite:
        """Return the done spec as it is outside.

        Args:
            done_spec: What it is inside; it may be changed in place.
        """
        return done_spec

    def transform_action_spec(self, action_spec: Composite) -> Composite:
        """Return the action spec as it is outside.

        Args:
            action_spec: What it is inside; it may be changed in place.
        """
        return action_spec

    def transform_state_spec(self, state_spec: Composite) -> Composite:
        """Return the state spec as it is outside.

        Args:
            state_spec: What it is inside; it may be changed in place.
        """
        return state_spec

    def set_seed(self, seed: int | None) -> None:
        """Seed the transform's own generators.

        Args:
            seed: For generators of its own; None leaves them as they are.
        """

    def close(self) -> None:
        """Free what the transform holds."""

    # What the environment uses.

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Apply the transform to stored data, such as a sample of a replay buffer.

        Args:
            tensordict: Data ``[*batch]`` with what `in_keys` name; changed in place.
        """
        return self._call(tensordict)

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        return self.forward(tensordict)

    def inv(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Apply the inverse to stored data.

        Args:
            tensordict: Data ``[*batch]`` with what `in_keys_inv` name; changed in place.
        """
        return self._inv_call(tensordict)

    @property
    def container(self) -> TransformedEnv | None:
        """The environment that this transform is part of, or None."""
        return self._container

    @property
    def parent(self) -> EnvBase | None:
        """The environment as this transform sees it: the base and the transforms before it."""
        return None if self._container is None else self._container.before(self)

    def set_container(self, container: TransformedEnv) -> None:
        """Make this transform part of ``container``.

        Raises:
            EnvError: It is part of another one already.
        """
        if self._container is not None and self._container is not container:
            raise EnvError(
                f"This {type(self).__name__} is part of another environment; make a new one or "
                "clone it."
            )
        self._container = container

    def clone(self) -> Transform:
        """Return a copy that is part of no environment."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new._container = None
        return new


class Compose(Transform):
    """Several transforms as one; an environment takes them in one by one."""

    def __init__(self, *transforms: Transform) -> None:
        super().__init__()
        self.transforms: list[Transform] = list(transforms)

    def __len__(self) -> int:
        return len(self.transforms)

    def __getitem__(self, index: int) -> Transform:
        return self.transforms[index]

    def __iter__(self) -> Any:
        return iter(self.transforms)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Apply the transforms to stored data, one after the other.

        Args:
            tensordict: Data ``[*batch]``; changed in place.
        """
        for transform in self.transforms:
            tensordict = transform(tensordict)
        return tensordict


class TransformedEnv(EnvBase):
    """An environment and transforms around it.

    Attributes it lacks are the base environment's.

    Args:
        env: The environment; if it is itself transformed, the transforms are joined.
        transform: One transform, or several.
    """

    def __init__(
        self, env: EnvBase, transform: Transform | Iterable[Transform] | None = None
    ) -> None:
        if not isinstance(env, EnvBase):
            raise InvalidParameter(f"An environment was expected, not {type(env).__name__}.")
        self.base_env = env
        self.transform = Compose()
        self.is_closed = False
        self.step_keys = env.step_keys
        inherited: list[Transform] = []
        if isinstance(env, TransformedEnv):
            self.base_env = env.base_env
            inherited = [part.clone() for part in env.transform]
        if transform is None:
            added: list[Transform] = []
        elif isinstance(transform, Transform):
            added = [transform]
        elif isinstance(transform, Iterable):
            added = list(transform)
        else:
            raise InvalidParameter(f"A Transform was expected, not {type(transform).__name__}.")
        for part in [*inherited, *added]:
            self.append_transform(part)

    def append_transform(self, transform: Transform) -> TransformedEnv:
        """Put ``transform`` outermost; returns self."""
        return self.insert_transform(len(self.transform), transform)

    def insert_transform(self, index: int, transform: Transform) -> TransformedEnv:
        """Put ``transform`` at place ``index``, 0 is next to the environment; returns self."""
        if not isinstance(transform, Transform):
            raise InvalidParameter(f"A Transform was expected, not {type(transform).__name__}.")
        parts = transform.transforms if isinstance(transform, Compose) else [transform]
        for part in parts:
            part.set_container(self)
        self.transform.transforms[index:index] = parts
        return self

    def before(self, transform: Transform) -> EnvBase:
        """Return the environment as it is inside of ``transform``."""
        inner = list(self.transform)
        inner = inner[: next(i for i, part in enumerate(inner) if part is transform)]
        if not inner:
            return self.base_env
        view = TransformedEnv(self.base_env)
        view.transform.transforms = inner
        return view

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("base_env", "transform"):
            raise AttributeError(name)
        return getattr(self.base_env, name)

    # Specs: the base environment's, as the transforms change them.

    @property
    def batch_size(self) -> torch.Size:  # type: ignore[override]
        """The base environment's batch size."""
        return self.base_env.batch_size

    @property
    def device(self) -> torch.device | None:  # type: ignore[override]
        """The base environment's device."""
        return self.base_env.device

    def _outer_spec(self, kind: str) -> Composite:
        spec = cast("Composite", getattr(self.base_env, f"full_{kind}_spec")).clone()
        for part in self.transform:
            spec = getattr(part, f"transform_{kind}_spec")(spec)
        return spec

    @property
    def full_observation_spec(self) -> Composite:  # type: ignore[override]
        """What reset and step give."""
        return self._outer_spec("observation")

    @property
    def full_action_spec(self) -> Composite:  # type: ignore[override]
        """What the policy writes."""
        return self._outer_spec("action")

    @property
    def full_state_spec(self) -> Composite:  # type: ignore[override]
        """What reset takes."""
        return self._outer_spec("state")

    @property
    def full_reward_spec(self) -> Composite:  # type: ignore[override]
        """What a step is worth."""
        return self._outer_spec("reward")

    @property
    def full_done_spec(self) -> Composite:  # type: ignore[override]
        """The flags."""
        return self._outer_spec("done")

    # The loop.

    def _reset_and_complete(
        self, tensordict: TensorDictBase | None, **kwargs: Any
    ) -> TensorDictBase:
        # The base environment keeps the entries of what it is reset from.
        for part in reversed(self.transform.transforms):
            tensordict = part._reset_env_preprocess(tensordict)
        result = self.base_env.reset(tensordict, **kwargs)
        for part in self.transform:
            result = part._reset(tensordict, result)
        self._complete_flags(result)
        return result

    def _step_and_complete(self, tensordict: TensorDictBase) -> TensorDictBase:
        # The policy's tensordict stays as it is: transforms write into a copy.
        inner = tensordict.copy()
        for part in reversed(self.transform.transforms):
            inner = part._inv_call(inner)
        following = self.base_env._step_and_complete(inner)
        for part in self.transform:
            following = part._step(inner, following)
        self._complete_flags(following)
        return following

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        return self.base_env.rand_action(tensordict)

    def _set_seed(self, seed: int | None) -> None:
        self.base_env.set_seed(seed)
        for part in self.transform:
            part.set_seed(seed)

    def close(self) -> None:
        for part in self.transform:
            part.close()
        self.base_env.close()
        self.is_closed = True
