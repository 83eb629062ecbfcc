"""What `antiphon view` shows: rows of any of our files as pieces of text with their origin.

A piece is a token where ids are at hand (several, where a character is spread over them), else a
run of text; it says which message it comes from, whether it is trained, and what was sampled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from antiphon.engine.tokenizers import TokenizerView, view
from antiphon.errors import AntiphonError, InvalidData, reason_of

_SPREAD = 8  # the most tokens that one character is taken to be spread over


class Piece(NamedTuple):
    """A piece of text.

    ``message`` is None for text of the template, ``ids`` and ``log_probs`` are empty where there
    are none.
    """

    text: str
    message: int | None = None
    trained: bool = False
    ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()


@dataclass
class Row:
    """One sequence to look at.

    Attributes:
        name: What it is called in its file.
        pieces: Its text, in order.
        roles: The role of each message; empty where the file does not say.
        facts: What else is known of it, by name.
        reward: The reward of the conversation, None where there is none.
    """

    name: str
    pieces: list[Piece]
    roles: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    reward: float | None = None


@dataclass(frozen=True)
class Options:
    """How rows are shown.

    Attributes:
        tokenizer: Decodes ids and renders chats; None leaves that to what a file says.
        family: As for `antiphon.render`, for chats and for the messages of rollouts.
        chat_template: Likewise.
        variables: Further variables of the template.
    """

    tokenizer: Any = None
    family: str | None = None
    chat_template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def template(self) -> dict[str, Any]:
        """What `antiphon.render` is called with."""
        return {"family": self.family, "chat_template": self.chat_template, **self.variables}


def read_rows(path: str, options: Options) -> Iterator[Row]:
    """Yield the rows of a file: a rollout (finished or not), tokenised data, or chats.

    Raises:
        InvalidData: It is none of these, or a row can't be read; the error names the row.
        AntiphonError: A row can't be rendered.
    """
    for where, value in _values(path):
        try:
            yield _row(where, value, options)
        except InvalidData:
            raise
        except AntiphonError as error:
            raise type(error)(f"{where}: {error}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Columns of our names that hold something else.
            raise InvalidData(
                f"{where} is no row that was written by rollout or tokenize: {reason_of(error)}."
            ) from error


def made_with(path: str) -> tuple[str | None, str | None]:
    """Return the tokenizer of a rollout or of tokenised data: its name and its fingerprint.

    None where the file does not say.
    """
    from antiphon.data.shards import MANIFEST
    from antiphon.rollouts.files import read_about

    file = Path(path)
    manifest = (file if file.is_dir() else file.parent) / MANIFEST
    try:
        if file.is_dir() or (manifest.exists() and file.name.startswith("shard-")):
            about = json.loads(manifest.read_text(encoding="utf-8"))
            return str(about["tokenizer"]), str(about["fingerprints"]["tokenizer"])
        if file.name.endswith(".part.jsonl"):
            with file.open(encoding="utf-8") as lines:
                settings = json.loads(lines.readline())["settings"]
            return str(settings["model"]), str(settings["tokenizer_fingerprint"])
        if file.suffix in (".parquet", ".jsonl"):
            told = read_about(file)
            name, prints = told["settings"]["model"], told["fingerprints"]
            return str(name), str(prints["tokenizer_fingerprint"])
    except (OSError, ValueError, KeyError, TypeError, InvalidData):
        pass  # a file of chats, or somebody else's
    return None, None


def _values(path: str) -> Iterator[tuple[str, Any]]:
    """Yield where each row stands, and the row."""
    if path == "-":
        from antiphon.cli.inputs import read_conversations

        for conversation in read_conversations(path):
            row = {"messages": conversation.messages, "tools": conversation.tools}
            yield conversation.where, {**row, "chat_template_kwargs": conversation.variables}
        return
    if path.endswith(".part.jsonl"):
        yield from _unfinished(Path(path))
        return
    from antiphon.data.sources import open_rows, rows_of

    for block in open_rows(path, columns=None).blocks(64):
        for number, value in rows_of(block):
            if isinstance(value, Exception):
                raise InvalidData(f"Row {number} of {path} can't be read: {value}.") from value
            yield f"Row {number} of {path}", value


def _unfinished(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield what an interrupted rollout has finished; a torn last line is left out."""
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if number == 0 or not line.endswith(b"\n"):
                continue
            try:
                records = json.loads(line)
            except ValueError as error:
                raise InvalidData(
                    f"Line {number + 1} of {path} is not valid JSON: {error}."
                ) from error
            for record in records:
                yield f"Line {number + 1} of {path}", record


