"""A real Ray of this machine alone, started once and ended at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def ray_cluster() -> Iterator[None]:
    # Ray warns of a default of its own that will change.
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    import ray

    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=128 * 1024 * 1024,
        _system_config={
            "enable_metrics_collection": False,
            # On a busy machine a worker takes long to be there.
            "worker_register_timeout_seconds": 600,
            "health_check_timeout_ms": 120_000,
            # What others use of its memory is not the tests' affair.
            "memory_monitor_refresh_ms": 0,
        },
    )
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
