"""The backend on a running ``vllm serve``, or whatever speaks its dialect, perhaps on another machine.

Prompts go as ids and answers come as ids (``return_token_ids``); a server that has no ids is refused,
since text that is encoded again is not what was sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import torch
from antiphon.errors import BackendError, InvalidParameter, ModelNotFound
from antiphon.generation.backends import Generation, Scores, TokenBatch, WeightVersion
from antiphon.generation.sampling import SamplingParams
from antiphon.generation.stopping import find_end_ids
from antiphon_transformers.loading import load_tokenizer

from antiphon_vllm.async_thread import CLOSED, AwaitableBackend, LoopThread, score_rows, together
from antiphon_vllm.requests import (
    LAYOUT,
    Request,
    Sampling,
    generation,
)
from antiphon_vllm.server_http import Server

#: What a server takes besides the standard parameters, by its own names.
_EXTRAS = frozenset(
    {
        "allowed_token_ids",
        "bad_words",
        "cache_salt",
        "length_penalty",
        "logit_bias",
        "priority",
        "response_format",
        "structured_outputs",
        "user",
        "vllm_xargs",
    }
)
# What steers an engine in this process and means nothing to a server.
_LOCAL = frozenset({"detokenize", "flat_logprobs"})
# JSON has no minus infinity; the server writes this.
_LOWEST = -9999.0
_IDS = "a vLLM of 0.10.2 or newer has it"


class VLLMServerBackend(AwaitableBackend):
    """Generates and scores with a server's model.

    Any number of calls may be under way at once, from threads or awaited; the server batches them.

    Attributes:
        tokenizer: The model's tokenizer, or None; needed for stop strings only.
        end_ids: The ids that end an answer.
        served_model: The name by which the server knows the model.
    """

    name = "vllm-server"
    label = "vLLM"  # in sentences
    extra_parameters = _EXTRAS | LAYOUT

    def __init__(
        self,
        model: str = "http://localhost:8000",
        *,
        tokenizer: Any = None,
        served_model: str | None = None,
        api_key: str | None = None,
        end_ids: Iterable[int] | None = None,
        vocab_size: int | None = None,
        timeout: float = 600.0,
        retries: int = 4,
        max_in_flight: int = 256,
    ) -> None:
        """Ask a server what it serves.

        Args:
            model: The server's address.
            tokenizer: A tokenizer or its name; by default that of the model that the server names,
                if it can be had here.
            served_model: Which of its models (or LoRA adapters); by default its first.
            api_key: Sent as a bearer token.
            end_ids: The ids that end an answer; by default those of the tokenizer, the model's
                generation config (if it can be had here) and its family together.
            vocab_size: Ids run from 0 to below this; by default as the model's configuration says,
                or else its tokenizer.
            timeout: Seconds that one row may take.
            retries: How often a request that failed is sent again, after 0.5, 1, 2, ... seconds.
            max_in_flight: How many rows may be under way at once; others wait.

        Raises:
            BackendError: The server can't be reached, or is none of this kind.
            ModelNotFound: It does not serve this model.
            InvalidParameter: The size of the vocabulary can't be found out.
        """
        self._server = Server(
            model, api_key=api_key, timeout=timeout, retries=retries, max_in_flight=max_in_flight
        )
        self._loop = LoopThread("antiphon-vllm-server")
        try:
            card = _card(self._loop.run(self._server.get("/v1/models")), served_model, self._server)
            self.served_model = str(card["id"])
            root = str(card.get("root") or card["id"])
            self.max_context = _number(card, "max_model_len", self._server)
            self.tokenizer = _tokenizer(tokenizer, root)
            # What the user says need not be looked for, perhaps on a hub that is slow to say no.
            config = _config(root) if vocab_size is None or end_ids is None else None
            self.vocab_size = vocab_size or _vocabulary(config, self.tokenizer, self._server)
        except BaseException:  # an interrupt too: no connection is left open, and the error goes on
            self.close()
            raise
        if end_ids is None:
            end_ids = find_end_ids(
                self.tokenizer, getattr(config, "eos_token_id", None), _ends(root)
            )
        self.end_ids = frozenset(end_ids)

    @property
    def weight_version(self) -> WeightVersion:
        """Always 0: a server does not say when its weights change."""
        return 0

    async def _generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        if params.log_prob_temperature != 1.0:
            raise InvalidParameter(
                f"The server at {self._server.url} reports log-probs of the model itself, not at "
                f"temperature {params.log_prob_temperature:g}; ask for log_prob_convention='raw', or "
                "sample at temperature 1."
            )
        sampling = Sampling(
            params, end_ids=self.end_ids, tokenizer=self.tokenizer, max_context=self.max_context
        )
        requests = sampling.requests(batch)
        n = params.num_return_sequences
        outputs = await together(
            self._ask(request, number // n) for number, request in enumerate(requests)
        )
        answers = [
            sampling.read(output, request, number // n)
            for number, (output, request) in enumerate(zip(outputs, requests, strict=True))
        ]
        return generation(answers, n, self.weight_version)

    async def _score(
        self, batch: TokenBatch, starts: Sequence[int], temperature: float, entropy: bool
    ) -> Scores:
        if temperature != 1.0:
            raise InvalidParameter(
                f"The server at {self._server.url} scores at temperature 1, not {temperature:g}; score "
                "at 1, or with an engine of your own."
            )

        log_probs, entropies = await score_rows(batch, starts, entropy, self._ask)
        return Scores(log_probs, entropies, self.weight_version)

    async def _ask(self, request: Request, row: int) -> Output:
        settings = {k: v for k, v in request.settings.items() if k not in _LOCAL}
        body = {
            **settings,
            "model": self.served_model,
            "prompt": request.ids,
            "return_token_ids": True,
            # Else two ids with one text would be one entry among the most probable.
            "return_tokens_as_token_ids": True,
        }
        found = await self._server.post("/v1/completions", body, f" row {row}")
        return _output(found, request, row, self._server)

    def load_weights(
        self,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        version: WeightVersion | None = None,
    ) -> None:
        """Refuse.

        Raises:
            BackendError: Always: a server's weights are changed where it runs.
        """
        del weights, version
        raise BackendError(
            f"Weights can't be sent to the server at {self._server.url}; change them where it runs, or "
            "use an engine of your own (the backends vllm and vllm-async)."
        )

    def close(self) -> None:
        """Close the connections; what is under way ends with an error."""
        self._ended = CLOSED
        self._loop.close(self._server.close)


@dataclass
class Flat:
    """Log-probs per position in the engine's flat form: the id that is there first, then others."""

    start_indices: list[int] = field(default_factory=list)
    end_indices: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add(self, found: Sequence[tuple[int, float]]) -> None:
        """Add a position."""
        self.start_indices.append(len(self.token_ids))
        for token, log_prob in found:
            self.token_ids.append(token)
            self.logprobs.append(-inf if log_prob <= _LOWEST else log_prob)
        self.end_indices.append(len(self.token_ids))

    def __len__(self) -> int:
        """Return the number of positions."""
        return len(self.start_indices)


