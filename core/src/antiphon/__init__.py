"""Antiphon: conversations for language-model training, with exact tokens and exact masks.

Names are loaded on first use (PEP 562): ``import antiphon`` imports neither torch nor transformers.
"""

from __future__ import annotations

from antiphon.lazy import lazy_exports

# Each name's module: the one place that says where a public name lives.
_EXPORTS = {
    "render": "antiphon.engine.rendering",
    "render_batch": "antiphon.engine.batch",
    "media_expansions": "antiphon.engine.media",
    "Rendering": "antiphon.engine.rendering",
    "Span": "antiphon.engine.rendering",
    "Turn": "antiphon.engine.turns",
    "TokenizedRendering": "antiphon.engine.tokenization",
    "extend": "antiphon.engine.extension",
    "training_samples": "antiphon.engine.samples",
    "parse": "antiphon.reading",
    "parse_response": "antiphon.reading",
    "stream_parser": "antiphon.reading",
    "detect_family": "antiphon.detection",
    "Detection": "antiphon.detection",
    "ModelFamily": "antiphon.families",
    "BackendSpec": "antiphon.families",
    "EnvSpec": "antiphon.families",
    "hookimpl": "antiphon.plugins",
    "History": "antiphon.conversations.history",
    "Content": "antiphon.conversations.history",
    "ContentBase": "antiphon.conversations.history",
    "add_chat_template": "antiphon.conversations.history",
    "remove_chat_template": "antiphon.conversations.templating",
    "Text": "antiphon.conversations.containers",
    "Tokens": "antiphon.conversations.containers",
    "Masks": "antiphon.conversations.containers",
    "LogProbs": "antiphon.conversations.containers",
    "ChatHistory": "antiphon.conversations.containers",
    "SamplingParams": "antiphon.generation.sampling",
    "LLMWrapper": "antiphon.generation.wrapper",
    "LLMWrapperBase": "antiphon.generation.wrapper",
    "Backend": "antiphon.generation.backends",
    "TokenBatch": "antiphon.generation.backends",
    "Generation": "antiphon.generation.backends",
    "Batcher": "antiphon.generation.batching",
    "LogProbDistribution": "antiphon.generation.distributions",
    "LLMMaskedCategorical": "antiphon.generation.distributions",
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
