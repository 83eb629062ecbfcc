"""Antiphon: conversations for language-model training, with exact tokens and exact masks.

Names are loaded on first use (PEP 562): ``import antiphon`` imports neither torch nor transformers.
"""

from __future__ import annotations

from antiphon.lazy import lazy_exports

# Each name's module: the one place that says where a public name lives.
_EXPORTS = {
    "render": "antiphon.rendering",
    "render_batch": "antiphon.batch",
    "Rendering": "antiphon.rendering",
    "Span": "antiphon.rendering",
    "Turn": "antiphon.turns",
    "TokenizedRendering": "antiphon.tokenization",
    "extend": "antiphon.extension",
    "training_samples": "antiphon.samples",
    "parse": "antiphon.reading",
    "parse_response": "antiphon.reading",
    "stream_parser": "antiphon.reading",
    "detect_family": "antiphon.detection",
    "Detection": "antiphon.detection",
    "ModelFamily": "antiphon.families",
    "BackendSpec": "antiphon.families",
    "EnvSpec": "antiphon.families",
    "hookimpl": "antiphon.plugins",
    "History": "antiphon.history",
    "Content": "antiphon.history",
    "ContentBase": "antiphon.history",
    "add_chat_template": "antiphon.history",
    "remove_chat_template": "antiphon.templating",
    "Text": "antiphon.containers",
    "Tokens": "antiphon.containers",
    "Masks": "antiphon.containers",
    "LogProbs": "antiphon.containers",
    "ChatHistory": "antiphon.containers",
    "SamplingParams": "antiphon.sampling",
    "LLMWrapper": "antiphon.wrapper",
    "LLMWrapperBase": "antiphon.wrapper",
    "Backend": "antiphon.backends",
    "TokenBatch": "antiphon.backends",
    "Generation": "antiphon.backends",
    "Batcher": "antiphon.batching",
    "LogProbDistribution": "antiphon.distributions",
    "LLMMaskedCategorical": "antiphon.distributions",
    "EnvBase": "antiphon.envs",
    "Transform": "antiphon.envs",
    "TransformedEnv": "antiphon.envs",
    "ChatEnv": "antiphon.envs",
    "DatasetChatEnv": "antiphon.envs",
    "DataLoadingPrimer": "antiphon.envs",
    "LLMEnv": "antiphon.envs",
    "LLMHashingEnv": "antiphon.envs",
}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
