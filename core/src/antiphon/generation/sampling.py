"""One object that says how to sample, the same for every backend.

Names are transformers' with vLLM's as aliases. Which log-probs a backend reports is part of the
parameters, since a ratio of two log-probs is only right where both follow one convention:

- ``"raw"``: ``log_softmax(logits)[id]``, what the model itself says;
- ``"temperature"``: ``log_softmax(logits / temperature)[id]``, what a trainer that divides its
logits computes.

Neither knows of top-k, top-p, min-p or penalties: those choose an id, they don't change what is
reported for it.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import math
import sys
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from antiphon.conversations.arguments import plain, said
from antiphon.errors import InvalidParameter

LogProbConvention = Literal["raw", "temperature"]

#: Other names under which a parameter is known (vLLM, OpenAI, TorchRL).
ALIASES: Mapping[str, str] = {
    "beam_width": "num_beams",
    "eos_token_id": "end_token_ids",
    "eos_token_ids": "end_token_ids",
    "max_completion_tokens": "max_new_tokens",
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "n": "num_return_sequences",
    "prompt_logprobs": "prompt_log_probs",
    "stop": "stop_sequences",
    "stop_strings": "stop_sequences",
    "top_logprobs": "logprobs",
}

#: Names of other libraries that no parameter is an alias of, and what to use in their place.
_INSTEAD: Mapping[str, str] = {
    "logit_bias": "use sequence_bias with the transformers backend, logit_bias with vLLM",
    "max_length": "it counts the prompt too; use max_new_tokens",
    "min_length": "it counts the prompt too; use min_new_tokens",
}
_Class = TypeVar("_Class", bound=type)


def _by_any_name(cls: _Class) -> _Class:
    """Let a dataclass of parameters take their other names, and refuse unknown ones as `from_kwargs` does."""
    make = cls.__init__  # type: ignore[misc]

    @functools.wraps(make)
    def initialise(self: Any, *args: Any, extras: Any = (), **given: Any) -> None:
        values, _ = _standard(given, (), "SamplingParams itself")
        make(self, *args, extras=extras, **values)

    cls.__init__ = initialise  # type: ignore[misc]
    return cls


@_by_any_name
@dataclass(frozen=True)
class SamplingParams:
    """How to sample; validated, hashable, picklable.

    A parameter may have any of its names (``max_tokens=8``); None stands for its default.

    Attributes:
        max_new_tokens: Most tokens an answer may have; None: what fits into the model's context.
        min_new_tokens: No end token is sampled before this many tokens.
        num_return_sequences: Answers per prompt, n; row ``i * n + j`` answers prompt i.
        do_sample: False for greedy decoding. A temperature of 0 means the same.
        temperature: Divides the logits before sampling.
        top_p: Nucleus: the smallest set of ids whose probability reaches this; 1.0 is off.
        top_k: Only the k most probable ids; 0 (or None, or vLLM's -1) is off.
        min_p: Only ids at least this probable relative to the most probable one; 0.0 is off.
        repetition_penalty: Divides positive and multiplies negative logits of ids that the prompt
            or the answer has.
        presence_penalty: Subtracted from the logits of ids that the answer has.
        frequency_penalty: Subtracted once per occurrence in the answer.
        num_beams: Beam search where above 1.
        length_penalty: Exponent of the length in a beam's score.
        early_stopping: When beam search stops: True, False or ``"never"``.
        stop_sequences: Strings that end an answer. The text is cut before the first of them, the
            ids are kept up to and with the token that completed it.
        stop_token_ids: Ids that end an answer, besides the model's own.
        end_token_ids: In place of the model's own end tokens; None keeps those.
        ignore_eos: Go on after the model's own end tokens.
        include_stop_str_in_output: Keep the stop string at the end of the text.
        skip_special_tokens: Leave special tokens out of the text. Ids always keep them.
        logprobs: How many of the most probable ids are reported per position, besides the sampled
            one.
        prompt_log_probs: Report the log-probs of the prompt too.
        log_prob_convention: ``"raw"`` or ``"temperature"``, see the module.
        seed: Makes sampling repeatable. Every prompt gets a seed of its own from it and from its
            ids, so what is sampled for a prompt does not depend on the batch that it is in.
        extras: Parameters that only one backend knows, as sorted pairs.
    """

    max_new_tokens: int | None = None
    min_new_tokens: int = 0
    num_return_sequences: int = 1
    do_sample: bool = True
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    stop_sequences: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    end_token_ids: tuple[int, ...] | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = False
    logprobs: int = 0
    prompt_log_probs: bool = False
    log_prob_convention: LogProbConvention = "raw"
    seed: int | None = None
    extras: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Bring the values into one form and check them."""
        put = object.__setattr__
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if value is None:
                put(self, each.name, each.default)
            else:
                put(self, each.name, plain(each.name, value))
        put(self, "stop_sequences", _strings("stop_sequences", self.stop_sequences))
        put(self, "stop_token_ids", _ids("stop_token_ids", self.stop_token_ids))
        if self.end_token_ids is not None:
            put(self, "end_token_ids", _ids("end_token_ids", self.end_token_ids))
        if isinstance(self.top_k, int) and self.top_k == -1:
            put(self, "top_k", 0)
        if self.logprobs is False or self.logprobs is True:
            put(self, "logprobs", 0)
        put(self, "prompt_log_probs", _flag("prompt_log_probs", self.prompt_log_probs, counts=True))
        for name in (
            "do_sample",
            "ignore_eos",
            "include_stop_str_in_output",
            "skip_special_tokens",
        ):
            put(self, name, _flag(name, getattr(self, name)))
        for name, lowest in _LOWEST_INT.items():
            _check_int(name, getattr(self, name), lowest)
        for name, (low, high, open_low) in _RANGES.items():
            put(self, name, _float(name, getattr(self, name), low, high, open_low))
        if self.temperature == 0.0:
            put(self, "do_sample", False)
        if not self.do_sample:
            put(self, "temperature", 0.0)
        early, convention = self.early_stopping, self.log_prob_convention
        if not isinstance(early, bool) and not (isinstance(early, str) and early == "never"):
            raise InvalidParameter(
                f"early_stopping must be True, False or 'never', not {said(early)}."
            )
        if not isinstance(convention, str) or convention not in ("raw", "temperature"):
            raise InvalidParameter(
                f"log_prob_convention must be 'raw' or 'temperature', not {said(convention)}."
            )
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise InvalidParameter(
                f"min_new_tokens ({self.min_new_tokens}) is above max_new_tokens "
                f"({self.max_new_tokens})."
            )
        if 1 < self.num_beams < self.num_return_sequences:
            raise InvalidParameter(
                f"num_return_sequences ({self.num_return_sequences}) is above num_beams "
                f"({self.num_beams}); a beam "
                "search returns at most one answer per beam."
            )
        put(self, "extras", _pairs(self.extras))

    @classmethod
    def from_kwargs(
        cls,
        kwargs: Mapping[str, Any] | None = None,
        *,
        base: SamplingParams | None = None,
        extras: Collection[str] = (),
        backend: str = "this backend",
    ) -> SamplingParams:
        """Build from keyword arguments under any of their names.

        Args:
            kwargs: Names and values.
            base: Where values that ``kwargs`` doesn't give come from; the defaults otherwise.
            extras: Names that the backend takes beyond the standard ones.
            backend: The backend's name, for errors.

        Raises:
            InvalidParameter: An unknown name (with the nearest known one), a name given twice, a
                value out of range.
        """
        if base is not None and not isinstance(base, SamplingParams):
            raise InvalidParameter(f"base must be SamplingParams, not {type(base).__name__}.")
        values, own = _standard({} if kwargs is None else kwargs, extras, backend)
        values = {
            name: _DEFAULTS[name] if value is None else plain(name, value)
            for name, value in values.items()
        }
        others = {**(base.extra if base else {}), **own}
        if (
            "temperature" in values
            and values.get("do_sample") is True
            and values["temperature"] == 0
        ):
            raise InvalidParameter(
                "do_sample=True needs a temperature above 0; leave do_sample out for greedy "
                "decoding."
            )
        if values.get("do_sample") is False and values.get("temperature", 0) not in (0, 1):
            raise InvalidParameter(
                "When do_sample=False (greedy decoding), temperature must be 0 or left out, not "
                f"{said(values['temperature'])}."
            )
        heat = values.get("temperature", 0)
        warm = isinstance(heat, (int, float)) and heat > 0  # what is no number is refused below
        if base is not None and "do_sample" not in values and warm:
            values["do_sample"] = True
        if base is not None and values.get("do_sample") is True and not base.do_sample:
            values.setdefault("temperature", 1.0)
        if base is None:
            return cls(**values, extras=tuple(others.items()))
        return dataclasses.replace(base, **values, extras=tuple(others.items()))

    def as_kwargs(self) -> dict[str, Any]:
        """Return all values by their standard names, the backend's own among them."""
        own = {name: getattr(self, name) for name in sorted(_STANDARD)}
        return {**own, **self.extra}

    @property
    def extra(self) -> dict[str, Any]:
        """The backend's own parameters by name."""
        return dict(self.extras)

    @property
    def log_prob_temperature(self) -> float:
        """What logits are divided by before the log-softmax that is reported.

        Greedy decoding has no temperature of its own, so both conventions agree there.
        """
        if self.log_prob_convention == "raw" or self.temperature == 0.0:
            return 1.0
        return self.temperature


_DEFAULTS = {f.name: f.default for f in dataclasses.fields(SamplingParams)}
_STANDARD = frozenset(_DEFAULTS) - {"extras"}
_LOWEST_INT = {
    "max_new_tokens": 1,
    "min_new_tokens": 0,
    "num_return_sequences": 1,
    "top_k": 0,
    "num_beams": 1,
    "logprobs": 0,
    "seed": 0,
}
_INFINITY = math.inf
_RANGES = {  # name: lowest, highest, whether the lowest is excluded
    "temperature": (0.0, _INFINITY, False),
    "top_p": (0.0, 1.0, True),
    "min_p": (0.0, 1.0, False),
    "repetition_penalty": (0.0, _INFINITY, True),
    "presence_penalty": (-_INFINITY, _INFINITY, False),
    "frequency_penalty": (-_INFINITY, _INFINITY, False),
    "length_penalty": (-_INFINITY, _INFINITY, False),
}
_OPTIONAL = frozenset({"max_new_tokens", "seed"})
# How the ranges that people most often miss are put.
_IN_WORDS = {
    "temperature": "Temperature must be non-negative",
    "top_p": "top_p must be between 0 and 1, 0 excluded",
    "top_k": "top_k must be positive, or 0 for no limit",
    "repetition_penalty": "repetition_penalty must be positive",
}


def random_seed() -> int:
    """Return a seed from torch's own generator, so that ``torch.manual_seed`` makes a run repeatable."""
    import torch

    return int(torch.randint(2**62, (1,), device="cpu").item())


def prompt_seeds(rows: Sequence[Sequence[int]], seed: int) -> list[int]:
    """Return one seed per prompt, from ``seed``, its ids and how often the same prompt came before
    it.

    So a prompt's seed does not depend on the other prompts of its batch, and equal prompts still
    differ.
    """
    seen: dict[bytes, int] = {}
    seeds = []
    for row in rows:
        digest = hashlib.blake2b(_bytes(row), digest_size=16).digest()
        occurrence = seen.get(digest, 0)
        seen[digest] = occurrence + 1
        seeds.append(_mix(digest, seed, occurrence))
    return seeds


def sample_seed(seed: int, sample: int) -> int:
    """Return the seed of a prompt's sample number ``sample``."""
    return _mix(b"sample", seed, sample)


def _mix(key: bytes, *numbers: int) -> int:
    text = key + b"".join(n.to_bytes(16, "little", signed=True) for n in numbers)
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def _bytes(row: Sequence[int]) -> bytes:
    numbers = array("q", row)
    if sys.byteorder == "big":  # one seed on every machine
        numbers.byteswap()
    return numbers.tobytes()


def _standard(
    given: Any, extras: Collection[str], backend: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return parameters under their standard names, and those that are the backend's own."""
    if not isinstance(given, Mapping):
        raise InvalidParameter(
            f"Sampling parameters are a mapping of names to values, or SamplingParams, not {type(given).__name__}."
        )
    values: dict[str, Any] = {}
    own: dict[str, Any] = {}
    called: dict[str, str] = {}
    for key, value in given.items():
        name = ALIASES.get(key, key)
        if name in values:
            raise InvalidParameter(
                f"Cannot specify both {called[name]!r} and {key!r}: both are {name}; give it once."
            )
        if name in _STANDARD:
            values[name], called[name] = value, key
        elif key in extras:
            own[key] = value
        else:
            raise InvalidParameter(_unknown(str(key), extras, backend))
    return values, own


def _pairs(extras: Any) -> tuple[tuple[str, Any], ...]:
    pairs = (
        list(extras.items())
        if isinstance(extras, Mapping)
        else list(_tuple("extras", extras, "pairs"))
    )
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InvalidParameter(f"extras must be pairs of a name and a value, not {said(pair)}.")
    return tuple(
        sorted(((name, _freeze(value)) for name, value in pairs), key=lambda pair: pair[0])
    )


def _unknown(name: str, extras: Collection[str], backend: str) -> str:
    known = [*_STANDARD, *ALIASES, *extras]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if name in _INSTEAD:
        hint = f": {_INSTEAD[name]}."
    elif near:
        hint = f"; did you mean {near[0]!r}?"
    else:
        hint = (
            "; see antiphon.SamplingParams for the names (what one backend alone knows goes through the wrapper's "
            "generate_kwargs)."
        )
    return f"{name!r} is not a sampling parameter of {backend}{hint}"


def _tuple(name: str, value: Any, what: str) -> tuple[Any, ...]:
    if value is None:
        return ()
    if not isinstance(value, Iterable):
        raise InvalidParameter(f"{name} must be {what}, not {said(value)}.")
    return tuple(value)


def _strings(name: str, value: str | Iterable[str] | None) -> tuple[str, ...]:
    strings = (value,) if isinstance(value, str) else _tuple(name, value, "strings")
    for text in strings:
        if not isinstance(text, str) or not text:
            raise InvalidParameter(f"{name} must be strings that are not empty, not {said(text)}.")
    return strings


def _ids(name: str, value: int | Iterable[int] | None) -> tuple[int, ...]:
    ids = (value,) if isinstance(value, int) else _tuple(name, value, "token ids")
    for number in ids:
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InvalidParameter(f"{name} must be token ids, not {said(number)}.")
    return tuple(sorted(set(ids)))


def _flag(name: str, value: Any, *, counts: bool = False) -> bool:
    if value is None:
        return False
    if counts and isinstance(
        value, int
    ):  # vLLM's prompt_logprobs=0 asks for the prompt ids' own log-probs
        return True if not isinstance(value, bool) else value
    if not isinstance(value, bool):
        raise InvalidParameter(f"{name} must be True or False, not {said(value)}.")
    return value


def _check_int(name: str, value: Any, low: int) -> None:
    if value is None and name in _OPTIONAL:
        return
    if name == "seed" and isinstance(value, int) and value >= 1 << 64:
        raise InvalidParameter(f"seed must be below 2**64, not {value}.")
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        told = _IN_WORDS.get(name, f"{name} must be a whole number of at least {low}")
        raise InvalidParameter(f"{told}: {name} is {said(value)}.")


def _float(name: str, value: Any, low: float, high: float, open_low: bool) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not (low < value if open_low else low <= value) or value > high:
        bracket = "above" if open_low else "at least"
        upper = f" and at most {high}" if high < _INFINITY else ""
        lower = f" {bracket} {low}" if low > -_INFINITY else ""
        told = _IN_WORDS.get(name, f"{name} must be a number{lower}{upper}")
        raise InvalidParameter(f"{told}: {name} is {said(value)}.")
    if not math.isfinite(value):
        raise InvalidParameter(f"{name} must be finite, not {value!r}.")
    return float(value)


def _freeze(value: Any) -> Any:
    value = plain("A parameter of the backend's own", value)
    if isinstance(value, (set, frozenset)):
        return frozenset(map(_freeze, value))
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(item) for item in value)
    if isinstance(value, dict):
        return FrozenDict({key: _freeze(item) for key, item in value.items()})
    return value


class FrozenDict(dict[Any, Any]):
    """A dict among a backend's own parameters, hashable as all of them are; it is not to be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))
