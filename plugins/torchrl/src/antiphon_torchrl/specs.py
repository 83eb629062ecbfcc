"""Antiphon's specs as TorchRL's."""

from __future__ import annotations

from typing import Any

import torchrl.data as rl
from antiphon.envs.composite import Composite
from antiphon.envs.specs import Bounded, Categorical, NonTensor, Spec, Unbounded
from antiphon.errors import InvalidParameter


def to_torchrl_spec(spec: Spec) -> Any:
    """Return the spec of TorchRL that says the same; -1 stands for ragged dimensions there too.

    Raises:
        InvalidParameter: There is none.
    """
    where: dict[str, Any] = {"shape": spec.shape, "device": spec.device}
    if isinstance(spec, Composite):
        entries = {key: to_torchrl_spec(each) for key, each in spec.items() if each is not None}
        return rl.Composite(entries, data_cls=spec.data_cls, **where)
    if isinstance(spec, NonTensor):
        return rl.NonTensor(example_data=spec.example_data, **where)
    where["dtype"] = spec.dtype
    if isinstance(spec, Categorical):
        return rl.Categorical(spec.n, **where)
    if isinstance(spec, Bounded):
        return rl.Bounded(low=spec.low, high=spec.high, **where)
    if isinstance(spec, Unbounded):
        return rl.Unbounded(**where)
    raise InvalidParameter(f"TorchRL has no spec like {type(spec).__name__}.")
