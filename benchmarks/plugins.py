"""What plugins cost: listing twelve of them, and events that nobody listens to.

    python benchmarks/plugins.py

Listing runs in processes of its own, which see twelve made-up distributions beside what is installed.
The cost of an event is that of asking whether anybody listens, against a whole rendering.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COUNT = 12
MESSAGES = [
    {"role": "user", "content": "How high is the Zugspitze, and when was it first climbed?"},
    {"role": "assistant", "content": "It is 2,962 metres high and was first climbed in 1820."},
    {"role": "user", "content": "By whom?"},
]


def make_plugins(site: Path) -> None:
    """Install twelve made-up distributions with a family each."""
    for number in range(COUNT):
        name = f"bird{number}"
        (site / f"stranger_{name}.py").write_text(
            "from antiphon.families import ModelFamily\n"
            "from antiphon.plugins import hookimpl\n\n"
            "@hookimpl\n"
            "def antiphon_register_families():\n"
            f'    return [ModelFamily("{name}", "bird", "nowhere:bird.jinja")]\n',
            encoding="utf-8",
        )
        info = site / f"stranger_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: stranger-{name}\nVersion: 1.0\n"
            "Requires-Dist: antiphon>=0.1\n",
            encoding="utf-8",
        )
        (info / "entry_points.txt").write_text(
            f"[antiphon.plugins]\n{name} = stranger_{name}\n", encoding="utf-8"
        )


def listing(runs: int) -> tuple[float, float]:
    """Return the medians of the wall and the processor's seconds of `antiphon plugins list`."""
    walls, processor = [], []
    with tempfile.TemporaryDirectory() as folder:
        make_plugins(Path(folder))
        environment = {**os.environ, "PYTHONPATH": folder}
        command = [sys.executable, "-m", "antiphon.cli", "plugins", "list"]
        for _ in range(runs + 1):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            began = time.perf_counter()
            done = subprocess.run(
                command, env=environment, check=True, capture_output=True, text=True
            )
            walls.append(time.perf_counter() - began)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        listed = sum(line.startswith("bird") for line in done.stdout.splitlines())
        assert listed == COUNT, done.stdout
    return statistics.median(walls[1:]), statistics.median(processor[1:])


def events(runs: int) -> tuple[float, float]:
    """Return seconds of the processor for a rendering, and for asking whether anybody listens."""
    from antiphon import render
    from antiphon.plugins.events import rendering_made

    made = render(MESSAGES, family="chatml")
    rounds = []
    for _ in range(7):
        began = time.process_time()
        for _ in range(runs):
            render(MESSAGES, family="chatml")
        middle = time.process_time()
        for _ in range(runs):
            rendering_made(made)
        rounds.append(((middle - began) / runs, (time.process_time() - middle) / runs))
    renders, asks = zip(*rounds, strict=True)
    return min(renders), min(asks)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7, help="processes that list")
    options = parser.parse_args()
    wall, processor = listing(options.runs)
    print(f"antiphon plugins list, {COUNT} more plugins: {wall:.3f} s, processor {processor:.3f} s")
    rendering, asking = events(2000)
    print(
        f"a rendering of {len(MESSAGES)} messages: {rendering * 1e6:.1f} µs; asking who listens:"
        f" {asking * 1e9:.0f} ns ({asking / rendering:.2%})"
    )


if __name__ == "__main__":
    main()
