"""What commands read: conversations as JSON or JSON lines, texts, tokenizers by name or folder."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from antiphon.errors import InvalidData, InvalidParameter, ModelNotFound


@dataclass(frozen=True)
class Conversation:
    """One conversation of a file.

    Attributes:
        where: Where it stands, for messages to people.
        messages: The messages.
        tools: The tools that the row itself brings, None where it brings none.
    """

    where: str
    messages: list[Any]
    tools: list[Any] | None


def read_text(path: str) -> str:
    """Return a file's text, or standard input's for ``-``.

    Raises:
        InvalidData: It is not UTF-8.
        OSError: It can't be read.
    """
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        return Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidData(f"{_told(path)} is not UTF-8 text: {error}.") from error


def read_conversations(path: str) -> Iterator[Conversation]:
    """Yield the conversations of a file: one JSON value, or one per line.

    A conversation is a list of messages, or an object with ``messages`` and perhaps ``tools``.

    Raises:
        InvalidData: A line is not JSON or holds no conversation; the error names the line.
        OSError: The file can't be read.
    """
    text = read_text(path)
    try:
        whole = json.loads(text)
    except ValueError:
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        if not lines:
            raise InvalidData(f"{_told(path)} is empty.") from None
        for number, line in lines:
            where = f"{_told(path)}, line {number}"
            try:
                value = json.loads(line)
            except ValueError as error:
                raise InvalidData(f"{where}: this is not JSON ({error}).") from error
            yield _conversation(where, value)
        return
    nested = isinstance(whole, list) and bool(whole) and isinstance(whole[0], list)
    for number, value in enumerate(whole if nested else [whole], 1):
        yield _conversation(f"{_told(path)}, conversation {number}", value)


def read_tools(path: str | None) -> list[Any] | None:
    """Return the tools in a JSON file, None without one.

    Raises:
        InvalidData: It is not a JSON list.
    """
    if path is None:
        return None
    try:
        tools = json.loads(read_text(path))
    except ValueError as error:
        raise InvalidData(f"The tools in {_told(path)} are not JSON ({error}).") from error
    if not isinstance(tools, list):
        raise InvalidData(f"The tools in {_told(path)} are no list of JSON schemas.")
    return tools


def read_template(path: str) -> str:
    """Return the template in a file."""
    return read_text(path)


def load_tokenizer(name: str | None) -> Any:
    """Return the tokenizer of a hub name or a folder, None without a name.

    "embedded" is the model that the transformers backend brings along.

    Raises:
        ModelNotFound: There is no such tokenizer, or transformers, which reads it, is not installed.
    """
    if name is None:
        return None
    if name == "embedded":
        from antiphon.registry import get_backend

        backend: Any = get_backend("transformers").load()
        return backend.load_tokenizer(name)
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ModelNotFound(
            f"The tokenizer {name!r} is read by transformers, which is not installed: pip install"
            " antiphon-transformers."
        ) from error
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise ModelNotFound(f"There is no tokenizer {name!r} to be had: {reason[:200]}.") from error


def template_variables(settings: tuple[str, ...]) -> dict[str, Any]:
    """Return the variables in ``name=value`` settings; a value is JSON where it can be, else text.

    Raises:
        InvalidParameter: A setting has no ``=``.
    """
    variables: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidParameter(f"--set {setting!r} is not of the form name=value.")
        try:
            variables[name] = json.loads(value)
        except ValueError:
            variables[name] = value
    return variables


def wants_color() -> bool:
    """Whether standard output is a terminal that takes colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(value, ensure_ascii=False))


def _conversation(where: str, value: Any) -> Conversation:
    tools = None
    if isinstance(value, dict):
        tools = value.get("tools")
        if "messages" not in value:
            keys = ", ".join(map(repr, value)) or "nothing"
            raise InvalidData(f"{where}: there is no field 'messages' (it holds {keys}).")
        value = value["messages"]
    if not isinstance(value, list):
        raise InvalidData(f"{where}: this is no list of messages.")
    return Conversation(where, value, tools)


def _told(path: str) -> str:
    return "standard input" if path == "-" else path
