"""`RayDataLoadingPrimer`: one loader, many environments on many machines, each row handed out once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ray
from antiphon.envs.data import DataLoadingPrimer
from antiphon.errors import InvalidParameter

from antiphon_ray.workers import answer


class Source:
    """The actor: a loader and where its reading stands."""

    def __init__(
        self,
        dataloader: Iterable[Any] | None,
        factory: Callable[[], Iterable[Any]] | None,
        repeats: int | None,
        group_repeats: bool,
    ) -> None:
        self._primer = DataLoadingPrimer(
            dataloader, dataloader_factory=factory, repeats=repeats, group_repeats=group_repeats
        )

    def take(self, count: int) -> tuple[list[tuple[Any, int | None]], list[int]]:
        """Return the next rows and their groups, which nobody else gets."""
        return self._primer.take(count)

    def reset(self) -> None:
        """Begin the data anew."""
        self._primer.reset_dataloader()

    def state(self) -> dict[str, Any]:
        """Return where the data stands."""
        return self._primer.state_dict()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._primer.load_state_dict(state)


class RayDataLoadingPrimer(DataLoadingPrimer):
    """A `DataLoadingPrimer` whose rows come from a loader in a Ray actor.

    Environments that hold copies of it, or primers with the same ``actor_name``, share the loader:
    no row goes to two of them, and groups are numbered over all. It can be sent to other workers.

    Args:
        dataloader: See `DataLoadingPrimer`; it is sent to the actor.
        dataloader_factory: Makes the loader in the actor.
        repeats: See `DataLoadingPrimer`.
        group_repeats: See `DataLoadingPrimer`.
        actor_name: The actor's name in the Ray namespace. Where an actor of this name runs, it is
            used as it is, and no loader need be given; otherwise one is started.
        detached: Whether a named actor outlives the process that started it.
        ray_options: For starting the actor, such as ``num_cpus`` (0 by default), ``resources``.
        **options: The further arguments of `DataLoadingPrimer`.

    Raises:
        InvalidParameter: There is neither a loader nor an actor of this name.
    """

    def __init__(
        self,
        dataloader: Iterable[Any] | None = None,
        *,
        dataloader_factory: Callable[[], Iterable[Any]] | None = None,
        repeats: int | None = None,
        group_repeats: bool = False,
        actor_name: str | None = None,
        detached: bool = False,
        ray_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            dataloader_factory=_elsewhere, repeats=repeats, group_repeats=group_repeats, **options
        )
        self.actor_name = actor_name
        self._actor = None if actor_name is None else _running(actor_name)
        if self._actor is None:
            if (dataloader is None) == (dataloader_factory is None):
                there = "" if actor_name is None else f" (no actor {actor_name!r} runs yet)"
                raise InvalidParameter(f"Give either dataloader or dataloader_factory{there}.")
            started: dict[str, Any] = {"num_cpus": 0, **(ray_options or {})}
            if actor_name is not None:
                started |= {"name": actor_name, "get_if_exists": True}
                if detached:
                    started["lifetime"] = "detached"
            elif detached:
                raise InvalidParameter("A detached loader needs an actor_name to be found by.")
            self._actor = (
                ray.remote(Source)
                .options(**started)
                .remote(dataloader, dataloader_factory, repeats, group_repeats)
            )

    def _ask(self, method: str, *arguments: Any) -> Any:
        named = "" if self.actor_name is None else f" {self.actor_name!r}"
        reference = getattr(self._actor, method).remote(*arguments)
        return answer(reference, f"The shared data loader{named}")

    def take(self, count: int) -> tuple[list[tuple[Any, int | None]], list[int]]:
        rows, groups = self._ask("take", count)
        return rows, groups

    def reset_dataloader(self) -> None:
        """Begin the data anew, for all who share it."""
        self._ask("reset")

    def set_seed(self, seed: int | None) -> None:
        """Do nothing: the order is the loader's, and one environment's seed is not another's."""

    def state_dict(self) -> dict[str, Any]:
        """Return where the shared data stands; what workers have taken counts as done."""
        state: dict[str, Any] = self._ask("state")
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the shared data go on where `state_dict` was called."""
        self._ask("restore", dict(state))

    def close(self) -> None:
        """Keep the loader: others may share it. It ends with the process that started it."""


def _running(name: str) -> Any:
    try:
        return ray.get_actor(name)
    except ValueError:
        return None


def _elsewhere() -> Iterable[Any]:
    raise AssertionError("The loader is in an actor, not in this process.")
