"""`LLMCollector`: steps or whole conversations from environments and a policy, without end."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tensordict import TensorDictBase, lazy_stack

from antiphon.envs.base import EnvBase, Policy, acted
from antiphon.envs.selection import PolicyVersion
from antiphon.errors import EnvError, InvalidParameter
from antiphon.plugins.events import steps_finished


@dataclass
class CollectorStats:
    """What has been collected so far.

    Attributes:
        turns: Answers of the policy, over all rows.
        conversations: Conversations that ended.
        tokens: Sampled tokens, where the policy writes them.
        reward: The sum of all rewards.
        seconds: How long the steps have taken; those of several threads add up.
    """

    turns: int = 0
    conversations: int = 0
    tokens: int = 0
    reward: float = 0.0
    seconds: float = 0.0

    def add(self, step: TensorDictBase, ended: int, seconds: float) -> None:
        """Count a step of some rows."""
        from antiphon.conversations.padding import token_rows

        tokens: Any = step.get("tokens", None)
        sampled = None if tokens is None else token_rows(tokens._tensordict, "response")
        self.turns += step.batch_size[0]
        self.conversations += ended
        self.tokens += sum(len(row) for row in sampled or ())
        self.reward += float(cast("Any", step.get(("next", "reward"))).sum())
        self.seconds += seconds


Collected = tuple[list[TensorDictBase], list[list[TensorDictBase]]]


class LLMCollector:
    """Iterates over what a policy does in environments.

    Args:
        env: An environment, a callable that makes one, or several of either.
        policy: Any callable on tensordicts.
        policy_factory: Makes it, in its place.
        dialog_turns_per_batch: How many answers (over all rows) an item holds; the last may hold
            fewer.
        total_dialog_turns: Stop after this many answers; None: never.
        yield_only_last_steps: An item holds the last steps of conversations that ended, no others.
        yield_completed_trajectories: An item is one whole conversation, ``[turns]``.
        async_envs: Each environment runs in a thread of its own, and items come as they are ready;
            the policy must bear being called from several threads (a wrapper with batching does).
        max_in_flight: With ``async_envs``, how many steps of environments may be under way or wait
            to be taken.
        weights: How often each environment is stepped relative to the others; without them they
            take turns, or with ``async_envs`` each goes as fast as it can.
        replay_buffer: Something with ``extend``: items go there, and iterating yields None for
            each.
        weight_updater: Called by `update_policy_weights_` with the weights it is given.
        track_policy_version: Write the policy's version into each step; True or a `PolicyVersion`.
        callback: Called with each item.
        seed: Settles which environment is chosen.
    """

    def __init__(
        self,
        env: EnvBase | Callable[[], EnvBase] | Sequence[EnvBase | Callable[[], EnvBase]],
        policy: Policy | None = None,
        *,
        policy_factory: Callable[[], Policy] | None = None,
        dialog_turns_per_batch: int | None = None,
        total_dialog_turns: int | None = None,
        yield_only_last_steps: bool = False,
        yield_completed_trajectories: bool = False,
        async_envs: bool = False,
        max_in_flight: int = 8,
        weights: Sequence[float] | None = None,
        replay_buffer: Any = None,
        weight_updater: Callable[[Any], None] | None = None,
        track_policy_version: bool | PolicyVersion = False,
        callback: Callable[[TensorDictBase], None] | None = None,
        seed: int | None = None,
    ) -> None:
        if (policy is None) == (policy_factory is None):
            raise InvalidParameter("Give either policy or policy_factory.")
        if yield_completed_trajectories and yield_only_last_steps:
            raise InvalidParameter(
                "yield_completed_trajectories and yield_only_last_steps exclude each other."
            )
        if max_in_flight < 1:
            raise InvalidParameter(f"max_in_flight must be at least 1, not {max_in_flight}.")
        given = list(env) if isinstance(env, Sequence) else [env]
        made = [item if isinstance(item, EnvBase) else item() for item in given]
        if weights is not None and (len(weights) != len(made) or min(weights) < 0):
            raise InvalidParameter("weights needs one number of at least 0 for each environment.")
        self.version: PolicyVersion | None = None
        if track_policy_version:
            chosen = isinstance(track_policy_version, PolicyVersion)
            self.version = (
                cast("PolicyVersion", track_policy_version) if chosen else PolicyVersion()
            )
            made = [item.append_transform(_shared_version(self.version)) for item in made]
        self.envs = made
        self.policy = cast("Policy", policy if policy_factory is None else policy_factory())
        self.dialog_turns_per_batch = dialog_turns_per_batch or sum(
            item.batch_size.numel() for item in made
        )
        self.total_dialog_turns = total_dialog_turns
        self.last_only = yield_only_last_steps
        self.trajectories = yield_completed_trajectories
        self.async_envs, self.max_in_flight = async_envs, max_in_flight
        self.weights = None if weights is None else list(weights)
        self.replay_buffer, self.weight_updater = replay_buffer, weight_updater
        self.callback = callback
        self.stats = CollectorStats()
        self.env_stats = [CollectorStats() for _ in made]
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._roots: list[TensorDictBase | None] = [None] * len(made)
        # For each environment and row the steps of the conversation that is under way.
        self._open: list[list[list[TensorDictBase]]] = [[] for _ in made]
        # What was collected and not yet looked at, and what waits to be part of an item.
        self._collected: deque[Collected] = deque()
        self._waiting: list[TensorDictBase] = []
        self._taken = 0  # answers that were looked at; threads may be ahead of this
        self._turn = 0
        register = getattr(self.policy, "register_collector", None)
        if register is not None:
            register(self)

    def __iter__(self) -> Iterator[TensorDictBase | None]:
        """Yield items; whoever stops and iterates again, or `state_dict`, goes on without a loss."""
        self._stop.clear()
        rows: Any = self._from_threads() if self.async_envs else self._in_turn()
        size = 1 if self.trajectories else self.dialog_turns_per_batch
        try:
            while True:
                while len(self._waiting) >= size:
                    yield self._next_item(size)
                if self._collected:
                    steps, ended = self._collected.popleft()
                    self._taken += len(steps)
                    self._waiting += self._wanted(steps, ended)
                elif self._enough():
                    break
                else:
                    self._collected.append(next(rows))
            if self._waiting:
                yield self._next_item(len(self._waiting))
        finally:
            self._stop.set()
            rows.close()

    def _next_item(self, size: int) -> TensorDictBase | None:
        parts, self._waiting = self._waiting[:size], self._waiting[size:]
        return self._deliver(parts[0] if self.trajectories else lazy_stack(parts))

    def _enough(self) -> bool:
        total = self.total_dialog_turns
        return total is not None and self._taken >= total

    def _wanted(
        self, steps: list[TensorDictBase], ended: list[list[TensorDictBase]]
    ) -> list[TensorDictBase]:
        if self.trajectories:
            return [lazy_stack(whole) for whole in ended]
        if self.last_only:
            return [whole[-1] for whole in ended]
        return steps

    def _deliver(self, item: TensorDictBase) -> TensorDictBase | None:
        if self.callback is not None:
            self.callback(item)
        if self.replay_buffer is None:
            return item
        self.replay_buffer.extend(item)
        return None

    # Collecting.

    def _advance(self, number: int) -> Collected:
        """Take one step in an environment; returns the rows' steps and what ended with them."""
        began = time.monotonic()
        env = self.envs[number]
        root = self._roots[number]
        if root is None:
            root = env.reset()
            self._open[number] = [[] for _ in range(root.batch_size[0])]
        step = env.step(acted(self.policy, root))
        rows = list(step.unbind(0))
        ended: list[list[TensorDictBase]] = []
        for row, part in enumerate(rows):
            self._open[number][row].append(part)
            if bool(cast("Any", part.get(("next", "done"))).any()):
                ended.append(self._open[number][row])
                steps_finished(ended[-1])
                self._open[number][row] = []
        self._roots[number] = env.maybe_reset(env.step_mdp(step))
        seconds = time.monotonic() - began
        with self._lock:
            for stats in (self.stats, self.env_stats[number]):
                stats.add(step, len(ended), seconds)
        return rows, ended

    def _drawn(self) -> int:
        """Return the environment whose turn it is."""
        if self.weights is not None:
            return self._random.choices(range(len(self.envs)), self.weights)[0]
        number = self._turn % len(self.envs)
        self._turn += 1
        return number

    def _in_turn(self) -> Iterator[Collected]:
        while True:
            yield self._advance(self._drawn())

    def _from_threads(self) -> Iterator[Collected]:
        orders: list[queue.SimpleQueue[bool]] = [queue.SimpleQueue() for _ in self.envs]
        ready: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        under_way = [0] * len(self.envs)

        def order() -> None:
            number = self._drawn()
            if self.weights is None:
                # The one that has least to do, so that none waits for a slower one.
                turns = [(number + i) % len(self.envs) for i in range(len(self.envs))]
                number = min(turns, key=lambda each: under_way[each])
            under_way[number] += 1
            orders[number].put(True)

        def work(number: int) -> None:
            try:
                while orders[number].get() and not self._stop.is_set():
                    ready.put((number, self._advance(number)))
            except BaseException as error:  # handed to the one who iterates
                ready.put((number, error))

        threads = [
            threading.Thread(
                target=work, args=(number,), name=f"antiphon-collector-{number}", daemon=True
            )
            for number in range(len(self.envs))
        ]
        for thread in threads:
            thread.start()
        try:
            while True:
                while sum(under_way) < self.max_in_flight:
                    order()
                number, item = ready.get()
                under_way[number] -= 1
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self._stop.set()
            for each in orders:
                each.put(False)
            for thread in threads:
                thread.join()
            # Steps that were taken already are kept for whoever iterates next.
            while not ready.empty():
                _, item = ready.get()
                if not isinstance(item, BaseException):
                    self._collected.append(item)

    # Control.

    def update_policy_weights_(self, weights: Any = None) -> None:
        """Hand weights to the updater, and begin the next policy version."""
        if self.weight_updater is not None:
            self.weight_updater(weights)
        elif weights is not None:
            raise EnvError("The collector has no weight_updater to hand weights to; give it one.")
        if self.version is not None:
            self.version.increment_version()

    def state_dict(self) -> dict[str, Any]:
        """Return where the environments' data stand, all that is under way, and the figures.

        It can be pickled (``torch.save``). With ``async_envs`` it is only to be called between two
        iterations, when no thread is collecting.
        """
        return {
            "envs": [env.state_dict() if hasattr(env, "state_dict") else None for env in self.envs],
            "roots": list(self._roots),
            "open": [[list(steps) for steps in rows] for rows in self._open],
            "collected": list(self._collected),
            "waiting": list(self._waiting),
            "stats": dict(vars(self.stats)),
            "env_stats": [dict(vars(stats)) for stats in self.env_stats],
            "random": self._random.getstate(),
            "turn": self._turn,
            "taken": self._taken,
            "version": None if self.version is None else self.version.version,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called.

        Raises:
            EnvError: It is the state of a collector with another number of environments.
        """
        if len(state["envs"]) != len(self.envs):
            raise EnvError(
                f"The state is of a collector with {len(state['envs'])} environments, and this one has "
                f"{len(self.envs)}; build it as that one was."
            )
        for env, saved in zip(self.envs, state["envs"], strict=True):
            if saved is not None:
                cast("Any", env).load_state_dict(saved)
        self.stats = CollectorStats(**state["stats"])
        self.env_stats = [CollectorStats(**figures) for figures in state["env_stats"]]
        self._random.setstate(state["random"])
        self._turn, self._taken = state["turn"], state["taken"]
        self._roots = list(state["roots"])
        self._open = [[list(steps) for steps in rows] for rows in state["open"]]
        self._collected = deque(state["collected"])
        self._waiting = list(state["waiting"])
        if self.version is not None and state["version"] is not None:
            self.version.version = state["version"]

    def shutdown(self) -> None:
        """Stop collecting and close the environments."""
        self._stop.set()
        for env in self.envs:
            env.close()


def _shared_version(version: PolicyVersion) -> PolicyVersion:
    """Return a transform that writes whatever version ``version`` has at the time."""
    shared = _SharedVersion(version.version_type)  # type: ignore[arg-type]
    shared.source = version
    return shared


class _SharedVersion(PolicyVersion):
    source: PolicyVersion

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        self.version = self.source.version
        return super()._call(next_tensordict)
