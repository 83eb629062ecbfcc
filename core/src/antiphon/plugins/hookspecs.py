"""The hooks a plugin may implement, and the marker for its implementations.

A plugin is a module that an entry point of the group ``antiphon.plugins`` names. Its hook
implementations are functions with the names below, marked with `hookimpl`::

    from antiphon.families import ModelFamily
    from antiphon.plugins import hookimpl

    @hookimpl
    def antiphon_register_families():
        return [ModelFamily("gemma3", "gemma", "antiphon_gemma:templates/gemma3.jinja")]

Registering hooks return descriptors and do nothing else: they run in every process that uses
Antiphon, so they must not import torch, read files or reach the network. Event hooks are told what
happened, see `antiphon.plugins.events`; they return nothing and can change nothing. The author's
guide has a whole plugin for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar, overload

import pluggy

from antiphon.families import BackendSpec, EnvSpec, ModelFamily
from antiphon.plugins.specs import RewardSpec, TransformSpec

if TYPE_CHECKING:
    from antiphon.cli import PluginCommands
    from antiphon.plugins.events import RenderingMade, TrajectoryFinished, TurnSampled

PROJECT = "antiphon"

_Function = TypeVar("_Function", bound=Callable[..., object])

_spec = pluggy.HookspecMarker(PROJECT)
_impl = pluggy.HookimplMarker(PROJECT)


@overload
def hookimpl(function: _Function, /) -> _Function: ...


@overload
def hookimpl(*, optional: bool = False) -> Callable[[_Function], _Function]: ...


def hookimpl(
    function: _Function | None = None, /, *, optional: bool = False
) -> _Function | Callable[[_Function], _Function]:
    """Mark a function of a plugin as the implementation of the hook that has its name.

    Args:
        function: The implementation.
        optional: The hook may be unknown to this core (it came, or will come, with another
            version); without it an unknown hook is taken for a misspelt one and the plugin is
            refused.
    """

    def mark(implementation: _Function) -> _Function:
        _impl(optionalhook=optional)(implementation)
        return implementation

    return mark if function is None else mark(function)


@_spec
def antiphon_register_families() -> Iterable[ModelFamily]:  # type: ignore[empty-body]
    """Return the dialects that the plugin brings."""


@_spec
def antiphon_register_backends() -> Iterable[BackendSpec]:  # type: ignore[empty-body]
    """Return the backends that the plugin brings."""


@_spec
def antiphon_register_envs() -> Iterable[EnvSpec]:  # type: ignore[empty-body]
    """Return the environments that the plugin brings."""


@_spec
def antiphon_register_transforms() -> Iterable[TransformSpec]:  # type: ignore[empty-body]
    """Return the environment transforms that the plugin brings."""


@_spec
def antiphon_register_rewards() -> Iterable[RewardSpec]:  # type: ignore[empty-body]
    """Return the rewards that the plugin brings."""


@_spec
def antiphon_register_commands(app: PluginCommands) -> None:
    """Add commands to ``antiphon``; called only when the command line runs.

    Args:
        app: Takes ``app.add("name", "module:command", "one line of help")``; the module is imported
            when the command is used.
    """


@_spec
def antiphon_rendering_made(rendering: RenderingMade) -> None:
    """A conversation was rendered: by `render`, `render_batch`, `extend`, `training_samples`, a History,
    a wrapper, an environment, or one of ``antiphon``'s commands.

    Probes, and renderings that nobody is handed, are not told of.

    Args:
        rendering: The text, its spans and the messages.
    """


@_spec
def antiphon_turn_sampled(turn: TurnSampled) -> None:
    """A backend sampled an answer, for a wrapper or a rollout; called once per answer.

    Args:
        turn: Ids, log-probs and why it ended.
    """


@_spec
def antiphon_trajectory_finished(trajectory: TrajectoryFinished) -> None:
    """A conversation came to its end, in a rollout, an environment's too, or a collector.

    Args:
        trajectory: Messages, token sequences, turns and rewards.
    """


#: Hooks that return descriptors: the hook's name, the kind of what it registers, its type.
REGISTERING: tuple[tuple[str, str, type], ...] = (
    ("antiphon_register_families", "family", ModelFamily),
    ("antiphon_register_backends", "backend", BackendSpec),
    ("antiphon_register_envs", "env", EnvSpec),
    ("antiphon_register_transforms", "transform", TransformSpec),
    ("antiphon_register_rewards", "reward", RewardSpec),
)

#: Hooks that are told what happened.
EVENTS: tuple[str, ...] = (
    "antiphon_rendering_made",
    "antiphon_turn_sampled",
    "antiphon_trajectory_finished",
)

HOOKS: tuple[str, ...] = (
    *(name for name, _, _ in REGISTERING),
    "antiphon_register_commands",
    *EVENTS,
)
