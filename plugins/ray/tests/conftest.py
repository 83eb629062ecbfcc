"""A real Ray of this machine alone, started once and ended at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def ray_cluster() -> Iterator[None]:
    import ray
    from local_ray import start_ray

    start_ray(num_cpus=4)
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """Send what a test module defines along: workers can't import the module."""
    from ray import cloudpickle

    module = sys.modules[request.module.__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)
