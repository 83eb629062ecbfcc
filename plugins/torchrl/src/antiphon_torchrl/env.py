"""`TorchRLEnv`: one of Antiphon's environments behind TorchRL's `EnvBase`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphon.envs.base import EnvBase
from antiphon.errors import InvalidParameter
from tensordict import TensorDictBase
from torchrl.envs import EnvBase as TorchRLEnvBase

from antiphon_torchrl.specs import to_torchrl_spec


class TorchRLEnv(TorchRLEnvBase):  # type: ignore[misc]
    """An environment of Antiphon for TorchRL's collectors, transforms and losses.

    Keys, values and specs are the environment's own: TorchRL's names are Antiphon's. What is ragged
    stays ragged, so collect with ``return_contiguous=False``.

    Args:
        env: The environment; it is stepped by this one from here on.

    Attributes:
        env: The same.
    """

    def __init__(self, env: EnvBase) -> None:
        if not isinstance(env, EnvBase):
            raise InvalidParameter(
                f"to_torchrl takes an environment of Antiphon, not {type(env).__name__}."
            )
        super().__init__(device=env.device, batch_size=env.batch_size)
        self.env = env
        self.observation_spec = to_torchrl_spec(env.full_observation_spec)
        self.state_spec = to_torchrl_spec(env.full_state_spec)
        self.full_action_spec = to_torchrl_spec(env.full_action_spec)
        self.full_reward_spec = to_torchrl_spec(env.full_reward_spec)
        self.full_done_spec = to_torchrl_spec(env.full_done_spec)

    # The loop is Antiphon's: TorchRL's writes rows over each other with `torch.where`, which ragged
    # rows, texts and histories don't have.

    def reset(
        self,
        tensordict: TensorDictBase | None = None,
        *,
        set_state: bool | None = None,
        select_reset_only: bool = False,
        **kwargs: Any,
    ) -> TensorDictBase:
        """Start conversations, or those again that ``"_reset"`` names."""
        del set_state, select_reset_only  # which data a row starts from, the environment knows
        return self.env.reset(tensordict, **kwargs)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        kwargs.pop("set_state", None)
        return self.env.reset(tensordict, **kwargs)

    def step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Take one step in every row."""
        return self.env.step(tensordict)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        return self.env._step_and_complete(tensordict)

    def step_mdp(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        """Return the root of the next step."""
        return self.env.step_mdp(next_tensordict)

    @property
    def _step_mdp(self) -> Callable[[TensorDictBase], TensorDictBase]:
        return self.env.step_mdp

    def _post_step_mdp_hooks(
        self, tensordict: TensorDictBase, tensordict_: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """Leave nothing of one step in the root of the next.

        Inside of TorchRL's transforms the root is made by TorchRL, which carries over what it does
        not know: masks, log-probs and responses of the step before.
        """
        following = tensordict.get("next")
        for key in self.env.step_keys:
            if key in following.keys():  # noqa: SIM118 (a tensordict yields its rows)
                tensordict_.set(key, following.get(key))
            elif key in tensordict_.keys():  # noqa: SIM118
                tensordict_.del_(key)
        return tensordict, tensordict_

    def maybe_reset(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Start the rows again that have ended."""
        return self.env.maybe_reset(tensordict)

    def append_transform(self, transform: Any) -> Any:
        """Return this environment with a transform of TorchRL around it, in any mode."""
        from antiphon_torchrl.transformed import RaggedTransformedEnv

        return RaggedTransformedEnv(self, transform)

    def _set_seed(self, seed: int | None) -> None:
        self.env.set_seed(seed)

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Write an answer without meaning; what a prompt looks like, only the environment knows."""
        return self.env.rand_action(tensordict)

    def close(self, **kwargs: Any) -> None:
        """Close both environments."""
        self.env.close()
        super().close(**kwargs)


def to_torchrl(env: EnvBase) -> TorchRLEnv:
    """Return ``env`` as an environment of TorchRL, see `TorchRLEnv`."""
    return TorchRLEnv(env)
