"""A Ray of this machine alone, for tests."""

from __future__ import annotations

import os

# On a busy machine processes take long to be there and to answer; Ray's own limits are for others.
_PATIENCE = {
    "RAY_gcs_rpc_server_connect_timeout_s": "120",
    "RAY_gcs_server_request_timeout_seconds": "600",
}
_STARTS = 3


def start_ray(num_cpus: int) -> None:
    """Start it; ``ray.shutdown()`` ends it."""
    os.environ.update(_PATIENCE)
    # Ray warns of a default of its own that will change.
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    import ray

    for start in range(1, _STARTS + 1):
        try:
            ray.init(
                num_cpus=num_cpus,
                include_dashboard=False,
                log_to_driver=False,
                configure_logging=False,
                object_store_memory=128 * 1024 * 1024,
                _system_config={
                    "enable_metrics_collection": False,
                    "worker_register_timeout_seconds": 600,
                    "health_check_timeout_ms": 120_000,
                    # What others use of its memory is not the tests' affair.
                    "memory_monitor_refresh_ms": 0,
                },
            )
            return
        except Exception as error:  # Ray has no type of its own for this; another error goes on
            ray.shutdown()
            # Its node has 30 seconds, which no setting changes.
            if start == _STARTS or "timed out during startup" not in str(error):
                raise