def _row(where: str, value: Any, options: Options) -> Row:
    if isinstance(value, Mapping) and value.get("input_ids") is not None:
        if "assistant_mask" in value and "messages" in value:
            return _trajectory(where, value, options)
        return _sample(where, value, options)
    return _chat(where, value, options)


# Rollouts


def _trajectory(where: str, value: Mapping[str, Any], options: Options) -> Row:
    messages = value["messages"]
    messages = json.loads(messages) if isinstance(messages, str) else list(messages)
    ids = [int(token) for token in value["input_ids"]]
    mask = [bool(flag) for flag in value["assistant_mask"]]
    segment = value.get("segment") or 0
    turns = [turn for turn in value.get("turns") or () if turn.get("segment", 0) == segment]
    if options.tokenizer is None:
        pieces = [piece for i, message in enumerate(messages) for piece in _spoken(i, message)]
    else:
        index = _messages_of(ids, messages, turns, value.get("turns") or (), options)
        pieces = token_pieces(ids, mask, index, value.get("log_probs"), view(options.tokenizer))
    rewards = " ".join(f"{turn['reward']:.3g}" for turn in value.get("turns") or ())
    facts = {
        "rewards by turn": rewards,
        "tokens": f"{len(ids)}, {sum(mask)} trained",
        "segment": str(segment) if segment or value.get("breaks") else "",
        "ended": "terminated" if value.get("terminated") else "truncated",
        "breaks": "; ".join(str(found.get("why")) for found in value.get("breaks") or ()),
        "scored again": _number(value.get("log_prob_difference"), "differs by {:.1e} at most"),
    }
    reward = value.get("reward")
    return Row(
        str(value.get("conversation", where)),
        pieces,
        [str(message.get("role")) for message in messages],
        {name: told for name, told in facts.items() if told},
        None if reward is None else float(reward),
    )


def _messages_of(
    ids: list[int],
    messages: Sequence[Mapping[str, Any]],
    turns: Sequence[Mapping[str, Any]],
    all_turns: Sequence[Mapping[str, Any]],
    options: Options,
) -> list[int]:
    """Return the message that each token belongs to, -1 for the template's.

    The conversation is composed again around the sampled ids. Where that gives other ids (the run
    had tools or variables that its file does not hold), only the sampled tokens are known.
    """
    from antiphon.engine.extension import extend

    answers = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    answers = answers[len(answers) - len(all_turns) :]
    own = {
        answers[number]: (turn["start"], turn["end"])
        for number, turn in enumerate(all_turns)
        if turn in turns and number < len(answers)
    }
    if own:
        last = max(own)
        given = [
            {**message, "token_ids": ids[own[i][0] : own[i][1]]} if i in own else dict(message)
            for i, message in enumerate(messages[: last + 1])
        ]
        try:
            again = extend(None, given, tokenizer=options.tokenizer, **options.template)
        except AntiphonError:
            again = None
        if again is not None and again.input_ids[: len(ids)] == ids:
            return list(again.message_index[: len(ids)])
    index = [-1] * len(ids)
    for message, (start, end) in own.items():
        index[start:end] = [message] * (end - start)
    return index


# Tokenised data


def _sample(where: str, value: Mapping[str, Any], options: Options) -> Row:
    ids = [int(token) for token in value["input_ids"]]
    mask = next((value[key] for key in ("assistant_masks", "assistant_mask") if key in value), None)
    if mask is None:
        labels = value.get("labels")
        mask = [False] * len(ids) if labels is None else [label >= 0 for label in labels]
    index = value.get("message_index") or [-1] * len(ids)
    if not len(ids) == len(mask) == len(index):
        raise InvalidData(f"{where}: ids, mask and message_index differ in length.")
    trained = [bool(flag) for flag in mask]
    tokens = None if options.tokenizer is None else view(options.tokenizer)
    row, number = value.get("row"), value.get("sample")
    return Row(
        where if row is None else f"{row}/{number or 0}",
        token_pieces(ids, trained, index, value.get("log_probs"), tokens),
        [],
        {"tokens": f"{len(ids)}, {sum(trained)} trained"},
    )


