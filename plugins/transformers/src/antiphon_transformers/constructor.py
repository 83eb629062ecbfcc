"""`TransformersWrapper`: the constructor that users of TorchRL know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.generation.backends import is_backend
from antiphon.generation.settings import check_settings
from antiphon.generation.wrapper import LLMWrapper

from antiphon_transformers.backend import TransformersBackend


class TransformersWrapper(LLMWrapper):
    """A transformers model on tensordicts.

    Everything but loading is `antiphon.LLMWrapper`'s.
    """

    def __init__(
        self,
        model: Any = "embedded",
        *,
        tokenizer: Any = None,
        pad_model_input: bool | None = None,
        backend_kwargs: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Wrap a model.

        Args:
            model: A model object, ``"embedded"``, a hub name, a folder, a GGUF file, a `TransformersBackend`, or
                a pair of a model object and its tokenizer.
            tokenizer: A tokenizer or its name; by default the model's own.
            pad_model_input: True pads when scoring, False and None pack where the model's attention allows it.
            backend_kwargs: Settings of `TransformersBackend`: ``dtype``, ``device``, ``reuse_bytes`` and so on.
            **settings: See `antiphon.LLMWrapper`.
        """
        if isinstance(model, tuple) and len(model) == 2 and tokenizer is None:
            model, tokenizer = model
        if not is_backend(model):
            check_settings({"backend_kwargs": backend_kwargs, "pad_model_input": pad_model_input})
            options = dict(backend_kwargs or {})
            options.setdefault("pack", not pad_model_input)
            model = TransformersBackend(model, tokenizer=tokenizer, **options)
        super().__init__(model, tokenizer=tokenizer, **settings)
