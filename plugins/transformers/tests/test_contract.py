"""The backend keeps the contract of the conformance kit, on a tiny random model."""

from __future__ import annotations

from antiphon.testing import BackendContract, BackendSubject
from antiphon_transformers.backend import TransformersBackend
from tiny_models import build
from tiny_tokenizer import byte_tokenizer


def make_backend() -> TransformersBackend:
    return TransformersBackend(build("llama"), tokenizer=byte_tokenizer())


class TestTransformers(BackendContract):
    def make_subject(self) -> BackendSubject:
        flags = ("samples", "stops", "chosen_ends", "prompt_log_probs", "temperature")
        return BackendSubject(make_backend, "transformers", **dict.fromkeys(flags, True))
