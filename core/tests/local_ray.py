"""A Ray of this machine alone, for tests."""

from __future__ import annotations

import os


def start_ray(num_cpus: int) -> None:
    """Start it; ``ray.shutdown()`` ends it."""
    # Ray warns of a default of its own that will change.
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    import ray

    ray.init(
        num_cpus=num_cpus,
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
