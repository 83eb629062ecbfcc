"""How benchmarks that run in one process measure."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def medians(
    runs: dict[str, Callable[..., Any]],
    repeats: int,
    *given: Any,
    warm_up: tuple[Any, ...] | None = None,
) -> dict[str, float]:
    """Return the median CPU seconds of each run, taken in turn; each runs once before.

    Args:
        runs: What to measure, by name.
        repeats: How often.
        *given: What each run is called with.
        warm_up: What it is called with before; ``given`` if None.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run(*(given if warm_up is None else warm_up))
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.process_time()
            run(*given)
            times[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}