@dataclass
class Completion:
    """What `antiphon_vllm.requests` reads of an engine's answer."""

    token_ids: list[int]
    finish_reason: str | None
    stop_reason: int | str | None
    text: str
    logprobs: Flat


@dataclass
class Output:
    """What `antiphon_vllm.requests` reads of an engine's output."""

    prompt_token_ids: list[int]
    outputs: list[Completion]
    prompt_logprobs: Flat | None


def _output(found: Any, request: Request, row: int, server: Server) -> Output:
    """Return a server's answer in the form of an engine's."""
    choice = _first_choice(found, row, server)
    ids = _field(choice, "token_ids", row, server)
    prompt = _field(choice, "prompt_token_ids", row, server)
    if list(prompt) != list(request.ids):
        raise BackendError(
            f"The server at {server.url} took {len(prompt)} other ids than the {len(request.ids)} of row "
            f"{row}; a proxy or an option of its (such as truncation) changes prompts, take it out."
        )
    log_probs = _field(choice, "logprobs", row, server)
    flat = Flat()
    most = log_probs.get("top_logprobs") or [None] * len(ids)
    own = _field(log_probs, "token_logprobs", row, server)
    for token, log_prob, others in zip(ids, own, most, strict=False):
        ranked = sorted(_numbered(others or {}, server), key=lambda pair: -pair[1])
        flat.add([] if log_prob is None else [(token, log_prob), *ranked])
    prompt_log_probs = None
    if request.settings.get("prompt_logprobs") is not None:
        prompt_log_probs = Flat()
        entries = _field(choice, "prompt_logprobs", row, server)
        for token, entry in zip(prompt, entries, strict=False):
            known = (entry or {}).get(str(token))
            if known is None:
                prompt_log_probs.add([])
                continue
            others = [(int(other), each["logprob"]) for other, each in entry.items()]
            prompt_log_probs.add([(token, known["logprob"]), *others])
    text, reason = choice.get("text") or "", choice.get("stop_reason")
    answer = Completion(list(ids), choice.get("finish_reason"), reason, text, flat)
    return Output(list(prompt), [answer], prompt_log_probs)


