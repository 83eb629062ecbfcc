"""What commands read: conversations as JSON or JSON lines, texts, tokenizers by name or folder."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from antiphon.errors import (
    InvalidData,
    InvalidMessage,
    InvalidParameter,
    ModelNotFound,
    reason_of,
)
from antiphon.tokenizer_files import read_tokenizer

_TOOL = '{"type": "function", "function": {"name": …, "parameters": {…}}}'
_MESSAGES = '[{"role": "user", "content": …}, …]'
_TOKENIZER_FILES = ("*tok*", "*vocab*", "*.model")

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Conversation:
    """One conversation of a file.

    Attributes:
        where: Where it stands, for messages to people.
        messages: The messages.
        tools: The tools that the row itself brings, None where it brings none.
        variables: The template variables that it brings.
    """

    where: str
    messages: list[Any]
    tools: list[Any] | None = None
    variables: dict[str, Any] = field(default_factory=dict)


def template_options(command: Command) -> Command:
    """Add the options that say which template is used: ``family``, ``template`` and ``settings``."""
    for option in (
        click.option("--set", "settings", multiple=True, help="A template variable: name=value."),
        click.option("--template", help="A file with a chat template."),
        click.option("--family", help="A dialect or a line, for example qwen3 or llama."),
    ):
        command = option(command)
    return command


def read_text(path: str) -> str:
    """Return a file's text, or standard input's for ``-``, without a mark of its encoding.

    Raises:
        InvalidData: It is not UTF-8.
        OSError: It can't be read.
    """
    if path == "-" and sys.stdin is None:
        raise InvalidData("Standard input is closed; name a file in place of -.")
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidData(f"{_told(path)} is not UTF-8 text ({error}); save it as that.") from error


def read_json(path: str, wanted: str) -> Any:
    """Return the value of a JSON file; ``wanted`` names what it is to hold.

    Raises:
        InvalidData: It is not JSON.
    """
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"{_told(path)} holds no {wanted}: {_fault(error)}.") from error


def read_conversations(path: str) -> Iterator[Conversation]:
    """Yield the conversations of a file: one JSON value, a list of them, or one per line.

    A conversation is a list of messages, or a row of a data set that holds one; ``messages`` of a row
    are handed on as they are.

    Raises:
        InvalidData: A line is not JSON or holds no conversation; the error names the line.
        OSError: The file can't be read.
    """
    from antiphon.data.conversations import is_conversation

    text = read_text(path)
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        # Not by splitlines(): strings of JSON may hold other ends of lines than "\n".
        lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        if not lines:
            raise InvalidData(
                f"{_told(path)} is empty: it is to hold conversations, as JSON or one a line."
            ) from None
        for number, line in lines:
            where = f"{_told(path)}, line {number}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InvalidData(f"{where}: {_fault(error)}.") from error
            yield _conversation(where, value)
        return
    many = isinstance(whole, list) and whole and isinstance(whole[0], (list, dict))
    values = whole if many and not is_conversation(whole) else [whole]
    for number, value in enumerate(values, 1):
        yield _conversation(f"{_told(path)}, conversation {number}", value)


def read_tools(path: str | None) -> list[Any] | None:
    """Return the tools in a JSON file, None without one.

    Raises:
        InvalidData: It is not a JSON list of tools with names.
    """
    if path is None:
        return None
    tools = read_json(path, "list of tools")
    if not isinstance(tools, list):
        raise InvalidData(
            f"{_told(path)} holds no list of tools, but {_kind(tools)}: write [{_TOOL}]."
        )
    for number, tool in enumerate(tools):
        inner = tool.get("function", tool) if isinstance(tool, dict) else None
        served = isinstance(tool, dict) and tool.get("type", "function") != "function"
        if not served and not (isinstance(inner, dict) and isinstance(inner.get("name"), str)):
            raise InvalidData(
                f"Item {number} of {_told(path)} is no tool: it needs a name, as in {_TOOL}."
            )
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
    if importlib.util.find_spec("transformers") is None:
        raise ModelNotFound(
            f"The tokenizer {name!r} is read by transformers, which is not installed: pip install"
            " antiphon-transformers."
        )
    if problem := _path_problem(name):
        raise ModelNotFound(f"There is no tokenizer {name!r} to be had: {problem}.")
    try:
        return read_tokenizer(name)
    except Exception as error:  # a broken file makes transformers raise anything
        raise ModelNotFound(
            f"There is no tokenizer {name!r} to be had: {reason_of(error)}."
        ) from error


def template_variables(settings: tuple[str, ...]) -> dict[str, Any]:
    """Return the variables in ``name=value`` settings; a value is JSON where it can be, else text.

    Raises:
        InvalidParameter: A setting has no ``=``, or names what is no variable.
    """
    from antiphon.data.conversations import reserved_variables

    variables: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidParameter(f"--set {setting!r} is not of the form name=value.")
        # `antiphon render` takes documents so: it has no option of its own for them.
        if name != "documents" and reserved_variables([name]):
            raise InvalidParameter(
                f"--set {setting!r}: {name} is no variable of a template; see --help for the option that sets it."
            )
        try:
            variables[name] = json.loads(value)
        except ValueError:
            variables[name] = value
    return variables


def wants_color() -> bool:
    """Whether standard output is a terminal that takes colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def print_json(value: Any) -> None:
    """Print a value as one line of JSON, with escapes where standard output has no such characters."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:  # half a pair that stands for one character, or a plain terminal
        text = json.dumps(value)
    click.echo(text)


def _conversation(where: str, value: Any) -> Conversation:
    from antiphon.data.conversations import conversation_of, row_tools, row_variables

    if isinstance(value, list):
        return Conversation(where, value)
    if not isinstance(value, dict):
        raise InvalidData(
            f"{where}: this is no list of messages, but {_kind(value)}: write {_MESSAGES}."
        )
    try:
        if isinstance(value.get("messages"), list):
            return Conversation(where, value["messages"], row_tools(value), row_variables(value))
        made = conversation_of(value)
    except InvalidMessage as error:
        raise InvalidData(f"{where}: {reason_of(error)}.") from error
    return Conversation(where, made.messages, made.tools, made.variables)


def _path_problem(name: str) -> str | None:
    """Return why a path leads to no tokenizer, None where it may or where the name may be one of the hub."""
    folder = Path(os.path.expanduser(name))  # leaves the ~ of nobody as it is
    if folder.is_dir():
        if not os.access(folder, os.R_OK | os.X_OK):
            return "the folder can't be read (permission denied)"
        if any(next(folder.glob(each), None) for each in _TOKENIZER_FILES):
            return None
        return (
            "the folder holds no tokenizer.json, nor another file of a tokenizer's; save_pretrained of"
            " the tokenizer writes them"
        )
    if folder.exists():
        return "it is no folder; give the one that holds the tokenizer's files, or a hub name"
    if folder.is_absolute() or name.startswith(".") or len(folder.parts) > 2:
        return "there is no such folder; give one that is there, or a hub name"
    return None


def _fault(error: ValueError | RecursionError) -> str:
    """Return why a text can't be read as JSON."""
    if isinstance(error, RecursionError):
        return "its JSON is nested too deeply to be read"
    return f"this is not JSON ({error})"


def _kind(value: Any) -> str:
    return {dict: "an object", str: "a string", type(None): "null"}.get(type(value), "a number")


def _told(path: str) -> str:
    return "standard input" if path == "-" else path
