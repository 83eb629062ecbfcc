"""`RayCollector`: environments and policies in Ray actors, what they collect in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ray
from antiphon.envs.base import EnvBase, Policy
from antiphon.envs.collector import CollectorStats, LLMCollector
from antiphon.errors import EnvError, InvalidParameter
from antiphon.plugins import get_host
from tensordict import TensorDictBase

from antiphon_ray.workers import answer, check_plugins, kill


class Worker:
    """The actor: an `LLMCollector`."""

    def start(
        self,
        env: Callable[[], EnvBase],
        policy: Callable[[], Policy],
        options: Mapping[str, Any],
        inventory: Mapping[str, str],
    ) -> None:
        """Make environment and policy."""
        check_plugins(inventory)
        self._collector = LLMCollector(env, policy_factory=policy, **options)
        self._items = iter(self._collector)

    def next(self) -> tuple[TensorDictBase | None, dict[str, Any]]:
        """Return the next item, None after the last, and the figures so far."""
        return next(self._items, None), dict(vars(self._collector.stats))

    def update(self, weights: Any) -> None:
        """See `LLMCollector.update_policy_weights_`."""
        self._collector.update_policy_weights_(weights)

    def state(self) -> dict[str, Any]:
        """See `LLMCollector.state_dict`."""
        return self._collector.state_dict()

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `LLMCollector.load_state_dict`."""
        self._collector.load_state_dict(state)

    def close(self) -> None:
        """Close the environments."""
        self._collector.shutdown()


class RayCollector:
    """Iterates over what workers collect, in the order in which they finish.

    Each worker makes its own environment and policy and works on one item at a time; the next one is
    begun when the last was taken, so at most one item for each worker waits. Give the environments a
    `RayDataLoadingPrimer` (``ray_backend=True`` and an actor name for a `DatasetChatEnv`) to share
    one data set.

    Args:
        create_env_fn: Makes a worker's environment.
        policy_factory: Makes a worker's policy.
        num_workers: How many.
        total_dialog_turns: Stop after this many answers over all workers; None: never.
        ray_options: For starting each actor, such as ``num_gpus``, ``num_cpus`` (1 by default).
        **options: The further arguments of `LLMCollector`.

    Raises:
        PluginError: A worker's plugins are others than this process's.
    """

    def __init__(
        self,
        create_env_fn: Callable[[], EnvBase],
        policy_factory: Callable[[], Policy],
        *,
        num_workers: int = 1,
        total_dialog_turns: int | None = None,
        ray_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if num_workers < 1:
            raise InvalidParameter(f"num_workers must be at least 1, not {num_workers}.")
        refused = sorted({"replay_buffer", "callback"} & options.keys())
        if refused:
            raise InvalidParameter(f"{refused[0]} stays in this process; use it on the items.")
        actor = ray.remote(Worker).options(**{"num_cpus": 1, **(ray_options or {})})
        inventory = get_host().inventory()
        self.total_dialog_turns = total_dialog_turns
        self.workers: list[Any] = [actor.remote() for _ in range(num_workers)]
        self._figures: list[dict[str, Any]] = [{} for _ in self.workers]
        self._running: dict[Any, int] = {}
        self._restored: list[TensorDictBase] = []
        try:
            self._ask("start", [(create_env_fn, policy_factory, options, inventory)] * num_workers)
        except BaseException:  # an interrupt too: nobody has a handle to end them with; it goes on
            self.shutdown()
            raise

    @property
    def stats(self) -> CollectorStats:
        """What all workers have done, as far as their items were taken; their seconds are added."""
        total = CollectorStats()
        for figures in self._figures:
            for name, value in figures.items():
                setattr(total, name, getattr(total, name) + value)
        return total

    def __iter__(self) -> Iterator[TensorDictBase]:
        turns = 0
        while self._restored:
            item = self._restored.pop(0)
            turns += item.numel()
            yield item
        for number in range(len(self.workers)):
            if number not in self._running.values():
                self._begin(number)
        while self._running:
            (ready,), _ = ray.wait(list(self._running), num_returns=1)
            number = self._running.pop(ready)
            item, self._figures[number] = answer(ready, f"Worker {number}")
            if item is None:
                continue
            turns += item.numel()
            enough = self.total_dialog_turns is not None and turns >= self.total_dialog_turns
            if not enough:
                self._begin(number)
            yield item
            if enough:
                return

    def _begin(self, number: int) -> None:
        if not self.workers:
            raise EnvError("This RayCollector is shut down; build a new one.")
        self._running[self.workers[number].next.remote()] = number

    def update_policy_weights_(self, weights: Any = None) -> None:
        """Hand weights to every worker, each of which takes them after the item it is at."""
        sent = ray.put(weights)
        self._ask("update", [(sent,)] * len(self.workers))

    def state_dict(self) -> dict[str, Any]:
        """Return where the workers stand, and the items that they had finished before.

        It waits for the items that are under way; they can still be taken here.
        """
        items = [answer(call, f"Worker {number}")[0] for call, number in self._running.items()]
        return {
            "workers": self._ask("state", [()] * len(self.workers)),
            "items": [*self._restored, *(item for item in items if item is not None)],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called, with as many workers."""
        saved = state["workers"]
        if len(saved) != len(self.workers):
            raise InvalidParameter(
                f"The state is of {len(saved)} workers, this collector has {len(self.workers)}."
            )
        self._ask("restore", [(each,) for each in saved])
        self._restored = list(state["items"])

    def _ask(self, method: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        calls = [
            getattr(worker, method).remote(*own)
            for worker, own in zip(self.workers, arguments, strict=True)
        ]
        return [answer(call, f"Worker {number}") for number, call in enumerate(calls)]

    def shutdown(self) -> None:
        """End the workers, whatever they are doing."""
        kill(self.workers)
        self.workers, self._running = [], {}