def _first_choice(found: Any, row: int, server: Server) -> dict[str, Any]:
    choices = found.get("choices") if isinstance(found, dict) else None
    if not choices or not isinstance(choices[0], dict):
        raise BackendError(
            f"The server at {server.url} answered row {row} without 'choices'; it is no "
            "OpenAI-compatible server."
        )
    first: dict[str, Any] = choices[0]
    return first


def _field(choice: Mapping[str, Any], name: str, row: int, server: Server) -> Any:
    value = choice.get(name)
    if value is None:
        raise BackendError(
            f"The server at {server.url} answered row {row} without {name!r}, and text can't stand for "
            f"it; use a server that has the field ({_IDS})."
        )
    return value


def _numbered(others: Mapping[str, float], server: Server) -> list[tuple[int, float]]:
    found = []
    for name, log_prob in others.items():
        head, _, number = name.rpartition(":")
        if head != "token_id" or not number.isdigit():
            raise BackendError(
                f"The server at {server.url} names the most probable tokens by text ({name!r}), and text "
                f"does not say which they are; leave logprobs out, or use another server ({_IDS})."
            )
        found.append((int(number), log_prob))
    return found


def _card(found: Any, wanted: str | None, server: Server) -> Mapping[str, Any]:
    cards = found.get("data") if isinstance(found, dict) else None
    if not cards:
        raise BackendError(
            f"The server at {server.url} lists no models under /v1/models; check the address."
        )
    for card in cards:
        if wanted is None or card["id"] == wanted:
            chosen: Mapping[str, Any] = card
            return chosen
    known = ", ".join(str(card["id"]) for card in cards)
    raise ModelNotFound(f"The server at {server.url} serves {known}, not {wanted!r}.")


def _number(card: Mapping[str, Any], name: str, server: Server) -> int:
    if not isinstance(card.get(name), int):
        raise BackendError(
            f"The server at {server.url} does not say {name!r} of its model under /v1/models; use a "
            "vLLM server."
        )
    return int(card[name])


def _tokenizer(given: Any, root: str) -> Any:
    if given is not None:
        return load_tokenizer(given)
    try:
        return load_tokenizer(root)
    except ModelNotFound:
        return None  # the model may be known to the server's machine alone


def _config(root: str) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(root).get_text_config()
    except (OSError, ValueError):
        return None  # as for the tokenizer


def _ends(root: str) -> Any:
    from transformers import GenerationConfig

    try:
        return GenerationConfig.from_pretrained(root).eos_token_id
    except (OSError, ValueError):
        return None  # as for the tokenizer


def _vocabulary(config: Any, tokenizer: Any, server: Server) -> int:
    size = getattr(config, "vocab_size", None)
    if size is None and tokenizer is not None:
        size = len(tokenizer)
    if size is None:
        raise InvalidParameter(
            f"Nothing here says how many tokens the model at {server.url} knows; give vocab_size= or "
            "tokenizer=."
        )
    return int(size)
