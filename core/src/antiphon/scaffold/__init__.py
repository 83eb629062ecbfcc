"""Distributions that ``antiphon plugins new`` writes: files with ``@placeholders@``, by kind."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.errors import InvalidParameter, PluginError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_.][a-z0-9]+)*\Z")
_LONGEST = 60  # file systems and indexes take names up to some length
_SUFFIX = ".in"


def kinds() -> tuple[str, ...]:
    """Return the kinds of plugin there are scaffolds for."""
    folders = importlib.resources.files(__package__).iterdir()
    names = (each.name for each in folders if each.is_dir())
    return tuple(sorted(name for name in names if name not in ("common", "__pycache__")))


#: What fills the placeholders of a family's files that a template would settle.
_PLAIN_FAMILY = {
    "digests": "()",
    "required": '("<|end|>",)',
    "ends": '("<|end|>",)',
    "arguments": "either",
    "flags": "system = True",
}


def write_family(name: str, folder: Path, template: str, tokenizer: Any = None) -> str:
    """Write a distribution with a family that has a given template, and what that shows of the dialect.

    Args:
        name: As for `write_distribution`.
        folder: Likewise.
        template: The source of the template.
        tokenizer: A tokenizer of its models: its special tokens are template variables.

    Returns:
        Why no grammar could be inferred, "" where one was.

    Raises:
        TemplateInvalid: It is no template.
        InvalidParameter: As for `write_distribution`; `PluginError` likewise.
    """
    from antiphon.scaffold.from_template import look_at

    _check_name("family", name)
    seen = look_at(name, template, tokenizer)
    values = {**seen.values, **({} if seen.grammar else {"grammar": "None"})}
    write_distribution("family", name, folder, values)
    package = folder / "src" / _values(name)["module"]
    written = {f"templates/{name}.jinja": template, "grammar.py": seen.grammar}
    for path, text in written.items():
        if text is None:
            (package / path).unlink()
        else:
            (package / path).write_text(text, encoding="utf-8", newline="")
    return seen.problem


def write_distribution(
    kind: str, name: str, folder: Path, filled: Mapping[str, str] | None = None
) -> list[Path]:
    """Write a distribution with one plugin.

    Args:
        kind: One of `kinds`.
        name: What the plugin brings is named so; the distribution is ``antiphon-<name>``.
        folder: Where to write; it must not be there or be empty.
        filled: Placeholders that are filled otherwise than by the name.

    Returns:
        The files, sorted.

    Raises:
        InvalidParameter: The name is not of the form that distributions and modules take, is taken, or
            says nothing.
        PluginError: The folder holds something, or is none.
    """
    _check_name(kind, name)
    if folder.exists() and not folder.is_dir():
        raise PluginError(f"{folder} is a file: choose another --folder.")
    if folder.exists() and any(folder.iterdir()):
        raise PluginError(f"{folder} is there already and not empty: choose another --folder.")
    values = {**_values(name), **(filled or {})}
    written = []
    for part in ("common", kind):
        root = importlib.resources.files(__package__) / part
        for path, source in _files(root):
            target = folder / _filled(path, values).removesuffix(_SUFFIX)
            target.parent.mkdir(parents=True, exist_ok=True)
            text = _filled(source.read_text(encoding="utf-8"), values)
            target.write_text(text, encoding="utf-8", newline="\n")
            written.append(target)
    return sorted(written)


def _check_name(kind: str, name: str) -> None:
    from antiphon.families import TEMPLATE_NAMES
    from antiphon.plugins import get_host
    from antiphon.testing.family_detection import NOBODYS

    if not _NAME.match(name) or len(name) > _LONGEST:
        plain = (
            re.sub("[^a-z0-9.]+", "-", name.lower()).lstrip("-.0123456789")[:_LONGEST].rstrip("-.")
        )
        hint = f", for example {plain!r}" if plain and _NAME.match(plain) else ""
        shown = name if len(name) <= _LONGEST else name[:_LONGEST] + "..."
        raise InvalidParameter(
            f"A plugin can't be named {shown!r}: use small letters, digits and single dashes or dots, at most"
            f" {_LONGEST} of them, and begin with a letter{hint}."
        )
    if name.startswith("antiphon"):
        raise InvalidParameter(
            f"A plugin can't be named {name!r}: leave out 'antiphon', which is put before the name."
        )
    host = get_host(quiet=True)
    wanted = {name, distribution_of(name)}
    for record in host.records:
        if wanted & {record.name, record.distribution} or f"{kind}:{name}" in record.provides:
            raise InvalidParameter(
                f"The name {name!r} is taken by {record.distribution} {record.version}, which is"
                " installed: choose another one, or uninstall that."
            )
    if kind == "family" and name in TEMPLATE_NAMES:
        raise InvalidParameter(
            f"A family can't be named {name!r}: that is a template name of TorchRL's, which means"
            " another dialect."
        )
    if kind == "family" and any(re.match(rf"{name}\b", nobody) for nobody in NOBODYS):
        raise InvalidParameter(
            f"A family can't be named {name!r}, as it could be any model's name: choose one that"
            " tells its models from others."
        )


def distribution_of(name: str) -> str:
    """Return the distribution's name as indexes write it (PEP 503)."""
    return f"antiphon-{re.sub('[_.]', '-', name)}"


def _values(name: str) -> dict[str, str]:
    from antiphon.plugins.discovery import core_version

    major, minor = (core_version() or "0.1").split(".")[:2]
    later = f"0.{int(minor) + 1}" if major == "0" else str(int(major) + 1)
    words = re.split("[-_.]", name)
    return {
        **_PLAIN_FAMILY,
        "grammar": f'"antiphon_{"_".join(words)}.grammar:GRAMMAR"',
        "name": name,
        "pattern": re.escape(name).replace(r"\-", "-"),  # a dash needs no escape there
        "distribution": distribution_of(name),
        "module": f"antiphon_{'_'.join(words)}",
        "title": " ".join(words).capitalize(),
        "Class": "".join(word.capitalize() for word in words),
        "core": f">={major}.{minor},<{later}",
    }


def _filled(text: str, values: dict[str, str]) -> str:
    return re.sub("@([A-Za-z]+)@", lambda match: values.get(match[1], match[0]), text)


def _files(folder: Traversable, path: str = "") -> Iterator[tuple[str, Traversable]]:
    """Yield the files below a folder of package data with their paths in it."""
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        below = f"{path}/{each.name}" if path else each.name
        if each.is_dir():
            yield from _files(each, below)
        elif each.name.endswith(_SUFFIX):
            yield below, each
