"""Which weights an engine takes: all of a model's, under its names, each of its shape.

An engine joins several weights into one (query, key and value, for example), so a part of them can't
be replaced alone: what is missing would be garbage. So a set is checked before the first is touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from antiphon.errors import BackendError

# What torch's wrappers for compiling, sharding, recomputing and many processes put into names.
_WRAPPERS = re.compile(
    r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.|^module\."
)


class Checkpoint:
    """The names and shapes of a model's weights, and its form on disk.

    Args:
        config: The model's configuration.
        trust_remote_code: Whether code that comes with the model may be run.

    Raises:
        BackendError: The engine's weights are not a trainer's: quantised ones, or those of a model
            that transformers does not know.
    """

    def __init__(self, config: Any, *, trust_remote_code: bool = False) -> None:
        if getattr(config, "quantization_config", None):
            raise BackendError(
                f"The engine's checkpoint ({config.architectures}) is stored quantised, and a trainer's "
                "weights can't take the place of its; start the engine from the plain checkpoint (with "
                "quantization=... it quantises that, and all weights that come later, by itself)."
            )
        with torch.device("meta"):
            self._model: Any = _built(config, trust_remote_code)
        self._shapes = {name: value.shape for name, value in self._model.state_dict().items()}
        self._head, self._embedding = self._tied_pair()

    def _tied_pair(self) -> tuple[str | None, str | None]:
        """Return the names of head and embedding where one weight serves as both."""
        head, embedding = self._model.get_output_embeddings(), self._model.get_input_embeddings()
        if head is None or head.weight is not embedding.weight:
            return None, None
        names = {id(module): name for name, module in self._model.named_modules()}
        return f"{names[id(head)]}.weight", f"{names[id(embedding)]}.weight"

    def prepare(
        self, weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]
    ) -> list[tuple[str, torch.Tensor]]:
        """Return the weights as an engine takes them.

        Args:
            weights: A model's ``state_dict()``, or its items; also of a model within torch's wrappers
                (``torch.compile``, ``DistributedDataParallel`` and so on).

        Raises:
            BackendError: One is missing, unknown, spread over devices, or of another shape; a head and
                an embedding that are one weight in the engine's model differ.
        """
        given = {self._plain(name): value for name, value in dict(weights).items()}
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

    def _plain(self, name: str) -> str:
        return name if name in self._shapes else _WRAPPERS.sub("", name)

    def _check(self, given: Mapping[str, torch.Tensor]) -> None:
        for name, value in given.items():
            if hasattr(value, "full_tensor"):  # torch's DTensor
                raise BackendError(
                    f"The weight {name!r} is spread over several devices; gather it first (full_tensor(), "
                    "in all processes that hold a part)."
                )
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


def _built(config: Any, trust_remote_code: bool) -> Any:
    """Return the model that transformers makes of a configuration, without weights."""
    import transformers

    make: Any = transformers.AutoModelForCausalLM.from_config
    try:
        return make(config, trust_remote_code=trust_remote_code)
    except ValueError as error:
        # One that is not for text alone has no class under that name; its checkpoint says which.
        for name in getattr(config, "architectures", None) or ():
            if (known := getattr(transformers, name, None)) is not None:
                return known(config)
        raise BackendError(
            f"transformers can't make the engine's model ({config.architectures}), so what its weights "
            f"are called is not known here ({error})."
        ) from error
