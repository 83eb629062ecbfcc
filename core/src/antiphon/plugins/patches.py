"""Functions of others that a plugin exchanges: how that is noticed, and how it is put back.

Looked at are the modules that renderings and samples are made by. What one of these libraries does to
another is its own business (tensordict has a say in torch): only what comes from elsewhere is a patch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

#: The top-level packages that are looked at.
WATCHED = frozenset(
    {
        *("antiphon", "jinja2", "markupsafe", "json", "random", "builtins", "pluggy"),
        *("numpy", "tensordict", "tokenizers", "torch", "transformers"),
    }
)
# Of torch, which is large, the parts that models are made of and sampled by.
_OF_TORCH = frozenset({"", "autograd", "distributions", "functional", "nn", "optim", "random"})
#: Of these any value counts, of the others only functions and classes: they rebind names of their own.
_WHOLE = frozenset({"antiphon", "jinja2", "markupsafe"})
_CODE = (FunctionType, BuiltinFunctionType, type, staticmethod, classmethod, property)

#: Whose names are looked at: a module, a class, or a table of functions such as Jinja's filters.
Owner = ModuleType | type | dict[Any, Any]


class Namespaces:
    """What the names of the watched modules meant at a moment."""

    def __init__(self) -> None:
        self._modules: set[str] = set()
        self._known: dict[str, _Namespace] = {}
        self._known.update(self._imported())

    def put_back(self, package: str) -> Iterator[tuple[str, bool]]:
        """Put back what a plugin has exchanged; yields each name and whether it could be put back.

        What was imported meanwhile is known from now on.

        Args:
            package: The plugin's top-level package.
        """
        for place, space in self._known.items():
            if [*map(id, space.now.values())] == space.ids:
                continue
            now, before = dict(space.now), space.before
            for name in {**before, **now}:
                if name in now and name in before and now[name] is before[name]:
                    continue
                if _is_patch(place, name, before, now, package):
                    _set(space.owner, name, before)
                    yield f"{place}.{name}", True
            space.note()
        # Imported with the plugin: what the names meant before nobody knows.
        for place, space in self._imported():
            self._known[place] = space
            for name, value in space.before.items():
                if package not in WATCHED and _origin(value) == package:
                    yield f"{place}.{name}", False

    def _imported(self) -> list[tuple[str, _Namespace]]:
        """Return the namespaces of modules that were not there the last time."""
        found: list[tuple[str, _Namespace]] = []
        for place in sys.modules.keys() - self._modules:
            self._modules.add(place)
            root, _, rest = place.partition(".")
            module = sys.modules[place]
            if root not in WATCHED or not isinstance(module, ModuleType):
                continue
            if root != "torch" or rest.partition(".")[0] in _OF_TORCH:
                found += [(path, _Namespace(owner)) for path, owner in _owners(place, module, root)]
        return found


class _Namespace:
    """An owner of names and what they meant; ``now`` is what they mean at any time."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.now: Mapping[Any, Any] = owner if isinstance(owner, dict) else vars(owner)
        self.note()

    def note(self) -> None:
        """Take what the names mean now for what they mean."""
        self.before = dict(self.now)
        self.ids = [*map(id, self.before.values())]


def _is_patch(
    place: str, name: str, before: dict[str, Any], now: dict[str, Any], package: str
) -> bool:
    origin = _origin(now[name]) if name in now else None
    if name not in before:  # submodules, caches, names that are imported on use
        return origin == package
    if origin in WATCHED and origin != package:
        return False
    return place.partition(".")[0] in _WHOLE or isinstance(before[name], _CODE)


def _owners(place: str, module: ModuleType, root: str) -> Iterator[tuple[str, Owner]]:
    yield place, module
    for name, value in list(vars(module).items()):
        kind = type(value)  # as `isinstance` would ask it, an object of torch's warns
        its_class = issubclass(kind, type) and vars(value).get("__module__") == place
        a_table = kind is dict and root in _WHOLE and not name.startswith("__")
        if its_class or (a_table and _holds_code(value)):
            yield f"{place}.{name}", value


def _holds_code(table: dict[Any, Any]) -> bool:
    return any(isinstance(each, _CODE) for each in table.values())


def _origin(value: Any) -> str | None:
    """Return the top-level package whose code a value is, None where it is no code."""
    kind = type(value)
    if kind is functools.partial:
        return _origin(value.func)
    if kind in (staticmethod, classmethod):
        return _origin(value.__func__)
    if kind is property:
        return _origin(value.fget)
    if kind is FunctionType:  # its ``__module__`` may be copied from what it wraps
        found = value.__globals__.get("__name__")
    else:
        found = vars(value if issubclass(kind, type) else kind).get("__module__")
    return found.partition(".")[0] if isinstance(found, str) else None


def _set(owner: Owner, name: str, before: dict[str, Any]) -> None:
    if isinstance(owner, dict):
        if name in before:
            owner[name] = before[name]
        else:
            del owner[name]
    elif name in before:
        setattr(owner, name, before[name])
    else:
        delattr(owner, name)
