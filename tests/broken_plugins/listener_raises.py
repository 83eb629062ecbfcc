"""It listens to everything, and raises each time."""

from antiphon.plugins import hookimpl


@hookimpl
def antiphon_rendering_made(rendering):
    raise ConnectionError("the log server is away")


@hookimpl
def antiphon_turn_sampled(turn):
    raise SystemExit(3)


@hookimpl
def antiphon_trajectory_finished(trajectory):
    raise trajectory.segments[99]
