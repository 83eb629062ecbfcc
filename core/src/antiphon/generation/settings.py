"""What the settings of a wrapper come to: parameters, a backend, a batcher; contradictions are refused here."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Literal

from antiphon.errors import InvalidParameter
from antiphon.generation.backends import Backend, is_backend
from antiphon.generation.batching import Batcher
from antiphon.generation.sampling import SamplingParams

Key = Any  # a string, or a tuple of strings

_FLAGS = frozenset(
    {"batching", "generate", "pad_model_input", "pad_output", "prefer_tokens", "return_log_probs"}
)
_MAPPINGS = frozenset({"backend_kwargs", "template_kwargs", "tokenizer_kwargs"})
# What a tokenizer call would take, and what has no meaning for ragged rows.
_TOKENIZER_OPTIONS = frozenset({"add_special_tokens", "truncation", "max_length"})
_TOKENIZER_IGNORED = frozenset(
    {"padding", "padding_side", "return_tensors", "return_attention_mask"}
)


def sampling(
    backend: Backend, given: Mapping[str, Any] | SamplingParams | None, num_samples: int | None
) -> tuple[SamplingParams, int | None]:
    """Return the sampling parameters, and how many samples get a dimension of their own."""
    if isinstance(given, SamplingParams):
        # By way of the names, so that one which only another backend knows is told.
        params = SamplingParams.from_kwargs(
            given.extra, base=given, extras=backend.extra_parameters, backend=backend.name
        )
        named = params.num_return_sequences > 1
    else:
        params = SamplingParams.from_kwargs(
            given, extras=backend.extra_parameters, backend=backend.name
        )
        named = params.num_return_sequences > 1
    if num_samples is None:
        return params, params.num_return_sequences if named else None
    if named and params.num_return_sequences != num_samples:
        raise InvalidParameter(
            f"num_samples is {num_samples} and num_return_sequences {params.num_return_sequences}; "
            "give one of them."
        )
    return SamplingParams.from_kwargs(
        {"num_return_sequences": num_samples}, base=params
    ), num_samples


def writes_inplace(inplace: bool | Literal["empty"] | None, grows: bool) -> bool | Literal["empty"]:
    """Return where results go; ``grows`` says that they have a dimension more than the input."""
    if inplace not in (None, True, False, "empty"):
        raise InvalidParameter(f"inplace must be True, False or 'empty', not {inplace!r}.")
    if inplace is True and grows:
        raise InvalidParameter(
            "inplace=True can't hold with num_samples, which adds a batch dimension; leave inplace out."
        )
    return not grows if inplace is None else inplace


def make_batcher(
    backend: Backend, batching: bool | None, least: int | None, most: int | None, timeout: float
) -> Batcher | None:
    """Return what joins the calls of several threads, or None."""
    sized = least is not None or most is not None
    if batching is False and sized:
        raise InvalidParameter("A batch size was given and batching=False; leave one of them out.")
    if not batching and not sized:
        return None
    return Batcher(
        backend,
        min_batch_size=1 if least is None else least,
        max_batch_size=most,
        timeout=timeout,
    )


def load_backend(model: Any, name: str, tokenizer: Any) -> Backend:
    """Return the backend that ``model`` is, or that loads it."""
    if is_backend(model):
        backend: Backend = model
        return backend
    from antiphon.registry import get_backend

    if not isinstance(name, str):
        raise InvalidParameter(f"backend must be a backend's name, not {type(name).__name__}.")
    loaded: Backend = get_backend(name).load()(model, tokenizer=tokenizer)
    return loaded


def key_path(key: Key) -> tuple[str, ...]:
    """Return a key as a path.

    Raises:
        InvalidParameter: It is neither a string nor a tuple of strings.
    """
    path = (key,) if isinstance(key, str) else key
    if not isinstance(path, (tuple, list)) or not all(isinstance(part, str) for part in path):
        raise InvalidParameter(f"A key is a string or a tuple of strings, not {key!r}.")
    return tuple(path)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings of a wrapper that are of no kind that they can be of.

    Raises:
        InvalidParameter: Names the setting.
    """
    for name, value in settings.items():
        if name.endswith("_key") and value is not None:
            try:
                key_path(value)
            except InvalidParameter as error:
                raise InvalidParameter(f"{name}: {error}") from error
        elif name in _FLAGS and not isinstance(value, (bool, type(None))):
            raise InvalidParameter(f"{name} must be True or False, not {value!r}.")
        elif name in _MAPPINGS and value is not None and not isinstance(value, Mapping):
            raise InvalidParameter(
                f"{name} must be a mapping of names to values, not {type(value).__name__}."
            )


def one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Refuse a setting that is none of what it can be."""
    if value not in known:
        raise InvalidParameter(f"{name} must be one of {', '.join(known)}, not {value!r}.")


def check_shape(given: Any, shape: tuple[int, ...]) -> None:
    """Refuse a tensordict for results that has another batch size."""
    if tuple(given.batch_size) != shape:
        raise InvalidParameter(
            f"tensordict_out has the batch size {list(given.batch_size)}, and the results have {list(shape)}."
        )


def weak(collector: Any) -> weakref.ref[Any]:
    """Return a weak reference to a collector."""
    try:
        return weakref.ref(collector)
    except TypeError as error:
        raise InvalidParameter(
            f"A collector is an object that can be referred to weakly, not {type(collector).__name__}."
        ) from error


def tokenizer_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the tokenizer's options, without those that mean nothing for ragged rows."""
    options = dict(given or {})
    unknown = sorted(set(options) - _TOKENIZER_OPTIONS - _TOKENIZER_IGNORED)
    if unknown:
        raise InvalidParameter(
            f"{', '.join(unknown)}: not a tokenizer option here; there are {', '.join(sorted(_TOKENIZER_OPTIONS))}."
        )
    return {name: value for name, value in options.items() if name in _TOKENIZER_OPTIONS}
