"""From a name, a folder, a GGUF file or a model object to a model and its tokenizer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from antiphon.conversations.arguments import device_named, said
from antiphon.errors import InvalidParameter, ModelNotFound
from antiphon.tokenizer_files import read_tokenizer
from transformers import AutoModelForCausalLM

from antiphon_transformers import embedded


def load_model(
    model: Any = "embedded",
    *,
    tokenizer: Any = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    gguf_file: str | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """Return the model and its tokenizer.

    Args:
        model: A model object, ``"embedded"``, a hub name, a folder, or the path of a GGUF file.
        tokenizer: A tokenizer, or its name or folder; by default the model's own (None for a model
            object).
        dtype: Of the weights; by default as they are stored (float32 for the embedded model). A
            model object is left as it is unless this says otherwise.
        device: Where to put the model; by default a GPU where there is one. A model object stays
            where it is, and so does one that was loaded with a ``device_map`` or quantised.
        gguf_file: The GGUF file in the folder or repository.
        options: Passed to ``AutoModelForCausalLM.from_pretrained``.

    Raises:
        ModelNotFound: There is no such model, or the hub can't be reached; says which.
    """
    kind = _dtype(dtype)
    if not isinstance(model, (str, os.PathLike)):
        if options or gguf_file:
            names = ", ".join(sorted([*options, *(["gguf_file"] if gguf_file else [])]))
            raise InvalidParameter(f"{names} only applies where a model is loaded by name.")
        if not isinstance(model, torch.nn.Module):
            raise InvalidParameter(
                f"A model is a module, a name, a folder or a GGUF file, not {type(model).__name__}; pass a tokenizer "
                "as tokenizer=."
            )
        if kind is not None or device is not None:
            model = model.to(dtype=kind, device=_device(device))
        return model, load_tokenizer(tokenizer) if tokenizer is not None else None

    name = os.fspath(model)
    if name in embedded.NAMES:
        name = str(embedded.embedded_folder())
    elif name.endswith(".gguf") and os.path.isfile(name):
        name, gguf_file = str(Path(name).parent), Path(name).name
    if gguf_file is not None:
        options["gguf_file"] = gguf_file
    spread = options.get("device_map") is not None
    if spread and device is not None:
        raise InvalidParameter(
            f"device_map says where the layers of {name} go, so device={str(device)!r} can't hold; leave one out."
        )
    device = _device(device)
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(name, dtype=kind or "auto", **options)
    except (OSError, ValueError) as error:
        raise ModelNotFound(_missing("model", name, error)) from error
    if not spread and not getattr(loaded, "is_quantized", False):
        loaded = loaded.to(device)
    loaded = loaded.eval()
    if gguf_file is not None and kind is None:
        loaded = loaded.to(torch.float32)
    keep = {k: v for k, v in options.items() if k in _TOKENIZER_OPTIONS}
    return loaded, load_tokenizer(tokenizer if tokenizer is not None else name, **keep)


_TOKENIZER_OPTIONS = frozenset(
    {"gguf_file", "revision", "trust_remote_code", "local_files_only", "token", "subfolder"}
)


def load_tokenizer(tokenizer: Any, **options: Any) -> Any:
    """Return the tokenizer of a model's name or folder; what is no name is one already.

    Raises:
        ModelNotFound: There is no such tokenizer.
    """
    if not isinstance(tokenizer, (str, os.PathLike)):
        return tokenizer
    name = os.fspath(tokenizer)
    if name in embedded.NAMES:
        name = str(embedded.embedded_folder())
    try:
        return read_tokenizer(name, **options)
    except (OSError, ValueError) as error:
        raise ModelNotFound(_missing("tokenizer", name, error)) from error


def _device(device: str | torch.device | None) -> torch.device | None:
    made = device_named(device, InvalidParameter)
    if made is not None and made.type not in ("cpu", "meta"):
        try:
            torch.empty(0, device=made)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            reason = str(error).strip().split("\n")[0].rstrip(".")
            raise InvalidParameter(
                f"There is no device {made} here ({reason}); use device='cpu'."
            ) from error
    return made


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None or (isinstance(dtype, str) and dtype == "auto"):
        return None
    if isinstance(dtype, torch.dtype):
        return dtype
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else None
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise InvalidParameter(
            f"{said(dtype)} is not a floating-point dtype; use float32, bfloat16 or float16."
        )
    return found


def _missing(what: str, name: str, error: Exception) -> str:
    reason = str(error).strip().split("\n")[0].rstrip(".")
    if os.path.isdir(name):  # which no name is too long for
        return f"The folder {name} holds no {what} that transformers can load: {reason}."
    return (
        f"There is no {what} {name!r}: it is not a folder here, and the hub did not give it ({reason}); check the "
        "name, or give the path of a folder."
    )
