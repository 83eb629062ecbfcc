"""The backend keeps the contract of the conformance kit, on a tiny random model."""

from __future__ import annotations

from antiphon.testing import BackendContract, BackendSubject
from antiphon_vllm.backend import VLLMBackend
from tiny_models import build
from tiny_tokenizer import byte_tokenizer


def make_backend() -> VLLMBackend:
    return VLLMBackend(build("llama"), tokenizer=byte_tokenizer(), kv_cache_memory_bytes=1 << 26)


class TestVLLM(BackendContract):
    def make_subject(self) -> BackendSubject:
        flags = ("samples", "stops", "chosen_ends", "prompt_log_probs", "temperature")
        return BackendSubject(make_backend, "vllm", **dict.fromkeys(flags, True))
