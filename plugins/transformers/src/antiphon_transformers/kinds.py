"""What a model is, as far as it decides how it may be run: what is around it, and what its configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.errors import InvalidParameter
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from transformers import GenerationConfig

#: Say so of a class.
NO_LANGUAGE = (
    "{} {}, so it is no language model; load one with transformers' AutoModelForCausalLM, or one "
    "for images and text."
)
LOOKS_AHEAD = (
    "{} looks at what comes after a token, so its log-probs are not those of a text that is written from left to "
    "right; use a causal language model (where the class has the setting, is_decoder=True makes it one)."
)


def wrappers(model: nn.Module) -> tuple[list[nn.Module], Any]:
    """Return what was put around a model (DDP, DataParallel, ``torch.compile``), outermost first, and the model.

    Adapters of peft are no such wrapper: they belong to the model.
    """
    around: list[nn.Module] = []
    while not hasattr(type(model), "get_input_embeddings"):
        held = [model._modules.get(name) for name in ("module", "_orig_mod")]
        inner = next((module for module in held if module is not None), None)
        if inner is None:
            break
        around.append(model)
        model = inner
    return around, model


def text_config(model: Any) -> Any:
    """Return the part of a model's configuration that is about text."""
    config = model.config
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def max_context(model: Any) -> int | None:
    """Return how many tokens a model's positions reach to, or None where nothing bounds them."""
    config = text_config(model)
    for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def check_decoder(model: Any) -> None:
    """Refuse a model that is not a decoder of token ids alone.

    Raises:
        InvalidParameter: The model has an encoder, or no embeddings of ids.
    """
    try:
        embeddings = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        embeddings = None
    if not hasattr(embeddings, "weight") or not hasattr(model, "config"):
        raise InvalidParameter(NO_LANGUAGE.format(type(model).__name__, "has no embeddings of ids"))
    if getattr(model.config, "is_encoder_decoder", False):
        raise InvalidParameter(
            f"{type(model).__name__} reads its prompt with an encoder; use a causal language model, which has only a "
            "decoder."
        )


def is_sharded(model: nn.Module) -> bool:
    """Whether each process holds a part of every weight (``fully_shard``), so that all must compute in step.

    Raises:
        InvalidParameter: The weights are sharded in a way that only a whole forward pass of its own gathers.
    """
    modules = list(model.modules())
    zero = any(hasattr(p, "ds_id") for p in model.parameters())
    if zero or any(isinstance(module, FullyShardedDataParallel) for module in modules):
        kind = "DeepSpeed's ZeRO-3" if zero else "FullyShardedDataParallel"
        raise InvalidParameter(
            f"Weights sharded by {kind} can't be sampled from here; shard the model with torch's fully_shard, or give "
            "an unsharded copy and send it the weights with load_weights."
        )
    return any(isinstance(module, FSDPModule) for module in modules)


def tensor_parallel_mesh(model: nn.Module) -> DeviceMesh | None:
    """Return the mesh of the processes that each compute a part of every layer, or None."""
    if any(isinstance(module, FSDPModule) for module in model.modules()):
        return None
    meshes = (
        p.device_mesh
        for p in model.parameters()
        if isinstance(p, DTensor) and p.device_mesh.ndim == 1
    )
    return next(meshes, None)


def turning_length(model: Any) -> int | None:
    """Return the length above which a model counts all positions of a row differently (LongRoPE), or None."""
    config = text_config(model)
    given = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    for each in (given, *given.values()):  # one for all layers, or one for each kind of them
        if isinstance(each, Mapping) and each.get("rope_type", each.get("type")) == "longrope":
            length = each.get("original_max_position_embeddings")
            return length or getattr(config, "original_max_position_embeddings", None)
    return None


def media_ids(model: Any) -> frozenset[int]:
    """Return the ids that stand for images, video and sound in a prompt."""
    names = (
        f"{kind}_token_{end}" for kind in ("image", "video", "audio") for end in ("id", "index")
    )
    values = (getattr(model.config, name, None) for name in names)
    return frozenset(value for value in values if isinstance(value, int))


def is_stateful(model: Any) -> bool:
    """Whether a layer carries a state that is not keys and values (Mamba, linear attention)."""
    kinds = getattr(text_config(model), "layer_types", None) or ()
    if any("attention" not in kind or "linear" in kind for kind in kinds):
        return True
    return bool(getattr(model, "_is_stateful", False))


def without_own_settings(model: Any) -> Any:
    """Return an object that is the model in all but its generation config.

    transformers takes from there what a call leaves out (Qwen2.5 has a repetition penalty in it); here what is left out
    is off, as in our own loop.
    """
    plain = object.__new__(type(model))
    plain.__dict__ = {**model.__dict__, "generation_config": GenerationConfig()}  # type: ignore[no-untyped-call]
    return plain
