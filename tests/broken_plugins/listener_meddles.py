"""It tries to change all it hears of, renders in its hook, and returns something."""

import contextlib

from antiphon import render
from antiphon.plugins import hookimpl


def meddle(event):
    for name in vars(event):
        with contextlib.suppress(AttributeError):
            setattr(event, name, None)
    for message in getattr(event, "messages", ()):
        message["content"] = "meddled"
        message.setdefault("tool_calls", []).append({})
    render([{"role": "user", "content": "again"}], family="chatml")
    return "meddled"


@hookimpl
def antiphon_rendering_made(rendering):
    return meddle(rendering)


@hookimpl
def antiphon_turn_sampled(turn):
    return meddle(turn)


@hookimpl
def antiphon_trajectory_finished(trajectory):
    return meddle(trajectory)
