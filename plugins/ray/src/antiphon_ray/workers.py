"""Talking to Ray's workers: their errors as ours, and the plugins that they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import ray
from antiphon.errors import AntiphonError, EnvError, PluginError
from antiphon.plugins import get_host
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError


def answer(reference: Any, who: str, *, timeout: float | None = None) -> Any:
    """Return what a worker answers, or raise what it raised.

    Args:
        reference: What a remote call returned, or a list of such.
        who: How errors name the worker.
        timeout: Seconds to wait; None: as long as it takes.

    Raises:
        AntiphonError: As the worker raised it.
        EnvError: The worker has died, or did not answer in time.
    """
    try:
        return ray.get(reference, timeout=timeout)
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, AntiphonError):
            raise cause from None
        raise
    except RayActorError as error:
        raise EnvError(f"{who} has died; start it again. Ray says: {error}") from error
    except GetTimeoutError as error:
        raise EnvError(f"{who} gave no answer within {timeout} s.") from error


def check_plugins(inventory: Mapping[str, str]) -> None:
    """Refuse to work where another process has other plugins; to be called in a worker.

    Args:
        inventory: What `get_host().inventory()` gave in the driver.

    Raises:
        PluginError: With the plugins that differ, and the node.
    """
    try:
        get_host().check_same(inventory)
    except PluginError as error:
        node = ray.get_runtime_context().get_node_id()
        raise PluginError(f"On the Ray node {node}: {error}") from error


def check_nodes() -> list[str]:
    """Compare the plugins of every node of the cluster with this process's.

    Returns:
        The ids of the nodes, all of them with the same plugins.

    Raises:
        PluginError: A node has others; the message names both.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    known: Any = ray
    nodes = [str(node["NodeID"]) for node in known.nodes() if node["Alive"]]
    check = ray.remote(num_cpus=0, max_retries=0)(check_plugins)
    inventory = get_host().inventory()
    for node in nodes:
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        reference = check.options(scheduling_strategy=strategy).remote(inventory)
        answer(reference, f"The Ray node {node}")
    return nodes


def kill(actors: Iterable[Any]) -> None:
    """End actors that this process has started, whatever they are doing."""
    for actor in actors:
        if ray.is_initialized():
            ray.kill(actor)
