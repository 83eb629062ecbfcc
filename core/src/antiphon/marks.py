"""What can be known of a model without loading it: its name, its template, its control tokens.

Read from a hub name, from a folder with tokenizer files (plain JSON, no transformers) or from a
tokenizer object. A template or a vocabulary that can't be read is an error and not a model without
one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from antiphon.errors import InvalidData, NoTokenizer

# The hub's cache keeps a model under models--ORG--NAME/snapshots/REVISION.
_CACHED = re.compile(
    r"models--(?:(?P<org>[^/\\]+?)--)?(?P<name>[^/\\]+)([/\\]snapshots[/\\][^/\\]+)?[/\\]?\Z"
)
_REVISION = re.compile(r"(?<=.)@[^/\\@]*[/\\]?\Z")  # org/name@revision
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?\Z")


@dataclass(frozen=True)
class ModelMarks:
    """The marks by which a model's dialect is known.

    Attributes:
        subject: What was asked about, for messages.
        model_id: The hub name ``org/name``, None where only a folder is known.
        own_name: The last part of the name or the path, empty where there is none.
        template: The source of the tokenizer's own template, None where it has none.
        vocabulary: Returns what knows the tokens (all, or at least the added ones) by ``in``, None
            where they are not known.
        special_tokens: ``bos_token``, ``eos_token``, ... as far as they are known.
    """

    subject: str
    model_id: str | None = None
    own_name: str = ""
    template: str | None = None
    vocabulary: Callable[[], Container[str] | None] = field(default=lambda: None)
    special_tokens: dict[str, str] = field(default_factory=dict)


def marks_of(model: Any) -> ModelMarks:
    """Return the marks of a model.

    Args:
        model: A hub name, a path, or an object with any of ``chat_template``, ``get_vocab()`` and
            ``name_or_path`` (a tokenizer, or a processor that holds one).

    Raises:
        InvalidData: A tokenizer file in the folder can't be read.
        TypeError: It is nothing of that kind.
    """
    if isinstance(model, (str, os.PathLike)):
        return _of_name(os.fspath(model))
    inner = getattr(model, "tokenizer", None)
    tokenizer = (
        inner if inner is not None and not callable(getattr(model, "get_vocab", None)) else model
    )
    vocabulary = getattr(tokenizer, "get_vocab", None)
    template = getattr(model, "chat_template", None) or getattr(tokenizer, "chat_template", None)
    name = getattr(tokenizer, "name_or_path", None)
    if not callable(vocabulary) and template is None and name is None:
        raise NoTokenizer(
            f"{type(model).__name__} is neither a model's name nor a tokenizer: it has no"
            " chat_template, no get_vocab() and no name_or_path."
        )
    model_id, own_name = _split(name if isinstance(name, str) else "")
    return ModelMarks(
        subject=own_name or f"this {type(tokenizer).__name__}",
        model_id=model_id,
        own_name=own_name,
        template=_default_template(template),
        vocabulary=(lambda: _vocabulary_of(tokenizer)) if callable(vocabulary) else lambda: None,
        special_tokens=_plain_tokens(getattr(tokenizer, "special_tokens_map", None)),
    )


@dataclass(frozen=True)
class _Asked:
    """A vocabulary that is asked token by token: to list a large one takes a good part of a second."""

    token_to_id: Callable[[str], int | None]

    def __contains__(self, token: object) -> bool:
        return isinstance(token, str) and self.token_to_id(token) is not None


def _vocabulary_of(tokenizer: Any) -> Container[str]:
    ask = getattr(getattr(tokenizer, "backend_tokenizer", tokenizer), "token_to_id", None)
    return _Asked(ask) if callable(ask) else frozenset(tokenizer.get_vocab())


def _of_name(name: str) -> ModelMarks:
    model_id, own_name = _split(name)
    folder = Path(os.path.expanduser(name))  # leaves the ~ of nobody as it is
    if not os.path.isdir(folder):  # no error for a name too long for a path
        return ModelMarks(subject=name, model_id=model_id, own_name=own_name)
    config = _read_json(folder / "tokenizer_config.json")
    return ModelMarks(
        subject=name,
        # A folder that happens to be called org/name says nothing about its parent.
        model_id=model_id if _CACHED.search(name) else None,
        own_name=own_name,
        template=_template_in(folder, config),
        vocabulary=lambda: _vocabulary_in(folder, config),
        special_tokens=_plain_tokens(config),
    )


def _split(name: str) -> tuple[str | None, str]:
    """Return the hub name and the own name in a name or a path."""
    name = name.strip()  # of a line of a file
    cached = _CACHED.search(name)
    if cached:
        return "/".join(filter(None, cached.group("org", "name"))), cached["name"]
    name = _REVISION.sub("", name)
    parts = [part for part in re.split(r"[/\\]", name) if part not in ("", ".", "..", "~")]
    own_name = parts[-1] if parts else ""
    return (name if _HUB_ID.match(name) else None), own_name


def _template_in(folder: Path, config: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidData(f"The template {path} can't be read: {error}.") from error
    processor = _read_json(folder / "chat_template.json")
    return _default_template(processor.get("chat_template")) or _default_template(
        config.get("chat_template")
    )


def _vocabulary_in(folder: Path, config: dict[str, Any]) -> frozenset[str] | None:
    """Return the tokens named in the folder's files; None where no file names any."""
    tokens: set[str] = set()
    added = config.get("added_tokens_decoder")
    if isinstance(added, dict):
        tokens.update(_contents(added.values()))
    whole = _read_json(folder / "tokenizer.json")
    tokens.update(_contents(whole.get("added_tokens") or []))
    model = whole.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        tokens.update(vocabulary)
    elif isinstance(vocabulary, list):
        # SentencePiece's unigram form: pairs of a token and its score.
        tokens.update(pair[0] for pair in vocabulary if isinstance(pair, list) and pair)
    return frozenset(tokens) or None


def _contents(entries: Iterable[Any]) -> list[str]:
    return [entry["content"] for entry in entries if isinstance(entry, dict) and "content" in entry]


def _default_template(template: Any) -> str | None:
    """Return the template used by default where a tokenizer has several by name."""
    if isinstance(template, list):
        named = [entry for entry in template if isinstance(entry, dict)]
        template = {entry.get("name"): entry.get("template") for entry in named}
    if isinstance(template, dict):
        template = template.get("default")
    return template if isinstance(template, str) and template else None


def _plain_tokens(tokens: Any) -> dict[str, str]:
    """Return the special tokens in a map or a tokenizer_config.json as plain strings."""
    plain: dict[str, str] = {}
    if not isinstance(tokens, dict):
        return plain
    for key in ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token"):
        value = tokens.get(key)
        if isinstance(value, dict):
            value = value.get("content")
        if value is not None:
            plain[key] = str(value)
    return plain


def _read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidData(f"The tokenizer file {path} can't be read: {error}.") from error
    return value if isinstance(value, dict) else {}
