"""Nothing is wrong with it: it writes down what it hears, one line of JSON per event."""

import dataclasses
import json
import os

from antiphon.plugins import hookimpl


def write(event):
    line = {"event": type(event).__name__, **dataclasses.asdict(event)}
    with open(os.environ["HEARD"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


@hookimpl
def antiphon_rendering_made(rendering):
    write(rendering)


@hookimpl
def antiphon_turn_sampled(turn):
    write(turn)


@hookimpl
def antiphon_trajectory_finished(trajectory):
    write(trajectory)
