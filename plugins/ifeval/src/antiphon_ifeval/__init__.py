"""IFEval: instructions that a program can check, with strict and loose scores."""

from __future__ import annotations

from antiphon.lazy import lazy_exports

_EXPORTS = {
    "IFEvalEnv": "antiphon_ifeval.env",
    "IFEvalReward": "antiphon_ifeval.task",
    "IFEvalScoreData": "antiphon_ifeval.score_data",
    "IFEvalTask": "antiphon_ifeval.task",
    "IfEvalScorer": "antiphon_ifeval.env",
    "Instruction": "antiphon_ifeval.instructions",
    "Scores": "antiphon_ifeval.scores",
    "accuracy": "antiphon_ifeval.scores",
    "read_instructions": "antiphon_ifeval.instructions",
    "score": "antiphon_ifeval.scores",
}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
