"""Events: what plugins that listen are told, and how they are told it.

An observer can't change what it hears of: it gets frozen data of its own, and what it returns is not
looked at. One that raises is recorded in `faults`, a warning names it once, and the run goes on;
only under ``ANTIPHON_STRICT_PLUGINS=1`` the run ends. What an observer renders or samples itself is
told to nobody. Events come in the thread in which they happen, so a slow observer slows the run.
"""

from __future__ import annotations

import os
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from antiphon.errors import PluginError, PluginWarning
from antiphon.plugins.host import Observer, host_unless_loading
from antiphon.plugins.loading import STRICT
from antiphon.plugins.records import PluginRecord
from antiphon.plugins.renames import with_old_names
from antiphon.plugins.tracing import told

if TYPE_CHECKING:
    from tensordict import TensorDictBase

    from antiphon.engine.rendering import Rendering, Span
    from antiphon.generation.backends import Generation, TokenBatch
    from antiphon.rollouts.sampling_loop import Trajectory

RENDERING_MADE = "antiphon_rendering_made"
TURN_SAMPLED = "antiphon_turn_sampled"
TRAJECTORY_FINISHED = "antiphon_trajectory_finished"


@dataclass(frozen=True)
class RenderingMade:
    """A conversation was rendered.

    Attributes:
        text: The text.
        spans: The parts that came from messages: start, end, message, field.
        messages: The messages as the template saw them.
        template: The template's source.
        add_generation_prompt: Whether the text ends with what precedes the model's answer.
        continued: Whether it ends within the last message.
    """

    text: str
    spans: tuple[Span, ...]
    messages: tuple[dict[str, Any], ...]
    template: str
    add_generation_prompt: bool
    continued: bool


@dataclass(frozen=True)
class TurnSampled:
    """A backend sampled one answer.

    Attributes:
        backend: The backend's name.
        prompt_ids: What the model was given.
        ids: What it sampled, the end token included.
        log_probs: One for each id, by the convention of the sampling parameters.
        finish: ``"end"``, ``"stop"`` or ``"length"``.
        weight_version: Which weights sampled it, None where the backend does not say.
        conversation: The conversation's name in a rollout, None outside of one.
        turn: Which answer of the conversation it is, from 1; None outside of a rollout.
    """

    backend: str
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish: str
    weight_version: int | str | None = None
    conversation: str | None = None
    turn: int | None = None


@dataclass(frozen=True)
class TrajectoryTurn:
    """One answer of a trajectory: where its ids stand in its segment, and what it was worth.

    ``finish`` is why it ended, empty where that is not known.
    """

    segment: int
    start: int
    end: int
    finish: str
    reward: float


@dataclass(frozen=True)
class TrajectorySegment:
    """One token sequence of a trajectory.

    Attributes:
        ids: All ids.
        sampled: Whether the model sampled the id in this very context.
        log_probs: The sampler's log-probs, None where nothing was sampled.
    """

    ids: tuple[int, ...]
    sampled: tuple[bool, ...]
    log_probs: tuple[float | None, ...]


@dataclass(frozen=True)
class TrajectoryFinished:
    """A conversation came to its end, in a rollout, an environment's too, or a collector.

    Attributes:
        conversation: Its name within the run: ``"problem/sample"``, or a collector's own.
        messages: All its messages; none where environments work on text or ids.
        turns: The model's answers.
        segments: The token sequences; one for as long as the template rewrites nothing.
        reward: The last turn's reward.
        terminated: Whether it ended by itself.
        truncated: Whether it was cut off.
        log_prob_difference: How far scoring was from what the sampler said, at most; None where
            nothing was scored.
    """

    conversation: str
    messages: tuple[dict[str, Any], ...]
    turns: tuple[TrajectoryTurn, ...]
    segments: tuple[TrajectorySegment, ...]
    reward: float
    terminated: bool
    truncated: bool
    log_prob_difference: float | None


@dataclass(frozen=True)
class PluginFault:
    """What went wrong in a plugin's event hook.

    Attributes:
        plugin: The entry point's name.
        distribution: The distribution that installed it.
        version: The distribution's version.
        hook: The hook.
        error: One sentence, of the first time.
        traceback: The traceback's text, of the first time.
        count: How often it raised.
    """

    plugin: str
    distribution: str
    version: str
    hook: str
    error: str
    traceback: str
    count: int = 1