# Chats


def _chat(where: str, value: Any, options: Options) -> Row:
    from antiphon.data.conversations import conversation_of
    from antiphon.engine.rendering import render

    conversation = conversation_of(value)
    variables = {"tools": conversation.tools, **options.template, **conversation.variables}
    rendering = render(conversation.messages, options.tokenizer, **variables)
    roles = [str(message.get("role")) for message in conversation.messages]
    dropped = "; ".join(
        f"{f'message {each.message}: ' * (each.message >= 0)}{each.field}"
        for each in rendering.dropped
    )
    facts = {"not shown by the template": dropped} if dropped else {}
    if options.tokenizer is None:
        pieces = [
            Piece(
                part["text"],
                part["message"] if part["kind"] == "content" else None,
                part["turn"] is not None,
            )
            for part in rendering.explain_data()
        ]
        return Row(where, pieces, roles, facts)
    tokenized = rendering.tokenize()
    ids, mask = tokenized.input_ids, tokenized.assistant_mask
    facts = {"tokens": f"{len(ids)}, {sum(mask)} trained", **facts}
    pieces = token_pieces(ids, mask, tokenized.message_index, None, view(options.tokenizer))
    return Row(where, pieces, roles, facts)


def _spoken(number: int, message: Mapping[str, Any]) -> Iterator[Piece]:
    """Yield a message as it can be shown without a tokenizer."""
    yield Piece(f"{message.get('role')}\n")
    for key in ("reasoning_content", "content", "tool_calls"):
        value = message.get(key)
        if value:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield Piece(text, number)
            yield Piece("\n")
    yield Piece("\n")


# Tokens


def token_pieces(
    ids: Sequence[int],
    mask: Sequence[bool],
    index: Sequence[int],
    log_probs: Sequence[float | None] | None,
    tokens: TokenizerView | None,
) -> list[Piece]:
    """Return ids as pieces.

    Args:
        ids: The ids, ``[tokens]``.
        mask: Whether each is trained.
        index: The message of each; below 0 for the template's.
        log_probs: The log-prob of each, in nats; None where it was not sampled.
        tokens: Decodes them; without it, an id is shown as a number.
    """
    found = []
    for start, end, text in _decoded(ids, tokens):
        scored = () if log_probs is None else log_probs[start:end]
        found.append(
            Piece(
                text,
                index[start] if index[start] >= 0 else None,
                bool(mask[start]),
                tuple(ids[start:end]),
                tuple(float(value) for value in scored if value is not None),
            )
        )
    return found


def _decoded(ids: Sequence[int], tokens: TokenizerView | None) -> Iterator[tuple[int, int, str]]:
    """Yield the first and last place and the text of each token, or of a few that share a character.

    A token is decoded behind the one before it: alone, some decoders drop its leading space.
    """
    if tokens is None:
        for place, token in enumerate(ids):
            yield place, place + 1, f"⟨{token}⟩"
        return
    before = start = 0
    for end in range(1, len(ids) + 1):
        whole = tokens.decode(ids[before:end])
        own = ids[end - 1] in tokens.added
        torn = whole.endswith("\ufffd") and not own and end < len(ids)
        if torn and end - start < _SPREAD and ids[end] not in tokens.added:
            continue
        text = whole[len(tokens.decode(ids[before:start])) :]
        yield start, end, text
        before, start = start, end


def visible(text: str) -> str:
    """Return text in which characters that steer a terminal or the direction of text are shown."""
    return text.translate(_SHOWN)


_SHOWN = {code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)}
_SHOWN |= {code: f"\\x{code:02x}" for code in range(0x7F, 0xA0)}
_SHOWN |= {
    code: f"\\u{code:04x}"
    for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029)
}
_SHOWN |= {code: "\ufffd" for code in range(0xD800, 0xE000)}


def _number(value: Any, form: str) -> str:
    return "" if value is None else form.format(float(value))
