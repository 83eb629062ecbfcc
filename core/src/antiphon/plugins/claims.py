"""Who claims which name: where two plugins claim one, neither wins and the error names both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from antiphon.plugins.records import PluginRecord

#: What a plugin registers is known by its kind and its name.
Key = tuple[str, str]


@dataclass(frozen=True)
class Claim:
    """What is registered under a name.

    Attributes:
        values: What the plugins registered; more than one where the name is contested.
        owner: The plugin (the first one, where several claim it).
        error: The sentence that says who claims the name, None where one plugin alone does.
    """

    values: tuple[Any, ...]
    owner: PluginRecord
    error: str | None = None


def settle(
    registered: Iterable[tuple[PluginRecord, Mapping[Key, Any]]],
) -> tuple[dict[Key, Claim], dict[int, str]]:
    """Return the claims by kind and name, and the error of each plugin in a conflict, by index.

    Two plugins conflict where they register one name, and where they have one name themselves:
    then the switches could not tell them apart, and all that either registers is contested.
    """
    plugins = list(registered)
    errors: dict[int, str] = {}
    by_name: dict[str, list[int]] = defaultdict(list)
    by_key: dict[Key, list[int]] = defaultdict(list)
    for index, (record, objects) in enumerate(plugins):
        by_name[record.name].append(index)
        for key in objects:
            by_key[key].append(index)
    for name, indices in by_name.items():
        if len(indices) > 1:
            sentence = _sentence(f"the plugin name {name!r}", [plugins[i][0] for i in indices])
            errors.update(dict.fromkeys(indices, sentence))
    twins = dict(errors)
    claims: dict[Key, Claim] = {}
    for key, indices in by_key.items():
        contested: str | None = None
        if len(indices) > 1:
            contested = _sentence(f"the {key[0]} {key[1]!r}", [plugins[i][0] for i in indices])
            for index in indices:
                errors.setdefault(index, contested)
        else:
            contested = twins.get(indices[0])
        values = tuple(plugins[i][1][key] for i in indices)
        claims[key] = Claim(values, plugins[indices[0]][0], contested)
    return claims, errors


def _sentence(what: str, owners: list[PluginRecord]) -> str:
    told = " and ".join(
        f"{owner.distribution} {owner.version} (plugin {owner.name!r})" for owner in owners
    )
    same = len({owner.distribution for owner in owners}) == 1
    switch = owners[-1].name if same else owners[-1].distribution
    return (
        f"{what[0].upper()}{what[1:]} is claimed by {told}, so neither is used: uninstall one of"
        f" them, or leave one out, for example with ANTIPHON_DISABLE_PLUGINS={switch}."
    )
