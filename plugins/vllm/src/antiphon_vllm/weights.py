"""Which weights an engine takes: all of a model's, under its names, each of its shape.

An engine joins several weights into one (query, key and value, for example), so a part of them can't
be replaced alone: what is missing would be garbage. So a set is checked before the first is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from antiphon.errors import BackendError


class Checkpoint:
    """The names and shapes of a model's weights, and its form on disk.

    Args:
        config: The model's configuration.
    """

    def __init__(self, config: Any) -> None:
        from transformers import AutoModelForCausalLM

        with torch.device("meta"):
            make: Any = AutoModelForCausalLM.from_config
            self._model: Any = make(config)
        self._shapes = {name: value.shape for name, value in self._model.state_dict().items()}
        self._head, self._embedding = self._tied_pair()

    def _tied_pair(self) -> tuple[str | None, str | None]:
        """Return the names of head and embedding where one weight serves as both."""
        head, embedding = self._model.get_output_embeddings(), self._model.get_input_embeddings()
        if head is None or not self._model.config.get_text_config().tie_word_embeddings:
            return None, None
        names = {id(module): name for name, module in self._model.named_modules()}
        return f"{names[id(head)]}.weight", f"{names[id(embedding)]}.weight"

    def prepare(
        self, weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]
    ) -> list[tuple[str, torch.Tensor]]:
        """Return the weights as an engine takes them.

        Args:
            weights: A model's ``state_dict()``, or its items.

        Raises:
            BackendError: One is missing, unknown, or of another shape; a head and an embedding that
                are one weight in the engine's model differ.
        """
        given = dict(weights)
        self._check(given)
        if self._head is not None and self._head in given:
            head = given.pop(self._head)
            embedding = given[str(self._embedding)]
            if head.data_ptr() != embedding.data_ptr() and not torch.equal(head, embedding):
                raise BackendError(
                    f"{self._head} and {self._embedding} are one weight in the engine's model, and two "
                    "different ones were sent; untie them there too (tie_word_embeddings=False in its "
                    "configuration)."
                )
        return self._as_on_disk(given)

    def _check(self, given: Mapping[str, torch.Tensor]) -> None:
        for name, value in given.items():
            if name not in self._shapes:
                raise BackendError(
                    f"The model has no weight {name!r}; send it under the names of its state_dict()."
                )
            if value.shape != self._shapes[name]:
                raise BackendError(
                    f"The weight {name!r} has shape {tuple(value.shape)}, the model's "
                    f"{tuple(self._shapes[name])}."
                )
        missing = [name for name in self._shapes if name not in given and name != self._head]
        if missing:
            raise BackendError(
                f"{len(missing)} weights are missing, the first is {missing[0]!r}; send all of a "
                "model's state_dict(): the engine joins several weights into one and can't replace a "
                "part."
            )

    def _as_on_disk(self, given: dict[str, torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
        """Undo what transformers does to a checkpoint on loading, such as joining experts."""
        from transformers.core_model_loading import revert_weight_conversion

        return list(revert_weight_conversion(self._model, given).items())
