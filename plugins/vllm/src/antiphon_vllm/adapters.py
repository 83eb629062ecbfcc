"""LoRA adapters by their folders."""

from __future__ import annotations

import os
from typing import Any

from antiphon.errors import InvalidParameter


class Adapters:
    """Numbers that the engine knows adapters by, one per folder."""

    def __init__(self) -> None:
        """Know none yet."""
        self._numbers: dict[str, int] = {}

    def request(self, adapter: Any) -> Any:
        """Return the engine's request for an adapter.

        Args:
            adapter: A folder, a ``LoRARequest`` of the engine, or None.

        Raises:
            InvalidParameter: It is none of these, or there is no such folder.
        """
        from vllm.lora.request import LoRARequest

        if adapter is None or isinstance(adapter, LoRARequest):
            return adapter
        if not isinstance(adapter, str):
            raise InvalidParameter(
                f"lora_request must be an adapter's folder or a LoRARequest, not {adapter!r}."
            )
        if not os.path.isdir(adapter):
            raise InvalidParameter(f"lora_request names {adapter}, which is not a folder.")
        number = self._numbers.setdefault(adapter, len(self._numbers) + 1)
        return LoRARequest(adapter, number, adapter)
