"""LoRA adapters by their folders."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

from antiphon.errors import InvalidParameter

# Ours are numbered from here, away from the numbers that users give requests of their own.
_FIRST = 1 << 20
# Of so many folders and requests it is known that the engine has them; others are loaded again.
_REMEMBERED = 1024


class Adapters:
    """What the engine calls adapters, and which of them it has loaded.

    A folder that is written anew (by a trainer, after a step) is another adapter: the engine would
    go on with what it has under the old number and name.
    """

    def __init__(self) -> None:
        """Know none yet."""
        self._lock = threading.Lock()
        self._numbers = itertools.count(_FIRST)
        self._folders: dict[str, tuple[object, int]] = {}
        self._loaded: dict[tuple[int, str], None] = {}

    def request(self, adapter: Any, config: Any) -> Any:
        """Return the engine's request for an adapter.

        Args:
            adapter: A folder, a ``LoRARequest`` of the engine, or None.
            config: The engine's configuration.

        Raises:
            InvalidParameter: It is none of these, there is no such folder, or the engine was started
                without adapters.
        """
        from vllm.lora.request import LoRARequest

        if adapter is None:
            return None
        if config.lora_config is None:
            raise InvalidParameter(
                "lora_request names an adapter, and the engine was started without them; start the "
                "backend with enable_lora=True."
            )
        if isinstance(adapter, LoRARequest):
            return adapter
        if not isinstance(adapter, str):
            raise InvalidParameter(
                f"lora_request must be an adapter's folder or a LoRARequest, not {adapter!r}."
            )
        if not os.path.isdir(adapter):
            raise InvalidParameter(f"lora_request names {adapter}, which is not a folder.")
        written = _written(adapter)
        with self._lock:
            known, number = self._folders.get(adapter, (None, 0))
            if known != written:
                number = next(self._numbers)
                self._folders[adapter] = written, number
                _forget(self._folders)
        return LoRARequest(f"{adapter}@{number}", number, adapter)

    def is_new(self, request: Any) -> bool:
        """Whether the engine has not loaded this adapter yet."""
        return request is not None and (request.lora_int_id, request.lora_name) not in self._loaded

    def has_loaded(self, request: Any) -> None:
        """Note that the engine has loaded it."""
        with self._lock:
            self._loaded[request.lora_int_id, request.lora_name] = None
            _forget(self._loaded)


def not_loaded(request: Any, error: BaseException) -> InvalidParameter:
    """Return what to say of an adapter that the engine does not take."""
    return InvalidParameter(
        f"vLLM can't load the adapter {request.lora_path} ({str(error).strip().rstrip('.')}); it must "
        "be a LoRA adapter of the engine's model, of at most the rank that the engine was started with "
        "(max_lora_rank)."
    )


def _written(folder: str) -> object:
    """Return what tells a folder's files from those that stood there before."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.stat()) for entry in entries]
    return sorted((name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in found)


def _forget(known: dict[Any, Any]) -> None:
    """Drop the oldest where there are too many."""
    if len(known) > _REMEMBERED:
        del known[next(iter(known))]
