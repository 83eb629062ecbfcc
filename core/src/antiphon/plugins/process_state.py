"""What of the process a plugin may change by mistake: how it is read, and how it is put back.

A plugin is imported in programs that don't use it, whose results a seed, a filter or a variable that it
sets would change. `Snapshot` compares before and after; see `antiphon.plugins.containment`.
"""

from __future__ import annotations

import contextlib
import locale
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple

FILTERS = "the filters of warnings"

#: Values by what they are of. One that is None can't be read or put back, and is left alone.
State = dict[str, Any]


class Setting(NamedTuple):
    """One kind of state: what to call it, how all of it is read and one value of it written.

    ``write`` is given None for a value that was not there.
    """

    what: str
    read: Callable[[], State]
    write: Callable[[str, Any], None]


class Snapshot:
    """The state of the process at a moment."""

    def __init__(self) -> None:
        self._before = [setting.read() for setting in SETTINGS]

    def put_back(self, but: Container[str] = ()) -> Iterator[str]:
        """Put back what has changed since then, and yield what it was.

        Args:
            but: The kinds of state that are left alone.
        """
        for setting, before in zip(SETTINGS, self._before, strict=True):
            if setting.what in but:
                continue
            now = setting.read()
            changed = [key for key in sorted({*before, *now}) if _differs(key, before, now)]
            for key in changed:
                setting.write(key, before.get(key))
            if changed:
                yield f"{setting.what} {', '.join(changed)}".rstrip()


def _differs(key: str, before: State, now: State) -> bool:
    if key in before and before[key] is None:
        return False
    return key not in before or key not in now or bool(before[key] != now[key])


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        del os.environ[name]
    else:
        os.environ[name] = value


def _folder() -> State:
    try:
        return {"": os.getcwd()}
    except OSError:  # somebody has deleted it
        return {"": None}


def _logging() -> State:
    root = logging.root
    return {
        "level": root.level,
        "handlers": tuple(root.handlers),
        "disabled below": root.manager.disable,
    }


def _set_logging(name: str, value: Any) -> None:
    if name == "level":
        logging.root.setLevel(value)
    elif name == "handlers":
        logging.root.handlers[:] = value
    else:
        logging.disable(value)


def _set_filters(_: str, value: tuple[Any, ...]) -> None:
    warnings.filters[:] = value  # type: ignore[index]
    # What was said under other filters may be said again, as behind `warnings.catch_warnings`.
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _signals() -> State:
    if threading.current_thread() is not threading.main_thread():
        return {}  # only there handlers can be set
    # The handler of compiled code reads as None.
    return {each.name: signal.getsignal(each) for each in signal.Signals}


def _set_signal(name: str, value: Any) -> None:
    signal.signal(signal.Signals[name], value)


_HOOKS = ("excepthook", "displayhook", "stderr", "stdin")


def _interpreter() -> State:
    return {
        "recursionlimit": sys.getrecursionlimit(),
        **{name: getattr(sys, name) for name in _HOOKS},
    }


def _set_interpreter(name: str, value: Any) -> None:
    if name == "recursionlimit":
        sys.setrecursionlimit(value)
    else:
        setattr(sys, name, value)


def _set_locale(_: str, value: str) -> None:
    locale.setlocale(locale.LC_ALL, value)


# Of modules that nobody has imported yet, what they begin with: to import them changes nothing.


def _processes() -> State:
    module: Any = sys.modules.get("multiprocessing")
    return {"": "" if module is None else module.get_start_method(allow_none=True) or ""}


def _set_processes(_: str, value: str) -> None:
    sys.modules["multiprocessing"].set_start_method(value or None, force=True)


def _sockets() -> State:
    module: Any = sys.modules.get("socket")
    return {"": "none" if module is None else module.getdefaulttimeout() or "none"}


def _set_sockets(_: str, value: Any) -> None:
    sys.modules["socket"].setdefaulttimeout(None if value == "none" else value)


def _numpy() -> State:
    module: Any = sys.modules.get("numpy.random")
    if module is None:
        return {"": None}  # it begins with a seed by chance
    name, keys, *rest = module.get_state()
    return {"": (name, keys.tolist(), *rest)}


def _set_numpy(_: str, value: Any) -> None:
    sys.modules["numpy.random"].set_state(value)


def _torch() -> State:
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_default_dtype"):
        return {"dtype": "float32", "gradients": True, "random state": None}  # as numpy
    return {
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "gradients": torch.is_grad_enabled(),
        "random state": tuple(torch.get_rng_state().tolist()),
    }


def _set_torch(name: str, value: Any) -> None:
    torch: Any = sys.modules["torch"]
    if name == "dtype":
        torch.set_default_dtype(getattr(torch, value))
    elif name == "gradients":
        torch.set_grad_enabled(value)
    else:
        torch.set_rng_state(torch.tensor(value, dtype=torch.uint8))


def _quietly(write: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
    """Return a writer that bears what can't be put back any more: a folder that is gone."""

    def attempt(name: str, value: Any) -> None:
        with contextlib.suppress(OSError, ValueError, locale.Error):
            write(name, value)

    return attempt


SETTINGS: tuple[Setting, ...] = (
    Setting("environment variables", lambda: dict(os.environ), _set_variable),
    Setting("the working folder", _folder, _quietly(lambda _, value: os.chdir(value))),
    Setting("sys.path", lambda: {"": tuple(sys.path)}, lambda _, value: _fill(sys.path, value)),
    Setting("the interpreter's", _interpreter, _set_interpreter),
    Setting("the root logger's", _logging, _set_logging),
    Setting(FILTERS, lambda: {"": tuple(warnings.filters)}, _set_filters),
    Setting("the handlers of", _signals, _quietly(_set_signal)),
    Setting("the locale", lambda: {"": locale.setlocale(locale.LC_ALL)}, _quietly(_set_locale)),
    Setting(
        "the state of random",
        lambda: {"": random.getstate()},
        lambda _, value: random.setstate(value),
    ),
    Setting("how processes are started", _processes, _set_processes),
    Setting("the time-out of sockets", _sockets, _set_sockets),
    Setting("the state of numpy.random", _numpy, _set_numpy),
    Setting("torch's", _torch, _set_torch),
)


def _fill(kept: list[str], value: tuple[str, ...]) -> None:
    kept[:] = value
