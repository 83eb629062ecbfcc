"""TorchRL's transforms around Antiphon's environments, ragged rows among them.

TorchRL's own `TransformedEnv` makes the root of the next step entry by entry and merges rows that
start again with `torch.where`; rows of different length, texts and histories can be neither stacked
nor merged so. Here both are done row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensordict import TensorDictBase, lazy_stack
from torchrl.envs import TransformedEnv


class RaggedTransformedEnv(TransformedEnv):  # type: ignore[misc]
    """What `TorchRLEnv.append_transform` returns: TorchRL's transforms in TorchRL's order."""

    def reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        """Start conversations, or those again that ``"_reset"`` names."""
        kwargs = {
            key: kwargs[key] for key in kwargs if key not in ("set_state", "select_reset_only")
        }
        mask: Any = None if tensordict is None else tensordict.get("_reset", None)
        source = self.transform._reset_env_preprocess(tensordict)
        fresh = self.base_env.reset(source, **kwargs)
        if mask is None:
            begun: TensorDictBase = self.transform._reset(
                fresh.empty() if source is None else source, fresh
            )
            return begun
        rows = list(fresh.unbind(0))
        chosen = mask.reshape(-1).nonzero()[:, 0].tolist()
        if chosen:
            anew = lazy_stack([rows[row] for row in chosen])
            anew = self.transform._reset(anew.empty(), anew)
            for row, part in zip(chosen, anew.unbind(0), strict=True):
                rows[row] = part
        stacked: TensorDictBase = lazy_stack(rows)
        return stacked

    def maybe_reset(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Start the rows again that have ended."""
        done: Any = tensordict.get("done")
        if not bool(done.any()):
            return tensordict
        marked = tensordict.copy()
        marked.set("_reset", done.reshape(tensordict.batch_size))
        return self.reset(marked)

    def step_mdp(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        """Return the root of the next step."""
        root: TensorDictBase = self.base_env.step_mdp(next_tensordict)
        return root

    @property
    def _step_mdp(self) -> Callable[[TensorDictBase], TensorDictBase]:
        return self.step_mdp
