"""What is registered, by name: families, backends, environments, transforms, rewards.

Everything that plugins register comes from the plugin host; families may be added at run time too.
"""

from __future__ import annotations

import difflib
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from antiphon.errors import FamilyNotFound, PluginConflict, PluginError
from antiphon.families import TEMPLATE_NAMES, BackendSpec, EnvSpec, ModelFamily
from antiphon.plugins import RewardSpec, TransformSpec, get_host
from antiphon.plugins.validation import check_descriptor

if TYPE_CHECKING:
    from collections.abc import Iterable

_Spec = TypeVar("_Spec", BackendSpec, EnvSpec, TransformSpec, RewardSpec)


class _RunTime:
    """Families that the running program registered. The dictionary is replaced, never changed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.families: dict[str, ModelFamily] = {}


_run_time = _RunTime()

#: Lines of models with a distribution of our own, ``antiphon-LINE``.
_LINES = tuple(each for each in TEMPLATE_NAMES if each != "chatml_format")
#: How many near names an error tells, and how many names at most it tells all of.
_NEAREST, _FEW = 3, 8


def _after_fork() -> None:
    _run_time.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def get_family(name: str) -> ModelFamily:
    """Return the dialect with this name.

    Raises:
        FamilyNotFound: No dialect has the name; the error names the near ones.
        PluginConflict: Several plugins claim the name.
    """
    family = _run_time.families.get(name)
    if family is None:
        family = get_host().get("family", name)
    if not isinstance(family, ModelFamily):
        raise FamilyNotFound(_not_found("family", name, (f.name for f in families())))
    return family


def families() -> tuple[ModelFamily, ...]:
    """Return all dialects that can be used, sorted by name."""
    registered = (*get_host().all("family", ModelFamily), *_run_time.families.values())
    return tuple(sorted(registered, key=lambda family: family.name))


def register_family(family: ModelFamily) -> None:
    """Register a dialect in this process.

    It lives as long as the process and is inherited by forked ones; a plugin is what every process
    has. Registering an equal descriptor again changes nothing.

    Args:
        family: Its descriptor; whatever renders, reads or detects knows it from here on.

    Raises:
        PluginConflict: The name is taken.
        PluginError: The descriptor can't work.
    """
    try:
        check_descriptor("family", family)
    except PluginError as error:
        raise PluginError(f"The running program {error}") from None
    owner = get_host().owner("family", family.name)
    if owner is not None:
        raise PluginConflict(
            f"The family {family.name!r} is {owner.distribution}'s (plugin {owner.name!r}): choose"
            f" another name, or leave that plugin out with ANTIPHON_DISABLE_PLUGINS={owner.name}."
        )
    with _run_time.lock:
        present = _run_time.families.get(family.name)
        if present is not None and present != family:
            raise PluginConflict(
                f"The running program has registered another family {family.name!r} before: choose"
                " another name, or call unregister_family first."
            )
        _run_time.families = {**_run_time.families, family.name: family}


def unregister_family(name: str) -> None:
    """Take back what `register_family` did.

    Args:
        name: The dialect's name.

    Raises:
        FamilyNotFound: The running program registered no such family.
    """
    with _run_time.lock:
        if name not in _run_time.families:
            raise FamilyNotFound(
                f"The running program registered no family {name!r}, so it can't be taken back."
            )
        _run_time.families = {k: v for k, v in _run_time.families.items() if k != name}


def registered_by(name: str) -> str:
    """Return who registered a dialect, for people to read.

    Args:
        name: The dialect's name.
    """
    if name in _run_time.families:
        return "the running program"
    owner = get_host().owner("family", name)
    return f"{owner.distribution} {owner.version}" if owner is not None else "nobody"


def resolve_template_name(name: str, tokenizer: Any = None) -> ModelFamily:
    """Return the dialect that a template name means.

    A dialect's name means that dialect. A line's name (``qwen``, ``llama``, ``deepseek``,
    ``falcon``) means the line's dialect that fits the tokenizer; without a tokenizer, or where none
    fits, the one that TorchRL printed under this name. ``chatml_format`` is ``chatml``.

    Raises:
        FamilyNotFound: The name means nothing, or a line of which no dialect can be told.
        FamilyAmbiguous: Several dialects of the line fit the tokenizer equally well.
        PluginConflict: Several plugins claim the dialect.
    """
    if not isinstance(name, str):
        raise FamilyNotFound(
            f"A family is named by a text, such as 'qwen3', not by {type(name).__name__}."
        )
    of_line = [family for family in families() if family.line == name]
    if tokenizer is not None and of_line:
        from antiphon.detection import detect_among

        fitting = detect_among(of_line, tokenizer).family
        if fitting is not None:
            return get_family(fitting)
    dialect = TEMPLATE_NAMES.get(name)
    if dialect is None and len(of_line) > 1 and name not in {family.name for family in of_line}:
        raise FamilyNotFound(
            f"{name!r} is a line of models and nothing says which dialect is meant: give one"
            " of " + ", ".join(family.name for family in of_line) + "."
        )
    if dialect is None and len(of_line) == 1:
        dialect = of_line[0].name
    known = {family.name for family in families()}
    for wanted in filter(None, (dialect, name)):
        if wanted in known or get_host().get("family", wanted) is not None:
            return get_family(wanted)
    known |= {each for each, meant in TEMPLATE_NAMES.items() if meant in known}
    raise FamilyNotFound(_not_found("template or family", name, known))


def get_backend(name: str) -> BackendSpec:
    """Return the backend with this name, or raise `PluginError` with the near names."""
    return _get("backend", name, BackendSpec)


def backends() -> tuple[BackendSpec, ...]:
    """Return all backends, sorted by name."""
    return get_host().all("backend", BackendSpec)


def get_env(name: str) -> EnvSpec:
    """Return the environment with this name, or raise `PluginError` with the near names."""
    return _get("env", name, EnvSpec)


def envs() -> tuple[EnvSpec, ...]:
    """Return all environments, sorted by name."""
    return get_host().all("env", EnvSpec)


def get_transform(name: str) -> TransformSpec:
    """Return the transform with this name, or raise `PluginError` with the near names."""
    return _get("transform", name, TransformSpec)


def transforms() -> tuple[TransformSpec, ...]:
    """Return all transforms, sorted by name."""
    return get_host().all("transform", TransformSpec)


def get_reward(name: str) -> RewardSpec:
    """Return the reward with this name, or raise `PluginError` with the near names."""
    return _get("reward", name, RewardSpec)


def rewards() -> tuple[RewardSpec, ...]:
    """Return all rewards, sorted by name."""
    return get_host().all("reward", RewardSpec)


def _get(kind: str, name: str, of: type[_Spec]) -> _Spec:
    found = get_host().get(kind, name)
    if not isinstance(found, of):
        raise PluginError(_not_found(kind, name, (spec.name for spec in get_host().all(kind, of))))
    return found


def _missing_distribution(name: str) -> str | None:
    """Return the distribution of ours that brings the line that a name speaks of, if it is not installed."""
    line = next((each for each in _LINES if each in name.lower()), None)
    installed = {record.distribution for record in get_host().records}
    if line is None or f"antiphon-{line}" in installed:
        return None
    return None if any(family.line == line for family in families()) else f"antiphon-{line}"


def _not_found(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence for a name that nobody registered."""
    lowered = {candidate.lower(): candidate for candidate in sorted(known)}
    near = difflib.get_close_matches(name.lower(), lowered, n=_NEAREST, cutoff=0.6)
    missing = _missing_distribution(name) if "family" in kind else None
    if missing is not None:
        hint = f"`pip install {missing}` brings the dialects of that line."
    elif near:
        hint = "did you mean " + " or ".join(repr(lowered[match]) for match in near) + "?"
    elif not lowered:
        hint = "none is registered."
    elif len(lowered) <= _FEW:
        hint = "there are " + ", ".join(lowered.values()) + "."
    else:
        close = difflib.get_close_matches(name.lower(), lowered, n=_NEAREST, cutoff=0)
        hint = (
            f"the nearest of {len(lowered)} are {', '.join(lowered[each] for each in close)};"
            " `antiphon plugins show PLUGIN` lists what a plugin brings."
        )
    faulty = [record.name for record in get_host().records if record.status != "loaded"]
    if faulty:
        hint += (
            f" Plugins that are not loaded: {', '.join(faulty)} (see `antiphon plugins doctor`)."
        )
    return f"There is no {kind} named {name!r}; {hint}"
