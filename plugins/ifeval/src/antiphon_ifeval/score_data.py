"""The scores of a batch of answers, as a TensorClass."""

# mypy: disable-error-code="type-arg,name-defined"

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from antiphon.envs.composite import Composite
from antiphon.envs.specs import Categorical, Unbounded
from tensordict import TensorClass


class IFEvalScoreData(TensorClass["nocast"]):
    """The scores of a batch of answers.

    Attributes:
        prompt_level_strict_acc: Whether an answer keeps to all its instructions, bool [*batch, 1].
        inst_level_strict_acc: The share of them that it keeps to, float32 [*batch, 1].
        prompt_level_loose_acc: As the first, of the answer's loose forms.
        inst_level_loose_acc: As the second, of the answer's loose forms.
    """

    prompt_level_strict_acc: torch.Tensor | None = None
    inst_level_strict_acc: torch.Tensor | None = None
    prompt_level_loose_acc: torch.Tensor | None = None
    inst_level_loose_acc: torch.Tensor | None = None

    @classmethod
    def default_spec(
        cls, shape: torch.Size | tuple[int, ...], device: torch.device | None = None
    ) -> Composite:
        """Return the spec of scores of batch size ``shape``."""
        size = (*shape, 1)
        return Composite(
            prompt_level_strict_acc=Categorical(2, size, torch.bool, device),
            inst_level_strict_acc=Unbounded(size, device=device),
            prompt_level_loose_acc=Categorical(2, size, torch.bool, device),
            inst_level_loose_acc=Unbounded(size, device=device),
            shape=shape,
            data_cls=cls,
        )


def score_data(columns: Mapping[str, Any], batch_size: torch.Size) -> Any:
    """Return `IFEvalScoreData` of columns ``[*batch, 1]``."""
    return IFEvalScoreData(**columns, batch_size=batch_size)
