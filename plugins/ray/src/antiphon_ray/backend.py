"""`RayBackend`: another backend's model in Ray actors, one or several copies of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import ray
import torch
from antiphon.errors import BackendError, EnvError, InvalidParameter
from antiphon.generation.backends import Generation, Scores, TokenBatch
from antiphon.generation.sampling import SamplingParams
from antiphon.plugins import get_host

from antiphon_ray.workers import answer, check_plugins, kill

_FACTS = ("tokenizer", "vocab_size", "max_context", "end_ids", "extra_parameters", "weight_version")


class Replica:
    """The actor: a backend of this process's plugins."""

    _backend: Any

    def start(
        self, backend: Any, model: Any, options: Mapping[str, Any], inventory: Mapping[str, str]
    ) -> dict[str, Any]:
        """Load the model; returns what is known of it."""
        from antiphon.registry import get_backend

        check_plugins(inventory)
        make: Any = get_backend(backend).load() if isinstance(backend, str) else backend
        self._backend = make(model, **options)
        return {name: getattr(self._backend, name) for name in _FACTS}

    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        """See `Backend.generate`."""
        generation: Generation = self._backend.generate(batch, params)
        return generation

    def score(self, batch: TokenBatch, options: Mapping[str, Any]) -> Scores:
        """See `Backend.score`."""
        scores: Scores = self._backend.score(batch, **options)
        return scores

    def load_weights(self, weights: Mapping[str, torch.Tensor], version: Any) -> Any:
        """See `Backend.load_weights`; returns the version that they now have."""
        self._backend.load_weights(weights, version)
        return self._backend.weight_version

    def close(self) -> None:
        """See `Backend.close`."""
        self._backend.close()


class RayBackend:
    """Generates and scores with a model that lives elsewhere in the cluster.

    The rows of a batch are shared out among the replicas, in order. Each row has a seed of its own
    before that, so what is sampled does not depend on their number.

    Args:
        model: What the backend takes.
        backend: The name of the backend in the actors, such as ``"transformers"`` or ``"vllm"``, or a
            callable that makes one of ``model`` and ``options``.
        replicas: How many actors, each with the whole model.
        ray_options: For starting each actor, such as ``num_gpus``, ``num_cpus`` (1 by default) or
            ``resources``.
        **options: The further arguments of that backend.

    Raises:
        PluginError: The plugins there are others than here, or the backend is not among them.
        BackendError: The model can't be loaded there.
    """

    name = "ray"

    def __init__(
        self,
        model: Any = "embedded",
        *,
        backend: str | Callable[..., Any] = "transformers",
        replicas: int = 1,
        ray_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if replicas < 1:
            raise InvalidParameter(f"replicas must be at least 1, not {replicas}.")
        if backend == self.name:
            raise InvalidParameter("backend names what runs in the actors, such as 'transformers'.")
        started = {"num_cpus": 1, **(ray_options or {})}
        actor = ray.remote(Replica).options(**started)
        inventory = get_host().inventory()
        self.replicas: list[Any] = [actor.remote() for _ in range(replicas)]
        try:
            calls = [
                each.start.remote(backend, model, options, inventory) for each in self.replicas
            ]
            facts = self._answers(calls)[0]
        except BaseException:  # an interrupt too: nobody has a handle to end them with; it goes on
            kill(self.replicas)
            raise
        self.tokenizer = facts["tokenizer"]
        self.vocab_size: int = facts["vocab_size"]
        self.max_context: int | None = facts["max_context"]
        self.end_ids: frozenset[int] = facts["end_ids"]
        self.extra_parameters: frozenset[str] = facts["extra_parameters"]
        self.weight_version: int | str = facts["weight_version"]
        self._closed = False

    def generate(self, batch: TokenBatch, params: SamplingParams) -> Generation:
        """Sample answers; see `Backend.generate`."""
        if params.do_sample:
            batch = batch.seeded(params, int(torch.randint(2**62, (1,)).item()))
        parts = self._shared_out(len(batch))
        calls = [
            each.generate.remote(batch[start:stop], params)
            for each, (start, stop) in zip(self.replicas, parts, strict=False)
        ]
        return Generation.cat(self._answers(calls))

    def score(
        self,
        batch: TokenBatch,
        *,
        starts: Sequence[int] | None = None,
        temperature: float = 1.0,
        entropy: bool = False,
        requires_grad: bool = False,
    ) -> Scores:
        """Score rows; see `Backend.score`.

        Raises:
            InvalidParameter: Gradients are asked for: they don't cross processes.
        """
        if requires_grad:
            raise InvalidParameter(
                "Gradients don't cross processes; score with a backend in this one for a loss."
            )
        calls = []
        for each, (start, stop) in zip(self.replicas, self._shared_out(len(batch)), strict=False):
            options = {
                "starts": None if starts is None else list(starts)[start:stop],
                "temperature": temperature,
                "entropy": entropy,
            }
            calls.append(each.score.remote(batch[start:stop], options))
        found: list[Scores] = self._answers(calls)
        entropies = None
        if all(part.entropies is not None for part in found):
            entropies = [row for part in found for row in part.entropies or ()]
        rows = [row for part in found for row in part.log_probs]
        return Scores(rows, entropies, found[-1].weight_version)

    def load_weights(
        self,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        version: int | str | None = None,
    ) -> None:
        """Put weights in place in every replica; they are sent once.

        Requests that wait in a replica are answered with the old weights.
        """
        named = weights.items() if isinstance(weights, Mapping) else weights
        sent = ray.put({name: tensor.detach().cpu() for name, tensor in named})
        versions = self._answers(
            [each.load_weights.remote(sent, version) for each in self.replicas]
        )
        self.weight_version = versions[0]

    def close(self) -> None:
        """End the actors."""
        if not self._closed:
            self._closed = True
            try:
                self._answers([each.close.remote() for each in self.replicas])
            except EnvError:
                pass  # one of them had died already
            finally:
                kill(self.replicas)

    def _shared_out(self, rows: int) -> list[tuple[int, int]]:
        """Return where each replica's rows begin and end; a replica without rows is left out."""
        if self._closed:
            raise BackendError("This RayBackend is closed; build a new one.")
        used = max(1, min(len(self.replicas), rows))
        return [(rows * i // used, rows * (i + 1) // used) for i in range(used)]

    def _answers(self, calls: list[Any]) -> list[Any]:
        found: list[Any] = answer(calls, "A model's actor")
        return found