class _Faults:
    """The faults so far, one per plugin and hook, so that there is an end to them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.found: dict[tuple[str, str, str], PluginFault] = {}

    def add(
        self, record: PluginRecord, hook: str, error: BaseException
    ) -> tuple[PluginFault, bool]:
        """Note a fault; returns it and whether it is the first of its kind."""
        key = (record.name, record.distribution, hook)
        with self.lock:
            known = self.found.get(key)
            if known is None:
                sentence = f"{record.who} failed in {hook} ({told(error)})"
                text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
                fault = PluginFault(
                    record.name, record.distribution, record.version, hook, sentence, text
                )
            else:
                fault = replace(known, count=known.count + 1)
            self.found[key] = fault
        return fault, known is None


_faults = _Faults()
_quiet: ContextVar[bool] = ContextVar("antiphon_quiet", default=False)


def _after_fork() -> None:
    _faults.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def faults() -> tuple[PluginFault, ...]:
    """Return what went wrong in event hooks of this process so far."""
    with _faults.lock:
        return tuple(_faults.found.values())


@contextmanager
def unobserved() -> Iterator[None]:
    """Tell nobody of what happens within: probes, and what observers do themselves."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def observers(hook: str) -> tuple[Observer, ...]:
    """Return who is to be told of an event; asked before anything is made for them."""
    host = host_unless_loading()
    found = () if host is None else host.observers[hook]
    return () if not found or _quiet.get() else found


def rendering_made(rendering: Rendering) -> None:
    """Tell of a rendering."""
    who = observers(RENDERING_MADE)
    if who:
        _tell(who, RENDERING_MADE, lambda: {"rendering": _of_rendering(rendering)})


def turns_sampled(
    backend: str,
    batch: TokenBatch,
    made: Generation,
    trajectories: Sequence[Trajectory] | None = None,
) -> None:
    """Tell of each answer that a backend sampled.

    Args:
        backend: The backend's name.
        batch: The prompts.
        made: The answers.
        trajectories: The conversation of each answer, in a rollout.
    """
    who = observers(TURN_SAMPLED)
    if not who:
        return
    n = max(1, len(made) // len(batch.rows))
    for index, ids in enumerate(made.ids):
        own = None if trajectories is None else trajectories[index]
        event = TurnSampled(
            backend,
            tuple(batch.rows[index // n]),
            tuple(ids),
            tuple(made.log_probs[index].tolist()),
            made.finish[index],
            made.weight_version,
            None if own is None else own.name,
            None if own is None else len(own.turns),
        )
        _tell(who, TURN_SAMPLED, lambda event=event: {"turn": event})  # type: ignore[misc]


def trajectory_finished(trajectory: Trajectory) -> None:
    """Tell of a conversation that came to its end."""
    who = observers(TRAJECTORY_FINISHED)
    if who:
        _tell(who, TRAJECTORY_FINISHED, lambda: {"trajectory": _of_trajectory(trajectory)})


def steps_finished(steps: Sequence[TensorDictBase]) -> None:
    """Tell of a conversation of which an environment's steps are at hand, see `trajectory_of`."""
    who = observers(TRAJECTORY_FINISHED)
    if who:
        from antiphon.envs.trajectories import trajectory_of

        _tell(who, TRAJECTORY_FINISHED, lambda: {"trajectory": trajectory_of(steps)})


def _tell(who: tuple[Observer, ...], hook: str, make: Callable[[], Mapping[str, Any]]) -> None:
    """Call the observers one after the other, each with data of its own."""
    for record, call in who:
        arguments = with_old_names(hook, dict(make()))
        try:
            with unobserved():
                call(**arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # A stranger's code, which may raise anything: the run is not its business.
            _note(record, hook, error)


def _note(record: PluginRecord, hook: str, error: BaseException) -> None:
    fault, first = _faults.add(record, hook, error)
    host = host_unless_loading()
    if host is not None and host.strict:
        raise PluginError(f"{fault.error}. ({STRICT} is set.)") from error
    if first:
        warnings.warn(
            f"{fault.error}; the run goes on without it. Leave the plugin out with"
            f" ANTIPHON_DISABLE_PLUGINS={record.name}, or see antiphon.plugins.faults().",
            PluginWarning,
            stacklevel=5,
        )


def _of_rendering(rendering: Rendering) -> RenderingMade:
    return RenderingMade(
        rendering.text,
        tuple(rendering.spans),
        tuple(_copied(message) for message in rendering.messages),
        rendering.source.template,
        rendering.add_generation_prompt,
        rendering.continued,
    )


def _of_trajectory(trajectory: Trajectory) -> TrajectoryFinished:
    return TrajectoryFinished(
        conversation=trajectory.name,
        messages=tuple(_copied(message) for message in trajectory.conversation.messages),
        turns=tuple(
            TrajectoryTurn(turn.segment, turn.start, turn.end, turn.finish, turn.reward)
            for turn in trajectory.turns
        ),
        segments=tuple(
            TrajectorySegment(tuple(segment.ids), tuple(segment.sampled), tuple(segment.log_probs))
            for segment in trajectory.segments
        ),
        reward=trajectory.turns[-1].reward,
        terminated=trajectory.terminated,
        truncated=trajectory.truncated,
        log_prob_difference=trajectory.difference,
    )


def _copied(value: Any) -> Any:
    """Return plain data of its own: what is done to it is done to nobody else's."""
    if isinstance(value, str):
        return str.__str__(value)  # a string that knows its origin becomes one that does not
    if isinstance(value, Mapping):
        return {_copied(key): _copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(item) for item in value]
    return value
