"""`vLLMWrapper`: the constructor that users of TorchRL know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.generation.backends import is_backend
from antiphon.generation.wrapper import LLMWrapper

from antiphon_vllm.backend import VLLMBackend


class vLLMWrapper(LLMWrapper):  # noqa: N801 (the name under which it is known)
    """A vLLM engine on tensordicts.

    Everything but starting the engine is `antiphon.LLMWrapper`'s.
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
        """Wrap an engine.

        Args:
            model: A hub name, a folder, ``"embedded"``, a model object of transformers, a
                ``vllm.LLM``, a backend of this distribution, or a pair of an engine and its tokenizer.
            tokenizer: A tokenizer or its name; by default the model's own.
            pad_model_input: Accepted and without effect: the engine takes ragged rows.
            backend_kwargs: Settings of `VLLMBackend`: ``dtype``, ``in_process``, ``max_model_len`` and
                so on.
            **settings: See `antiphon.LLMWrapper`.
        """
        if isinstance(model, tuple) and len(model) == 2 and tokenizer is None:
            model, tokenizer = model
        if not is_backend(model):
            model = VLLMBackend(model, tokenizer=tokenizer, **dict(backend_kwargs or {}))
        super().__init__(model, tokenizer=tokenizer, **settings)
